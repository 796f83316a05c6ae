//! The table of a pprof file, without making a profile of it: each sample is read once and kept nowhere.
//!
//! A day of a fleet has millions of stacks. Making a profile of them finds a place for each frame of each stack; a table only needs to know
//! which functions are on a stack, and looks only at frames that the stack before did not have ([`Stacks`]). What stacks with the same
//! beginning took is added up where they part, and counted for the functions of that beginning when the last of them is left.
//! `bench/profile-store` measures it.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use prost::Message;
use prost::encoding::decode_varint;

use super::file::{PprofError, PprofFile, RawSample, each_sample, missing, raw};
use super::message::Dictionary;
use super::stacks::Stacks;
use crate::filter::{Filter, matches};
use crate::profile::{FrameKind, Profile, Weight, Window};
use crate::top::{Group, Row, Table, table};
use crate::work::Work;

/// A file's table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scanned {
    /// When it was recorded.
    pub window: Window,
    /// How often a second each core was sampled.
    pub frequency_hz: f64,
    /// Samples that were lost.
    pub lost: u64,
    /// What was asked for, in no order.
    pub table: Table,
    /// Whether there are addresses without names.
    pub has_addresses: bool,
    /// Log events that passed, by the value of the label that rows are of.
    pub events: HashMap<String, u64>,
}

impl Scanned {
    /// That of a profile which is read already.
    pub fn of(profile: &Profile, filter: &Filter, group: &Group) -> Self {
        let mut events: HashMap<String, u64> = HashMap::new();
        let matching = filter.of(profile);
        for (labels, count) in profile.events() {
            if matching.takes_labels(labels) {
                let name = match group {
                    Group::Function => "",
                    Group::Label(name) => profile.label_of(labels, name).unwrap_or_default(),
                };
                *events.entry(name.to_owned()).or_default() += count;
            }
        }
        Self {
            window: profile.window,
            frequency_hz: profile.frequency_hz,
            lost: profile.lost,
            table: table(profile, filter, group),
            has_addresses: false,
            events,
        }
    }
}

/// Scans one file after the other.
#[derive(Debug, Default)]
pub struct Scanner {
    /// The file at hand, decompressed; as large as the largest one.
    buffer: Vec<u8>,
}

/// The table of one pprof file, as by [`Scanner::scan`].
///
/// # Errors
/// It is no pprof file, it is damaged, or it is not about processor time.
pub fn scan(bytes: &[u8], filter: &Filter, group: &Group) -> Result<Scanned, PprofError> {
    Scanner::default().scan(bytes, filter, group)
}

impl Scanner {
    /// The table of a pprof file, compressed or not: what [`crate::top::table`] makes of the profile that [`super::read`] reads, in no order.
    ///
    /// # Errors
    /// It is no pprof file, it is damaged, or it is not about processor time.
    pub fn scan(
        &mut self,
        bytes: &[u8],
        filter: &Filter,
        group: &Group,
    ) -> Result<Scanned, PprofError> {
        self.scan_with(bytes, filter, group, false)
    }

    /// The same of a table that [`super::write_table`] has written, by its labels. Which functions called others is not known: the filter may not ask
    /// for any.
    ///
    /// # Errors
    /// It is no such table.
    pub fn scan_table(
        &mut self,
        bytes: &[u8],
        filter: &Filter,
        group: &Group,
    ) -> Result<Scanned, PprofError> {
        self.scan_with(bytes, filter, group, true)
    }

    fn scan_with(
        &mut self,
        bytes: &[u8],
        filter: &Filter,
        group: &Group,
        are_rows: bool,
    ) -> Result<Scanned, PprofError> {
        let raw = raw(bytes, &mut self.buffer)?;
        let dictionary = Dictionary::decode(raw)?;
        let file = PprofFile::new(raw, &dictionary)?;
        let head = file.empty_profile()?;
        let mut scan = Scan::new(&file, filter, group, Work::of(raw.len()))?;
        scan.has_addresses |= file.says_addresses();
        each_sample(raw, |sample| match are_rows {
            true => scan.count_row(sample),
            false => scan.count(sample),
        })?;
        Ok(Scanned {
            window: head.window,
            frequency_hz: head.frequency_hz,
            lost: head.lost,
            table: scan.finish(),
            has_addresses: scan.has_addresses,
            events: scan.events,
        })
    }
}

/// What is known of a location.
#[derive(Debug, Clone, Copy, Default)]
struct LocationRows {
    /// Where the rows of its functions begin in the list of all, the innermost first.
    first: u32,
    /// How many there are.
    count: u32,
    /// Whether one of them is what the filter asks for.
    is_wanted: bool,
}

/// What is known of a set of labels.
#[derive(Debug, Clone, Copy)]
struct LabelSet {
    is_taken: bool,
    /// The row of its value, where rows are of a label.
    row: u32,
}

/// A location of the stack at hand.
#[derive(Debug, Clone, Copy)]
struct Level {
    place: LocationRows,
    /// What the stacks took that have it and the locations outside of it; those that are to come are missing.
    weight: Weight,
}

struct Scan<'f> {
    file: &'f PprofFile<'f>,
    filter: &'f Filter,
    group: &'f Group,
    work: Work,
    places: Places,
    /// The rows of the functions of all places.
    place_rows: Vec<u32>,
    sets: HashMap<Cow<'f, [u8]>, LabelSet, RandomState>,
    /// The labels of the last sample.
    last_set: Option<(Cow<'f, [u8]>, LabelSet)>,
    label_rows: HashMap<String, u32>,
    rows: Vec<Named<'f>>,
    /// What was counted for each row.
    tallies: Vec<Tally>,
    stacks: Stacks,
    /// The stack at hand, from the outermost location on.
    levels: Vec<Level>,
    /// How many of these locations the filter asks for.
    wanted_levels: u32,
    all: Weight,
    has_addresses: bool,
    events: HashMap<String, u64>,
}

impl<'f> Scan<'f> {
    fn new(
        file: &'f PprofFile<'f>,
        filter: &'f Filter,
        group: &'f Group,
        work: Work,
    ) -> Result<Self, PprofError> {
        let mut scan = Self {
            file,
            filter,
            group,
            work,
            places: Places::default(),
            place_rows: Vec::new(),
            sets: HashMap::default(),
            last_set: None,
            label_rows: HashMap::new(),
            rows: Vec::new(),
            stacks: Stacks::default(),
            levels: Vec::new(),
            wanted_levels: 0,
            tallies: Vec::new(),
            all: Weight::default(),
            has_addresses: false,
            events: HashMap::new(),
        };
        scan.places = scan.places()?;
        scan.tallies = vec![Tally::default(); scan.rows.len()];
        Ok(scan)
    }

    fn is_of_functions(&self) -> bool {
        *self.group == Group::Function
    }

    fn places(&mut self) -> Result<Places, PprofError> {
        let is_of_functions = self.is_of_functions();
        let wanted = self.filter.function.as_ref();
        let wanted = wanted.map(|text| text.to_lowercase());
        let mut known: HashMap<(Cow<'f, str>, Cow<'f, str>), u32, RandomState> = HashMap::default();
        let file = self.file;
        let mut places = Places::default();
        for location in file.locations() {
            let first = self.place_rows.len();
            let mut is_wanted = false;
            let (rows, place_rows) = (&mut self.rows, &mut self.place_rows);
            self.has_addresses |= location.lines.is_empty() && location.address != 0;
            file.frames(location, &mut self.work, |frame| {
                let name = match frame.function.is_empty() {
                    true => Cow::Owned(frame.name().into_owned()),
                    false => frame.function.clone(),
                };
                is_wanted |= wanted
                    .as_ref()
                    .is_some_and(|text| name.to_lowercase().contains(&**text));
                if is_of_functions {
                    let row = known.entry((name, frame.binary.clone()));
                    let row = *row.or_insert_with_key(|(name, binary)| {
                        let kind = Some(frame.kind());
                        rows.push(Named {
                            name: name.clone(),
                            binary: binary.clone(),
                            kind,
                        });
                        rows.len() as u32 - 1
                    });
                    place_rows.push(row);
                }
            })?;
            // From the innermost on.
            self.place_rows[first..].reverse();
            let place = LocationRows {
                first: first as u32,
                count: (self.place_rows.len() - first) as u32,
                is_wanted,
            };
            places.insert(location.id, place);
        }
        Ok(places)
    }

    fn count(&mut self, sample: &RawSample<'f>) -> Result<(), PprofError> {
        let set = self.set(sample)?;
        let weight = self.file.values.weight(&sample.values)?;
        if !set.is_taken {
            return Ok(());
        }
        self.count_events(sample, set);
        if self.is_of_functions() || self.filter.function.is_some() {
            self.go_to(sample.locations())?;
        }
        if self.filter.function.is_some() && self.wanted_levels == 0 {
            return Ok(());
        }
        self.all += weight;
        if !self.is_of_functions() {
            let tally = &mut self.tallies[set.row as usize];
            tally.own += weight;
            tally.total += weight;
        } else if let Some(level) = self.levels.last_mut() {
            level.weight += weight;
            if let Some(row) = self.place_rows.get(level.place.first as usize) {
                self.tallies[*row as usize].own += weight;
            }
        }
        Ok(())
    }

    fn count_events(&mut self, sample: &RawSample<'f>, set: LabelSet) {
        let events = self.file.values.events(&sample.values);
        if events > 0 {
            let name = self.rows.get(set.row as usize);
            let name = name.filter(|_| !self.is_of_functions());
            let name = name.map_or_else(String::new, |row| row.name.to_string());
            *self.events.entry(name).or_default() += events;
        }
    }

    /// Counts a row of a table.
    fn count_row(&mut self, sample: &RawSample<'f>) -> Result<(), PprofError> {
        let set = self.set(sample)?;
        let own = self.file.values.weight(&sample.values)?;
        let total = self.file.values.total(&sample.values)?;
        if !set.is_taken {
            return Ok(());
        }
        self.count_events(sample, set);
        self.all += own;
        let mut locations = sample.locations();
        let (row, total) = match (self.is_of_functions(), locations) {
            (true, []) => return Ok(()),
            (true, _) => {
                let location = decode_varint(&mut locations)?;
                let place = self.places.get(location);
                let place = *place.ok_or(missing("location", location as i64))?;
                let rows = rows_of(&self.place_rows, place);
                let row = rows.first();
                (*row.ok_or(missing("location", location as i64))?, total)
            }
            (false, _) => (set.row, own),
        };
        let tally = &mut self.tallies[row as usize];
        tally.own += own;
        tally.total += total;
        Ok(())
    }

    /// Goes to another stack. What is left behind has been counted.
    fn go_to(&mut self, locations: &[u8]) -> Result<(), PprofError> {
        let kept = self.stacks.go_to(locations)?;
        while self.levels.len() > kept {
            self.leave();
        }
        for location in self.stacks.fresh() {
            let place = self.places.get(location);
            let place = *place.ok_or(missing("location", location as i64))?;
            for row in rows_of(&self.place_rows, place) {
                self.work.frame(0)?;
                self.tallies[*row as usize].on_stack += 1;
            }
            self.wanted_levels += u32::from(place.is_wanted);
            let weight = Weight::default();
            self.levels.push(Level { place, weight });
        }
        Ok(())
    }

    /// Leaves the innermost location, and counts its functions unless they are further out on the stack as well.
    fn leave(&mut self) {
        let Some(Level { place, weight }) = self.levels.pop() else {
            return;
        };
        self.wanted_levels -= u32::from(place.is_wanted);
        for row in rows_of(&self.place_rows, place) {
            let tally = &mut self.tallies[*row as usize];
            tally.on_stack -= 1;
            if tally.on_stack == 0 {
                tally.total += weight;
            }
        }
        if let Some(caller) = self.levels.last_mut() {
            caller.weight += weight;
        }
    }

    /// What was counted.
    fn finish(&mut self) -> Table {
        while !self.levels.is_empty() {
            self.leave();
        }
        let rows = std::mem::take(&mut self.rows).into_iter();
        let rows = rows.zip(&self.tallies);
        let rows = rows.filter(|(_, tally)| tally.total != Weight::default());
        Table {
            rows: rows.map(|(row, tally)| row.with(tally)).collect(),
            all: self.all,
        }
    }

    fn set(&mut self, sample: &RawSample<'f>) -> Result<LabelSet, PprofError> {
        let bytes = sample.label_bytes();
        if let Some((last, set)) = &self.last_set
            && *last == bytes
        {
            return Ok(*set);
        }
        let set = match self.sets.get(&bytes) {
            Some(known) => *known,
            None => {
                let set = self.new_set(&sample.labels)?;
                self.sets.insert(bytes.clone(), set);
                set
            }
        };
        self.last_set = Some((bytes, set));
        Ok(set)
    }

    /// What is known of the labels of a sample.
    fn new_set(&mut self, labels: &[&[u8]]) -> Result<LabelSet, PprofError> {
        let mut named = self.file.labels(labels, &mut self.work)?;
        // Of several values of a name the last one counts.
        named.reverse();
        let value = |name: &str| {
            let found = named.iter().find(|(known, _)| *known == name);
            found.map_or("", |(_, value)| &**value)
        };
        let fits = |name: &str| {
            let mut wanted = self.filter.labels.iter().filter(|(known, _)| known == name);
            wanted.any(|(_, pattern)| matches(pattern, value(name)))
        };
        let is_taken = self.filter.labels.iter().all(|(name, _)| fits(name));
        let row = match self.group {
            Group::Function => 0,
            Group::Label(name) => {
                let value = value(name);
                match self.label_rows.get(value) {
                    Some(row) => *row,
                    None => {
                        let row = self.rows.len() as u32;
                        let name = Cow::Owned(value.to_owned());
                        self.rows.push(Named {
                            name,
                            binary: "".into(),
                            kind: None,
                        });
                        self.tallies.push(Tally::default());
                        self.label_rows.insert(value.to_owned(), row);
                        row
                    }
                }
            }
        };
        Ok(LabelSet { is_taken, row })
    }
}

fn rows_of(all: &[u32], place: LocationRows) -> &[u32] {
    let first = place.first as usize;
    all.get(first..first + place.count as usize)
        .unwrap_or_default()
}

/// What was counted for a row.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    own: Weight,
    total: Weight,
    /// How often its function is on the stack at hand.
    on_stack: u32,
}

/// The names of a row, as they stand in the file.
#[derive(Debug)]
struct Named<'f> {
    name: Cow<'f, str>,
    binary: Cow<'f, str>,
    kind: Option<FrameKind>,
}

impl Named<'_> {
    fn with(self, tally: &Tally) -> Row {
        Row {
            name: self.name.into_owned(),
            binary: self.binary.into_owned(),
            kind: self.kind,
            own: tally.own,
            total: tally.total,
        }
    }
}

/// Locations by their ids, which most writers count from 1.
#[derive(Debug, Default)]
struct Places {
    dense: Vec<Option<LocationRows>>,
    sparse: HashMap<u64, LocationRows>,
}

/// Ids below this are numbers of a list.
const DENSE_MAX: u64 = 1 << 22;

impl Places {
    fn insert(&mut self, id: u64, place: LocationRows) {
        // A list may not grow much faster than there are locations.
        let room = 2 * (self.dense.len() as u64 + 1024);
        if id < DENSE_MAX.min(room) {
            let index = id as usize;
            if self.dense.len() <= index {
                self.dense.resize(index + 1, None);
            }
            self.dense[index] = Some(place);
        } else {
            self.sparse.insert(id, place);
        }
    }

    fn get(&self, id: u64) -> Option<&LocationRows> {
        let dense = usize::try_from(id)
            .ok()
            .and_then(|index| self.dense.get(index));
        match dense {
            Some(Some(place)) => Some(place),
            _ => self.sparse.get(&id),
        }
    }
}
