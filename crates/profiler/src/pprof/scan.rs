//! The table of a pprof file, without making a profile of it: each sample is read once and kept nowhere.
//!
//! A day of a fleet has millions of stacks. Making a profile of them finds a place for each frame of each stack; a table only needs to know
//! which functions are on a stack. `bench/profile-store` compares.

use std::collections::HashMap;

use prost::Message;

use super::file::{PprofError, PprofFile, RawSample, each_sample, missing, raw};
use super::message::Dictionary;
use crate::filter::{Filter, matches};
use crate::profile::{FrameKind, Weight, Window};
use crate::top::{Group, Row, Table};
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

/// The table of a pprof file, compressed or not: what [`crate::top::table`] makes of the profile that [`super::read`] reads, in no order.
///
/// # Errors
/// It is no pprof file, it is damaged, or it is not about processor time.
pub fn scan(bytes: &[u8], filter: &Filter, group: &Group) -> Result<Scanned, PprofError> {
    let raw = raw(bytes)?;
    let dictionary = Dictionary::decode(&*raw)?;
    let file = PprofFile::new(&dictionary)?;
    let head = file.empty_profile()?;
    let mut scan = Scan::new(&file, filter, group, Work::of(raw.len()))?;
    each_sample(&raw, |sample| scan.count(sample))?;
    let mut rows = scan.rows;
    rows.retain(|row| row.total != Weight::default());
    Ok(Scanned {
        window: head.window,
        frequency_hz: head.frequency_hz,
        lost: head.lost,
        table: Table {
            rows,
            all: scan.all,
        },
        has_addresses: scan.has_addresses,
        events: scan.events,
    })
}

/// What is known of a location.
#[derive(Debug, Clone, Default)]
struct Place {
    /// The rows of its functions, from the innermost on.
    rows: Vec<u32>,
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

struct Scan<'f> {
    file: &'f PprofFile<'f>,
    filter: &'f Filter,
    group: &'f Group,
    work: Work,
    places: Places,
    sets: HashMap<Vec<u8>, LabelSet>,
    label_rows: HashMap<String, u32>,
    key: Vec<u8>,
    rows: Vec<Row>,
    /// The last sample in which each row was seen.
    seen_in: Vec<u32>,
    sample: u32,
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
            sets: HashMap::new(),
            label_rows: HashMap::new(),
            key: Vec::new(),
            rows: Vec::new(),
            seen_in: Vec::new(),
            sample: 0,
            all: Weight::default(),
            has_addresses: false,
            events: HashMap::new(),
        };
        scan.places = scan.places()?;
        scan.seen_in = vec![0; scan.rows.len()];
        Ok(scan)
    }

    fn places(&mut self) -> Result<Places, PprofError> {
        let is_of_functions = *self.group == Group::Function;
        let wanted = self.filter.function.as_ref();
        let wanted = wanted.map(|text| text.to_lowercase());
        let mut known: HashMap<(String, String), u32> = HashMap::new();
        let mut places = Places::default();
        for location in self.file.locations() {
            let mut place = Place::default();
            let rows = &mut self.rows;
            self.has_addresses |= location.lines.is_empty() && location.address != 0;
            self.file.frames(location, &mut self.work, |frame| {
                let name = frame.name();
                place.is_wanted |= wanted
                    .as_ref()
                    .is_some_and(|text| name.to_lowercase().contains(&**text));
                if is_of_functions {
                    let key = (name.into_owned(), frame.binary.clone().into_owned());
                    let row = known.entry(key);
                    let row = *row.or_insert_with_key(|(name, binary)| {
                        rows.push(empty_row(name, binary, Some(frame.kind())));
                        rows.len() as u32 - 1
                    });
                    place.rows.push(row);
                }
            })?;
            // From the innermost on.
            place.rows.reverse();
            places.insert(location.id, place);
        }
        Ok(places)
    }

    fn count(&mut self, sample: &RawSample<'_>) -> Result<(), PprofError> {
        let set = self.set(&sample.labels)?;
        let weight = self.file.values.weight(&sample.values)?;
        let events = self.file.values.events(&sample.values);
        let is_wanted = self.walk(sample, set, weight)?;
        if !set.is_taken {
            return Ok(());
        }
        if events > 0 {
            let name = self.rows.get(set.row as usize);
            let name = name.filter(|_| *self.group != Group::Function);
            let name = name.map_or_else(String::new, |row| row.name.clone());
            *self.events.entry(name).or_default() += events;
        }
        if is_wanted {
            self.all += weight;
            if *self.group != Group::Function {
                let row = &mut self.rows[set.row as usize];
                row.own += weight;
                row.total += weight;
            }
        }
        Ok(())
    }

    /// Counts the functions of a stack; whether the filter takes the stack.
    fn walk(
        &mut self,
        sample: &RawSample<'_>,
        set: LabelSet,
        weight: Weight,
    ) -> Result<bool, PprofError> {
        let mut is_wanted = self.filter.function.is_none();
        for location in &sample.locations {
            let place = self.places.get(*location);
            let place = place.ok_or(missing("location", *location as i64))?;
            is_wanted |= place.is_wanted;
        }
        if !(is_wanted && set.is_taken) || *self.group != Group::Function {
            return Ok(is_wanted);
        }
        self.sample += 1;
        let mut is_innermost = true;
        for location in &sample.locations {
            let Some(place) = self.places.get(*location) else {
                continue;
            };
            for row in &place.rows {
                self.work.frame(0)?;
                let index = *row as usize;
                if is_innermost {
                    self.rows[index].own += weight;
                    is_innermost = false;
                }
                if self.seen_in[index] != self.sample {
                    self.seen_in[index] = self.sample;
                    self.rows[index].total += weight;
                }
            }
        }
        Ok(true)
    }

    /// What is known of the labels of a sample.
    fn set(&mut self, labels: &[&[u8]]) -> Result<LabelSet, PprofError> {
        self.key.clear();
        for label in labels {
            self.key.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
            self.key.extend_from_slice(label);
        }
        if let Some(known) = self.sets.get(&*self.key) {
            return Ok(*known);
        }
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
                        self.rows.push(empty_row(value, "", None));
                        self.label_rows.insert(value.to_owned(), row);
                        row
                    }
                }
            }
        };
        let set = LabelSet { is_taken, row };
        self.sets.insert(self.key.clone(), set);
        Ok(set)
    }
}

fn empty_row(name: &str, binary: &str, kind: Option<FrameKind>) -> Row {
    Row {
        name: name.to_owned(),
        binary: binary.to_owned(),
        kind,
        own: Weight::default(),
        total: Weight::default(),
    }
}

/// Locations by their ids, which most writers count from 1.
#[derive(Debug, Default)]
struct Places {
    dense: Vec<Option<Place>>,
    sparse: HashMap<u64, Place>,
}

/// Ids below this are numbers of a list.
const DENSE_MAX: u64 = 1 << 22;

impl Places {
    fn insert(&mut self, id: u64, place: Place) {
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

    fn get(&self, id: u64) -> Option<&Place> {
        let dense = usize::try_from(id)
            .ok()
            .and_then(|index| self.dense.get(index));
        match dense {
            Some(Some(place)) => Some(place),
            _ => self.sparse.get(&id),
        }
    }
}
