//! The process-wide memory budget, and the buffers that are charged to it.
//!
//! A buffer is charged once, when an input takes it, and gives its bytes back when the last view into it is gone. Only
//! inputs wait on the budget, so work in hand can always finish. Each pipeline has a guaranteed share; what lies beyond
//! the shares is for whoever comes first. A buffer larger than a whole share is let in alone, never for ever refused.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// The memory budget of the process.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    shares: Mutex<Vec<Share>>,
    freed: Condvar,
}

#[derive(Debug, Clone, Copy)]
struct Share {
    guaranteed: usize,
    used: usize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            shares: Mutex::new(Vec::new()),
            freed: Condvar::new(),
        })
    }

    /// A pool of buffers of `buffer_size` bytes with a guaranteed share of `guaranteed` bytes.
    pub fn pool(self: &Arc<Self>, guaranteed: usize, buffer_size: usize) -> BufferPool {
        let mut shares = self.lock();
        shares.push(Share {
            guaranteed,
            used: 0,
        });
        let inner = PoolInner {
            budget: self.clone(),
            share: shares.len() - 1,
            buffer_size,
            free: Mutex::default(),
        };
        BufferPool {
            inner: Arc::new(inner),
        }
    }

    /// Bytes charged at this moment.
    pub fn used(&self) -> usize {
        self.lock().iter().map(|share| share.used).sum()
    }

    /// Waits until `bytes` fit and charges them to a share.
    fn charge(&self, share: usize, bytes: usize) {
        let mut shares = self.lock();
        while !self.fits(&shares, share, bytes) {
            shares = self
                .freed
                .wait(shares)
                .unwrap_or_else(PoisonError::into_inner);
        }
        shares[share].used += bytes;
    }

    fn fits(&self, shares: &[Share], share: usize, bytes: usize) -> bool {
        let mine = shares[share];
        let taken: usize = shares
            .iter()
            .map(|share| share.used.max(share.guaranteed))
            .sum();
        let beyond = (mine.used + bytes).saturating_sub(mine.guaranteed.max(mine.used));
        mine.used == 0 || taken + beyond <= self.limit || mine.used + bytes <= mine.guaranteed
    }

    fn give_back(&self, share: usize, bytes: usize) {
        self.lock()[share].used -= bytes;
        self.freed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Share>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Buffers of one pipeline, reused. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BufferPool {
    inner: Arc<PoolInner>,
}

#[derive(Debug)]
struct PoolInner {
    budget: Arc<Budget>,
    share: usize,
    buffer_size: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

/// How many unused buffers a pool keeps: enough for what is in flight on a few cores, little when idle.
const FREE_BUFFERS_MAX: usize = 16;

impl BufferPool {
    /// A zeroed or used buffer of the pool's size, waiting for the budget if need be.
    pub fn take(&self) -> PooledBuffer {
        self.take_sized(self.inner.buffer_size)
    }

    /// A buffer of at least `size` bytes, waiting for the budget if need be. Its content is left over from earlier use.
    pub fn take_sized(&self, size: usize) -> PooledBuffer {
        let size = size.max(self.inner.buffer_size);
        self.inner.budget.charge(self.inner.share, size);
        let reused = if size == self.inner.buffer_size {
            self.inner.lock_free().pop()
        } else {
            None
        };
        let bytes = reused.unwrap_or_else(|| vec![0; size]);
        PooledBuffer {
            bytes,
            pool: self.inner.clone(),
        }
    }

    /// A buffer of `size` bytes for content that is known to be small, waiting for the budget if need be; where `size` is not
    /// smaller than an ordinary buffer, the same as [`Self::take_sized`].
    pub fn take_small(&self, size: usize) -> PooledBuffer {
        if size >= self.inner.buffer_size {
            return self.take_sized(size);
        }
        self.inner.budget.charge(self.inner.share, size);
        PooledBuffer {
            bytes: vec![0; size],
            pool: self.inner.clone(),
        }
    }

    /// The size of an ordinary buffer.
    pub fn buffer_size(&self) -> usize {
        self.inner.buffer_size
    }
}

impl PoolInner {
    fn lock_free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A charged buffer that its taker may write to.
#[derive(Debug)]
pub struct PooledBuffer {
    bytes: Vec<u8>,
    pool: Arc<PoolInner>,
}

impl PooledBuffer {
    /// Ends writing: the first `len` bytes as a shared buffer. The charge stays until its last view is gone.
    pub fn freeze(self, len: usize) -> Bytes {
        Bytes::from_owner(self).slice(..len)
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let size = bytes.len();
        if size == self.pool.buffer_size {
            let mut free = self.pool.lock_free();
            if free.len() < FREE_BUFFERS_MAX {
                free.push(bytes);
            }
        }
        self.pool.budget.give_back(self.pool.share, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_charged_until_its_last_view_is_gone() {
        let budget = Budget::new(1000);
        let pool = budget.pool(0, 100);
        let frozen = pool.take().freeze(50);
        let view = frozen.slice(10..20);
        drop(frozen);
        assert_eq!(budget.used(), 100);
        drop(view);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_share_is_there_whatever_the_others_took() {
        let budget = Budget::new(300);
        let (greedy, modest) = (budget.pool(100, 100), budget.pool(100, 100));
        let held = [greedy.take(), greedy.take()];
        assert!(
            !budget.fits(&budget.lock(), 0, 100),
            "the rest is the other's share"
        );
        let other = modest.take();
        assert_eq!(budget.used(), 300);
        drop((held, other));
    }

    #[test]
    fn waiting_ends_when_bytes_come_back() {
        let budget = Budget::new(100);
        let pool = budget.pool(100, 100);
        let held = pool.take();
        let waiter = std::thread::spawn({
            let pool = pool.clone();
            move || pool.take().len()
        });
        drop(held);
        assert_eq!(waiter.join().expect("the waiter ends"), 100);
    }

    #[test]
    fn one_buffer_beyond_the_limit_is_let_in_alone() {
        let budget = Budget::new(100);
        let pool = budget.pool(100, 10);
        assert_eq!(pool.take_sized(5000).len(), 5000);
    }

    #[test]
    fn a_small_buffer_is_charged_with_what_it_holds() {
        let budget = Budget::new(1000);
        let pool = budget.pool(0, 100);
        let small = pool.take_small(10);
        assert_eq!((small.len(), budget.used()), (10, 10));
        assert_eq!(pool.take_small(200).len(), 200);
        drop(small);
        assert_eq!(budget.used(), 0);
    }
}
