//! Buffers that begin at a page boundary, as direct I/O wants them, and a pool that recycles them.
//!
//! A recycled buffer still holds the bytes of its last use: blocks of a megabyte are read into it, and clearing it first
//! would cost as much as the read. So what a short read did not fill is to be left out by whoever reads.
//!
//! Limits: a pool keeps at most so many buffers of at most so many bytes each; others are freed when they are given back.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::storage::PAGE;

/// Larger buffers have a size that is a multiple of this, so that the next one of about that size may have them.
const STEP: usize = 64 * 1024;

/// How many times as large as needed a recycled buffer may be.
const SURPLUS: usize = 4;

/// Bytes whose first lies at a page boundary and whose number is a multiple of [`PAGE`].
#[derive(Debug)]
pub struct PageBuffer {
    /// Has room for one page more than is used, so that a boundary is in it wherever it lies. Never grows, so never moves.
    memory: Vec<u8>,
    start: usize,
    length: usize,
    pool: Option<PagePool>,
}

impl PageBuffer {
    /// A buffer of zeros with room for at least `length` bytes.
    pub fn new(length: usize) -> Self {
        let length = length.next_multiple_of(PAGE);
        let room = if length > STEP {
            length.next_multiple_of(STEP)
        } else {
            length
        };
        Self::within(vec![0; room + PAGE], length)
    }

    fn within(memory: Vec<u8>, length: usize) -> Self {
        let start = memory.as_ptr().addr().wrapping_neg() % PAGE;
        debug_assert!(start + length <= memory.len());
        Self {
            memory,
            start,
            length,
            pool: None,
        }
    }

    /// Makes a part of it shareable without a copy. The memory goes back to its pool when the last view of it is gone.
    ///
    /// # Panics
    /// When the part is not within the buffer.
    pub fn freeze(self, part: Range<usize>) -> Bytes {
        assert!(part.start <= part.end && part.end <= self.length);
        Bytes::from_owner(FrozenPart { buffer: self, part })
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(std::mem::take(&mut self.memory));
        }
    }
}

/// A part of a buffer, as the owner of [`Bytes`].
#[derive(Debug)]
struct FrozenPart {
    buffer: PageBuffer,
    part: Range<usize>,
}

impl AsRef<[u8]> for FrozenPart {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[self.part.clone()]
    }
}

/// Recycles buffers. Clones share them.
#[derive(Debug, Clone)]
pub struct PagePool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    count_max: usize,
    size_max: usize,
    idle: Mutex<Vec<Vec<u8>>>,
}

impl Default for PagePool {
    /// Keeps eight buffers of up to 4 MiB.
    fn default() -> Self {
        Self::new(8, 4 * 1024 * 1024)
    }
}

impl PagePool {
    /// A pool that keeps at most `count_max` buffers that nobody uses, of at most `size_max` bytes each.
    pub fn new(count_max: usize, size_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                count_max,
                size_max,
                idle: Mutex::default(),
            }),
        }
    }

    /// A buffer with room for at least `length` bytes. What is in it is undefined.
    pub fn take(&self, length: usize) -> PageBuffer {
        let length = length.next_multiple_of(PAGE);
        let mut buffer = match self.recycled(length) {
            Some(memory) => PageBuffer::within(memory, length),
            None => PageBuffer::new(length),
        };
        buffer.pool = Some(self.clone());
        buffer
    }

    /// The smallest idle buffer that is large enough, unless it is far larger.
    fn recycled(&self, length: usize) -> Option<Vec<u8>> {
        let needed = length + PAGE;
        let acceptable = needed..=needed.max(STEP).saturating_mul(SURPLUS);
        let mut idle = self.idle();
        let fitting = idle.iter().enumerate();
        let fitting = fitting.filter(|(_, memory)| acceptable.contains(&memory.len()));
        let (index, _) = fitting.min_by_key(|(_, memory)| memory.len())?;
        Some(idle.swap_remove(index))
    }

    fn give_back(&self, memory: Vec<u8>) {
        if memory.len() > self.shared.size_max.saturating_add(PAGE) {
            return;
        }
        let mut idle = self.idle();
        if idle.len() >= self.shared.count_max {
            // The oldest goes, so that sizes nobody asks for any more do not fill the pool for ever.
            if idle.is_empty() {
                return;
            }
            idle.remove(0);
        }
        idle.push(memory);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.shared.idle.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zeroed() {
        for length in [0, 1, PAGE - 1, PAGE, PAGE + 1, STEP, STEP + 1, 1_000_000] {
            let buffer = PageBuffer::new(length);
            assert_eq!(buffer.as_ptr().addr() % PAGE, 0);
            assert_eq!(buffer.len(), length.next_multiple_of(PAGE));
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn memory_returns_when_the_last_view_is_gone() {
        let pool = PagePool::new(2, 1 << 20);
        let mut buffer = pool.take(10_000);
        buffer[5000..5004].copy_from_slice(b"mill");
        let address = buffer.as_ptr().addr();
        let whole = buffer.freeze(4096..12_288);
        let view = whole.slice(904..908);
        drop(whole);
        assert_eq!(pool.idle().len(), 0);
        assert_eq!(&view[..], b"mill");
        drop(view);
        assert_eq!(pool.idle().len(), 1);
        let again = pool.take(12_000);
        assert_eq!(again.as_ptr().addr(), address);
        // Nobody cleared it.
        assert_eq!(&again[5000..5004], b"mill");
    }

    #[test]
    fn a_recycled_buffer_fits() {
        let pool = PagePool::new(8, 1 << 20);
        let sizes = [4096, 500_000, 900_000, 2 << 20];
        let buffers: Vec<_> = sizes.iter().map(|size| pool.take(*size)).collect();
        drop(buffers);
        // The one beyond the size is not kept.
        assert_eq!(pool.idle().len(), 3);
        for (length, left) in [(400_000, 2), (600_000, 1), (1_000_000, 1), (100, 0)] {
            let buffer = pool.take(length);
            assert!(buffer.len() >= length);
            assert_eq!(pool.idle().len(), left, "{length}");
            std::mem::forget(buffer);
        }
    }

    #[test]
    fn far_larger_buffers_are_left() {
        let pool = PagePool::new(8, 4 << 20);
        drop(pool.take(4 << 20));
        let small = pool.take(4096);
        assert!(small.memory.len() < STEP);
        assert_eq!(pool.idle().len(), 1);
    }

    #[test]
    fn the_number_kept_is_bounded() {
        let pool = PagePool::new(2, 1 << 20);
        let buffers: Vec<_> = (1..=4).map(|index| pool.take(index * STEP)).collect();
        drop(buffers);
        let sizes: Vec<_> = pool.idle().iter().map(Vec::len).collect();
        assert_eq!(sizes, [3 * STEP + PAGE, 4 * STEP + PAGE]);
        let nothing = PagePool::new(0, 1 << 20);
        drop(nothing.take(1));
        assert_eq!(nothing.idle().len(), 0);
    }

    #[test]
    fn a_part_of_an_empty_buffer_is_empty() {
        assert!(PageBuffer::new(0).freeze(0..0).is_empty());
    }
}
