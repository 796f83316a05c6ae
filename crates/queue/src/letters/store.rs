//! The store of one pipeline, as the one thread that writes sees it.

use component::plural;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, FieldPath, Reentry, Value};

use super::keys::{KEYS_MAX, Keys, key};
use super::removed::{NAME as REMOVED, Removed};
use super::{Draft, LetterSettings, WhenLettersFull, component, field, now, path};
use crate::QueueError;
use crate::disk::FolderStorage;
use crate::log::{BLOCK_HEADER, Block, Compression, Log, LogEnd, LogSettings, Payload};
use crate::pages::PagePool;
use crate::storage::PAGE;

/// So many segments fit into the largest size at least, so that room comes back early.
const SEGMENTS_MIN: u64 = 8;

/// The longest and the shortest segment, in bytes.
const SEGMENT_MAX: u64 = 4 << 20;
const SEGMENT_MIN: u64 = 64 << 10;

/// The most that copies of damaged blocks take.
const QUARANTINE_MAX: u64 = 64 << 20;

/// Nanoseconds within which the ages of letters are told apart.
const AGE_STEP: i64 = 1_000_000_000;

/// Letters that are ready to be written.
#[derive(Default)]
pub(super) struct Prepared {
    events: u32,
    /// None where all of them are known already.
    payload: Option<Payload>,
    original: Option<Payload>,
    keys: Vec<u128>,
    /// Rows that take the place of letters: the row, the letter, its original.
    replaced: Vec<(u64, u64, Option<u64>)>,
}

impl Prepared {
    pub fn letters(&self) -> u64 {
        self.events.into()
    }

    /// Bytes in the log.
    pub fn size(&self) -> u64 {
        let size = |payload: &Payload| (BLOCK_HEADER + payload.stored_len()) as u64;
        self.payload.iter().chain(&self.original).map(size).sum()
    }

    /// The letters whose place they take.
    pub fn replaces(&self) -> impl Iterator<Item = u64> + '_ {
        self.replaced.iter().map(|(_, old, _)| *old)
    }

    fn numbers(&self) -> u64 {
        match self.original {
            Some(_) => self.letters() * 2,
            None => self.letters(),
        }
    }
}

/// Why letters were not written.
#[derive(Debug)]
pub(super) enum Refusal {
    /// There is no room by the settings.
    Full,
    /// The system refused.
    Io(io::Error),
}

/// A store that is open.
pub(super) struct Store {
    storage: Arc<FolderStorage>,
    log: Log,
    settings: LetterSettings,
    segment_size: u64,
    removed: Removed,
    /// What the file says of replaced letters is not so.
    is_stale: bool,
    next: LogEnd,
    /// Where letters of an age end, the oldest first.
    ages: VecDeque<(u64, i64)>,
    keys: Option<Keys>,
    pool: PagePool,
}

impl Store {
    /// Opens the store in a folder; and what there is to say of it.
    pub fn open(
        folder: &Path,
        settings: LetterSettings,
    ) -> Result<(Self, Vec<String>), QueueError> {
        let storage = Arc::new(FolderStorage::open(folder)?);
        let mut notes: Vec<String> = storage.warning().into_iter().collect();
        let page = PAGE as u64;
        let segment_size = (settings.max_size / SEGMENTS_MIN).clamp(SEGMENT_MIN, SEGMENT_MAX);
        let segment_size = segment_size / page * page;
        let settings_of_log = LogSettings {
            segment_size,
            quarantine_size_max: QUARANTINE_MAX,
            synced: LogEnd::START,
            passed: LogEnd::START,
        };
        let (log, recovered) =
            Log::open(storage.clone(), settings_of_log).map_err(|error| error.within(folder))?;
        let removed =
            Removed::read(&*storage).map_err(QueueError::io("read", folder.join(REMOVED)))?;
        let removed = match removed {
            Some(removed) => removed,
            None => {
                Removed::set_aside(&*storage)
                    .map_err(QueueError::io("rename", folder.join(REMOVED)))?;
                notes.push(format!(
                    "the file {} was damaged and has been renamed: dead letters that were removed may reappear",
                    folder.join(REMOVED).display()
                ));
                Removed::default()
            }
        };
        let mut store = Self {
            storage,
            log,
            settings,
            segment_size,
            removed,
            is_stale: true,
            next: LogEnd {
                sequence: recovered.next_sequence,
                ordinal: recovered.next_ordinal,
            },
            ages: VecDeque::new(),
            keys: None,
            pool: PagePool::default(),
        };
        store
            .walk()
            .map_err(QueueError::io("read", folder.to_owned()))?;
        notes.extend(store.damage());
        store.removed.settle(store.next.ordinal);
        Ok((store, notes))
    }

    /// Looks at the headers of all blocks: how old they are, and what is missing.
    fn walk(&mut self) -> io::Result<()> {
        let mut reader = self.log.reader(0, None);
        let mut end = 0;
        while let Some(found) = reader.next()? {
            // What was lost is not waited for.
            self.removed.insert(end..found.ordinal.max(end));
            end = found.ordinal_end();
            self.note_age(end, found.time);
        }
        self.next.ordinal = self.next.ordinal.max(end);
        self.removed.insert(end..self.next.ordinal);
        Ok(())
    }

    fn note_age(&mut self, end: u64, time: i64) {
        if self.settings.max_age.is_none() {
            return;
        }
        match self.ages.back_mut() {
            Some((last, begin)) if time.saturating_sub(*begin) < AGE_STEP => *last = end,
            _ => self.ages.push_back((end, time)),
        }
    }

    /// What was found damaged, as people read it.
    pub fn damage(&self) -> Vec<String> {
        let damage = self.log.take_damage().into_iter();
        let said = damage.filter(|damage| !damage.torn).map(|damage| {
            format!(
                "segment {} is damaged at offset {}, {}: {}; its dead letters are lost{}",
                damage.segment,
                damage.offset,
                plural(damage.length, "byte"),
                damage.reason,
                if damage.quarantined {
                    "; a copy is in `quarantine`"
                } else {
                    ""
                }
            )
        });
        said.collect()
    }

    /// Makes blocks of a draft, of which letters that are known already are left out.
    pub fn prepare(&mut self, pipeline: &str, draft: &Draft) -> io::Result<Prepared> {
        if self.keys.is_none() {
            self.keys = Some(self.load_keys()?);
        }
        let again = Again::of(&draft.batch);
        let keys = self.keys.get_or_insert_default();
        let (removed, end) = (&self.removed, self.next.ordinal);
        let is_gone = |number| number >= end || removed.contains(number);
        let (mut rows, mut announced) = (Vec::new(), Vec::new());
        for dead in &draft.rows {
            let attempts = again.as_ref().map_or(0, |again| again.attempts(dead.row)) + 1;
            let key = key(&draft.batch, dead.row, &draft.at, attempts);
            if !keys.contains(key, is_gone) {
                keys.announce(key);
                announced.push(key);
                rows.push((dead, attempts));
            }
        }
        if rows.is_empty() {
            return Ok(Prepared::default());
        }
        let picked: Vec<usize> = rows.iter().map(|(dead, _)| dead.row).collect();
        let original = match (&draft.original, &again) {
            (Some(batch), _) => Some(batch.pick(&picked)),
            (None, Some(again)) => again
                .originals(&picked)
                .and_then(|numbers| self.load_rows(&numbers)),
            (None, None) => None,
        };
        let stored = |mut batch: Batch, at: Arc<Reentry>, has_original: bool| {
            describe(&mut batch, pipeline, draft, &rows, has_original);
            Payload::of(batch.reentering(at).freeze(), Compression::Zstd)
        };
        let has_original = original.is_some();
        Ok(Prepared {
            events: rows.len() as u32,
            keys: announced,
            payload: Some(stored(
                draft.batch.pick(&picked),
                draft.at.clone(),
                has_original,
            )),
            original: original.map(|batch| stored(batch, Arc::new(Reentry::Start), false)),
            replaced: again.map_or_else(Vec::new, |again| again.replaced(&picked)),
        })
    }

    /// Rows of one block by their numbers, as long as its segment is there.
    fn load_rows(&self, numbers: &[u64]) -> Option<Batch> {
        let mut reader = self.log.reader(0, None);
        while let Ok(Some(found)) = reader.next() {
            let ordinals = found.ordinals();
            if !numbers.iter().all(|number| ordinals.contains(number)) {
                continue;
            }
            let batch = Batch::thaw(self.log.load(&found, &self.pool).ok()?).ok()?;
            let rows = numbers
                .iter()
                .map(|number| (number - ordinals.start) as usize);
            return Some(batch.pick(&rows.collect::<Vec<_>>()));
        }
        None
    }

    /// Writes letters and syncs them; how many old ones were dropped for them.
    pub fn write(&mut self, prepared: &[&Prepared]) -> Result<u64, Refusal> {
        let (blocks, end) = self.blocks(prepared);
        if blocks.is_empty() {
            return Ok(0);
        }
        let need: u64 = blocks.iter().map(Block::stored_size).sum();
        let dropped = self.make_room(need.next_multiple_of(PAGE as u64))?;
        let written = self.append(prepared, &blocks);
        if let Err(error) = written {
            self.removed.forget_replaced();
            self.is_stale = true;
            return Err(Refusal::Io(error));
        }
        for block in &blocks {
            self.note_age(block.ordinal + u64::from(block.events), block.time);
        }
        let mut first = self.next.ordinal;
        let keys = self.keys.get_or_insert_default();
        for one in prepared {
            for (number, key) in (first..).zip(&one.keys) {
                keys.insert(*key, number);
            }
            first += one.numbers();
        }
        self.next = end;
        self.removed.settle(end.ordinal);
        Ok(dropped)
    }

    /// Letters that were prepared are not written.
    pub fn withdraw(&mut self, prepared: &Prepared) {
        if let Some(keys) = &mut self.keys {
            prepared.keys.iter().for_each(|key| keys.withdraw(*key));
        }
    }

    /// What is written at once at most, in bytes.
    pub fn group_size_max(&self) -> u64 {
        self.segment_size - PAGE as u64
    }

    fn blocks(&self, prepared: &[&Prepared]) -> (Vec<Block>, LogEnd) {
        let mut end = self.next;
        let time = now();
        let mut blocks = Vec::new();
        for one in prepared {
            for payload in one.payload.iter().chain(&one.original) {
                blocks.push(Block {
                    sequence: end.sequence,
                    ordinal: end.ordinal,
                    events: one.events,
                    time,
                    payload: payload.clone(),
                });
                end.sequence += 1;
                end.ordinal += one.letters();
            }
        }
        (blocks, end)
    }

    fn append(&mut self, prepared: &[&Prepared], blocks: &[Block]) -> io::Result<()> {
        let mut first = self.next.ordinal;
        for one in prepared {
            for (row, old, original) in &one.replaced {
                self.removed.replace(*old, first + row);
                if let Some(original) = original {
                    self.removed.replace(*original, first + row);
                }
            }
            first += one.numbers();
        }
        // Before the letters: which of two counts is decided by whether the second is there.
        if self.removed.has_replaced() || self.is_stale {
            self.removed.save(&*self.storage)?;
            self.is_stale = false;
        }
        let done = self.log.append(blocks).and_then(|()| self.log.sync());
        if let Err(error) = &done
            && !matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::InvalidInput
            )
        {
            self.log.abandon();
        }
        done
    }

    /// Room for a group of that size, by the settings; how many letters were dropped for it.
    fn make_room(&mut self, need: u64) -> Result<u64, Refusal> {
        let mut dropped = 0;
        loop {
            let segments = self.log.first_of_segments();
            let more = self.segment_size.max(PAGE as u64 + need);
            let fits = self.log.size() + more <= self.settings.max_size;
            if self.log.room() >= need || fits || segments.len() < 2 {
                return Ok(dropped);
            }
            match self.settings.when_full {
                WhenLettersFull::Block => return Err(Refusal::Full),
                WhenLettersFull::DropOldest => {
                    let range = segments[0].first_ordinal..segments[1].first_ordinal;
                    self.log.remove(segments[0].number).map_err(Refusal::Io)?;
                    dropped += self.removed.insert(range);
                }
            }
        }
    }

    /// Removes letters; how many of these numbers were there.
    pub fn remove(&mut self, ranges: &[Range<u64>]) -> io::Result<u64> {
        let mut gone = 0;
        for range in ranges {
            gone += self
                .removed
                .insert(range.start.min(self.next.ordinal)..range.end.min(self.next.ordinal));
        }
        self.tidy()?;
        Ok(gone)
    }

    /// Removes the letters that are too old; how many these were.
    pub fn expire(&mut self) -> io::Result<u64> {
        let Some(max_age) = self.settings.max_age else {
            return Ok(0);
        };
        let limit = now().saturating_sub(i64::try_from(max_age.as_nanos()).unwrap_or(i64::MAX));
        let mut gone = 0;
        while let Some((end, _)) = self.ages.front().filter(|(_, time)| *time < limit) {
            gone += self.removed.insert(0..*end);
            self.ages.pop_front();
        }
        if gone > 0 {
            self.tidy()?;
        }
        Ok(gone)
    }

    /// Gives back segments in which nothing is left, then saves what else is gone: so that a full disk is in no one's way.
    fn tidy(&mut self) -> io::Result<()> {
        let segments = self.log.first_of_segments();
        for pair in segments.windows(2) {
            let range = pair[0].first_ordinal..pair[1].first_ordinal;
            if !range.is_empty() && self.removed.left_in(&range) == 0 {
                self.log.remove(pair[0].number)?;
            }
        }
        self.removed.save(&*self.storage)?;
        self.is_stale = false;
        Ok(())
    }

    /// The keys of the newest letters.
    fn load_keys(&self) -> io::Result<Keys> {
        let mut newest: VecDeque<(u64, usize)> = VecDeque::new();
        let mut letters = 0;
        let mut reader = self.log.reader(0, None);
        while let Some(found) = reader.next()? {
            letters += found.events as usize;
            newest.push_back((found.sequence, found.events as usize));
            while let Some((_, events)) = newest.front()
                && letters - events > KEYS_MAX
            {
                letters -= events;
                newest.pop_front();
            }
        }
        let mut keys = Keys::default();
        let Some((first, _)) = newest.front() else {
            return Ok(keys);
        };
        let mut reader = self.log.reader(*first, None);
        while let Some(found) = reader.next()? {
            let payload = self.log.load(&found, &self.pool);
            // What is damaged was reported by the log.
            let batch = payload.ok().and_then(|payload| Batch::thaw(payload).ok());
            let Some(batch) = batch else { continue };
            let Some(at) = batch.reentry().filter(|at| ***at != Reentry::Start) else {
                continue;
            };
            let attempts = batch.column(&path(field::ATTEMPTS));
            for row in 0..batch.len() {
                let attempts = number(attempts.value(row)).unwrap_or(1);
                let number = found.ordinal + row as u64;
                keys.insert(key(&batch, row, at, attempts), number);
            }
        }
        Ok(keys)
    }
}

/// A batch of letters that are on their way again.
struct Again {
    attempts: Arc<Column>,
    numbers: Arc<Column>,
    originals: Arc<Column>,
}

impl Again {
    fn of(batch: &Batch) -> Option<Self> {
        batch.reentry()?;
        Some(Self {
            attempts: batch.column(&path(field::ATTEMPTS)),
            numbers: batch.column(&path(field::NUMBER)),
            originals: batch.column(&path(field::ORIGINAL_NUMBER)),
        })
    }

    fn attempts(&self, row: usize) -> u64 {
        number(self.attempts.value(row)).unwrap_or(0)
    }

    /// The numbers of the originals, where all of these rows have one.
    fn originals(&self, rows: &[usize]) -> Option<Vec<u64>> {
        let numbers = rows.iter().map(|&row| number(self.originals.value(row)));
        numbers.collect()
    }

    fn replaced(&self, rows: &[usize]) -> Vec<(u64, u64, Option<u64>)> {
        let numbers = rows.iter().enumerate().filter_map(|(place, &row)| {
            let old = number(self.numbers.value(row))?;
            Some((place as u64, old, number(self.originals.value(row))))
        });
        numbers.collect()
    }
}

/// A whole number.
pub(super) fn number(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Int(n) => u64::try_from(n).ok(),
        Value::UInt(n) => Some(n),
        _ => None,
    }
}

/// Writes down what became of the rows of a batch that was picked.
fn describe(
    batch: &mut Batch,
    pipeline: &str,
    draft: &Draft,
    rows: &[(&super::Dead, u64)],
    has_original: bool,
) {
    let len = rows.len();
    let (role, name) = component(&draft.at);
    let mut reasons = ColumnBuilder::new(len);
    let mut tags = ColumnBuilder::new(len);
    for (row, (dead, _)) in rows.iter().enumerate() {
        reasons.set_text(row, dead.reason.as_bytes());
        match &dead.tag {
            Some(tag) => tags.set_text(row, tag.as_bytes()),
            None => tags.set(row, Cell::Missing),
        }
    }
    let attempts = rows
        .iter()
        .map(|(_, attempts)| Cell::Int(attempts.cast_signed()));
    let text = |text: &str| Column::constant_text(text.as_bytes(), len);
    let none = || Column::constant(Cell::Missing, len);
    let columns = [
        (field::PIPELINE, text(pipeline)),
        (field::ROLE, text(role)),
        (field::COMPONENT, text(&name)),
        (field::TIME, Column::constant(Cell::Time(now()), len)),
        (field::REASON, reasons.finish()),
        (field::TAG, tags.finish()),
        (
            field::ATTEMPTS,
            Column::new(attempts.collect(), Arc::new([])),
        ),
        (
            field::ORIGINAL,
            Column::constant(Cell::Bool(has_original), len),
        ),
        (field::NUMBER, none()),
        (field::ORIGINAL_NUMBER, none()),
    ];
    let mut edit = Edit::new();
    for (name, column) in &columns {
        edit.set(path(name), column.clone());
    }
    let blocked = batch.apply(edit);
    if blocked.is_empty() {
        return;
    }
    // An event with an `@metadata` of its own that is no object.
    let rows: Vec<usize> = blocked.into_iter().map(|(row, _)| row).collect();
    let blocked = Bitmap::from_fn(len, |row| rows.contains(&row));
    let mut edit = Edit::new();
    edit.remove(FieldPath::from_keys(["@metadata"]), &blocked);
    batch.apply(edit);
    let mut edit = Edit::new();
    for (name, column) in columns {
        edit.set(path(name), column);
    }
    batch.apply(edit);
}
