//! The keys of the newest letters, by which a second pass over a batch is known.

use std::collections::{HashMap, VecDeque};

use batch::fnv::Fnv128;
use batch::{Batch, Reentry};

use super::component;

/// So many keys are kept.
pub const KEYS_MAX: usize = 1 << 18;

/// The number of a letter that is about to be written.
const PENDING: u64 = u64::MAX;

/// Keys of letters with their numbers. The oldest are forgotten.
#[derive(Debug, Default)]
pub(super) struct Keys {
    known: HashMap<u128, u64>,
    order: VecDeque<u128>,
}

impl Keys {
    /// Whether there is a letter of this key, or is about to be. `is_gone` says of a number whether its letter was removed.
    pub fn contains(&self, key: u128, is_gone: impl Fn(u64) -> bool) -> bool {
        let known = self.known.get(&key);
        known.is_some_and(|number| *number == PENDING || !is_gone(*number))
    }

    /// A letter is about to be written.
    pub fn announce(&mut self, key: u128) {
        self.insert(key, PENDING);
    }

    /// A letter has this number.
    pub fn insert(&mut self, key: u128, number: u64) {
        if self.known.insert(key, number).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// A letter that was about to be written never was.
    pub fn withdraw(&mut self, key: u128) {
        if let Some(number) = self.known.get_mut(&key)
            && *number == PENDING
        {
            // Of no letter, so that it is gone.
            *number = PENDING - 1;
        }
    }
}

/// The key of a row of a batch as a letter of a component.
pub(super) fn key(batch: &Batch, row: usize, at: &Reentry, attempts: u64) -> u128 {
    let (role, name) = component(at);
    let mut id = Vec::new();
    batch.origin().write_id(row, &mut id);
    let place = match at {
        Reentry::Processor { index, .. } | Reentry::OutputProcessor { index, .. } => *index,
        Reentry::Start | Reentry::Output { .. } => 0,
    };
    let mut hash = Fnv128::new();
    hash.add_part(role.as_bytes());
    hash.add_part(name.as_bytes());
    hash.add_part(&place.to_le_bytes());
    hash.add_part(&id);
    hash.add_part(&attempts.to_le_bytes());
    hash.value()
}
