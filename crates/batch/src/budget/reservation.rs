//! Bytes that are reserved before they are needed.

use std::sync::Arc;

use bytes::Bytes;

use super::BudgetState;
use super::pool::{BufferPool, PoolInner, PooledBuffer};
use super::waiting::{Claim, Excess, block_on};

impl BufferPool {
    /// Reserves bytes for a frame, waiting until they fit. Safe to cancel: who gives up leaves the queue.
    pub async fn reserve(&self, bytes: usize) -> Reservation {
        let mut reservation = Reservation::empty(self.inner());
        reservation.grow(bytes).await;
        reservation
    }

    /// Bytes that were written elsewhere, as a shared buffer. Blocks the thread until they fit.
    pub fn adopt(&self, bytes: Vec<u8>) -> Bytes {
        let len = bytes.len();
        if len == 0 {
            return Bytes::new();
        }
        let mut reservation = Reservation::empty(self.inner());
        reservation.grow_blocking(len);
        reservation.adopt(bytes).freeze(len)
    }

    /// Reserves bytes if they fit now and nobody waits.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = Reservation::empty(self.inner());
        reservation.try_grow(bytes).then_some(reservation)
    }
}

/// Bytes of the budget that are charged before they are needed: those of a frame that is about to be read. What is not
/// taken as buffers is given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<PoolInner>,
    number: u64,
    /// Charged, and not yet in a buffer.
    left: usize,
    /// Charged for what is no buffer.
    spent: usize,
    /// Charged in all.
    held: usize,
    is_settled: bool,
    /// Says that it exceeds the limit as work in hand, until its buffers are given back.
    excess: Option<Arc<Excess>>,
}

impl Reservation {
    fn empty(pool: &Arc<PoolInner>) -> Self {
        let number = pool.budget.lock().number();
        Self {
            pool: pool.clone(),
            number,
            left: 0,
            spent: 0,
            held: 0,
            is_settled: false,
            excess: None,
        }
    }

    /// Bytes that can be taken as buffers.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Says that the frame was read whole and is work in hand from now on, such as one that is only to be decompressed.
    /// Another half-read frame may overdraw then. What is in hand goes before everybody else, and one at a time may exceed
    /// the limit, until its buffers are given back: others may wait for what it holds.
    pub fn settle(&mut self) {
        if self.is_settled {
            return;
        }
        self.is_settled = true;
        let mut state = self.pool.budget.lock();
        self.end_reading(&mut state);
        self.pool.budget.admit(state);
    }

    fn end_reading(&self, state: &mut BudgetState) {
        state.reserved -= self.held;
        if state.overdraws == Some(self.number) {
            state.overdraws = None;
        }
    }

    /// Reserves more, waiting until it fits. Safe to cancel: then nothing is added.
    pub async fn grow(&mut self, more: usize) {
        self.claim(more).await;
        self.grown(more);
    }

    /// As [`Self::grow`], blocking the thread.
    pub fn grow_blocking(&mut self, more: usize) {
        block_on(self.claim(more));
        self.grown(more);
    }

    /// Reserves more if it fits now and nobody waits; whether it did.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let budget = &self.pool.budget;
        let mut state = budget.lock();
        let fits = budget.try_charge(&mut state, self.pool.share, more);
        if fits {
            if !self.is_settled {
                state.reserved += more;
            }
            self.left += more;
            self.held += more;
        }
        fits
    }

    fn grown(&mut self, more: usize) {
        self.left += more;
        self.held += more;
        let exceeds = || self.pool.budget.lock().exceeds == Some(self.number);
        if self.is_settled && self.excess.is_none() && exceeds() {
            let excess = Excess::new(&self.pool.budget, self.number);
            self.excess = Some(Arc::new(excess));
        }
    }

    fn claim(&self, bytes: usize) -> Claim<'_> {
        let claim = Claim::new(&self.pool.budget, self.pool.share, bytes);
        claim.reserving(self.number, self.held, self.is_settled)
    }

    /// Uses bytes out of those reserved, or what is left, for something that is no buffer of the pool and ends before the
    /// reservation.
    pub fn spend(&mut self, bytes: usize) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        self.spent += bytes;
    }

    /// The pool that it is of.
    pub fn pool(&self) -> BufferPool {
        BufferPool::of(&self.pool)
    }

    /// A buffer of `size` bytes out of those reserved, or of what is left. One of the pool's size may hold what is left over
    /// from earlier use.
    pub fn take(&mut self, size: usize) -> PooledBuffer {
        let size = size.min(self.left);
        self.left -= size;
        PooledBuffer::charged(&self.pool, size, self.excess.clone())
    }

    /// Bytes that were written elsewhere, as a buffer out of those reserved; more are reserved where they are too few.
    pub fn adopt(&mut self, mut bytes: Vec<u8>) -> PooledBuffer {
        bytes.shrink_to_fit();
        let missing = bytes.len().saturating_sub(self.left);
        if missing > 0 {
            self.grow_blocking(missing);
        }
        self.left -= bytes.len();
        PooledBuffer::adopted(&self.pool, bytes, self.excess.clone())
    }

    /// Makes a buffer longer by `more` bytes out of those reserved, or by what is left. Its content stays.
    pub fn extend(&mut self, buffer: &mut PooledBuffer, more: usize) {
        let more = more.min(self.left);
        self.left -= more;
        buffer.lengthen(more, self.excess.clone());
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.pool.budget.lock();
        state.shares[self.pool.share].used -= self.left + self.spent;
        if !self.is_settled {
            self.end_reading(&mut state);
        }
        if self.excess.is_none() && state.exceeds == Some(self.number) {
            // It was let in when nobody waited for that any more.
            state.exceeds = None;
        }
        self.pool.budget.admit(state);
    }
}
