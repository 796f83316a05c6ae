//! The store of one pipeline, as the one thread that writes sees it.

use component::plural;
use disk::{FolderStorage, PAGE, PagePool};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use batch::{Batch, JsonWriter, Reentry};

use super::keys::{KEYS_MAX, Keys, KeysOf, without_time};
use super::removed::{NAME as REMOVED, Removed};
use super::rows::{Again, describe};
use super::{Dead, Draft, LetterSettings, Purge, WhenLettersFull, missing, now};
use crate::QueueError;
use crate::log::{BLOCK_HEADER, Block, Compression, Damage, Log, LogEnd, LogSettings, Payload};
use crate::spans::Spans;
use crate::synced::{self, Said, SyncedMark};

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
    /// By what each is known.
    letters: Vec<u128>,
    /// What was seen for them.
    seen: Vec<u128>,
    /// What was seen of the letters whose place they take.
    passes: Vec<u128>,
    /// Letters on their way again that these are of.
    again: Vec<u64>,
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

    /// The letters on their way again that these are of.
    pub fn again(&self) -> impl Iterator<Item = u64> + '_ {
        self.again.iter().copied()
    }

    /// Whether each takes the place of another letter, so that there are no more letters than before.
    pub fn only_replaces(&self) -> bool {
        self.replaced.len() as u64 == self.letters()
    }

    /// The numbers of letters whose place these take, and of their originals.
    fn replaced_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let numbers = self.replaced.iter();
        numbers.flat_map(|(_, old, original)| [*old].into_iter().chain(*original))
    }

    fn numbers(&self) -> u64 {
        match self.original {
            Some(_) => self.letters() * 2,
            None => self.letters(),
        }
    }
}

/// Rows of a draft that have no letter yet, each with its attempts, and by what they are known.
#[derive(Default)]
struct Unknown<'d> {
    rows: Vec<(&'d Dead, u64)>,
    letters: Vec<u128>,
    seen: Vec<u128>,
    passes: Vec<u128>,
    /// Letters on their way again that others stand for.
    again: Vec<u64>,
}

/// Why letters were not written or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The store cannot be opened.
    #[error("{}", described(.0))]
    Open(QueueError),
    /// There is no room by the settings.
    #[error("`max_bytes` is reached; `millpond dead-letters replay` or `purge` frees space")]
    Full,
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// An error with its cause.
fn described(error: &QueueError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
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
    /// Letters that were refused again and stay as they are, because there is no room to write them anew.
    kept: HashSet<u64>,
    synced: SyncedMark,
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
        let segment_size = (settings.max_bytes.0 / SEGMENTS_MIN).clamp(SEGMENT_MIN, SEGMENT_MAX);
        let segment_size = segment_size / page * page;
        let said = synced::read(&*storage);
        if said == Said::Damaged {
            notes.push(format!(
                "the file {} cannot be read: it is unknown whether the last dead letters before a crash were stored",
                folder.join(synced::NAME).display()
            ));
        }
        let settings_of_log = LogSettings {
            segment_size,
            quarantine_size_max: QUARANTINE_MAX,
            synced: said.end(),
            passed: LogEnd::START,
        };
        let (log, recovered) =
            Log::open(storage.clone(), settings_of_log).map_err(|error| error.within(folder))?;
        let removed =
            Removed::read(&*storage).map_err(QueueError::io("read", folder.join(REMOVED)))?;
        let is_known = removed.is_some();
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
                sequence: recovered.next_sequence.max(said.end().sequence),
                ordinal: recovered.next_ordinal.max(said.end().ordinal),
            },
            synced: SyncedMark::default(),
            ages: VecDeque::new(),
            keys: None,
            kept: HashSet::new(),
            pool: PagePool::default(),
        };
        let lost = store
            .walk()
            .map_err(QueueError::io("read", folder.to_owned()))?;
        notes.extend(store.damage());
        if is_known {
            notes.extend(store.lose(lost));
        }
        Ok((store, notes))
    }

    /// Looks at the headers of all blocks, and at all of those at the end: how old they are, and which letters were written and are in
    /// none of them.
    fn walk(&mut self) -> io::Result<Vec<Range<u64>>> {
        let newest = self.log.first_of_segments().last().map(|last| last.number);
        let mut reader = self.log.reader(0);
        let mut lost = Vec::new();
        let (mut end, mut sequence) = (0, 0);
        let mut gone = Vec::new();
        let mut there = Spans::default();
        while let Some(found) = reader.next()? {
            let gap = end..found.ordinal.max(end);
            lost.extend(self.log.lost_of(gap.clone(), sequence, Some(&found)));
            gone.push(gap);
            (end, sequence) = (found.ordinal_end(), found.sequence + 1);
            self.note_age(end, found.time);
            // What is damaged is reported by the log.
            let is_newest = newest == Some(found.place.segment);
            if !is_newest || self.log.load(&found, &self.pool).is_ok() {
                there.insert(found.ordinals());
            }
        }
        self.removed.settle(|new| there.contains(new));
        self.next.ordinal = self.next.ordinal.max(end);
        let behind = end..self.next.ordinal;
        lost.extend(self.log.lost_of(behind.clone(), sequence, None));
        gone.push(behind);
        let there = |range: &Range<u64>| self.removed.gaps(range);
        let lost = lost.iter().flat_map(there).collect();
        // What is in no block is not waited for.
        for range in gone {
            self.removed.insert(range);
        }
        Ok(lost)
    }

    /// Letters were written and cannot be found; what there is to say of it.
    fn lose(&mut self, lost: Vec<Range<u64>>) -> Vec<String> {
        if lost.is_empty() {
            return Vec::new();
        }
        let mut said = Vec::new();
        for range in lost {
            said.push(format!(
                "{}: they were stored and cannot be found",
                missing(&range)
            ));
            self.removed.lose(range);
        }
        // What cannot be saved now is found again at the next start.
        let _ = self.removed.save(&*self.storage);
        said
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
        let is_told = |damage: &Damage| {
            !damage.torn && !self.removed.is_cleared(damage.segment, damage.offset)
        };
        let said = damage.filter(is_told).map(|damage| {
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
        let rows = self.unknown(draft, again.as_ref());
        let Unknown {
            rows,
            letters,
            seen,
            passes,
            again: mut numbers,
        } = rows;
        if rows.is_empty() {
            return Ok(Prepared {
                again: numbers,
                ..Prepared::default()
            });
        }
        let picked: Vec<usize> = rows.iter().map(|(dead, _)| dead.row).collect();
        let replaced = again.as_ref().filter(|_| draft.is_again());
        let replaced = replaced.map_or_else(Vec::new, |again| again.replaced(&picked));
        let is_there = |(_, old, _): &(u64, u64, Option<u64>)| !self.is_gone(*old);
        let replaced = replaced.into_iter().filter(is_there).collect();
        if let Some(again) = &again {
            numbers.extend(again.numbers(&picked));
        }
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
            letters,
            seen,
            passes,
            again: numbers,
            payload: Some(stored(
                draft.batch.pick(&picked),
                draft.at.clone(),
                has_original,
            )),
            original: original.map(|batch| stored(batch, Arc::new(Reentry::Start), false)),
            replaced,
        })
    }

    /// The rows of a draft that have no letter yet.
    fn unknown<'d>(&mut self, draft: &'d Draft, again: Option<&Again>) -> Unknown<'d> {
        let mut unknown = Unknown::default();
        let mut keys_of = KeysOf::new(&draft.batch, &draft.at);
        let mut keys = self.keys.take().unwrap_or_default();
        let content = without_time(&draft.batch);
        let content = JsonWriter::new(&content);
        for dead in &draft.rows {
            let key = keys_of.row(draft.sequence, dead.row);
            if !keys.see(key) {
                continue;
            }
            let attempts = again.map_or(0, |again| again.attempts(dead.row)) + 1;
            let old = again.filter(|_| draft.is_again());
            let old = old.and_then(|again| again.number(dead.row));
            let letter = old.map(|old| keys_of.letter(old));
            if letter.is_some_and(|letter| !keys.see(letter)) {
                // Another pass of the same letter.
                continue;
            }
            let event = keys_of.event(&content, dead.row);
            let (event, in_batch) = keys.of_batch(draft.sequence, event);
            let is_there = old.is_some_and(|old| !self.is_gone(old));
            if !is_there && keys.has(event, |number| self.is_gone(number)) {
                let on_its_way = again.and_then(|again| again.number(dead.row));
                unknown.again.extend(on_its_way);
                continue;
            }
            keys.announce(event);
            unknown.seen.extend([key, in_batch]);
            unknown.passes.extend(letter);
            unknown.letters.push(event);
            unknown.rows.push((dead, attempts));
        }
        self.keys = Some(keys);
        unknown
    }

    fn is_gone(&self, number: u64) -> bool {
        number >= self.next.ordinal || self.removed.contains(number)
    }

    /// Rows of one block by their numbers, as long as its segment is there.
    fn load_rows(&self, numbers: &[u64]) -> Option<Batch> {
        let mut reader = self.log.reader(0);
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
    pub fn write(&mut self, prepared: &[&Prepared]) -> Result<u64, StoreError> {
        let (blocks, end) = self.blocks(prepared);
        if blocks.is_empty() {
            return Ok(0);
        }
        let need: u64 = blocks.iter().map(Block::stored_size).sum();
        let is_again = self.is_again(prepared);
        self.check_room(need.next_multiple_of(PAGE as u64), is_again)?;
        let written = self.append(prepared, &blocks);
        if let Err(error) = written {
            self.removed.forget_replaced();
            self.is_stale = true;
            return Err(StoreError::Io(error));
        }
        for block in &blocks {
            self.note_age(block.ordinal + u64::from(block.events), block.time);
        }
        let mut first = self.next.ordinal;
        let keys = self.keys.get_or_insert_default();
        for one in prepared {
            for (number, key) in (first..).zip(&one.letters) {
                keys.insert(*key, number);
            }
            first += one.numbers();
        }
        self.next = end;
        self.synced.advance(&*self.storage, end);
        self.removed.settle(|new| new < end.ordinal);
        // What cannot be given back now is given back later.
        let _ = self.give_back();
        Ok(match is_again {
            true => 0,
            false => self.drop_oldest().unwrap_or(0),
        })
    }

    /// Letters that were prepared are not written.
    pub fn withdraw(&mut self, prepared: &Prepared) {
        if let Some(keys) = &mut self.keys {
            let seen = prepared.seen.iter().chain(&prepared.passes);
            seen.for_each(|key| keys.forget(*key));
            prepared.letters.iter().for_each(|key| keys.withdraw(*key));
        }
    }

    /// Lets letters that were refused again stay as they are, because there is no room to write them anew; false where they are not
    /// there any more.
    pub fn keep(&mut self, prepared: &Prepared) -> bool {
        if !self.is_again(&[prepared]) {
            return false;
        }
        if let Some(keys) = &mut self.keys {
            prepared.passes.iter().for_each(|key| keys.forget(*key));
            let old = prepared.replaced.iter().map(|(_, old, _)| *old);
            let known = prepared.letters.iter().zip(old);
            known.for_each(|(key, old)| keys.insert(*key, old));
        }
        self.kept.extend(prepared.replaced_numbers());
        true
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

    /// Whether there is room for a group of that size, by the settings. The last segment's worth is for letters that take the
    /// place of others, whose room comes back.
    fn check_room(&self, need: u64, is_again: bool) -> Result<(), StoreError> {
        let more = self.segment_size.max(PAGE as u64 + need);
        let size_max = match is_again {
            true => self.settings.max_bytes.0,
            false => self.size_max(),
        };
        let fits = self.log.room() >= need
            || self.log.size() + more <= size_max
            || self.log.first_of_segments().len() < 2;
        // The oldest go when the new ones are there.
        let drops = self.settings.when_full == WhenLettersFull::DropOldest && !is_again;
        match fits || drops {
            true => Ok(()),
            false => Err(StoreError::Full),
        }
    }

    /// Whether all of these take the place of letters that are there.
    fn is_again(&self, prepared: &[&Prepared]) -> bool {
        prepared.iter().all(|one| {
            let mut replaced = one.replaced_numbers();
            one.only_replaces() && replaced.all(|number| !self.is_gone(number))
        })
    }

    /// The most that letters take where none is about to take the place of another.
    fn size_max(&self) -> u64 {
        self.settings.max_bytes.0.saturating_sub(self.segment_size)
    }

    /// Drops the oldest letters where there are too many, if that is set; how many.
    fn drop_oldest(&mut self) -> io::Result<u64> {
        let mut dropped = 0;
        if self.settings.when_full == WhenLettersFull::DropOldest {
            let segments = self.log.first_of_segments();
            for pair in segments.windows(2) {
                if self.log.size() <= self.size_max() {
                    break;
                }
                let range = pair[0].first_ordinal..pair[1].first_ordinal;
                dropped += self.count(&range);
                self.removed.insert(range);
                self.removed.save(&*self.storage)?;
                self.log.remove(pair[0].number)?;
            }
        }
        Ok(dropped)
    }

    /// How many letters there are of a range of numbers, their originals not among them.
    fn count(&self, range: &Range<u64>) -> u64 {
        let mut reader = self.log.reader(0);
        let mut letters = 0;
        while let Ok(Some(found)) = reader.next() {
            let ordinals = found.ordinals();
            let counted = ordinals.start.max(range.start)..ordinals.end.min(range.end);
            if counted.is_empty() || self.removed.left_in(&counted) == 0 {
                continue;
            }
            let batch = self.log.load(&found, &self.pool).ok();
            let batch = batch.and_then(|payload| Batch::thaw(payload).ok());
            // What is damaged was reported.
            if batch.is_some_and(|batch| is_of_letters(&batch)) {
                letters += self.removed.left_in(&counted);
            }
        }
        letters
    }

    /// Removes letters and what goes with them; how many letters were there.
    pub fn purge(&mut self, purge: &Purge) -> io::Result<u64> {
        let end = self.next.ordinal;
        let mut insert = |range: &Range<u64>| {
            let (start, end) = (range.start.min(end), range.end.min(end));
            self.removed.insert(start..end)
        };
        let gone = purge.letters.iter().map(&mut insert).sum();
        for range in &purge.others {
            insert(range);
        }
        if let Some(parts) = &purge.cleared {
            self.removed.clear(parts);
        }
        self.tidy()?;
        Ok(gone)
    }

    /// Removes letters of which it is known what became of them, and those not that were refused again and stay as they are.
    pub fn settle(&mut self, ranges: &[Range<u64>]) -> io::Result<u64> {
        if self.kept.is_empty() {
            return self.purge(&Purge::of(ranges));
        }
        let numbers = ranges.iter().cloned().flatten();
        let settled: Vec<Range<u64>> = numbers
            .filter(|number| !self.kept.remove(number))
            .map(|number| number..number + 1)
            .collect();
        self.purge(&Purge::of(&settled))
    }

    /// Removes the letters that are too old; how many these were.
    pub fn expire(&mut self) -> io::Result<u64> {
        let Some(max_age) = self.settings.max_age else {
            return Ok(0);
        };
        let limit = now().saturating_sub(i64::try_from(max_age.as_nanos()).unwrap_or(i64::MAX));
        let mut gone = 0;
        while let Some((end, _)) = self.ages.front().filter(|(_, time)| *time < limit) {
            let old = 0..*end;
            gone += self.count(&old);
            self.removed.insert(old);
            self.ages.pop_front();
        }
        if gone > 0 {
            self.tidy()?;
        }
        Ok(gone)
    }

    /// Saves what is gone, then gives back segments in which nothing is left: what is in neither was lost. On a full disk a segment
    /// has to go first.
    fn tidy(&mut self) -> io::Result<()> {
        let saved = self.removed.save(&*self.storage);
        self.give_back()?;
        if saved.is_err() {
            self.removed.save(&*self.storage)?;
        }
        self.is_stale = false;
        Ok(())
    }

    fn give_back(&mut self) -> io::Result<()> {
        let segments = self.log.first_of_segments();
        for pair in segments.windows(2) {
            let range = pair[0].first_ordinal..pair[1].first_ordinal;
            if !range.is_empty() && self.removed.left_in(&range) == 0 {
                self.log.remove(pair[0].number)?;
            }
        }
        let is_there = |number| segments.iter().any(|segment| segment.number == number);
        self.removed.forget_cleared(is_there);
        Ok(())
    }

    /// The keys of the newest letters.
    fn load_keys(&self) -> io::Result<Keys> {
        let mut newest: VecDeque<(u64, usize)> = VecDeque::new();
        let mut letters = 0;
        let mut reader = self.log.reader(0);
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
        let mut reader = self.log.reader(*first);
        while let Some(found) = reader.next()? {
            let payload = self.log.load(&found, &self.pool);
            // What is damaged was reported by the log.
            let batch = payload.ok().and_then(|payload| Batch::thaw(payload).ok());
            let Some(batch) = batch else { continue };
            let Some(at) = batch.reentry().filter(|_| is_of_letters(&batch)) else {
                continue;
            };
            let mut keys_of = KeysOf::new(&batch, at);
            let content = without_time(&batch);
            let content = JsonWriter::new(&content);
            for row in 0..batch.len() {
                let number = found.ordinal + row as u64;
                if !self.removed.contains(number) {
                    keys.load(keys_of.event(&content, row), number);
                }
            }
        }
        Ok(keys)
    }
}

/// Whether a batch of the store is one of letters, not of originals.
fn is_of_letters(batch: &Batch) -> bool {
    batch.reentry().is_some_and(|at| **at != Reentry::Start)
}
