//! What work in hand takes beside the buffers of inputs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Budget;

/// Bytes that are charged at once, such as those of requests on their way: work in hand always finishes. Whoever charges them
/// keeps to a limit of its own. While they are charged, so much less is left for inputs that want more than their share.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    share: usize,
    used: AtomicUsize,
}

impl Account {
    pub(super) fn new(budget: Arc<Budget>, share: usize) -> Self {
        Self {
            budget,
            share,
            used: AtomicUsize::new(0),
        }
    }

    /// Bytes charged at this moment.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Charges so many bytes more.
    pub fn grow(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::SeqCst);
        self.budget.lock().shares[self.share].used += bytes;
    }

    /// Gives so many bytes back that were charged; how many were charged before.
    pub fn shrink(&self, bytes: usize) -> usize {
        let before = self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.budget.give_back(self.share, bytes);
        before
    }
}

/// Bytes of an account that are given back when this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// Charges so many bytes.
    pub fn new(account: &Arc<Account>, bytes: usize) -> Self {
        account.grow(bytes);
        Self {
            account: account.clone(),
            bytes,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.shrink(self.bytes);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.give_back(self.share, *self.used.get_mut());
    }
}
