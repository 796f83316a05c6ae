//! How files are written.

use component::Compression;

use super::recover::Lines;
use super::rotate::Rotation;
use super::storage::Options;

/// How files are written.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub compression: Compression,
    pub lines: Lines,
    pub rotation: Rotation,
    /// Whether every flush makes the files durable, and not only closing them.
    pub sync: bool,
    pub options: Options,
    /// How many files may be open.
    pub open_max: usize,
}
