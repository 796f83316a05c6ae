//! Looks into the folder of a disk queue: for the tools.
//!
//! Invariants: nothing is locked, written or made, so a queue that is in use goes on undisturbed, and a copy of its folder
//! does as well. What a running queue removes between two looks is passed over. Damage never ends a look; a page that cannot
//! be read is damage too.
//!
//! Damage is *torn* when it is what a crash leaves behind: everything in it was written after the last sync that succeeded,
//! so nobody was told that it is safe.
//!
//! Limits: memory grows with the number of segments and damages, and with that of blocks where these are asked for.

mod missing;
mod quarantine;
mod range;
mod report;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::lock::holder;
use disk::{FolderStorage, PAGE, PagePool, Storage};
use parking_lot::Mutex;

pub use quarantine::{Quarantined, Salvaged};
pub use range::Range;
pub use report::{BlockReport, CursorReport, Damage, Report, SegmentReport, Verified};
pub use scan::{Block, Scan};

use crate::QueueError;
use crate::cursor::{self, Cursors, Saved, SlotState};
use crate::log::{WRONG_CHECKSUM, segment_number};
use crate::synced::{self, Said};

/// Why a folder cannot be looked into.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There are files, but not those of a queue.
    #[error("{} is neither the folder of a disk queue nor a data directory with one", .0.display())]
    NotAQueue(PathBuf),
    /// The queue's folder, or a file in it.
    #[error("cannot inspect {}", .folder.display())]
    Queue {
        /// The queue's folder.
        folder: PathBuf,
        /// What is wrong.
        source: QueueError,
    },
    /// A folder cannot be opened.
    #[error(transparent)]
    Folder(#[from] QueueError),
    /// No cursor for the output.
    #[error("{} has no cursor of the output {output}; it has: {known}", .folder.display())]
    NoCursor {
        /// The queue's folder.
        folder: PathBuf,
        /// The output.
        output: String,
        /// The outputs that have one.
        known: String,
    },
}

/// Why the payload of a block cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is not what was written.
    #[error("{}", WRONG_CHECKSUM)]
    Checksum,
    /// It is what was written, and cannot be decompressed.
    #[error("the payload cannot be decompressed")]
    Compression,
}

/// A queue's folder, opened to look into it.
#[derive(Debug)]
pub struct QueueFolder {
    path: PathBuf,
    storage: Arc<dyn Storage>,
    pool: PagePool,
    ahead: Mutex<Option<scan::Ahead>>,
}

/// The file and the content of each output's cursor.
type CursorMap = BTreeMap<String, (String, Saved)>;

impl QueueFolder {
    /// Opens the folder of one queue.
    ///
    /// # Errors
    /// It is not there, it is none, or it may not be read.
    pub fn open(path: &Path) -> Result<Self, InspectError> {
        if !is_queue(path)? {
            return Err(InspectError::NotAQueue(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            storage: Arc::new(FolderStorage::read_only(path).map_err(QueueError::from)?),
            pool: PagePool::default(),
            ahead: Mutex::default(),
        })
    }

    /// Opens the queue in a folder, or all queues of a data directory by name.
    ///
    /// # Errors
    /// As for [`QueueFolder::open`].
    pub fn find(path: &Path) -> Result<Vec<Self>, InspectError> {
        if is_queue(path)? {
            return Ok(vec![Self::open(path)?]);
        }
        let below = path.join("queue");
        let mut found = Vec::new();
        let entries = match fs::read_dir(&below) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(InspectError::NotAQueue(path.to_owned()));
            }
            entries => entries.map_err(QueueError::io("list", &below))?,
        };
        for entry in entries {
            let path = entry.map_err(QueueError::io("list", &below))?.path();
            if path.is_dir() && is_queue(&path)? {
                found.push(Self::open(&path)?);
            }
        }
        if found.is_empty() {
            return Err(InspectError::NotAQueue(path.to_owned()));
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it, by the headers alone. `now` is in nanoseconds since 1970.
    ///
    /// # Errors
    /// The folder cannot be read, or is of a later version.
    pub fn report(&self, now: i64, with_blocks: bool) -> Result<Report, InspectError> {
        let (cursors, mut damage) = self.cursors()?;
        let mut lags: Vec<_> = cursors.values().map(|(_, saved)| Lag::of(saved)).collect();
        let mut lists: BTreeMap<u64, Vec<BlockReport>> = BTreeMap::new();
        let scan = self.scan(Range::ALL, false, &mut |block| {
            if !block.superseded {
                lags.iter_mut().for_each(|lag| lag.count(block));
            }
            if with_blocks {
                let list = lists.entry(block.segment).or_default();
                list.push(block_report(block, now));
            }
            ControlFlow::Continue(())
        })?;
        damage.extend(scan.damage);
        let segments = scan.segments.into_iter().map(|mut segment| {
            segment.set_ages(now);
            let list = lists.remove(&segment.report.number).unwrap_or_default();
            segment.report.list = with_blocks.then_some(list);
            segment.report
        });
        let segments: Vec<_> = segments.collect();
        let sum = |of: fn(&SegmentReport) -> u64| segments.iter().map(of).sum();
        Ok(Report {
            folder: self.path.clone(),
            pipeline: self.pipeline(),
            process: holder(&self.path),
            size_bytes: sum(|segment| segment.size_bytes),
            blocks: sum(|segment| segment.blocks),
            events: sum(|segment| segment.events),
            cursors: cursor_reports(&cursors, &lags, now),
            damage,
            quarantine: self.quarantined()?,
            segments,
        })
    }

    /// Checks every checksum.
    ///
    /// # Errors
    /// The folder cannot be read, or is of a later version.
    pub fn verify(&self) -> Result<Verified, InspectError> {
        let (cursors, mut damage) = self.cursors()?;
        let (mut blocks, mut events) = (0, 0);
        let scan = self.scan(Range::ALL, true, &mut |block| {
            if block.payload_ok {
                blocks += 1;
                events += u64::from(block.header.events);
            }
            ControlFlow::Continue(())
        })?;
        damage.extend(scan.damage);
        let sizes = scan
            .segments
            .iter()
            .map(|segment| segment.report.size_bytes);
        Ok(Verified {
            damage,
            segments: scan.segments.len() as u64,
            blocks,
            events,
            cursors: cursors.len() as u64,
            bytes: sizes.sum(),
        })
    }

    /// How far an output has come.
    ///
    /// # Errors
    /// There is no cursor of that output, or the folder cannot be read.
    pub fn cursor(&self, output: &str) -> Result<Saved, InspectError> {
        let (mut cursors, _) = self.cursors()?;
        if let Some((_, saved)) = cursors.remove(output) {
            return Ok(saved);
        }
        let known: Vec<_> = cursors.into_keys().collect();
        let known = match known.len() {
            0 => "none".to_owned(),
            _ => known.join(", "),
        };
        Err(InspectError::NoCursor {
            folder: self.path.clone(),
            output: output.to_owned(),
            known,
        })
    }

    fn pipeline(&self) -> Option<String> {
        let path = self.path.canonicalize().ok()?;
        let is_in_data_dir = path.parent()?.file_name()? == "queue";
        let name = path.file_name()?.to_str()?;
        is_in_data_dir.then(|| cursor::decode(name).unwrap_or_else(|| name.to_owned()))
    }

    fn wrong(&self) -> impl Fn(QueueError) -> InspectError {
        let folder = self.path.clone();
        move |source| InspectError::Queue {
            folder: folder.clone(),
            source,
        }
    }

    /// The cursor that counts of every output, with its file, and what is wrong with these files and the one of the last sync.
    fn cursors(&self) -> Result<(CursorMap, Vec<Damage>), InspectError> {
        let mut cursors: CursorMap = CursorMap::new();
        let mut damage = Vec::new();
        for examined in Cursors::examine(&*self.storage).map_err(self.wrong())? {
            for (index, slot) in examined.slots.iter().enumerate() {
                if let SlotState::Newer(version) = slot {
                    return Err(self.wrong()(QueueError::Newer {
                        file: examined.file.into(),
                        version: *version,
                        known: cursor::VERSION,
                    }));
                }
                if let SlotState::Damaged(reason) = slot {
                    // One slot may be what a crash left of a save.
                    let torn = examined.current().is_some();
                    damage.push(slot_damage(&examined.file, index, reason, torn));
                }
            }
            let Some(saved) = examined.current().cloned() else {
                continue;
            };
            let file = examined.file;
            match cursors.get(&saved.output) {
                Some((first, other)) => {
                    let reason = format!("a second cursor of the output {}", saved.output);
                    let is_lower = saved.sequence < other.sequence;
                    let second = if is_lower { first } else { &file };
                    damage.push(slot_damage(second, 0, &reason, false));
                    if is_lower {
                        cursors.insert(saved.output.clone(), (file, saved));
                    }
                }
                None => {
                    cursors.insert(saved.output.clone(), (file, saved));
                }
            }
        }
        if synced::read(&*self.storage) == Said::Damaged {
            damage.push(slot_damage(synced::NAME, 0, "it cannot be read", false));
        }
        Ok((cursors, damage))
    }
}

fn slot_damage(file: &str, slot: usize, reason: &str, torn: bool) -> Damage {
    Damage {
        file: file.to_owned(),
        offset: (slot * PAGE) as u64,
        length: PAGE as u64,
        reason: reason.to_owned(),
        torn,
        events: 0,
        first_sequence: None,
        last_sequence: None,
    }
}

/// What is still to come for an output.
struct Lag<'a> {
    saved: &'a Saved,
    events: u64,
    bytes: u64,
    oldest: Option<i64>,
}

impl<'a> Lag<'a> {
    fn of(saved: &'a Saved) -> Self {
        Self {
            saved,
            events: 0,
            bytes: 0,
            oldest: None,
        }
    }

    fn count(&mut self, block: &Block) {
        if self.saved.is_due(block.header.sequence) {
            self.events += u64::from(block.header.events);
            self.bytes += block.size();
            self.oldest.get_or_insert(block.header.time);
        }
    }
}

fn cursor_reports(cursors: &CursorMap, lags: &[Lag], now: i64) -> Vec<CursorReport> {
    let report = |((file, saved), lag): (&(String, Saved), &Lag)| CursorReport {
        output: saved.output.clone(),
        file: file.clone(),
        sequence: saved.sequence,
        lag_events: lag.events,
        lag_bytes: lag.bytes,
        lag_seconds: lag.oldest.map(|oldest| age(oldest, now)),
        retired: saved.retired,
    };
    cursors.values().zip(lags).map(report).collect()
}

fn block_report(block: &Block, now: i64) -> BlockReport {
    let header = &block.header;
    BlockReport {
        offset: block.offset,
        sequence: header.sequence,
        ordinal: header.ordinal,
        events: header.events,
        stored_bytes: header.stored_len,
        raw_bytes: header.raw_len,
        compression: header.compression,
        age_seconds: age(header.time, now),
        superseded: block.superseded,
    }
}

/// How long ago a time was, in seconds; both are in nanoseconds since 1970. A clock that was set back gives no ages below 0.
fn age(time: i64, now: i64) -> f64 {
    let age = now.saturating_sub(time).max(0);
    (age as f64 / 1e6).round() / 1e3
}

/// Whether a folder has what a queue leaves in its folder. The lock file alone is an empty queue.
fn is_queue(path: &Path) -> Result<bool, QueueError> {
    let entries = fs::read_dir(path).map_err(QueueError::io("open", path))?;
    let mut is_queue = false;
    let mut is_data_directory = false;
    for entry in entries {
        let name = entry.map_err(QueueError::io("list", path))?.file_name();
        let name = name.to_string_lossy();
        is_queue |= segment_number(&name).is_some()
            || name.starts_with(cursor::PREFIX)
            || name == "lock"
            || name == "quarantine";
        is_data_directory |= name == "queue" || name == "registry";
    }
    Ok(is_queue && !is_data_directory)
}
