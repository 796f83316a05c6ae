//! The groups of events that are open, and what is kept of each.
//!
//! The time of events ([`GroupClock`]) advances to what two events in succession have reached, and no further than they were received: a single event with a wrong
//! time ends no group but its own. A group is active up to the time of its last event, or up to the time that had been reached when it came, if that is
//! later: where events are read that are older than others before them, their groups do not end at once. What happens depends on the sequence of events
//! alone, not on how they are divided into batches.
//!
//! Each group has one entry in `due`, at a time no later than the one up to which it is active; the entry is moved when it is its turn. So an event that joins a
//! group moves nothing, and the first entry that stands at its group's time is that of the group that was active the least.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::remembered::{SENSELESS, SavedBytes, save_text};

const VERSION: u64 = 1;

/// What is kept of events that belong together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// The first event: its id, and behind that its document as JSON.
    pub text: Box<[u8]>,
    pub id_len: usize,
    pub events: u64,
    /// The times of its events.
    pub earliest: i64,
    pub latest: i64,
    /// What is collected of each field: JSON values with commas between them. Of fields of which the last value counts, that one.
    pub values: Box<[Vec<u8>]>,
    /// When it came, among all of them.
    number: u64,
    /// Up to when it is active.
    active: i64,
    /// The time of its entry in `due`.
    entered: i64,
}

impl Group {
    /// What it takes beside its key and what is the same for each group, in bytes.
    pub fn size(&self) -> usize {
        self.text.len() + self.values.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether a time is that far from those of its events.
    pub fn is_apart(&self, time: i64, timeout: i64) -> bool {
        time.saturating_sub(self.latest) > timeout || self.earliest.saturating_sub(time) > timeout
    }
}

/// How a group ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By its last event, or before the first one of another group.
    ByEvent,
    /// Nothing came for the time-out.
    ByTime,
    /// It made room, because there were too many groups, or too much in it.
    ForRoom,
    /// The run ended.
    AtEnd,
}

/// When an event happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoundedTime {
    pub time: i64,
    /// The same, but no later than it was received.
    pub bounded: i64,
}

/// How far the time of events has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupClock {
    reached: i64,
    /// The time of the event before, no later than it was received.
    before: i64,
}

impl Default for GroupClock {
    fn default() -> Self {
        Self {
            reached: i64::MIN,
            before: i64::MIN,
        }
    }
}

impl GroupClock {
    /// An event of this time came. Whether the time of events has advanced.
    fn advance(&mut self, time: i64) -> bool {
        let both = time.min(self.before);
        self.before = time;
        let has_advanced = both > self.reached;
        self.reached = self.reached.max(both);
        has_advanced
    }
}

/// Groups by their keys.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenGroups {
    groups: HashMap<Arc<[u8]>, Group, foldhash::quality::RandomState>,
    /// The keys of all groups, by the times of their entries and by their numbers.
    due: BTreeMap<(i64, u64), Arc<[u8]>>,
    next: u64,
    clock: GroupClock,
}

impl OpenGroups {
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// The group of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Group> {
        self.groups.get(key)
    }

    /// Opens a group for its first event.
    pub fn open(
        &mut self,
        key: &[u8],
        (text, id_len): (Vec<u8>, usize),
        at: BoundedTime,
        fields: usize,
    ) {
        let number = self.next;
        self.next += 1;
        let active = at.bounded.max(self.clock.reached);
        let group = Group {
            text: text.into(),
            id_len,
            events: 0,
            earliest: at.time,
            latest: at.time,
            values: vec![Vec::new(); fields].into(),
            number,
            active,
            entered: active,
        };
        self.enter(key.into(), group);
    }

    /// Adds a group of a key that has none.
    fn enter(&mut self, key: Arc<[u8]>, group: Group) {
        self.due.insert((group.entered, group.number), key.clone());
        self.groups.insert(key, group);
    }

    /// Ends the group of a key.
    pub fn remove(&mut self, key: &[u8]) -> Option<Group> {
        let group = self.groups.remove(key)?;
        self.due.remove(&(group.entered, group.number));
        Some(group)
    }

    /// Ends the group that was active the least, if that was before a time.
    fn remove_first(&mut self, before: i64) -> Option<Group> {
        while let Some(entry) = self.due.first_entry() {
            let (entered, number) = *entry.key();
            if entered >= before {
                return None;
            }
            let key = entry.remove();
            // Every entry has a group.
            let group = self.groups.get_mut(&key)?;
            if group.active == entered {
                return self.groups.remove(&key);
            }
            group.entered = group.active;
            self.due.insert((group.entered, number), key);
        }
        None
    }

    /// Ends the group whose last event was the longest time ago.
    pub fn remove_oldest(&mut self) -> Option<Group> {
        self.remove_first(i64::MAX)
    }

    /// Counts an event with its group.
    pub fn join(&mut self, key: &[u8], at: BoundedTime) -> Option<&mut Group> {
        let group = self.groups.get_mut(key)?;
        group.events += 1;
        group.earliest = group.earliest.min(at.time);
        group.latest = group.latest.max(at.time);
        group.active = group.active.max(at.bounded).max(self.clock.reached);
        Some(group)
    }

    /// An event came, that has joined its group. Gives the groups of which no event came for the time-out, the oldest first.
    pub fn advance(&mut self, at: BoundedTime, timeout: i64) -> Vec<Group> {
        let has_advanced = self.clock.advance(at.bounded);
        if !has_advanced {
            return Vec::new();
        }
        let before = self.clock.reached.saturating_sub(timeout);
        std::iter::from_fn(|| self.remove_first(before)).collect()
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
        let (reached, before) = (self.clock.reached, self.clock.before);
        for number in [
            VERSION,
            self.next,
            reached.cast_unsigned(),
            before.cast_unsigned(),
        ] {
            out.extend(number.to_le_bytes());
        }
        let mut all: Vec<_> = self.groups.iter().collect();
        all.sort_by_key(|(_, group)| group.number);
        for (key, group) in all {
            for number in [group.number, group.events, group.id_len as u64] {
                out.extend(number.to_le_bytes());
            }
            for time in [group.earliest, group.latest, group.active] {
                out.extend(time.to_le_bytes());
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
            return Err("it was kept by another version of Millpond".to_owned());
        }
        read_groups(&mut saved, fields).ok_or_else(|| SENSELESS.to_owned())
    }
}

/// The groups that were saved, behind the version.
fn read_groups(saved: &mut SavedBytes<'_>, fields: usize) -> Option<OpenGroups> {
    let mut open = OpenGroups {
        next: saved.number()?,
        ..OpenGroups::default()
    };
    open.clock.reached = saved.number()?.cast_signed();
    open.clock.before = saved.number()?.cast_signed();
    while !saved.0.is_empty() {
        let (key, group) = read_group(saved, fields)?;
        open.enter(key, group);
    }
    Some(open)
}

fn read_group(saved: &mut SavedBytes<'_>, fields: usize) -> Option<(Arc<[u8]>, Group)> {
    let number = saved.number()?;
    let events = saved.number()?;
    let id_len = saved.len()?;
    let earliest = saved.number()?.cast_signed();
    let latest = saved.number()?.cast_signed();
    let active = saved.number()?.cast_signed();
    let key = saved.text()?.into();
    let text: Box<[u8]> = saved.text()?.into();
    let values = (0..fields).map(|_| saved.text().map(<[u8]>::to_vec));
    let values = values.collect::<Option<Box<[_]>>>()?;
    let group = Group {
        text,
        id_len,
        events,
        earliest,
        latest,
        values,
        number,
        active,
        entered: active,
    };
    (id_len <= group.text.len()).then_some((key, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_group_that_ended() {
        let mut open = OpenGroups::default();
        for n in 0..1_000_i64 {
            let key = n.to_le_bytes();
            let at = BoundedTime {
                time: n,
                bounded: n,
            };
            open.open(&key, (Vec::new(), 0), at, 1);
            assert!(open.advance(at, i64::MAX).is_empty());
            if n % 10 != 0 {
                assert!(open.remove(&key).is_some());
            }
            assert_eq!(open.due.len(), open.groups.len());
        }
        assert_eq!(open.groups.len(), 100);
        assert_eq!(open.remove_oldest().map(|group| group.earliest), Some(0));
        assert_eq!((open.due.len(), open.groups.len()), (99, 99));
    }
}
