//! What was set aside: which ranges, why, and what can still be read in them.
//!
//! A range is a copy of a part of a segment. A block in it is whole when the checksum in its header is that of its payload,
//! also where the header's own checksum is wrong: then only the sequence and the time may be. A chance match of both the
//! length and the checksum is one in four thousand millions for each place that looks like a block.

use bytes::Bytes;
use disk::StoredFile;
use memchr::memmem::Finder;
use serde::Serialize;

use super::{InspectError, QueueFolder};
use crate::QueueError;
use crate::cursor;
use crate::log::{
    BLOCK_HEADER, BLOCK_MAGIC, BlockHeader, LogPosition, QUARANTINE, WRONG_CHECKSUM, copy_place,
    decompress,
};

/// A file that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// The file, in the queue's folder.
    pub file: String,
    /// Its size.
    pub size_bytes: u64,
    /// The segment that it is a part of.
    pub segment: Option<u64>,
    /// Where in that segment it began.
    pub offset: Option<u64>,
    /// Why it was set aside, as far as it shows.
    pub reason: Option<String>,
    /// Blocks in it that can still be read.
    pub whole_blocks: u64,
    /// Events in them.
    pub whole_events: u64,
}

/// A block that is whole, or bytes in which there is none.
#[derive(Debug)]
pub enum Salvaged {
    /// A batch as it was frozen.
    Block {
        /// Where in the file.
        offset: u64,
        /// Its sequence, unless the header is damaged.
        sequence: Option<u64>,
        /// The events it is said to have.
        events: u32,
        /// The batch.
        payload: Bytes,
    },
    /// Bytes that are lost.
    Lost {
        /// Where in the file.
        offset: u64,
        /// How many they are.
        length: u64,
        /// Why.
        reason: &'static str,
    },
}

impl QueueFolder {
    /// The files that were set aside, by name.
    ///
    /// # Errors
    /// The folder or a file in it cannot be read.
    pub fn quarantined(&self) -> Result<Vec<Quarantined>, InspectError> {
        let listed = self.storage.list(QUARANTINE);
        let listed = listed.map_err(QueueError::io("list", QUARANTINE));
        let mut listed = listed.map_err(self.wrong())?;
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        let mut found = Vec::with_capacity(listed.len());
        for file in listed {
            let name = format!("{QUARANTINE}/{}", file.name);
            let mut entry = Quarantined {
                size_bytes: file.length,
                segment: None,
                offset: None,
                reason: None,
                whole_blocks: 0,
                whole_events: 0,
                file: name,
            };
            self.examine(&mut entry, &file.name)?;
            found.push(entry);
        }
        Ok(found)
    }

    fn examine(&self, entry: &mut Quarantined, name: &str) -> Result<(), InspectError> {
        if name.starts_with(cursor::PREFIX) {
            let file = self.open_aside(&entry.file)?;
            entry.reason = Some(cursor_reason(&*file));
        } else if let Some(place) = copy_place(name) {
            entry.segment = Some(place.segment);
            entry.offset = Some(place.offset);
            for piece in self.salvage(entry)? {
                match piece {
                    Salvaged::Block { events, .. } => {
                        entry.whole_blocks += 1;
                        entry.whole_events += u64::from(events);
                    }
                    Salvaged::Lost { reason, .. } => {
                        entry.reason.get_or_insert_with(|| reason.to_owned());
                    }
                }
            }
        }
        Ok(())
    }

    /// What can still be read in a range of a segment that was set aside. All of it is in memory at once.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn salvage(&self, entry: &Quarantined) -> Result<Vec<Salvaged>, InspectError> {
        let (Some(segment), Some(offset)) = (entry.segment, entry.offset) else {
            return Ok(Vec::new());
        };
        let file = self.open_aside(&entry.file)?;
        let failed = || QueueError::io("read", &entry.file);
        let length = file.len().map_err(failed()).map_err(self.wrong())?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = file.read_at(&mut bytes, 0);
        let read = read.map_err(failed()).map_err(self.wrong())?;
        bytes.truncate(read);
        Ok(self.pieces(&bytes, LogPosition { segment, offset }))
    }

    fn pieces(&self, bytes: &[u8], start: LogPosition) -> Vec<Salvaged> {
        let finder = Finder::new(&BLOCK_MAGIC);
        let mut pieces = Vec::new();
        // A range begins where a block was expected, even if its magic is gone.
        let (mut at, mut lost) = (0, 0);
        loop {
            let place = LogPosition {
                offset: start.offset + at as u64,
                ..start
            };
            if let Some((block, length)) = self.whole(&bytes[at..], at as u64, place) {
                pieces.extend(lost_piece(bytes, lost, at, start));
                pieces.push(block);
                at += length;
                lost = at;
                if at < bytes.len() {
                    continue;
                }
            }
            let behind = (at + 1).min(bytes.len());
            match finder.find(&bytes[behind..]) {
                Some(next) => at = behind + next,
                None => break,
            }
        }
        pieces.extend(lost_piece(bytes, lost, bytes.len(), start));
        pieces
    }

    /// The block at the beginning of these bytes and its length, when its payload is what was written.
    fn whole(&self, bytes: &[u8], offset: u64, place: LogPosition) -> Option<(Salvaged, usize)> {
        let (header, is_sound) = match BlockHeader::decode(bytes, place) {
            Ok(header) => (header, true),
            Err(_) => (BlockHeader::decode_unchecked(bytes)?, false),
        };
        let length = BLOCK_HEADER.checked_add(header.stored_len as usize)?;
        let stored = bytes.get(BLOCK_HEADER..length)?;
        if stored.is_empty() || crc32fast::hash(stored) != header.payload_crc {
            return None;
        }
        let block = Salvaged::Block {
            offset,
            sequence: is_sound.then_some(header.sequence),
            events: header.events,
            payload: decompress(&header, stored, &self.pool)?,
        };
        Some((block, length))
    }

    fn open_aside(&self, name: &str) -> Result<std::sync::Arc<dyn StoredFile>, InspectError> {
        let file = self.storage.open(name);
        file.map_err(QueueError::io("open", name))
            .map_err(self.wrong())
    }
}

/// The bytes between whole blocks, unless they are padding.
fn lost_piece(bytes: &[u8], from: usize, to: usize, start: LogPosition) -> Option<Salvaged> {
    let lost = &bytes[from..to];
    if lost.iter().all(|byte| *byte == 0) && !(from == 0 && to == bytes.len()) {
        return None;
    }
    let place = LogPosition {
        offset: start.offset + from as u64,
        ..start
    };
    let reason = match BlockHeader::decode(lost, place) {
        Ok(_) => WRONG_CHECKSUM,
        Err(_) if lost.iter().all(|byte| *byte == 0) => "nothing but zeros",
        Err(flaw) => flaw.reason(),
    };
    Some(Salvaged::Lost {
        offset: from as u64,
        length: lost.len() as u64,
        reason,
    })
}

fn cursor_reason(file: &dyn StoredFile) -> String {
    let examined = cursor::examine_file(String::new(), file);
    match examined.current() {
        Some(saved) => format!(
            "a second cursor of the output {}, with sequence {}",
            saved.output, saved.sequence
        ),
        None => examined.reasons(),
    }
}
