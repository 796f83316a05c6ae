//! The formats of compressed data.

use std::fmt;

/// How data is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Format {
    pub(crate) const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// Its number in checkpoints.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Gzip => 1,
            Self::Zstd => 2,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}
