//! Memory of requests that were sent, for those that come next.
//!
//! A body is as large as what the system gives and takes back page by page: without this, each costs some hundred page faults and
//! is copied several times while it grows.

use bytes::Bytes;
use parking_lot::Mutex;

/// Buffers that nobody uses.
pub struct Spare {
    buffers: Mutex<Vec<Vec<u8>>>,
    /// The most bytes that they may take together.
    size_max: usize,
}

impl Spare {
    pub fn new(size_max: usize) -> Self {
        Self {
            buffers: Mutex::default(),
            size_max,
        }
    }

    /// An empty buffer, which has room for `size` bytes if it is a new one.
    pub fn take(&self, size: usize) -> Vec<u8> {
        let mut buffers = self.buffers.lock();
        let spare = buffers.pop();
        drop(buffers);
        spare.unwrap_or_else(|| Vec::with_capacity(size))
    }

    /// Takes a body back, unless somebody else still has it or there are enough of them.
    pub fn give_back(&self, mut body: Bytes) {
        if !body.is_unique() {
            return;
        }
        // Or its bytes would be moved.
        body.clear();
        let buffer = Vec::from(body);
        let mut buffers = self.buffers.lock();
        let size: usize = buffers.iter().map(Vec::capacity).sum();
        if buffer.capacity() > 0 && size + buffer.capacity() <= self.size_max {
            buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_where_nobody_has_it() {
        let spare = Spare::new(1000);
        let body = |size: usize| {
            let mut buffer = Vec::with_capacity(size);
            buffer.extend_from_slice(b"abc");
            Bytes::from(buffer)
        };
        let kept = body(400);
        let place = kept.as_ptr();
        spare.give_back(kept);
        let again = spare.take(0);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        assert!(again.capacity() >= 400);
        let shared = body(400);
        let other = shared.clone();
        spare.give_back(shared);
        assert_eq!(spare.take(0).capacity(), 0, "it is still in use: {other:?}");
        (0..5).for_each(|_| spare.give_back(body(400)));
        assert_eq!(spare.buffers.lock().len(), 2);
    }
}
