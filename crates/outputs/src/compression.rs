//! The settings of outputs that compress.

use component::Compression;
use config::{ConfigError, Node};
use schemars::JsonSchema;
use serde::Deserialize;

/// How bytes are compressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompressionName {
    /// No.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl CompressionName {
    /// With the setting `compression_level` of `node`.
    ///
    /// # Errors
    /// There is no such level, with its place.
    pub fn with_level(self, node: &Node, level: Option<i32>) -> Result<Compression, ConfigError> {
        let at = node.nearest("compression_level");
        let (default, levels) = match self {
            Self::None if level.is_some() => {
                return Err(at.error("`compression_level` requires a `compression`"));
            }
            Self::None => return Ok(Compression::None),
            Self::Gzip => (6, 0..=9),
            Self::Zstd => (3, 1..=22),
        };
        let level = level.unwrap_or(default);
        if !levels.contains(&level) {
            let (first, last) = (levels.start(), levels.end());
            return Err(at.error(format!("the level must be between {first} and {last}")));
        }
        Ok(match self {
            Self::Zstd => Compression::Zstd(level),
            _ => Compression::Gzip(level.unsigned_abs()),
        })
    }
}
