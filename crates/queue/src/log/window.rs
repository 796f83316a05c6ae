//! Page-aligned windows into a file, so that many small accesses are few reads.
//!
//! Invariant: a window never shows bytes at or beyond the end that it was filled with: a page there may still be written,
//! while those before it never are again.

use std::io;

use bytes::Bytes;

use crate::pages::{PageBuffer, PagePool};
use crate::storage::{PAGE, StoredFile};

/// Stands for every byte of a page that cannot be read, so that it is neither zeros nor a header.
const UNREADABLE: u8 = 0xee;

#[derive(Debug)]
pub(super) struct Window {
    pool: PagePool,
    capacity: usize,
    start: u64,
    bytes: Bytes,
    /// Whether pages that cannot be read are passed over as if they held garbage.
    pub(super) passes_unreadable: bool,
}

impl Window {
    /// A window of at most so many bytes, which is at least two pages.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2 * PAGE);
        Self {
            pool: PagePool::new(2, capacity),
            capacity,
            start: 0,
            bytes: Bytes::new(),
            passes_unreadable: false,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets what was read, because another file comes next.
    pub(super) fn clear(&mut self) {
        self.bytes = Bytes::new();
    }

    /// Gives the memory back while nothing is read.
    pub(super) fn rest(&mut self) {
        self.clear();
        self.pool = PagePool::new(2, self.capacity);
    }

    /// As [`Window::get`], to be kept. As long as it is, so is the whole window.
    pub(super) fn share(
        &mut self,
        file: &dyn StoredFile,
        offset: u64,
        wanted: usize,
        ahead: usize,
        end: u64,
    ) -> io::Result<Bytes> {
        let length = self.get(file, offset, wanted, ahead, end)?.len();
        let from = (offset - self.start) as usize;
        Ok(self.bytes.slice(from..from + length))
    }

    /// The `wanted` bytes from `offset` on, or fewer at `end` or at the end of the file. When they have to be read, so are
    /// up to `ahead` bytes behind `offset`.
    pub(super) fn get(
        &mut self,
        file: &dyn StoredFile,
        offset: u64,
        wanted: usize,
        ahead: usize,
        end: u64,
    ) -> io::Result<&[u8]> {
        let until = end.min(offset.saturating_add(wanted as u64));
        if offset >= until {
            return Ok(&[]);
        }
        if offset < self.start || until > self.have() {
            self.fill(file, offset, wanted.max(ahead), end)?;
        }
        let until = until.min(self.have()).max(offset);
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..][..(until - offset) as usize])
    }

    /// Where the window ends.
    fn have(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn fill(
        &mut self,
        file: &dyn StoredFile,
        offset: u64,
        size: usize,
        end: u64,
    ) -> io::Result<()> {
        let page = PAGE as u64;
        let start = offset - offset % page;
        let until = end
            .min(offset.saturating_add(size as u64))
            .next_multiple_of(page);
        let size = usize::try_from(until - start).unwrap_or(usize::MAX);
        let size = size.min(self.capacity);
        // Its memory is what is read into, unless somebody keeps it.
        self.clear();
        let mut buffer = self.pool.take(size);
        let read = match file.read_at(&mut buffer[..size], start) {
            Err(_) if self.passes_unreadable => fill_by_pages(file, &mut buffer, start)?,
            read => read?,
        };
        let length = read.min(usize::try_from(end - start).unwrap_or(usize::MAX));
        if offset <= start + length as u64 {
            self.start = start;
            self.bytes = buffer.freeze(0..length);
        } else {
            // What lies behind a file's end is as if it was not asked for.
            self.start = offset;
        }
        Ok(())
    }
}

fn fill_by_pages(file: &dyn StoredFile, buffer: &mut PageBuffer, start: u64) -> io::Result<usize> {
    let length = file.len()?;
    let mut done = 0;
    while done < buffer.len() && start + (done as u64) < length {
        let offset = start + done as u64;
        let page = &mut buffer[done..done + PAGE];
        done += match file.read_at(page, offset) {
            Ok(0) => break,
            Ok(read) => read,
            Err(_) => {
                page.fill(UNREADABLE);
                PAGE.min(usize::try_from(length - offset).unwrap_or(PAGE))
            }
        };
    }
    Ok(done)
}
