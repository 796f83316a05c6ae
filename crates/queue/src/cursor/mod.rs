//! How far each output has come, one small file an output.
//!
//! A file holds two slots of a [`PAGE`] each, written alternately, in place. While one is being written, the other one is whole.
//! The valid slot with the higher generation counts. Temporary files that are renamed are the usual choice. A save in place
//! needs one sync instead of two and no space, so that a full disk cannot prevent segments from being removed.
//!
//! Between two saves, the slot that is next is also written, without a sync, whenever an output accepts events
//! ([`CursorFile::note`]), so that `kill -9` repeats none of them: the next run resumes from there. After a power failure it
//! resumes from there or from the last save.
//!
//! A slot, integers little-endian:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `mpcursor` |
//! | 8 | 4 | version: 2 where [`Saved::passed`] holds something, which a program that knows version 1 alone would send again, else 1 |
//! | 12 | 4 | CRC-32 (IEEE) of the whole slot, with these four bytes left out |
//! | 16 | 8 | generation: one more with each save or note |
//! | 24 | 4 | length of the body |
//! | 28 | | body: a JSON object with the fields of [`Saved`]; zeros up to the end of the slot |
//!
//! Magic, version and CRC stay where they are in every version, so that a file of a later version is told from a damaged one.
//!
//! Recovery: a slot that is not valid is passed over. A file with no valid slot is moved to `quarantine/` and counts as
//! missing; when it holds only zeros, as a crash leaves a file that was just made, it is removed. Of two files for one output
//! the lower sequence counts, because delivering twice is better than not at all; the other one is moved to `quarantine/`.
//!
//! Sequences beyond the cursor that were passed lie below [`Saved::end`]. What was synced is in the log after a crash, or is known
//! to be missing, so its sequences are never given to other batches; a set that says more is cut to that. A set that cannot be
//! read makes its slot a damaged one: what it stood for is sent again.
//!
//! Limits: a body has at most 4,068 bytes. [`Saved::passed`] has [`RUNS_MAX`] runs at most, and is cut to those that fit;
//! then [`Saved::outputs`] is cut to the names that fit. `quarantine/` keeps the last eight files of one name.

mod name;
mod passed;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use disk::{PAGE, Storage, StoredFile};
use serde::{Deserialize, Serialize};

pub use crate::log::LogEnd;
pub use name::{decode, encode};
pub use passed::{Passed, RUNS_MAX};
pub use slot::SlotState;
pub(crate) use slot::VERSION;

use crate::QueueError;

/// Where damaged and surplus files go.
const QUARANTINE: &str = "quarantine";

/// How many set-aside files of one name are kept.
const SET_ASIDE_MAX: usize = 8;

/// What the names of cursor files begin with.
pub(crate) const PREFIX: &str = "cursor-";

/// How far an output has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The output.
    pub output: String,
    /// The lowest sequence that the output has not passed.
    pub sequence: u64,
    /// The number of events in the log before that sequence, ever.
    pub ordinal: u64,
    /// Later sequences that it has passed all the same.
    #[serde(default, skip_serializing_if = "Passed::is_empty")]
    pub passed: Passed,
    /// Since when the output is not configured any more, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<i64>,
    /// Where what was synced of the log ended when this was written: what is missing below was lost.
    #[serde(default)]
    pub end: LogEnd,
    /// All outputs that were known when this was written. So the loss of one cursor file is told from a new output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

impl Saved {
    /// Whether the output is still to get a batch.
    pub fn is_due(&self, sequence: u64) -> bool {
        sequence >= self.sequence && !self.passed.contains(sequence)
    }
}

/// The cursor files of a queue.
#[derive(Debug)]
pub struct Cursors;

/// What [`Cursors::load`] found.
#[derive(Debug)]
pub struct Loaded {
    /// One for each output.
    pub cursors: Vec<CursorFile>,
    /// Outputs that had a cursor which is damaged, as far as its file's name tells.
    pub damaged: Vec<String>,
    /// What was not as it should be, and what became of it, in sentences.
    pub notes: Vec<String>,
}

/// A file that holds a cursor, as it lies there.
#[derive(Debug)]
pub struct Examined {
    /// The file's name.
    pub file: String,
    /// Its two slots.
    pub slots: [SlotState; 2],
}

impl Examined {
    /// The slot that counts.
    pub fn current(&self) -> Option<&Saved> {
        self.newest().map(|(_, _, saved)| saved)
    }

    /// Whether nothing was ever written into it.
    pub fn is_blank(&self) -> bool {
        let is_blank = |slot: &SlotState| matches!(slot, SlotState::Blank);
        self.slots.iter().all(is_blank)
    }

    /// Index, generation and content of the slot that counts.
    fn newest(&self) -> Option<(usize, u64, &Saved)> {
        let good = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| match slot {
                SlotState::Good { generation, saved } => Some((index, *generation, &**saved)),
                _ => None,
            });
        good.max_by_key(|(_, generation, _)| *generation)
    }

    /// Why no slot can be read.
    pub(crate) fn reasons(&self) -> String {
        let [first, second] = &self.slots;
        format!("first slot: {first}; second slot: {second}")
    }
}

impl Cursors {
    /// Reads all cursor files and puts the folder in order.
    ///
    /// # Errors
    /// A file has the format of a later version; then nothing was touched. Or the folder or a file cannot be opened.
    pub fn load(storage: &Arc<dyn Storage>) -> Result<Loaded, QueueError> {
        let (mut notes, mut damaged) = (Vec::new(), Vec::new());
        let mut found: BTreeMap<String, Opened> = BTreeMap::new();
        let files = open_all(&**storage)?;
        for (examined, _) in &files {
            refuse_newer(examined)?;
        }
        for (examined, file) in files {
            let Some(saved) = examined.current() else {
                if !examined.is_blank() {
                    damaged.extend(output_of(&examined.file));
                }
                notes.push(dispose(&**storage, &examined));
                continue;
            };
            match found.entry(saved.output.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert((examined, file));
                }
                Entry::Occupied(mut entry) => {
                    let (loser, kept) = if counts_before(&examined, &entry.get().0) {
                        (entry.insert((examined, file)).0, &entry.get().0)
                    } else {
                        (examined, &entry.get().0)
                    };
                    notes.push(set_aside_second(&**storage, &loser, kept));
                }
            }
        }
        let cursors = found.into_values();
        let cursors =
            cursors.filter_map(|(examined, file)| CursorFile::of(storage, &examined, file));
        Ok(Loaded {
            cursors: cursors.collect(),
            damaged,
            notes,
        })
    }

    /// Reads all cursor files and changes nothing, also while a queue is using them. A file that is being written may show
    /// one damaged slot.
    ///
    /// # Errors
    /// The folder or a file cannot be opened.
    pub fn examine(storage: &dyn Storage) -> Result<Vec<Examined>, QueueError> {
        let files = open_all(storage)?.into_iter();
        Ok(files.map(|(examined, _)| examined).collect())
    }
}

/// A cursor file with what is in it.
type Opened = (Examined, Arc<dyn StoredFile>);

/// Opens and reads every cursor file, by name.
fn open_all(storage: &dyn Storage) -> Result<Vec<Opened>, QueueError> {
    let listed = storage.list("").map_err(QueueError::io("list", ""))?;
    let names = listed.into_iter().map(|listed| listed.name);
    let mut names: Vec<_> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort_unstable();
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let file = match storage.open(&name) {
            // An output's file goes when the output does.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(QueueError::io("open", &name))?,
        };
        files.push((examine_file(name, &*file), file));
    }
    Ok(files)
}

/// Reads a cursor file.
pub(crate) fn examine_file(name: String, file: &dyn StoredFile) -> Examined {
    let slots = [slot::read(file, 0), slot::read(file, 1)];
    Examined { file: name, slots }
}

fn refuse_newer(examined: &Examined) -> Result<(), QueueError> {
    let newer = examined.slots.iter().find_map(|slot| match slot {
        SlotState::Newer(version) => Some(*version),
        _ => None,
    });
    newer.map_or(Ok(()), |version| {
        Err(QueueError::Newer {
            file: PathBuf::from(&examined.file),
            version,
            known: VERSION,
        })
    })
}

/// Whether the first of two files for one output is the one that counts.
fn counts_before(first: &Examined, second: &Examined) -> bool {
    let rank = |examined: &Examined| {
        let (_, generation, saved) = examined.newest()?;
        let is_misnamed = examined.file != file_name(&saved.output);
        Some((saved.sequence, is_misnamed, u64::MAX - generation))
    };
    rank(first) < rank(second)
}

/// Gets a file without a valid slot out of the way, and says so.
fn dispose(storage: &dyn Storage, examined: &Examined) -> String {
    let file = &examined.file;
    if examined.is_blank() {
        let fate = match storage.remove(file) {
            Ok(()) => "it was removed".to_owned(),
            Err(error) => format!("it could not be removed: {error}"),
        };
        return format!("{file} was made and never written; {fate}");
    }
    let fate = fate(set_aside(storage, file));
    format!("{file} cannot be read ({}); {fate}", examined.reasons())
}

fn set_aside_second(storage: &dyn Storage, loser: &Examined, kept: &Examined) -> String {
    let sequence = |examined: &Examined| examined.current().map_or(0, |saved| saved.sequence);
    let output = kept.current().map_or("", |saved| &saved.output);
    format!(
        "two cursors for the output {output}: {} with sequence {} counts, and {} with sequence {} does not; {}",
        kept.file,
        sequence(kept),
        loser.file,
        sequence(loser),
        fate(set_aside(storage, &loser.file))
    )
}

fn fate(moved: io::Result<String>) -> String {
    match moved {
        Ok(target) => format!("it was moved to {target}"),
        Err(error) => format!("it could not be moved to {QUARANTINE}/: {error}"),
    }
}

/// Moves a file to `quarantine/` under a numbered name, which it gives back.
fn set_aside(storage: &dyn Storage, file: &str) -> io::Result<String> {
    storage.make_folder(QUARANTINE)?;
    let prefix = format!("{file}.");
    let listed = storage.list(QUARANTINE)?.into_iter();
    let numbers = listed.filter_map(|listed| listed.name.strip_prefix(&prefix)?.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let next = numbers.last().map_or(1, |last| last + 1);
    let target = format!("{QUARANTINE}/{prefix}{next}");
    storage.rename(file, &target)?;
    let surplus = (numbers.len() + 1).saturating_sub(SET_ASIDE_MAX);
    for number in &numbers[..surplus] {
        storage.remove(&format!("{QUARANTINE}/{prefix}{number}"))?;
    }
    storage.sync_folder(QUARANTINE)?;
    storage.sync_folder("")?;
    Ok(target)
}

fn file_name(output: &str) -> String {
    format!("{PREFIX}{}", encode(output))
}

/// The output that a file is named after, unless the name was cut.
fn output_of(file: &str) -> Option<String> {
    let name = file.strip_prefix(PREFIX)?;
    // What `create_file` adds where a name is taken has two digits at most.
    let numbered = name
        .rsplit_once('~')
        .filter(|(_, number)| number.len() <= 2);
    decode(numbered.map_or(name, |(name, _)| name))
}

/// The file of one output.
#[derive(Debug)]
pub struct CursorFile {
    storage: Arc<dyn Storage>,
    name: String,
    file: Arc<dyn StoredFile>,
    saved: Saved,
    /// What was noted since.
    noted: Option<Saved>,
    /// The slot that holds `saved`.
    slot: usize,
    generation: u64,
    state: SyncState,
}

/// How sure it is that the disk has what a file reads as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    /// What was saved was synced by this process.
    Synced,
    /// What was saved was read. An earlier process may not have synced it, and then only the page cache has it.
    Read,
    /// What was saved was synced; the other slot holds a note, or what is left of a save that failed.
    OtherWritten,
}

impl CursorFile {
    /// Makes the file of an output that has none. It is on disk afterwards.
    ///
    /// # Errors
    /// The system refused, or the name is too long to be stored; then there is no file.
    pub fn create(storage: &Arc<dyn Storage>, saved: &Saved) -> io::Result<Self> {
        let (slot, generation) = (0, 1);
        let page = slot::encode(generation, saved)?;
        let (name, file) = create_file(&**storage, &file_name(&saved.output))?;
        let written = file
            .write_at(&page, 0)
            .and_then(|()| file.sync())
            .and_then(|()| storage.sync_folder(""));
        if let Err(error) = written {
            // The next start would remove or use it as well; the error that counts is the first one.
            let _ = storage.remove(&name);
            return Err(error);
        }
        Ok(Self {
            storage: Arc::clone(storage),
            name,
            file,
            saved: saved.clone(),
            noted: None,
            slot,
            generation,
            state: SyncState::Synced,
        })
    }

    fn of(
        storage: &Arc<dyn Storage>,
        examined: &Examined,
        file: Arc<dyn StoredFile>,
    ) -> Option<Self> {
        let (slot, generation, saved) = examined.newest()?;
        Some(Self {
            storage: Arc::clone(storage),
            name: examined.file.clone(),
            file,
            saved: saved.clone(),
            noted: None,
            slot,
            generation,
            state: SyncState::Read,
        })
    }

    /// What was saved last.
    pub fn saved(&self) -> &Saved {
        &self.saved
    }

    /// Saves and syncs, unless nothing changed since a sync. It takes no new room on the disk.
    ///
    /// # Errors
    /// The system refused. What was saved before is still there, and the next save may succeed.
    pub fn save(&mut self, saved: Saved) -> io::Result<()> {
        self.confirm()?;
        if self.state == SyncState::Synced && saved == self.saved {
            return Ok(());
        }
        self.write_other(&saved)?;
        self.file.sync()?;
        self.state = SyncState::Synced;
        self.slot = 1 - self.slot;
        self.noted = None;
        self.saved = saved;
        Ok(())
    }

    /// Writes how far the output has come, unless that is what was written last, and leaves it to the next save to sync it.
    ///
    /// # Errors
    /// The system refused. What was saved before is still there.
    pub fn note(&mut self, saved: Saved) -> io::Result<()> {
        let last = self.noted.as_ref().unwrap_or(&self.saved);
        let passed = |saved: &Saved| (saved.sequence, slot::passed(saved));
        if passed(&saved) == passed(last) {
            return Ok(());
        }
        self.confirm()?;
        self.write_other(&saved)?;
        self.noted = Some(saved);
        Ok(())
    }

    /// Writes the slot that does not hold what was saved.
    fn write_other(&mut self, saved: &Saved) -> io::Result<()> {
        // What was written and not synced may be on disk with its generation, so that number is not used again.
        self.generation += 1;
        let page = slot::encode(self.generation, saved)?;
        self.state = SyncState::OtherWritten;
        let other = 1 - self.slot;
        self.file.write_at(&page, (other * PAGE) as u64)
    }

    /// Makes sure that what was read is on disk, before segments that it makes free go or the other slot is written over: an
    /// earlier process may have died before it synced that slot, and then only the page cache has it.
    fn confirm(&mut self) -> io::Result<()> {
        if self.state != SyncState::Read {
            return Ok(());
        }
        let mut page = vec![0; PAGE];
        let offset = (self.slot * PAGE) as u64;
        let length = self.file.read_at(&mut page, offset)?;
        self.file.write_at(&page[..length], offset)?;
        self.file.sync()?;
        self.state = SyncState::Synced;
        Ok(())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The system refused; the file may come back with the next start.
    pub fn remove(self) -> io::Result<()> {
        self.storage.remove(&self.name)?;
        self.storage.sync_folder("")
    }
}

/// Makes a file. Where the name is taken, by a damaged file that could not be moved, it gets a number.
fn create_file(storage: &dyn Storage, name: &str) -> io::Result<(String, Arc<dyn StoredFile>)> {
    let numbered = (2..100).map(|number| format!("{name}~{number}"));
    let mut taken = None;
    for name in std::iter::once(name.to_owned()).chain(numbered) {
        match storage.create(&name, 2 * PAGE as u64) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
            made => return made.map(|file| (name, file)),
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}
