//! What an output that collects batches has to know of the queue, and the file that it keeps there.
//!
//! The file lies with the log, so that it is gone when the log is, whose sequences it speaks of: `collected-` and the output's name, made
//! anew and renamed with each write. Integers little-endian:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `mpcollec` |
//! | 8 | 4 | version, now 1 |
//! | 12 | 4 | CRC-32 (IEEE) of what is behind |
//! | 16 | 4 | length of the output's name |
//! | 20 | | the output's name, and what the output wrote |

use std::io;
use std::sync::Arc;

use component::Anchor;
use disk::Storage;

use super::{Disk, Queue};
use crate::cursor::encode;
use crate::settings::Mode;

const MAGIC: &[u8; 8] = b"mpcollec";
const VERSION: u32 = 1;
const HEAD: usize = 16;

/// The most that is read of a file, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// The place of one output in a queue on disk.
struct LaneAnchor {
    queue: Arc<Queue>,
    lane: usize,
}

impl Queue {
    /// What an output has to hold on to, if all events go through the disk.
    pub fn anchor(self: &Arc<Self>, lane: usize) -> Option<Arc<dyn Anchor>> {
        let disk = self.disk.as_ref()?;
        (disk.mode == Mode::Everything).then(|| -> Arc<dyn Anchor> {
            Arc::new(LaneAnchor {
                queue: self.clone(),
                lane,
            })
        })
    }

    /// An output may hold so many batches more than usual beyond its cursor, because it keeps nothing of them.
    pub fn let_ahead(&self, lane: usize, more: usize) {
        self.lock().lanes.let_ahead(lane, more);
    }

    /// The disk space that the queue may take, in bytes, if it is on disk.
    pub fn disk_bytes_max(&self) -> Option<u64> {
        let disk = self.disk.as_ref()?;
        Some(disk.settings.max_bytes.0)
    }
}

impl LaneAnchor {
    fn disk(&self) -> io::Result<&Disk> {
        let disk = self.queue.disk.as_ref();
        disk.ok_or_else(|| io::Error::other("the queue is not on disk"))
    }

    fn output(&self) -> String {
        self.queue.lock().lanes.of(self.lane).name().to_owned()
    }
}

impl Anchor for LaneAnchor {
    fn settled(&self) -> u64 {
        self.queue.lock().commit.synced_end().sequence
    }

    fn passed(&self) -> u64 {
        let disk = self.queue.disk.as_ref();
        disk.map_or(0, |disk| disk.saved_cursor(self.lane))
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        read(&*self.disk()?.storage, &self.output())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write(&*self.disk()?.storage, &self.output(), bytes)
    }
}

fn file_name(output: &str) -> String {
    format!("collected-{}", encode(output))
}

fn read(storage: &dyn Storage, output: &str) -> io::Result<Vec<u8>> {
    let file = match storage.open(&file_name(output)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let length = file.len()?.min(BYTES_MAX) as usize;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or_else(damaged)?;
    if head[..8] != *MAGIC {
        return Err(damaged());
    }
    if head[8..12] != VERSION.to_le_bytes() {
        let newer = "the file was written by a later version";
        return Err(io::Error::new(io::ErrorKind::Unsupported, newer));
    }
    if head[12..] != crc32fast::hash(rest).to_le_bytes() {
        return Err(damaged());
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
    let (name, own) = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or_else(damaged)?;
    // Two long names may share a file's name.
    match name == output.as_bytes() {
        true => Ok(own.to_vec()),
        false => Ok(Vec::new()),
    }
}

fn write(storage: &dyn Storage, output: &str, own: &[u8]) -> io::Result<()> {
    let mut rest = (output.len() as u32).to_le_bytes().to_vec();
    rest.extend(output.as_bytes());
    rest.extend(own);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(crc32fast::hash(&rest).to_le_bytes());
    bytes.extend(rest);
    let name = file_name(output);
    let next = format!("{name}~new");
    storage.remove(&next)?;
    let file = storage.create(&next, 0)?;
    file.write_at(&bytes, 0)?;
    file.cut(bytes.len() as u64)?;
    file.sync()?;
    storage.rename(&next, &name)?;
    storage.sync_folder("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::FolderStorage;

    #[test]
    fn what_was_written_last_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = FolderStorage::open(folder.path()).expect("a folder");
        assert_eq!(read(&storage, "lake").expect("it reads"), b"");
        for own in [&b"first, longer"[..], b"second", b""] {
            write(&storage, "lake", own).expect("it writes");
            assert_eq!(read(&storage, "lake").expect("it reads"), own);
        }
        assert_eq!(read(&storage, "other").expect("it reads"), b"");
    }

    #[test]
    fn damage_and_later_versions_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = FolderStorage::open(folder.path()).expect("a folder");
        write(&storage, "lake", b"something").expect("it writes");
        let path = folder.path().join("collected-lake");
        let whole = std::fs::read(&path).expect("it is there");
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            std::fs::write(&path, bytes).expect("it writes");
            let kind = read(&storage, "lake").expect_err("it is damaged").kind();
            let expected = match place {
                8..12 => io::ErrorKind::Unsupported,
                _ => io::ErrorKind::InvalidData,
            };
            assert_eq!(kind, expected, "byte {place}");
        }
    }
}
