//! What processors tell at the end of a run, and whether it was delivered.

use std::sync::atomic::{AtomicU64, Ordering};

use component::Receipt;
use parking_lot::Mutex;

/// The batch behind all others of a run, which has no events: processors that hold some give them behind it.
#[derive(Default)]
pub struct AtEnd {
    /// The events that came out of it.
    events: AtomicU64,
    receipt: Mutex<Option<Receipt>>,
}

impl AtEnd {
    /// The batch was sent.
    pub fn sent(&self, receipt: Receipt) {
        *self.receipt.lock() = Some(receipt);
    }

    /// So many events came out of it.
    pub fn told(&self, events: usize) {
        self.events.store(events as u64, Ordering::Relaxed);
    }

    /// The events of it that some output did not take. Asked once the run has ended, where the queue is in memory.
    pub fn undelivered(&self) -> u64 {
        let mut receipt = self.receipt.lock().take();
        match receipt.as_mut().map(Receipt::try_delivered) {
            None | Some(Some(Ok(_))) => 0,
            Some(None | Some(Err(_))) => self.events.load(Ordering::Relaxed),
        }
    }
}
