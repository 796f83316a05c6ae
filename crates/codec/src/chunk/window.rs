//! The part of a stream that was read and not yet given: in a buffer of the pool, or, while there is none, in a small
//! copy of its own.

use batch::PooledBuffer;
use bytes::Bytes;

use crate::resume::{Check, Tail};

/// Room that a buffer must have at least for the next read.
pub(super) const SPACE_MIN: usize = 64 * 1024;

/// The part of a stream that was read and not yet given.
#[derive(Debug)]
pub(super) struct Window {
    buffer: Option<PooledBuffer>,
    /// Bytes of the buffer that were read.
    filled: usize,
    /// What was read, while there is no buffer: it goes to the front of the next one.
    carry: Vec<u8>,
    /// Size of the next buffer; 0 for the ordinary size.
    wanted: usize,
    /// Offset of the first byte in the stream.
    start: u64,
    /// What stood right before.
    tail: Tail,
}

impl Window {
    /// A window at `start`, right behind `before`.
    pub(super) fn new(start: u64, before: &[u8]) -> Self {
        Self {
            buffer: None,
            filled: 0,
            carry: Vec::new(),
            wanted: 0,
            start,
            tail: Tail::new(before),
        }
    }

    /// How large a buffer it needs; none when it has one.
    pub(super) fn needs(&self) -> Option<usize> {
        match self.buffer {
            Some(_) => None,
            None if self.carry.is_empty() => Some(self.wanted),
            None => Some(self.wanted.max(self.carry.len() + SPACE_MIN)),
        }
    }

    /// How large the smallest buffer is that takes what it keeps; none when it has one. What is read next needs room beside that.
    pub(super) fn least(&self) -> Option<usize> {
        match self.buffer {
            Some(_) => None,
            None => Some(self.wanted.max(self.carry.len())),
        }
    }

    /// Takes a buffer of the size that it needs.
    pub(super) fn give(&mut self, mut buffer: PooledBuffer) {
        buffer[..self.carry.len()].copy_from_slice(&self.carry);
        (self.filled, self.wanted) = (self.carry.len(), 0);
        self.buffer = Some(buffer);
        // The memory of the copy is used again, unless it is that of a long line.
        self.carry.clear();
        self.carry.shrink_to(SPACE_MIN);
    }

    /// Where to read to.
    pub(super) fn space(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut buffer[self.filled..],
            None => &mut [],
        }
    }

    /// Takes so many bytes of its space.
    pub(super) fn advance(&mut self, read: usize) {
        self.filled += read;
    }

    /// What was read.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer[..self.filled],
            None => &self.carry,
        }
    }

    /// Offset of the first byte.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Offset behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes().len() as u64
    }

    /// What stood right before.
    pub(super) fn before(&self) -> &[u8] {
        self.tail.bytes()
    }

    /// Whether there is a buffer without room.
    pub(super) fn is_full(&self) -> bool {
        self.buffer
            .as_ref()
            .is_some_and(|buffer| buffer.len() == self.filled)
    }

    /// The check of the offset `at` bytes behind the start.
    pub(super) fn check(&self, at: usize) -> Check {
        self.tail.check(&self.bytes()[..at])
    }

    /// Gives the first bytes away, in the buffer where they lie; the others are copied.
    pub(super) fn cut_off(&mut self, at: usize) -> Bytes {
        self.pass(at);
        let Some(buffer) = self.buffer.take() else {
            let rest = self.carry.split_off(at);
            return Bytes::from(std::mem::replace(&mut self.carry, rest));
        };
        self.carry.extend_from_slice(&buffer[at..self.filled]);
        self.filled = 0;
        buffer.freeze(at)
    }

    /// Forgets the first bytes; the others move to the front.
    pub(super) fn forget(&mut self, at: usize) {
        self.pass(at);
        match &mut self.buffer {
            Some(buffer) => {
                buffer.copy_within(at..self.filled, 0);
                self.filled -= at;
            }
            None => {
                self.carry.drain(..at);
            }
        }
    }

    /// Gives the buffer back; the next one is twice as large, up to `limit`.
    pub(super) fn grow(&mut self, limit: usize) {
        self.wanted = (2 * self.filled).min(limit);
        self.release();
    }

    /// Gives the buffer back and keeps what was read.
    pub(super) fn release(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.carry.extend_from_slice(&buffer[..self.filled]);
            self.filled = 0;
        }
        self.carry.shrink_to_fit();
    }

    fn pass(&mut self, at: usize) {
        let bytes = match &self.buffer {
            Some(buffer) => &buffer[..self.filled],
            None => &self.carry[..],
        };
        self.tail.push(&bytes[..at]);
        self.start += at as u64;
    }
}

#[cfg(test)]
mod tests {
    use batch::Budget;

    use super::*;

    #[test]
    fn a_released_window_keeps_its_content_and_nothing_else() {
        let budget = Budget::new(1 << 20);
        let pool = budget.pool(1 << 20, 1000);
        let mut window = Window::new(0, b"");
        window.give(pool.take());
        window.space()[..5].copy_from_slice(b"ab\ncd");
        window.advance(5);
        drop(window.cut_off(3));
        window.release();
        assert_eq!((window.bytes(), window.carry.capacity()), (&b"cd"[..], 2));
        assert_eq!((budget.used(), window.start()), (0, 3));
        assert_eq!(window.check(2), Check::of(b"ab\ncd"));
        let size = window.needs().expect("it has no buffer");
        window.give(pool.take_sized(size));
        assert_eq!((window.bytes(), window.needs()), (&b"cd"[..], None));
    }
}
