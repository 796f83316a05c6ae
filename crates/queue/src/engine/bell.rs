//! Waking workers, which may look after many queues.

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Rung when there may be something to take. A worker looks how often it was rung, looks for work, and where it finds none
/// waits until it is rung again since: so no ring is missed, and no lock is held meanwhile.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<u64>,
    wakes: Condvar,
}

impl Bell {
    /// Wakes one worker: there is one thing to take.
    pub fn ring_once(&self) {
        *self.lock() += 1;
        self.wakes.notify_one();
    }

    /// Wakes all workers: what each may do has changed.
    pub fn ring(&self) {
        *self.lock() += 1;
        self.wakes.notify_all();
    }

    /// How often it was rung.
    pub fn rung(&self) -> u64 {
        *self.lock()
    }

    /// Waits until it was rung more often than this.
    pub fn wait(&self, seen: u64) {
        let mut rung = self.lock();
        while *rung == seen {
            self.wakes.wait(&mut rung);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.rung.lock()
    }
}
