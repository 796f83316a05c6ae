//! The room on disk that several queues share.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A limit for the segments of all queues of a process together, in bytes.
#[derive(Debug)]
pub struct DiskBudget {
    limit: u64,
    used: AtomicU64,
}

impl DiskBudget {
    /// A budget of so many bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Bytes that may still be taken.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(SeqCst))
    }

    /// Takes bytes, which whoever takes has looked for before.
    pub fn grow(&self, bytes: u64) {
        self.used.fetch_add(bytes, SeqCst);
    }

    /// Gives bytes back.
    pub fn shrink(&self, bytes: u64) {
        self.used.fetch_sub(bytes, SeqCst);
    }
}
