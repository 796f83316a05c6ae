//! By what a second pass over a refused event is known.
//!
//! Within a run it is the batch's sequence in the queue, the row, the event's id and the place that refused it: the same of all
//! these comes twice only where an output gets a batch again. A later run numbers its batches anew, so that a letter of an
//! earlier run is known by the event's id and content, its `@timestamp` left out, which may be the time of reading. Each such letter stands for one event: a second event of the same id and
//! content makes a second letter.
//!
//! Limits: an event whose content is another one each time that it is processed (`now()`) can have a second letter after a crash.

use std::collections::{HashMap, HashSet, VecDeque};

use batch::fnv::Fnv128;
use batch::{Batch, Bitmap, Edit, FieldPath, JsonWriter, Reentry};

use super::component;

/// So many letters of earlier runs, and so many refused events of this one, are known.
pub const KEYS_MAX: usize = 1 << 18;

/// What was refused in this run, and the letters of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// What was seen in this run. The oldest is forgotten.
    seen: HashSet<u128>,
    order: VecDeque<u128>,
    /// The newest letter of earlier runs for each event.
    earlier: HashMap<u128, u64>,
    /// The next older letter of the same event.
    older: HashMap<u64, u64>,
}

impl Keys {
    /// Notes that something was refused; false where that is known.
    pub fn see(&mut self, key: u128) -> bool {
        if !self.seen.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }

    /// What was seen has no letter after all.
    pub fn forget(&mut self, key: u128) {
        self.seen.remove(&key);
    }

    /// A letter of an earlier run.
    pub fn insert(&mut self, event: u128, number: u64) {
        if let Some(older) = self.earlier.insert(event, number) {
            self.older.insert(number, older);
        }
    }

    pub fn has_earlier(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// Takes a letter of an earlier run for an event, so that no other event is taken for it. `is_gone` says of a number whether its
    /// letter was removed.
    pub fn claim(&mut self, event: u128, is_gone: impl Fn(u64) -> bool) -> Option<u64> {
        while let Some(number) = self.earlier.remove(&event) {
            if let Some(older) = self.older.remove(&number) {
                self.earlier.insert(event, older);
            }
            if !is_gone(number) {
                return Some(number);
            }
        }
        None
    }
}

/// The events of a batch without their `@timestamp`, which may be the time at which they were read.
pub(super) fn without_time(batch: &Batch) -> Batch {
    let mut content = batch.snapshot();
    let mut edit = Edit::new();
    let all = Bitmap::from_fn(content.len(), |_| true);
    edit.remove(FieldPath::from_keys(["@timestamp"]), &all);
    // Where it cannot be removed there is none.
    content.apply(edit);
    content
}

/// The keys of rows that a place refused.
pub(super) struct KeysOf<'b> {
    batch: &'b Batch,
    place: Fnv128,
    buffer: Vec<u8>,
}

impl<'b> KeysOf<'b> {
    pub fn new(batch: &'b Batch, at: &Reentry) -> Self {
        let (role, name) = component(at);
        let index = match at {
            Reentry::Processor { index, .. } | Reentry::OutputProcessor { index, .. } => *index,
            Reentry::Start | Reentry::Output { .. } => 0,
        };
        let mut place = Fnv128::new();
        place.add_part(role.as_bytes());
        place.add_part(name.as_bytes());
        place.add_part(&index.to_le_bytes());
        Self {
            batch,
            place,
            buffer: Vec::new(),
        }
    }

    /// The row of a batch of this run.
    pub fn row(&mut self, sequence: u64, row: usize) -> u128 {
        let mut hash = self.with_id(row);
        hash.add_part(b"row");
        hash.add_part(&sequence.to_le_bytes());
        hash.add_part(&(row as u64).to_le_bytes());
        hash.value()
    }

    /// The event, in whichever run, by what [`without_time`] leaves of it.
    pub fn event(&mut self, content: &JsonWriter<'_>, row: usize) -> u128 {
        let mut hash = self.with_id(row);
        self.buffer.clear();
        content.write(row, &mut self.buffer);
        hash.add_part(b"event");
        hash.add_part(&self.buffer);
        hash.value()
    }

    /// The letter that is on its way again.
    pub fn letter(&self, number: u64) -> u128 {
        let mut hash = self.place;
        hash.add_part(b"letter");
        hash.add_part(&number.to_le_bytes());
        hash.value()
    }

    fn with_id(&mut self, row: usize) -> Fnv128 {
        self.buffer.clear();
        self.batch.origin().write_id(row, &mut self.buffer);
        let mut hash = self.place;
        hash.add_part(&self.buffer);
        hash
    }
}
