//! The objects that wait to be read, in the order in which they were listed, and those that wait to be tried again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::Stop;
use parking_lot::{Condvar, Mutex};

use super::known::OpenObject;

/// How many objects wait. A list is not read further meanwhile.
const WAITING_MAX: usize = 1000;

/// How often somebody who waits looks whether it is time to stop.
const STOP_CHECK: Duration = Duration::from_millis(200);

/// The first pause before an object is tried again; each one is twice as long as the one before, up to the last.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// An object that waits.
pub(super) struct WaitingObject {
    pub(super) object: Arc<OpenObject>,
    /// How often it was tried.
    pub(super) attempts: u32,
}

/// The objects that wait.
pub(super) struct ObjectPool {
    state: Mutex<PoolState>,
    changed: Condvar,
    stop: Stop,
}

#[derive(Default)]
struct PoolState {
    waiting: VecDeque<WaitingObject>,
    later: Vec<(Instant, WaitingObject)>,
    being_read: usize,
    /// No others come.
    is_closed: bool,
}

impl ObjectPool {
    pub(super) fn new(stop: Stop) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            stop,
        }
    }

    /// Adds an object, waiting while there are many; false when it is time to stop.
    pub(super) fn add(&self, object: Arc<OpenObject>) -> bool {
        let mut state = self.state.lock();
        while state.waiting.len() + state.later.len() >= WAITING_MAX {
            if self.stop.is_stopped() {
                return false;
            }
            self.changed.wait_for(&mut state, STOP_CHECK);
        }
        state.waiting.push_back(WaitingObject {
            object,
            attempts: 0,
        });
        self.changed.notify_all();
        true
    }

    /// No others come.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// The next object to read, waiting for one; none when there are no more, or when it is time to stop.
    pub(super) fn next(&self) -> Option<WaitingObject> {
        let mut state = self.state.lock();
        loop {
            if self.stop.is_stopped() {
                return None;
            }
            if let Some(next) = state.take(Instant::now()) {
                state.being_read += 1;
                self.changed.notify_all();
                return Some(next);
            }
            if state.is_closed && state.being_read == 0 && state.later.is_empty() {
                return None;
            }
            self.changed.wait_for(&mut state, STOP_CHECK);
        }
    }

    /// An object is not being read any more; `again` is for later.
    pub(super) fn done(&self, again: Option<WaitingObject>) {
        let mut state = self.state.lock();
        state.being_read -= 1;
        if let Some(mut again) = again {
            let [first, last] = PAUSES;
            let pause = first.saturating_mul(1 << again.attempts.min(10)).min(last);
            again.attempts += 1;
            state.later.push((Instant::now() + pause, again));
        }
        self.changed.notify_all();
    }
}

impl PoolState {
    fn take(&mut self, now: Instant) -> Option<WaitingObject> {
        let due = self.later.iter().position(|(at, _)| *at <= now);
        match due {
            Some(due) => Some(self.later.swap_remove(due).1),
            None => self.waiting.pop_front(),
        }
    }
}
