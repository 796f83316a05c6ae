//! The log as its writer has it: open for appending, plain, or compressed with one member for each write.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};

use super::settings::Packing;

/// The open log.
pub struct Log {
    path: PathBuf,
    packing: Packing,
    file: File,
    /// Bytes on disk that the file must have behind what was written last: fewer say that it was truncated.
    disk_bytes: u64,
}

impl Log {
    pub fn open(path: &Path, packing: Packing) -> Result<Self> {
        let mut options = OpenOptions::new();
        let opened = options.append(true).create(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            packing,
            file: opened.context("opening the log")?,
            disk_bytes: 0,
        })
    }

    /// Opens what is at its path by now.
    pub fn reopen(&mut self) -> Result<()> {
        *self = Self::open(&self.path, self.packing)?;
        Ok(())
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.file.metadata()?.len() == 0)
    }

    /// Whether it was truncated since this was asked, or something was written, last.
    pub fn was_truncated(&mut self) -> Result<bool> {
        let size = self.file.metadata()?.len();
        let before = std::mem::replace(&mut self.disk_bytes, size);
        Ok(size < before)
    }

    /// Takes note that others truncated it.
    pub fn is_truncated(&mut self) {
        self.disk_bytes = 0;
    }

    pub fn truncate(&mut self) -> Result<()> {
        self.file.set_len(0).context("truncating the log")?;
        self.disk_bytes = 0;
        Ok(())
    }

    /// One `write(2)`, or one member; how many bytes were taken, and whether the log was truncated before.
    ///
    /// The kernel lets nobody truncate a file in the middle of a write, and tells where the write ended. So it is known
    /// to the byte what went to the log before the truncation.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(usize, bool)> {
        let packed = self.packing.member(bytes)?;
        let taken = match &packed {
            None => self.file.write(bytes).context("writing the log")?,
            Some(member) => {
                self.file.write_all(member).context("writing the log")?;
                bytes.len()
            }
        };
        ensure!(taken > 0, "the log takes nothing");
        let on_disk = packed.map_or(taken, |member| member.len()) as u64;
        let before = self.disk_bytes;
        self.disk_bytes = self.file.stream_position()?;
        let was_truncated = self.disk_bytes != before + on_disk;
        ensure!(
            !was_truncated || self.disk_bytes == on_disk,
            "only the writer writes to the log"
        );
        Ok((taken, was_truncated))
    }
}

impl Packing {
    /// The bytes as a gzip member or a zstd frame; none where they are written as they are.
    pub fn member(self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(match self {
            Self::Plain => None,
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes)?;
                Some(encoder.finish()?)
            }
            Self::Zstd => Some(zstd::encode_all(bytes, 1)?),
        })
    }
}
