//! What workers offer to a lane and the lane has not taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use batch::{Batch, Bitmap};
use component::Encoded;
use parking_lot::{Mutex, MutexGuard};
use queue::Ticket;

/// Batches by their turn. Of those that are encoded so many at most wait or are at work as was said at the start; what waits
/// without being encoded is counted by the queue, whose limits bound it.
pub struct Offers {
    encoded_max: usize,
    state: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// `None` stands for a batch that was lost to an internal error.
    items: BTreeMap<u64, Option<Item>>,
    /// The turn that comes next.
    next: u64,
    /// Encoded batches that wait or are at work.
    encoded: usize,
    spare: Vec<Encoded>,
    is_closed: bool,
}

/// A batch offered to a lane.
pub struct Item {
    pub batch: Arc<Batch>,
    pub rows: Bitmap,
    pub ticket: Arc<Ticket>,
    pub encoded: Option<Encoded>,
    /// What comes next in the same turn.
    pub behind: Option<Box<Item>>,
    /// How many come behind it in the same turn.
    pub behind_count: usize,
}

/// What there is for a lane to do.
pub enum Next {
    Item(Item),
    /// Nothing for now.
    Wait,
    /// Nothing, and there will be none.
    End,
}

impl Offers {
    pub fn new(encoded_max: usize) -> Self {
        Self {
            encoded_max,
            state: Mutex::default(),
        }
    }

    /// Whether another encoded batch may wait.
    pub fn has_room(&self) -> bool {
        self.lock().encoded < self.encoded_max
    }

    /// How many batches wait.
    pub fn waiting(&self) -> usize {
        self.lock().items.len()
    }

    /// Room for a batch that is about to be encoded, to be given back by [`Self::give_back`].
    pub fn reserve(&self) -> Encoded {
        let mut state = self.lock();
        state.encoded += 1;
        state.spare.pop().unwrap_or_default()
    }

    /// Gives the room of an encoded batch back; whether there was one.
    pub fn give_back(&self, encoded: Option<Encoded>) -> bool {
        let Some(encoded) = encoded else {
            return false;
        };
        let mut state = self.lock();
        state.encoded -= 1;
        if state.spare.len() < self.encoded_max {
            state.spare.push(encoded);
        }
        true
    }

    pub fn insert(&self, turn: u64, item: Item) {
        self.lock().items.insert(turn, Some(item));
    }

    /// Goes on without a batch, unless it was offered before.
    pub fn skip(&self, turn: u64) {
        let mut state = self.lock();
        if turn >= state.next {
            state.items.entry(turn).or_insert(None);
        }
    }

    /// No batch will be offered any more.
    pub fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Whether everything that was to come has come and was taken.
    pub fn is_over(&self) -> bool {
        let state = self.lock();
        state.is_closed && state.items.is_empty()
    }

    /// The next batch that `wanted` takes; in the order of turns where `ordered`.
    pub fn take(&self, ordered: bool, wanted: impl Fn(&Item) -> bool) -> Next {
        let mut state = self.lock();
        loop {
            let Some(entry) = state.items.first_entry() else {
                return match state.is_closed {
                    true => Next::End,
                    false => Next::Wait,
                };
            };
            let turn = *entry.key();
            if ordered && turn != state.next {
                return Next::Wait;
            }
            let is_wanted = |item: &Option<Item>| item.as_ref().is_none_or(&wanted);
            let turn = match state.items.get(&turn).is_some_and(is_wanted) {
                true => turn,
                false if ordered => return Next::Wait,
                false => match state.items.iter().find(|(_, item)| is_wanted(item)) {
                    Some((turn, _)) => *turn,
                    None => return Next::Wait,
                },
            };
            let mut taken = state.items.remove(&turn).flatten();
            match taken.as_mut().and_then(|item| item.behind.take()) {
                Some(behind) => drop(state.items.insert(turn, Some(*behind))),
                None => state.next = state.next.max(turn + 1),
            }
            if let Some(item) = taken {
                return Next::Item(item);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.state.lock()
    }
}
