//! How payloads are compressed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Fast.
    Lz4,
    /// Smaller.
    Zstd,
}

impl Compression {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        [Self::None, Self::Lz4, Self::Zstd]
            .into_iter()
            .find(|known| known.code() == code)
    }
}
