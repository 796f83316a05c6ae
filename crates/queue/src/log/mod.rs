//! To be written.

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
