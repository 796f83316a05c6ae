//! Page-aligned windows into a file, so that many small accesses are few reads, and the search for the next record behind damage.
//!
//! Invariant: a window never shows bytes at or beyond the end that it was filled with: a page there may still be written,
//! while those before it never are again.

use std::io;

use bytes::Bytes;
use memchr::memmem::Finder;

use crate::pages::{PageBuffer, PagePool};
use crate::storage::{PAGE, StoredFile};

static ZEROS: [u8; PAGE] = [0; PAGE];

/// Stands for every byte of a page that cannot be read, so that it is neither zeros nor a header.
const UNREADABLE: u8 = 0xee;

/// A part of a file that was read.
#[derive(Debug)]
pub struct Window {
    pool: PagePool,
    capacity: usize,
    start: u64,
    bytes: Bytes,
    /// Whether pages that cannot be read are passed over as if they held garbage.
    pub passes_unreadable: bool,
}

impl Window {
    /// A window of so many bytes, which is at least two pages. It is larger while more is wanted at once.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2 * PAGE);
        Self {
            pool: PagePool::new(2, capacity),
            capacity,
            start: 0,
            bytes: Bytes::new(),
            passes_unreadable: false,
        }
    }

    /// How many bytes it has, unless more are wanted at once.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets what was read, because another file comes next.
    pub fn clear(&mut self) {
        self.bytes = Bytes::new();
    }

    /// Gives the memory back while nothing is read.
    pub fn rest(&mut self) {
        self.clear();
        self.pool = PagePool::new(2, self.capacity);
    }

    /// As [`Window::get`], to be kept. As long as it is, so is the whole window.
    pub fn share(
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
    pub fn get(
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
            self.fill(file, offset, wanted, wanted.max(ahead), end)?;
        }
        let until = until.min(self.have()).max(offset);
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..][..(until - offset) as usize])
    }

    /// The next place from `from` on, before `end`, where the bytes of `finder` stand, and where the last byte before it that is
    /// not zero ends; `from` where all are.
    ///
    /// # Errors
    /// The system refused.
    pub fn find(
        &mut self,
        file: &dyn StoredFile,
        finder: &Finder<'_>,
        from: u64,
        end: u64,
    ) -> io::Result<(Option<u64>, u64)> {
        let (mut at, mut data_end) = (from, from);
        let size = self.capacity - PAGE;
        // They may begin in what was read and end in what is read next.
        let kept = finder.needle().len() - 1;
        loop {
            let wanted = match self.have_from(at).min(end.saturating_sub(at)) as usize {
                rest if rest > kept => rest,
                _ => size,
            };
            let bytes = self.get(file, at, wanted, size, end)?;
            let found = finder.find(bytes);
            let passed = &bytes[..found.unwrap_or(bytes.len())];
            if let Some(last) = last_data(passed) {
                data_end = at + last as u64;
            }
            if let Some(index) = found {
                return Ok((Some(at + index as u64), data_end));
            }
            if at + bytes.len() as u64 >= end || bytes.len() <= kept {
                return Ok((None, data_end));
            }
            at += (bytes.len() - kept) as u64;
        }
    }

    /// Where the window ends.
    fn have(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// How many bytes it has from `offset` on.
    fn have_from(&self, offset: u64) -> u64 {
        match offset >= self.start {
            true => self.have().saturating_sub(offset),
            false => 0,
        }
    }

    fn fill(
        &mut self,
        file: &dyn StoredFile,
        offset: u64,
        wanted: usize,
        size: usize,
        end: u64,
    ) -> io::Result<()> {
        let page = PAGE as u64;
        let start = offset - offset % page;
        let until = end
            .min(offset.saturating_add(size as u64))
            .next_multiple_of(page);
        let size = usize::try_from(until - start).unwrap_or(usize::MAX);
        let size = size.min(self.capacity.max((wanted + PAGE).next_multiple_of(PAGE)));
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

/// Whether all bytes are zeros.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(PAGE)
        .all(|chunk| *chunk == ZEROS[..chunk.len()])
}

/// Where the last byte that is not zero ends.
fn last_data(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    for chunk in bytes.rchunks(PAGE) {
        // Whole pages are compared first, because that is fast.
        if *chunk != ZEROS[..chunk.len()] {
            let last = chunk.iter().rposition(|byte| *byte != 0)?;
            return Some(end - chunk.len() + last + 1);
        }
        end -= chunk.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often it is read.
    #[derive(Debug, Default)]
    struct Memory {
        bytes: Vec<u8>,
        reads: AtomicUsize,
    }

    impl StoredFile for Memory {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let rest = &self.bytes[offset as usize..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn sync(&self) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn cut(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// All places at which a needle stands.
    fn places(window: &mut Window, file: &Memory, needle: &[u8], end: u64) -> Vec<u64> {
        let finder = Finder::new(needle);
        let (mut from, mut found) = (0, Vec::new());
        while let (Some(at), _) = window.find(file, &finder, from, end).unwrap() {
            found.push(at);
            from = at + 1;
        }
        found
    }

    #[test]
    fn what_is_in_the_window_is_not_read_again() {
        let file = Memory {
            bytes: b"MAGI".repeat(64 * PAGE / 4),
            ..Memory::default()
        };
        let mut window = Window::new(16 * PAGE);
        let end = file.bytes.len() as u64;
        let found = places(&mut window, &file, b"MAGI", end);
        assert!(found.into_iter().eq((0..end).step_by(4)));
        assert!(file.reads.into_inner() <= 8);
    }

    #[test]
    fn a_needle_is_found_across_the_ends_of_windows() {
        for at in (3 * PAGE - 9)..(3 * PAGE + 2) {
            let mut bytes = vec![1; 9 * PAGE];
            for copy in [at, at + PAGE, at + 2 * PAGE, at + 5 * PAGE] {
                bytes[copy..copy + 8].copy_from_slice(b"a needle");
            }
            let file = Memory {
                bytes,
                ..Memory::default()
            };
            let mut window = Window::new(2 * PAGE);
            let wanted = [at, at + PAGE, at + 2 * PAGE, at + 5 * PAGE].map(|place| place as u64);
            let until = 9 * PAGE as u64;
            assert_eq!(places(&mut window, &file, b"a needle", until), wanted);
            // One byte of the last is beyond the end.
            let end = wanted[3] + 7;
            assert_eq!(places(&mut window, &file, b"a needle", end), wanted[..3]);
        }
    }
}
