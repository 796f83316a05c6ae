//! Page-aligned windows into a file, so that many small accesses are few reads.
//!
//! Invariant: a window never shows bytes at or beyond the end that it was filled with: a page there may still be written,
//! while those before it never are again.

use std::io;

use crate::pages::PageBuffer;
use crate::storage::{PAGE, StoredFile};

/// Stands for every byte of a page that cannot be read, so that it is neither zeros nor a header.
const UNREADABLE: u8 = 0xee;

#[derive(Debug)]
pub(super) struct Window {
    buffer: PageBuffer,
    start: u64,
    length: usize,
    /// Whether pages that cannot be read are passed over as if they held garbage.
    pub(super) passes_unreadable: bool,
}

impl Window {
    /// A window of at most so many bytes, which is at least two pages.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            buffer: PageBuffer::new(capacity.max(2 * PAGE)),
            start: 0,
            length: 0,
            passes_unreadable: false,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Forgets what was read, because another file comes next.
    pub(super) fn clear(&mut self) {
        self.length = 0;
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
        if offset < self.start || until > self.start + self.length as u64 {
            self.fill(file, offset, wanted.max(ahead), end)?;
        }
        let have = self.start + self.length as u64;
        let until = until.min(have).max(offset);
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..][..(until - offset) as usize])
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
        let size = size.min(self.capacity());
        self.start = start;
        self.length = 0;
        let read = match file.read_at(&mut self.buffer[..size], start) {
            Err(_) if self.passes_unreadable => self.fill_by_pages(file, size)?,
            read => read?,
        };
        self.length = read.min(usize::try_from(end - start).unwrap_or(usize::MAX));
        // What lies behind a file's end is as if it was not asked for.
        if offset > start + self.length as u64 {
            self.start = offset;
            self.length = 0;
        }
        Ok(())
    }

    fn fill_by_pages(&mut self, file: &dyn StoredFile, size: usize) -> io::Result<usize> {
        let length = file.len()?;
        let mut done = 0;
        while done < size && self.start + (done as u64) < length {
            let offset = self.start + done as u64;
            let page = &mut self.buffer[done..done + PAGE];
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
}
