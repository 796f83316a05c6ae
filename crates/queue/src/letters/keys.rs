//! By what a second pass over a refused event is known.
//!
//! A letter is known by the place that refused it, the event's id and content, and which one it is of the same events in its batch.
//! So an event that comes again, because an output gets a batch again or an input reads again after a crash, makes no second letter;
//! another event of the same id does, and so do two in one batch that are the same in all. The content is taken without
//! `@timestamp`, which may be the time of reading.
//!
//! The id alone would not do, because two events can share one; nor would the place in the queue, because after a crash the
//! input reads the event again, into another batch.
//!
//! Limits: the same event in two batches has one letter; one whose content is another each time that it is processed (`now()`) can
//! have a second one after a crash.

use std::collections::{HashMap, HashSet, VecDeque};

use batch::fnv::Fnv128;
use batch::{Batch, Bitmap, Edit, FieldPath, JsonWriter, Reentry};

use super::component;

/// So many letters are known.
pub const KEYS_MAX: usize = 1 << 18;

/// The number of a letter that is about to be written.
const PENDING: u64 = u64::MAX;

/// What was refused in this run, and which letters there are.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Rows and letters that were seen in this run. The oldest is forgotten.
    seen: HashSet<u128>,
    order: VecDeque<u128>,
    /// The numbers of letters. The oldest are forgotten.
    letters: HashMap<u128, u64>,
    letters_order: VecDeque<u128>,
}

impl Keys {
    /// Notes that something was refused; false where that is known.
    pub fn see(&mut self, key: u128) -> bool {
        if !self.seen.insert(key) {
            return false;
        }
        self.order.push_back(key);
        // Of a letter: its row, its event, and itself where it was one before.
        if self.order.len() > 3 * KEYS_MAX
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

    /// Whether there is a letter of this key, or is about to be. `is_gone` says of a number whether its letter was removed.
    pub fn has(&self, key: u128, is_gone: impl Fn(u64) -> bool) -> bool {
        let known = self.letters.get(&key);
        known.is_some_and(|number| *number == PENDING || !is_gone(*number))
    }

    /// A letter is about to be written.
    pub fn announce(&mut self, key: u128) {
        self.insert(key, PENDING);
    }

    /// A letter has this number.
    pub fn insert(&mut self, key: u128, number: u64) {
        if self.letters.insert(key, number).is_some() {
            return;
        }
        self.letters_order.push_back(key);
        if self.letters_order.len() > KEYS_MAX
            && let Some(oldest) = self.letters_order.pop_front()
        {
            self.letters.remove(&oldest);
        }
    }

    /// A letter that was about to be written never was.
    pub fn withdraw(&mut self, key: u128) {
        if let Some(number) = self.letters.get_mut(&key)
            && *number == PENDING
        {
            // Of no letter, so that it is gone.
            *number = PENDING - 1;
        }
    }

    /// The key of an event as a letter of a batch: of the same events in it, the next; and that under which it was seen.
    pub fn of_batch(&mut self, sequence: u64, event: Fnv128) -> (u128, u128) {
        let mut in_batch = event;
        in_batch.add_part(&sequence.to_le_bytes());
        let mut count = 0;
        while !self.see(numbered(in_batch, count)) {
            count += 1;
        }
        (numbered(event, count), numbered(in_batch, count))
    }

    /// A letter of the store, of the same events the next.
    pub fn load(&mut self, event: Fnv128, number: u64) {
        let mut keys = (0_u64..).map(|count| numbered(event, count));
        if let Some(key) = keys.find(|key| !self.letters.contains_key(key)) {
            self.insert(key, number);
        }
    }
}

fn numbered(mut event: Fnv128, count: u64) -> u128 {
    event.add_part(&count.to_le_bytes());
    event.value()
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

    /// The event, in whichever batch, by what [`without_time`] leaves of it.
    pub fn event(&mut self, content: &JsonWriter<'_>, row: usize) -> Fnv128 {
        let mut hash = self.with_id(row);
        self.buffer.clear();
        content.write(row, &mut self.buffer);
        hash.add_part(b"event");
        hash.add_part(&self.buffer);
        hash
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
