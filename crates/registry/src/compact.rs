//! Writes a new log that holds the live entries only, beside the old one.
//!
//! The old log is walked frame by frame, so a value goes over only from a frame that verifies, and memory holds one frame
//! of each log and 16 bytes for each entry.

use std::sync::Arc;

use disk::StoredFile;

use crate::RegistryError;
use crate::error;
use crate::folder::{Folder, TMP};
use crate::format::{Changes, FrameBuilder, FrameChange, HEADER_BYTES, Header};
use crate::index::Index;
use crate::scan::{Piece, Scan};

/// Frames of a new log are ended beyond this size.
const FRAME_BYTES: usize = 256 << 10;

/// A new log: on disk, as `registry.tmp`.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub file: Arc<dyn StoredFile>,
    pub log: u64,
    pub sequence: u64,
    pub length: u64,
    /// The values' old and new offsets, ascending.
    pub moved: Vec<(u64, u64)>,
}

/// Writes and syncs `registry.tmp` with the live entries of the old log; without one, with none.
pub(crate) fn write(
    folder: &Folder,
    old: Option<(&dyn StoredFile, &Index)>,
) -> Result<Fresh, RegistryError> {
    let result = write_tmp(folder, old);
    if result.is_err() {
        // The next attempt and the next start remove it too; now it may be what fills the disk.
        let _ = folder.storage.remove(TMP);
    }
    result
}

fn write_tmp(
    folder: &Folder,
    old: Option<(&dyn StoredFile, &Index)>,
) -> Result<Fresh, RegistryError> {
    let tmp = folder.tmp();
    let failed = |doing| error::io(doing, &tmp);
    // What an attempt that failed could not remove.
    folder.storage.remove(TMP).map_err(failed("remove"))?;
    let file = folder.storage.create(TMP, 0).map_err(failed("create"))?;
    let log = fastrand::u64(..);
    file.write_at(&Header::encode(log), 0)
        .map_err(failed("write"))?;
    let mut fresh = Fresh {
        file,
        log,
        sequence: 0,
        length: HEADER_BYTES as u64,
        moved: Vec::new(),
    };
    if let Some((old, index)) = old {
        fresh.copy(folder, old, index)?;
    }
    fresh.file.sync().map_err(failed("sync"))?;
    Ok(fresh)
}

impl Fresh {
    fn copy(
        &mut self,
        folder: &Folder,
        old: &dyn StoredFile,
        index: &Index,
    ) -> Result<(), RegistryError> {
        let log = folder.log();
        let failed = || error::io("read the registry", &log);
        self.moved.reserve_exact(index.len());
        let mut frame = FrameBuilder::new();
        let (mut scan, _) = Scan::new(old).map_err(failed())?;
        while let Some(piece) = scan.next().map_err(failed())? {
            let Piece::Frame { at: start, bytes } = piece else {
                continue;
            };
            for change in Changes::new(bytes) {
                let FrameChange::Put { key, at, value } = change else {
                    continue;
                };
                let old_offset = start + at as u64;
                if !index.is_live(key, old_offset) {
                    continue;
                }
                let at = frame.put(key, value) as u64;
                self.moved.push((old_offset, self.length + at));
                if frame.payload_bytes() >= FRAME_BYTES {
                    self.append(folder, &mut frame)?;
                }
            }
        }
        self.append(folder, &mut frame)?;
        if self.moved.len() < index.len() {
            return Err(RegistryError::Damaged { path: folder.log() });
        }
        Ok(())
    }

    fn append(&mut self, folder: &Folder, frame: &mut FrameBuilder) -> Result<(), RegistryError> {
        if frame.payload_bytes() == 0 {
            return Ok(());
        }
        self.sequence += 1;
        let bytes = frame.finish(self.log, self.sequence);
        self.file
            .write_at(bytes, self.length)
            .map_err(error::io("write", &folder.tmp()))?;
        self.length += bytes.len() as u64;
        frame.clear();
        Ok(())
    }
}
