//! The groups of events that are open, and what is kept of each.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::remembered::{SENSELESS, SavedBytes, save_text};

const VERSION: u64 = 1;

/// What is kept of events that belong together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// The first event: its id, and behind that its document as JSON.
    pub text: Box<[u8]>,
    pub id_len: usize,
    pub events: u64,
    /// The times of its events.
    pub earliest: i64,
    pub latest: i64,
    /// What is collected of each field: JSON values with commas between them. Of fields of which the last value counts, that one.
    pub values: Vec<Vec<u8>>,
    /// When it came, among all of them.
    number: u64,
}

/// How a group ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By its last event, or before the first one of another group.
    ByEvent,
    /// Nothing came for the time-out.
    ByTime,
    /// It made room, because there were too many groups or events.
    ForRoom,
    /// The run ended.
    AtEnd,
}

/// Groups by their keys.
#[derive(Debug, Clone)]
pub(super) struct OpenGroups {
    groups: HashMap<Box<[u8]>, Group, foldhash::quality::RandomState>,
    /// The keys by the time at which their groups may be over, which is looked up again then.
    due: BTreeMap<(i64, u64), Box<[u8]>>,
    next: u64,
    /// How far the time of events has come.
    reached: i64,
}

impl Default for OpenGroups {
    fn default() -> Self {
        Self {
            groups: HashMap::default(),
            due: BTreeMap::new(),
            next: 0,
            reached: i64::MIN,
        }
    }
}

impl OpenGroups {
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// The group of a key.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Group> {
        self.groups.get_mut(key)
    }

    /// Opens a group with its first event.
    pub fn open(&mut self, key: &[u8], text: Vec<u8>, id_len: usize, time: i64, fields: usize) {
        let number = self.next;
        self.next += 1;
        self.due.insert((time, number), key.into());
        let group = Group {
            text: text.into(),
            id_len,
            events: 0,
            earliest: time,
            latest: time,
            values: vec![Vec::new(); fields],
            number,
        };
        self.groups.insert(key.into(), group);
    }

    /// Ends the group of a key.
    pub fn remove(&mut self, key: &[u8]) -> Option<Group> {
        self.groups.remove(key)
    }

    /// Ends the group whose last event is the oldest, about.
    pub fn remove_oldest(&mut self) -> Option<Group> {
        while let Some(((_, number), key)) = self.due.pop_first() {
            if self
                .groups
                .get(&key)
                .is_some_and(|group| group.number == number)
            {
                return self.groups.remove(&key);
            }
        }
        None
    }

    /// An event of this time was received then.
    pub fn reach(&mut self, time: i64, received: i64) {
        self.reached = self.reached.max(time.min(received));
    }

    /// Ends the groups of which no event came for so long, the oldest first.
    pub fn take_over(&mut self, timeout: i64) -> Vec<Group> {
        let mut over = Vec::new();
        let before = self.reached.saturating_sub(timeout);
        while let Some(entry) = self.due.first_entry() {
            let (time, number) = *entry.key();
            if time >= before {
                break;
            }
            let key = entry.remove();
            let group = self.groups.get(&key).filter(|group| group.number == number);
            match group.map(|group| group.latest) {
                Some(latest) if latest >= before => drop(self.due.insert((latest, number), key)),
                Some(_) => over.extend(self.groups.remove(&key)),
                None => {}
            }
        }
        over
    }

    /// Ends all groups, in the order in which they came.
    pub fn take_all(&mut self) -> Vec<Group> {
        self.due.clear();
        let mut all: Vec<Group> = self.groups.drain().map(|(_, group)| group).collect();
        all.sort_by_key(|group| group.number);
        all
    }

    /// All of it, as bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [VERSION, self.next, self.reached.cast_unsigned()] {
            out.extend(number.to_le_bytes());
        }
        let mut all: Vec<_> = self.groups.iter().collect();
        all.sort_by_key(|(_, group)| group.number);
        for (key, group) in all {
            let (earliest, latest) = (group.earliest, group.latest);
            for number in [
                group.number,
                group.events,
                earliest.cast_unsigned(),
                latest.cast_unsigned(),
                group.id_len as u64,
            ] {
                out.extend(number.to_le_bytes());
            }
            let values = group.values.iter().map(|values| &values[..]);
            for text in [&key[..], &group.text].into_iter().chain(values) {
                save_text(text, &mut out);
            }
        }
        out
    }

    /// What was saved with the same settings, for so many fields.
    pub fn restore(saved: &[u8], fields: usize) -> Result<Self, String> {
        let mut saved = SavedBytes(saved);
        if saved.number() != Some(VERSION) {
            return Err("it was kept by a later version of Millpond".to_owned());
        }
        read_groups(&mut saved, fields).ok_or_else(|| SENSELESS.to_owned())
    }
}

/// The groups that were saved, behind the version.
fn read_groups(saved: &mut SavedBytes<'_>, fields: usize) -> Option<OpenGroups> {
    let mut open = OpenGroups {
        next: saved.number()?,
        reached: saved.number()?.cast_signed(),
        ..OpenGroups::default()
    };
    while !saved.0.is_empty() {
        let number = saved.number()?;
        let events = saved.number()?;
        let earliest = saved.number()?.cast_signed();
        let latest = saved.number()?.cast_signed();
        let id_len = saved.len()?;
        let key: Box<[u8]> = saved.text()?.into();
        let text: Box<[u8]> = saved.text()?.into();
        let values = (0..fields).map(|_| saved.text().map(<[u8]>::to_vec));
        let values = values.collect::<Option<Vec<_>>>()?;
        if id_len > text.len() {
            return None;
        }
        open.due.insert((latest, number), key.clone());
        let group = Group {
            text,
            id_len,
            events,
            earliest,
            latest,
            values,
            number,
        };
        open.groups.insert(key, group);
    }
    Some(open)
}
