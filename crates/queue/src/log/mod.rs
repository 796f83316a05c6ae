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

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The segment's number.
    pub segment: u64,
    /// The block's offset in the segment's file, in bytes.
    pub offset: u64,
}
