//! Which file is read next: the reader threads' common list of work.
//!
//! A file that has something to read is *waiting* until one of [`ACTIVE_MAX`] places is free, then *active*: active
//! files are read a slice at a time, in turn, so that a huge one holds up no other. One that has had many slices while
//! others wait goes back to the end of the line. A plain file that was read to its end stays open and *idle*, so that it
//! can be finished when it is renamed or deleted, until there are too many of these.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::order::Order;
use super::probe::Probe;
use super::state::File;
use super::task::Task;

/// Files that are read in turn. Bounds memory: a compressed file that is being read holds its window.
const ACTIVE_MAX: usize = 16;

/// Slices after which an active file makes place for one that waits.
const SLICES_MAX: u32 = 16;

/// Something that waits to be opened.
pub(crate) enum Waiting {
    /// A known file, to be read from where it was read to.
    Read(Arc<File>),
    /// A file that is looked through and not delivered.
    Probe(Box<Probe>),
}

/// Something that is open.
pub(crate) enum Active {
    Read(Box<Task>),
    Probe(Box<Probe>),
}

/// What a reader does next.
pub(crate) enum Work {
    Open(Waiting),
    Continue(Active),
}

/// The common list of work.
pub(crate) struct Pool {
    active_max: usize,
    slices_max: u32,
    inner: Mutex<Inner>,
    /// There is something to do, or it is time to end.
    work: Condvar,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    active: VecDeque<(Active, u32)>,
    idle: HashMap<u128, Box<Task>>,
    /// Files that wait or are worked on, with what came for them meanwhile.
    busy: HashMap<u128, Option<Order>>,
    /// Work that threads have in hand, and its number of places.
    in_hand: usize,
    has_ended: bool,
}

impl Pool {
    /// No work yet. Files are read in turn if it is `fair`, otherwise one after the other.
    pub(crate) fn new(fair: bool) -> Self {
        Self {
            active_max: if fair { ACTIVE_MAX } else { 1 },
            slices_max: if fair { SLICES_MAX } else { u32::MAX },
            inner: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Asks for a file to be read, or looked at again when it is being read.
    pub(crate) fn request(&self, file: &Arc<File>, order: Order) {
        let mut inner = self.lock();
        if let Some(again) = inner.busy.get_mut(&file.id) {
            *again = Some(again.map_or(order, |before| before.max(order)));
            return;
        }
        inner.busy.insert(file.id, None);
        if let Some(mut task) = inner.idle.remove(&file.id) {
            task.order = order;
            inner.active.push_back((Active::Read(task), 0));
        } else if order == Order::Read {
            inner.waiting.push_back(Waiting::Read(file.clone()));
        } else {
            inner.busy.remove(&file.id);
            return;
        }
        drop(inner);
        self.work.notify_one();
    }

    /// Asks for a file to be looked through.
    pub(crate) fn probe(&self, probe: Box<Probe>) {
        self.lock().waiting.push_back(Waiting::Probe(probe));
        self.work.notify_one();
    }

    /// What to do next, waiting for it; nothing when it is time to end.
    pub(crate) fn next(&self) -> Option<(Work, u32)> {
        let mut inner = self.lock();
        loop {
            if inner.has_ended {
                return None;
            }
            if let Some(work) = inner.next(self.active_max) {
                inner.in_hand += 1;
                return Some(work);
            }
            self.work.wait(&mut inner);
        }
    }

    /// Gives work back that is not finished. `slices` is how many it has had.
    pub(crate) fn give_back(&self, active: Active, slices: u32) {
        let mut inner = self.lock();
        inner.in_hand -= 1;
        match active {
            Active::Read(task) if slices >= self.slices_max && !inner.waiting.is_empty() => {
                let file = task.suspend();
                inner.waiting.push_back(Waiting::Read(file));
            }
            active => inner.active.push_back((active, slices)),
        }
        drop(inner);
        self.work.notify_one();
    }

    /// Puts a file aside that is read to its end, unless something came for it meanwhile.
    pub(crate) fn rest(&self, mut task: Box<Task>) {
        let mut inner = self.lock();
        inner.in_hand -= 1;
        if let Some(Some(order)) = inner.busy.get_mut(&task.file.id).map(Option::take) {
            task.order = order;
            inner.active.push_back((Active::Read(task), 0));
            drop(inner);
            self.work.notify_one();
        } else {
            inner.busy.remove(&task.file.id);
            inner.idle.insert(task.file.id, task);
            // A place may be free for one that waits.
            self.work.notify_one();
        }
    }

    /// Says that a file was closed. Whether something came for it meanwhile.
    pub(crate) fn closed(&self, id: u128) -> bool {
        let mut inner = self.lock();
        inner.in_hand -= 1;
        let again = inner.busy.remove(&id).flatten().is_some();
        self.work.notify_one();
        again
    }

    /// Says that a probe is finished.
    pub(crate) fn probed(&self) {
        let mut inner = self.lock();
        inner.in_hand -= 1;
        self.work.notify_one();
    }

    /// Whether a file is open, waits, or is worked on.
    pub(crate) fn has(&self, id: u128) -> bool {
        let inner = self.lock();
        inner.idle.contains_key(&id) || inner.busy.contains_key(&id)
    }

    /// How many files wait to be opened.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether any file is open and idle.
    pub(crate) fn has_idle(&self) -> bool {
        !self.lock().idle.is_empty()
    }

    /// Whether a file waits or is worked on.
    pub(crate) fn is_busy(&self, id: u128) -> bool {
        self.lock().busy.contains_key(&id)
    }

    /// Takes an idle file out; none where it is not idle.
    pub(crate) fn take_idle(&self, id: u128) -> Option<Box<Task>> {
        self.lock().idle.remove(&id)
    }

    /// Looks at every idle file.
    pub(crate) fn each_idle(&self, mut look: impl FnMut(&Task)) {
        self.lock().idle.values().for_each(|task| look(task));
    }

    /// Closes the files that were idle longest, until `max` are open. What was not given of them is read again.
    pub(crate) fn close_idle(&self, max: usize) {
        let mut inner = self.lock();
        if inner.idle.len() <= max {
            return;
        }
        // What is deleted and still open could not be opened again. A compressed file is open for a moment only.
        let mut oldest: Vec<(Instant, u128)> = inner
            .idle
            .iter()
            .filter(|(_, task)| task.file.lock().lost.is_none() && !task.is_compressed())
            .map(|(id, task)| (task.times.data, *id))
            .collect();
        oldest.sort_unstable();
        for (_, id) in &oldest[..oldest.len().saturating_sub(max)] {
            if let Some(task) = inner.idle.remove(id) {
                task.suspend();
            }
        }
    }

    /// Closes half of the idle files, those that were idle longest. Gives how many may stay open.
    pub(crate) fn close_half(&self) -> usize {
        let max = (self.lock().idle.len() / 2).max(1);
        self.close_idle(max);
        max
    }

    /// Has everything given that was read of a file that is not in the pool.
    pub(crate) fn finish(&self, mut task: Box<Task>) {
        task.order = Order::Finish;
        let mut inner = self.lock();
        inner.busy.insert(task.file.id, None);
        inner.active.push_back((Active::Read(task), 0));
        drop(inner);
        self.work.notify_one();
    }

    /// Closes every idle file. What was not given of them is read again.
    pub(crate) fn close_all(&self) {
        for (_, task) in self.lock().idle.drain() {
            task.suspend();
        }
    }

    /// Whether nothing is left to do, and everything that was done is handled.
    pub(crate) fn is_settled(&self) -> bool {
        let inner = self.lock();
        inner.waiting.is_empty() && inner.active.is_empty() && inner.in_hand == 0
    }

    /// Ends the readers: each finishes the slice it has in hand.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.work.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn next(&mut self, active_max: usize) -> Option<(Work, u32)> {
        if self.active.len() + self.in_hand < active_max
            && let Some(waiting) = self.waiting.pop_front()
        {
            return Some((Work::Open(waiting), 0));
        }
        let (active, slices) = self.active.pop_front()?;
        Some((Work::Continue(active), slices + 1))
    }
}
