//! Buffers that are charged to the budget, reused.
//!
//! Unused buffers are kept for later frames if they have up to 4 MiB, 16 MiB in all for each pipeline (with ordinary buffers of
//! 256 KiB). They are not charged to the budget. Fresh memory costs more than reading into it: see the figures in
//! `pages.rs` of the inputs.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::waiting::{self, Claim, Excess};
use super::{Budget, Shortage};

/// Buffers of one pipeline, reused. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BufferPool {
    inner: Arc<PoolInner>,
}

#[derive(Debug)]
pub(super) struct PoolInner {
    pub(super) budget: Arc<Budget>,
    pub(super) share: usize,
    buffer_size: usize,
    free: Mutex<Free>,
}

/// Unused buffers: those that were used last are behind the others, and used first.
#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// How many unused buffers a pool keeps: enough for what many connections have in flight on a few cores, little when idle.
const FREE_BUFFERS_MAX: usize = 64;

/// How many bytes unused buffers have at most, in ordinary buffers.
const FREE_SIZE_MAX: usize = 64;

/// How much larger than an ordinary buffer those are at most that are kept, as a power of two. A frame of a few megabytes in a
/// fresh buffer costs more in page faults than in reading.
const LARGE_SHIFT_MAX: u32 = 4;

/// How much smaller, likewise.
const SMALL_SHIFT_MAX: u32 = 4;

impl BufferPool {
    pub(super) fn new(budget: Arc<Budget>, share: usize, buffer_size: usize) -> Self {
        let inner = PoolInner {
            budget,
            share,
            buffer_size,
            free: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(super) fn of(inner: &Arc<PoolInner>) -> Self {
        Self {
            inner: inner.clone(),
        }
    }

    pub(super) fn inner(&self) -> &Arc<PoolInner> {
        &self.inner
    }

    /// Who waits for memory of the budget at this moment; none where nobody does.
    pub fn shortage(&self) -> Option<Shortage> {
        self.inner.budget.shortage()
    }

    /// A zeroed or used buffer of the pool's size, waiting for the budget if need be.
    pub fn take(&self) -> PooledBuffer {
        self.take_sized(self.inner.buffer_size)
    }

    /// A buffer of at least `size` bytes, waiting for the budget if need be. Its content is left over from earlier use.
    pub fn take_sized(&self, size: usize) -> PooledBuffer {
        let size = size.max(self.inner.buffer_size);
        self.inner.charge(size);
        PooledBuffer::charged(&self.inner, size, None)
    }

    /// A buffer of `size` bytes for content that is known to be small, waiting for the budget if need be; where `size` is not
    /// smaller than an ordinary buffer, the same as [`Self::take_sized`].
    pub fn take_small(&self, size: usize) -> PooledBuffer {
        if size >= self.inner.buffer_size {
            return self.take_sized(size);
        }
        self.inner.charge(size);
        PooledBuffer {
            bytes: vec![0; size],
            pool: self.inner.clone(),
            excess: None,
        }
    }

    /// The smallest size of buffers that are reused which has room for `bytes`, or the largest one.
    pub fn reused_size(&self, bytes: usize) -> usize {
        self.inner.reused_size(bytes)
    }

    /// The size of the largest buffers that are reused.
    pub fn largest_size(&self) -> usize {
        self.inner.buffer_size << LARGE_SHIFT_MAX
    }

    /// How large a buffer for `bytes` is to be: the smallest of the sizes that are reused which has room for them, or the largest one; as
    /// large as they are, if that is no more than half of the smallest one.
    pub fn fitting(&self, bytes: usize) -> usize {
        self.inner.fitting(bytes)
    }

    /// The size of an ordinary buffer.
    pub fn buffer_size(&self) -> usize {
        self.inner.buffer_size
    }
}

impl PoolInner {
    /// Waits until `bytes` fit and charges them, blocking the thread.
    fn charge(self: &Arc<Self>, bytes: usize) {
        let is_charged = {
            let mut state = self.budget.lock();
            self.budget.try_charge(&mut state, self.share, bytes)
        };
        if !is_charged {
            waiting::block_on(Claim::new(&self.budget, self.share, bytes));
        }
    }

    pub(super) fn reused_size(&self, bytes: usize) -> usize {
        let times = bytes.div_ceil(self.buffer_size.max(1));
        times.next_power_of_two().min(1 << LARGE_SHIFT_MAX) * self.buffer_size
    }

    pub(super) fn fitting(&self, bytes: usize) -> usize {
        if bytes > self.buffer_size {
            return self.reused_size(bytes);
        }
        let sizes = (0..=SMALL_SHIFT_MAX).map(|shift| self.buffer_size >> shift);
        let reused = sizes.filter(|size| self.is_reused(*size));
        let smallest = reused.take_while(|size| *size >= bytes).last();
        match smallest {
            Some(size) if bytes > size / 2 => size,
            _ => bytes,
        }
    }

    /// Whether unused buffers of this size are kept: an ordinary one, and what doubling and halving make of it.
    fn is_reused(&self, size: usize) -> bool {
        let is_times = |large: usize, small: usize, shift_max: u32| {
            let times = large / small.max(1);
            times.is_power_of_two() && times <= 1 << shift_max && large == times * small
        };
        is_times(size, self.buffer_size, LARGE_SHIFT_MAX)
            || is_times(self.buffer_size, size, SMALL_SHIFT_MAX)
    }

    /// An unused buffer of this size.
    fn unused(&self, size: usize) -> Option<Vec<u8>> {
        let mut free = self.lock_free();
        let place = free
            .buffers
            .iter()
            .rposition(|buffer| buffer.len() == size)?;
        free.bytes -= size;
        Some(free.buffers.remove(place))
    }

    /// Keeps a buffer that nobody uses, in place of those that were unused for longest.
    fn keep(&self, buffer: Vec<u8>) {
        let mut gone = Vec::new();
        let mut free = self.lock_free();
        free.bytes += buffer.len();
        free.buffers.push(buffer);
        while free.buffers.len() > FREE_BUFFERS_MAX || free.bytes > FREE_SIZE_MAX * self.buffer_size
        {
            let oldest = free.buffers.remove(0);
            free.bytes -= oldest.len();
            gone.push(oldest);
        }
        // The system takes its time for large ones.
        drop(free);
        drop(gone);
    }

    fn lock_free(&self) -> MutexGuard<'_, Free> {
        self.free.lock()
    }
}

/// A charged buffer that its taker may write to.
#[derive(Debug)]
pub struct PooledBuffer {
    bytes: Vec<u8>,
    pool: Arc<PoolInner>,
    /// Ends with the buffer, after its bytes were given back.
    excess: Option<Arc<Excess>>,
}

impl PooledBuffer {
    /// A buffer whose bytes are charged already. One of a size that is kept is reused, with its content.
    pub(super) fn charged(pool: &Arc<PoolInner>, size: usize, excess: Option<Arc<Excess>>) -> Self {
        let reused = pool.is_reused(size).then(|| pool.unused(size)).flatten();
        Self {
            bytes: reused.unwrap_or_else(|| vec![0; size]),
            pool: pool.clone(),
            excess,
        }
    }

    /// Bytes that are charged already, as a buffer.
    pub(super) fn adopted(
        pool: &Arc<PoolInner>,
        bytes: Vec<u8>,
        excess: Option<Arc<Excess>>,
    ) -> Self {
        Self {
            bytes,
            pool: pool.clone(),
            excess,
        }
    }

    /// Adds bytes that are charged already.
    pub(super) fn lengthen(&mut self, more: usize, excess: Option<Arc<Excess>>) {
        self.excess = self.excess.take().or(excess);
        let size = self.bytes.len() + more;
        let unused = match self.pool.is_reused(size) {
            true => self.pool.unused(size),
            false => None,
        };
        let Some(mut longer) = unused else {
            self.bytes.reserve_exact(more);
            return self.bytes.resize(size, 0);
        };
        longer[..self.bytes.len()].copy_from_slice(&self.bytes);
        let shorter = std::mem::replace(&mut self.bytes, longer);
        if self.pool.is_reused(shorter.len()) {
            self.pool.keep(shorter);
        }
    }

    /// Gives back what lies behind the first `len` bytes.
    pub fn shorten(&mut self, len: usize) {
        let excess = self.bytes.len().saturating_sub(len);
        if excess > 0 {
            self.bytes.truncate(len);
            self.bytes.shrink_to_fit();
            self.pool.budget.give_back(self.pool.share, excess);
        }
    }

    /// As [`Self::freeze`], but gives back what lies behind the first `len` bytes, unless the buffer is one that is used again and at
    /// least half of it is filled.
    pub fn freeze_fitting(mut self, len: usize) -> Bytes {
        let size = self.bytes.len();
        if len < size / 2 || !self.pool.is_reused(size) {
            self.shorten(len);
        }
        self.freeze(len)
    }

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
        if self.pool.is_reused(size) {
            self.pool.keep(bytes);
        }
        self.pool.budget.give_back(self.pool.share, size);
    }
}
