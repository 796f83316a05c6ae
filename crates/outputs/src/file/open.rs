//! One open file: appending in whole pieces, compressed or not.
//!
//! Uncompressed, a piece is written or it is not: after an error half way the file is cut back to where it was. Compressed,
//! a piece counts as taken once the compressor has it; bytes that the disk did not take wait in memory and go first next
//! time, and as long as some wait no further piece is taken. A flush ends the member, so that everything delivered
//! lies in whole members.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use component::WriteError;

use super::storage::Stored;
use crate::compressor::Compressor;
use crate::sink::{failure, write_rest};
use component::Compression;

/// One open file.
pub struct OpenFile {
    stored: Box<dyn Stored>,
    name: String,
    /// It keeps what it is given: not a device or a pipe.
    pub is_regular: bool,
    compressor: Option<Compressor>,
    /// Compressed bytes for the file, from `waiting_done` on.
    waiting: Vec<u8>,
    waiting_done: usize,
    /// Bytes of the current piece that arrived and could not be taken back.
    piece_done: usize,
    /// Where the current piece begins in the file.
    piece_start: u64,
    /// Something was written since the last sync.
    unsynced: bool,
    /// The number of the rotation interval that the file belongs to.
    pub interval: i64,
    /// What every new file begins with was not written yet.
    pub lacks_header: bool,
    /// When it was last used, for closing the one that was not for longest.
    pub used: u64,
}

impl OpenFile {
    /// A file that is ready to be appended to.
    pub fn new(
        stored: Box<dyn Stored>,
        path: &Path,
        compression: Compression,
        interval: i64,
    ) -> io::Result<Self> {
        let is_regular = stored.file().metadata()?.is_file();
        Ok(Self {
            stored,
            name: path.display().to_string(),
            is_regular,
            compressor: (compression != Compression::None).then(|| Compressor::new(compression)),
            waiting: Vec::new(),
            waiting_done: 0,
            piece_done: 0,
            piece_start: 0,
            unsynced: false,
            interval,
            lacks_header: false,
            used: 0,
        })
    }

    fn failure(&self, error: &io::Error) -> WriteError {
        failure(&self.name, error)
    }

    /// Appends a piece: all of it or nothing.
    ///
    /// # Errors
    /// The piece was not taken.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if self.compressor.is_some() {
            return self.append_compressed(bytes);
        }
        self.unsynced = true;
        if self.piece_done == 0 {
            self.piece_start = self.len().map_err(|error| self.failure(&error))?;
        }
        let outcome = write_rest(&mut *self.stored, bytes, &mut self.piece_done);
        match outcome {
            Ok(()) => self.piece_done = 0,
            Err(error) => {
                if self.piece_done > 0
                    && self.is_regular
                    && self.stored.file().set_len(self.piece_start).is_ok()
                {
                    self.piece_done = 0;
                }
                return Err(self.failure(&error));
            }
        }
        Ok(())
    }

    fn append_compressed(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.drain()?;
        self.unsynced = true;
        if let Some(compressor) = &mut self.compressor {
            // A compressor that failed half way has no state to go on from.
            let fatal = |error| WriteError::Fatal(format!("{}: {error}", self.name));
            compressor.write(bytes, &mut self.waiting).map_err(fatal)?;
        }
        match self.drain() {
            // The piece is taken; what the disk refused is tried again before the next piece, or at the flush.
            Err(WriteError::Retry(_) | WriteError::Blocked(_)) => Ok(()),
            other => other,
        }
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        let outcome = write_rest(&mut *self.stored, &self.waiting, &mut self.waiting_done);
        outcome.map_err(|error| self.failure(&error))?;
        self.waiting.clear();
        self.waiting_done = 0;
        Ok(())
    }

    /// Writes out everything taken so far and ends the member; with `sync` makes it durable.
    ///
    /// # Errors
    /// Not everything arrived. Calling again goes on. A sync that fails is final: nobody knows what is on the disk.
    pub fn flush(&mut self, sync: bool) -> Result<(), WriteError> {
        if let Some(compressor) = &mut self.compressor {
            let fatal = |error| WriteError::Fatal(format!("{}: {error}", self.name));
            compressor.end_member(&mut self.waiting).map_err(fatal)?;
            self.drain()?;
        }
        if sync && self.unsynced && self.is_regular {
            let failed = |error| {
                WriteError::Fatal(format!("{}: written data may be lost: {error}", self.name))
            };
            self.stored.sync().map_err(failed)?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Bytes in the file.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.stored.file().metadata()?.len())
    }

    /// Whether the file is no longer what its path names: somebody renamed or removed it.
    pub fn is_gone_from(&self, path: &Path) -> bool {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let own = self.stored.file().metadata().map(identity);
        let there = path.metadata().map(identity);
        self.is_regular && !matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }

    /// Whether a piece of `bytes` more would make the file larger than `size`. A compressed piece's size is known
    /// afterwards only, so that such a file goes beyond its size by the last piece.
    pub fn is_full(&self, size: u64, bytes: usize) -> io::Result<bool> {
        let len = self.len()?;
        let more = if self.compressor.is_some() {
            self.waiting.len() + 1
        } else {
            bytes
        };
        Ok(len > 0 && len + more as u64 > size)
    }
}
