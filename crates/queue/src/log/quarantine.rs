//! Copies what cannot be read aside, so that nothing is lost for ever without a person having seen it.
//!
//! Limits: as much as the settings allow for all files together, and never more than half of what is free on the disk.
//! A copy that cannot be made stops nothing.

use std::io;

use disk::{PAGE, PageBuffer, Storage, StoredFile};
use parking_lot::{Mutex, MutexGuard};

use super::LogPosition;

/// The folder of copies.
pub const FOLDER: &str = "quarantine";

const CHUNK: usize = 256 * 1024;

/// Where the range lies in a segment whose copy has that name, without the folder's.
pub(crate) fn copy_place(name: &str) -> Option<LogPosition> {
    let (segment, offset) = name
        .strip_prefix("segment-")?
        .strip_suffix(".bin")?
        .split_once("-offset-")?;
    Some(LogPosition {
        segment: u64::from_str_radix(segment, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
    })
}

#[derive(Debug)]
pub(super) struct Quarantine {
    size_max: u64,
    /// Bytes that are there; unknown until the first copy.
    size: Mutex<Option<u64>>,
}

/// The name of the copy of a damaged range.
pub fn copy_name(segment: u64, offset: u64) -> String {
    format!("{FOLDER}/segment-{segment:016x}-offset-{offset:x}.bin")
}

impl Quarantine {
    pub(super) fn new(size_max: u64) -> Self {
        Self {
            size_max,
            size: Mutex::new(None),
        }
    }

    /// Copies a range of a segment; false when there is no copy of it.
    pub(super) fn copy(
        &self,
        storage: &dyn Storage,
        file: &dyn StoredFile,
        from: LogPosition,
        length: u64,
    ) -> bool {
        if !self.reserve(storage, length) {
            return false;
        }
        let name = copy_name(from.segment, from.offset);
        let copied = match storage.free() {
            Ok(free) if free / 2 < length => Err(io::ErrorKind::StorageFull.into()),
            _ => copy(storage, file, &name, from.offset, length),
        };
        let Err(failure) = copied else { return true };
        if let Some(size) = &mut *self.size() {
            *size -= length;
        }
        if failure.kind() == io::ErrorKind::AlreadyExists {
            // An earlier run found the same.
            return true;
        }
        // Half a copy says nothing; that it cannot be removed either changes nothing.
        drop(storage.remove(&name));
        false
    }

    /// Counts so many bytes more, if there is room for them. The lock is not held while the disk is asked.
    fn reserve(&self, storage: &dyn Storage, length: u64) -> bool {
        if self.size().is_none() {
            let Ok(there) = present(storage) else {
                return false;
            };
            self.size().get_or_insert(there);
        }
        let mut size = self.size();
        let grown = size.unwrap_or(0).saturating_add(length);
        let fits = grown <= self.size_max;
        if fits {
            *size = Some(grown);
        }
        fits
    }

    fn size(&self) -> MutexGuard<'_, Option<u64>> {
        self.size.lock()
    }
}

fn present(storage: &dyn Storage) -> io::Result<u64> {
    let listed = storage.list(FOLDER)?;
    Ok(listed.iter().map(|file| file.length).sum())
}

fn copy(
    storage: &dyn Storage,
    file: &dyn StoredFile,
    name: &str,
    from: u64,
    length: u64,
) -> io::Result<()> {
    storage.make_folder(FOLDER)?;
    let copy = storage.create(name, 0)?;
    let mut buffer = PageBuffer::new(CHUNK);
    let mut done = 0;
    while done < length {
        let size = usize::try_from(length - done).unwrap_or(CHUNK).min(CHUNK);
        let read = read_or_zeros(file, &mut buffer[..size], from + done)?;
        if read == 0 {
            break;
        }
        copy.write_at(&buffer[..read], done)?;
        done += read as u64;
    }
    copy.sync()?;
    storage.sync_folder(FOLDER)
}

/// Pages that cannot be read are zeros in the copy.
fn read_or_zeros(file: &dyn StoredFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    if let Ok(read) = file.read_at(buffer, offset) {
        return Ok(read);
    }
    let size = PAGE.min(buffer.len());
    let page = &mut buffer[..size];
    page.fill(0);
    match file.read_at(page, offset) {
        Ok(read) => Ok(read),
        Err(_) => {
            page.fill(0);
            Ok(page.len())
        }
    }
}
