//! Reads the letters of a store that a process may be writing to. Nothing is locked or written.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use batch::{Batch, Column, Reentry, Value, WireError};
use disk::FolderStorage;
use disk::lock::holder;
use serde::Serialize;

use super::removed::Removed;
use super::rows::number;
use super::{FOLDER, component, field, path};
use crate::inspect::{Block, Damage, InspectError, PayloadError, QueueFolder, Range};
use crate::log::segment_number;
use crate::{QueueError, cursor, synced};

/// How often, and after which pause, it is looked again whether something is damaged that a process may be writing.
const LOOKS: usize = 3;
const WRITING: Duration = Duration::from_millis(50);

/// Why the originals of dead letters cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OriginalError {
    /// They have none.
    #[error("only the dead letters of processors have originals; this one has none")]
    None,
    /// What was written of them is not there any more, or not whole.
    #[error("the original is damaged")]
    Damaged,
    /// The folder cannot be read.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// Their block cannot be read.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// What is in their block is no batch.
    #[error(transparent)]
    Batch(#[from] WireError),
}

/// The folder of a store, opened to read it.
#[derive(Debug)]
pub struct LetterFolder {
    pipeline: String,
    path: PathBuf,
}

/// The letters of a block that are there.
#[derive(Debug)]
pub struct Page {
    /// The batch that they are rows of; what says where they go on is not the batch's beginning.
    pub batch: Batch,
    /// Which rows.
    pub rows: Vec<usize>,
    /// The number of the batch's first row.
    pub first: u64,
    /// The sequence of its block.
    pub sequence: u64,
}

/// What is known of a letter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Letter {
    /// Its number in its store.
    pub number: u64,
    /// The pipeline.
    pub pipeline: String,
    /// What kind of component it is of: `output` or `processor`.
    pub role: &'static str,
    /// The component's name; of a processor below an output `OUTPUT/NAME`.
    pub component: String,
    /// The place of a processor in its pipeline, or below its output, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// When it became a letter, in nanoseconds since 1970.
    #[serde(skip)]
    pub time: i64,
    /// Why.
    pub reason: String,
    /// The processor's tag for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// How often it was refused or failed.
    pub attempts: u64,
    /// The event's id.
    pub id: String,
}

/// What could not be read of a store.
#[derive(Debug, Default)]
pub struct Unreadable {
    /// Parts of its segments.
    pub damage: Vec<Damage>,
    /// Numbers of letters that were stored and cannot be found.
    pub lost: Vec<std::ops::Range<u64>>,
    /// Above every number of a letter that was seen or is missed.
    pub end: u64,
}

impl Unreadable {
    /// Whether all could be read.
    pub fn is_empty(&self) -> bool {
        self.damage.is_empty() && self.lost.is_empty()
    }

    /// The damaged parts: segment, offset, length.
    pub fn parts(&self) -> Vec<(u64, u64, u64)> {
        let damage = self.damage.iter();
        let part = |damage: &Damage| {
            let segment = segment_number(&damage.file)?;
            Some((segment, damage.offset, damage.length))
        };
        damage.filter_map(part).collect()
    }
}

/// What lies between blocks: up to which sequence and number there is something before it, and from which on behind it.
struct Gap {
    before: (Option<u64>, u64),
    behind: (Option<u64>, u64),
}

impl Gap {
    /// Whether these sequences are missing in it.
    fn holds(&self, damage: &Damage) -> bool {
        let (Some(first), Some(last)) = (damage.first_sequence, damage.last_sequence) else {
            return false;
        };
        self.before.0.is_none_or(|before| before < first)
            && self.behind.0.is_none_or(|behind| last < behind)
    }
}

impl LetterFolder {
    /// The stores of a data directory, by name of their pipelines.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn find(data_dir: &Path) -> Result<Vec<Self>, InspectError> {
        fs::metadata(data_dir).map_err(QueueError::io("open", data_dir))?;
        let below = data_dir.join(FOLDER);
        let entries = match fs::read_dir(&below) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(QueueError::io("list", &below))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(QueueError::io("list", &below))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() {
                found.push(Self {
                    pipeline: cursor::decode(&name).unwrap_or(name),
                    path: entry.path(),
                });
            }
        }
        found.sort_by(|one, other| one.pipeline.cmp(&other.pipeline));
        Ok(found)
    }

    /// The store in a folder.
    pub fn at(path: PathBuf, pipeline: &str) -> Self {
        Self {
            pipeline: pipeline.to_owned(),
            path,
        }
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that has it, if one does; 0 when it left no number.
    pub fn holder(&self) -> Option<u32> {
        holder(&self.path)
    }

    /// Shows the letters, the oldest first, a block at a time; blocks of which `is_wanted` takes no number are not read. Gives
    /// what could not be read. Breaking off ends the pass.
    ///
    /// # Errors
    /// The folder cannot be read, or a later version wrote in it.
    pub fn each(
        &self,
        is_wanted: &dyn Fn(std::ops::Range<u64>) -> bool,
        visit: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> Result<Unreadable, InspectError> {
        let queue = match QueueFolder::open(&self.path) {
            Err(InspectError::NotAQueue(_)) => return self.without_segments(),
            queue => queue?,
        };
        let synced =
            synced::read(&FolderStorage::read_only(&self.path).map_err(QueueError::from)?).end();
        let removed = self.removed(&queue)?;
        let mut unreadable = Unreadable::default();
        let mut gaps = Vec::new();
        let mut before = (None, 0);
        let scan = queue.scan(Range::ALL, false, &mut |block| {
            let first = block.header.ordinal;
            let numbers = first..first + u64::from(block.header.events);
            if !block.superseded {
                let behind = (Some(block.header.sequence), first);
                if first > before.1 {
                    gaps.push(Gap { before, behind });
                }
                before = (behind.0, numbers.end);
            }
            if block.superseded || removed.left_in(&numbers) == 0 || !is_wanted(numbers) {
                return ControlFlow::Continue(());
            }
            match load(&queue, block) {
                Ok(batch) if batch.reentry().is_none_or(|at| **at == Reentry::Start) => {
                    ControlFlow::Continue(())
                }
                Ok(batch) => visit(Page::of(batch, block, &removed)),
                Err(error) => {
                    unreadable.damage.push(damage(block, error.to_string()));
                    ControlFlow::Continue(())
                }
            }
        })?;
        let behind = (None, synced.ordinal.max(before.1));
        gaps.push(Gap { before, behind });
        unreadable.end = behind.1;
        let damage = scan.damage.into_iter().filter(|damage| !damage.torn);
        let (parts, missing): (Vec<_>, Vec<_>) = damage.partition(|damage| damage.length > 0);
        let is_cleared = |damage: &Damage| {
            let segment = segment_number(&damage.file);
            segment.is_some_and(|segment| removed.is_cleared(segment, damage.offset))
        };
        unreadable.damage.extend(parts);
        unreadable.damage.retain(|damage| !is_cleared(damage));
        if !unreadable.damage.is_empty() {
            self.leave_out_unwritten(&queue, &mut unreadable.damage)?;
        }
        unreadable.lost = self.lost(&queue, &gaps, &missing)?;
        Ok(unreadable)
    }

    /// What is missing of a store that has no segments.
    fn without_segments(&self) -> Result<Unreadable, InspectError> {
        if !self.path.exists() {
            return Ok(Unreadable::default());
        }
        let storage = FolderStorage::read_only(&self.path).map_err(QueueError::from)?;
        let end = synced::read(&storage).end().ordinal;
        let removed = Removed::read(&storage)
            .map_err(QueueError::io("read", self.path.join(super::removed::NAME)))?
            .unwrap_or_default();
        let mut lost = removed.lost();
        lost.extend(removed.gaps(&(0..end)));
        Ok(Unreadable {
            damage: Vec::new(),
            lost,
            end,
        })
    }

    /// Letters that were stored and cannot be found. What was removed meanwhile is none of them.
    fn lost(
        &self,
        queue: &QueueFolder,
        gaps: &[Gap],
        missing: &[Damage],
    ) -> Result<Vec<std::ops::Range<u64>>, InspectError> {
        let removed = self.removed(queue)?;
        let mut lost = removed.lost();
        for gap in gaps {
            if missing.iter().any(|damage| gap.holds(damage)) {
                lost.extend(removed.gaps(&(gap.before.1..gap.behind.1)));
            }
        }
        Ok(lost)
    }

    /// Of damage, what a process was about to write when it was read is none: such letters came later than this look.
    fn leave_out_unwritten(
        &self,
        queue: &QueueFolder,
        unreadable: &mut Vec<Damage>,
    ) -> Result<(), InspectError> {
        let is_in_use = || self.holder().is_some();
        let mut looks = 0;
        while is_in_use() && looks < LOOKS && !unreadable.is_empty() {
            looks += 1;
            std::thread::sleep(WRITING);
            let scan = queue.scan(Range::ALL, true, &mut |_| ControlFlow::Continue(()))?;
            let is_same = |one: &Damage, other: &Damage| {
                one.file == other.file
                    && (other.offset..other.offset + other.length).contains(&one.offset)
            };
            unreadable.retain(|one| scan.damage.iter().any(|other| is_same(one, other)));
        }
        Ok(())
    }

    /// The originals of the letters of a page, row by row.
    ///
    /// # Errors
    /// There are none, or they cannot be read.
    pub fn originals(&self, page: &Page) -> Result<Batch, OriginalError> {
        if !page.has_originals() {
            return Err(OriginalError::None);
        }
        let queue = QueueFolder::open(&self.path)?;
        let block = queue.block(page.sequence + 1)?;
        let batch = load(&queue, &block.ok_or(OriginalError::Damaged)?)?;
        match batch.len() == page.batch.len() {
            true => Ok(batch),
            false => Err(OriginalError::Damaged),
        }
    }

    fn removed(&self, queue: &QueueFolder) -> Result<Removed, InspectError> {
        let storage = FolderStorage::read_only(&self.path).map_err(QueueError::from)?;
        let file = self.path.join(super::removed::NAME);
        let mut removed = Removed::read(&storage)
            .map_err(QueueError::io("read", file))?
            .unwrap_or_default();
        if removed.has_replaced() {
            let mut end = 0;
            queue.scan(Range::ALL, false, &mut |block| {
                end = end.max(block.header.ordinal + u64::from(block.header.events));
                ControlFlow::Continue(())
            })?;
            removed.settle(|new| new < end);
        }
        Ok(removed)
    }
}

fn load(queue: &QueueFolder, block: &Block) -> Result<Batch, OriginalError> {
    Ok(Batch::thaw(queue.load(block)?)?)
}

fn damage(block: &Block, reason: String) -> Damage {
    Damage {
        file: block.file_name(),
        offset: block.offset,
        length: block.size(),
        reason,
        torn: false,
        events: block.header.events.into(),
        first_sequence: Some(block.header.sequence),
        last_sequence: Some(block.header.sequence),
    }
}

impl Page {
    fn of(batch: Batch, block: &Block, removed: &Removed) -> Self {
        let first = block.header.ordinal;
        let is_there = |row: &usize| !removed.contains(first + *row as u64);
        Self {
            rows: (0..batch.len()).filter(is_there).collect(),
            batch,
            first,
            sequence: block.header.sequence,
        }
    }

    /// Whether the letters' originals are there.
    pub fn has_originals(&self) -> bool {
        let original = self.batch.column(&path(field::ORIGINAL));
        !self.batch.is_empty() && original.value(0) == Value::Bool(true)
    }

    /// The number of a row.
    pub fn number(&self, row: usize) -> u64 {
        self.first + row as u64
    }

    /// The number of a row's original, where there is one.
    pub fn original_number(&self, row: usize) -> Option<u64> {
        self.has_originals()
            .then(|| self.number(row) + self.batch.len() as u64)
    }

    /// What is known of the letter of a row.
    pub fn letter(&self, row: usize) -> Letter {
        let column = |name| self.batch.column(&path(name));
        let text = |name| match column(name).value(row) {
            Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        let at = self
            .batch
            .reentry()
            .map_or(&Reentry::Start, |at| at.as_ref());
        let (role, name) = component(at);
        let mut id = Vec::new();
        self.batch.origin().write_id(row, &mut id);
        Letter {
            number: self.number(row),
            pipeline: text(field::PIPELINE).unwrap_or_default(),
            role,
            component: name.into_owned(),
            position: match at {
                Reentry::Processor { index, .. } | Reentry::OutputProcessor { index, .. } => {
                    Some(index + 1)
                }
                Reentry::Start | Reentry::Output { .. } => None,
            },
            time: time(&column(field::TIME), row),
            reason: text(field::REASON).unwrap_or_default(),
            tag: text(field::TAG),
            attempts: number(column(field::ATTEMPTS).value(row)).unwrap_or(1),
            id: String::from_utf8_lossy(&id).into_owned(),
        }
    }

    /// Rows as a batch that goes on where they stopped, or goes through everything where `originals` are given. It says which
    /// letters they are, so that what becomes letters again takes their place.
    pub fn again(&self, rows: &[usize], originals: Option<&Batch>) -> Batch {
        let mut batch = originals.unwrap_or(&self.batch).pick(rows);
        let has_originals = self.has_originals();
        let cell = |number: u64| batch::Cell::UInt(number);
        let column = |cells: Vec<batch::Cell>| Column::new(cells, std::sync::Arc::new([]));
        let numbers = rows.iter().map(|&row| cell(self.number(row))).collect();
        let mut edit = batch::Edit::new();
        edit.set(path(field::NUMBER), column(numbers));
        if has_originals {
            let number = |&row: &usize| cell(self.number(row) + self.batch.len() as u64);
            let numbers = rows.iter().map(number).collect();
            edit.set(path(field::ORIGINAL_NUMBER), column(numbers));
        }
        // It was written there when it became a letter.
        batch.apply(edit);
        batch
    }
}

fn time(column: &Column, row: usize) -> i64 {
    match column.value(row) {
        Value::Time(nanos) => nanos,
        _ => 0,
    }
}
