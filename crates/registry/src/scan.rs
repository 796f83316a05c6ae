//! Walks a log from its header to its end and tells frames that verify from what does not.
//!
//! Reads in windows of 256 KiB, or of one frame where that is larger. After bytes that do not verify, the walk resumes at
//! the next frame that does, carries the log's id, and comes later in sequence.

use std::io;

use disk::{PAGE, StoredFile, Window, is_zero};
use memchr::memmem::Finder;

use crate::format::{FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, HEADER_BYTES, Header};

pub(crate) const WINDOW_BYTES: usize = 256 << 10;

/// A part of a log.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A frame that verifies, at this offset.
    Frame { at: u64, bytes: &'a [u8] },
    /// Damage with a good frame after it, and the number of commits between the good ones.
    Gap { bytes: u64, commits: u64 },
    /// Damage up to the end.
    DamagedEnd { bytes: u64 },
    /// What an append that was cut short leaves: the beginning of a frame, or zeros.
    TornEnd { bytes: u64 },
}

/// A walk over a log.
pub(crate) struct Scan<'a> {
    file: &'a dyn StoredFile,
    /// The end that the file had at first: what is appended meanwhile is not torn.
    end: u64,
    window: Window,
    at: u64,
    /// The log's id; without a header, the first frame tells it.
    log: Option<u64>,
    /// Of the last good frame.
    sequence: u64,
}

enum Check {
    Good(FrameHeader),
    Bad,
    /// The file ends within what may be a frame.
    Torn,
    End,
}

impl<'a> Scan<'a> {
    /// Begins behind the header, or at the start of the file when that is damaged.
    pub fn new(file: &'a dyn StoredFile) -> io::Result<(Self, Header)> {
        let mut scan = Self {
            file,
            end: file.len()?,
            window: Window::new(WINDOW_BYTES),
            at: 0,
            log: None,
            sequence: 0,
        };
        let header = Header::decode(scan.get(0, HEADER_BYTES)?);
        if let Header::Valid { log } = header {
            (scan.at, scan.log) = (HEADER_BYTES as u64, Some(log));
        }
        Ok((scan, header))
    }

    /// So many bytes of the file; fewer at its end.
    fn get(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        self.window
            .get(self.file, at, length, WINDOW_BYTES, self.end)
    }

    /// The next piece; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
        let at = self.at;
        let is_torn = match self.check(at)? {
            Check::End => return Ok(None),
            Check::Good(header) => {
                self.log = Some(header.log);
                self.sequence = header.sequence;
                self.at += header.frame_bytes() as u64;
                let bytes = self.get(at, header.frame_bytes())?;
                return Ok(Some(Piece::Frame { at, bytes }));
            }
            Check::Torn => true,
            Check::Bad => false,
        };
        let (next, found) = self.search(at + 1)?;
        self.at = next;
        let bytes = next - at;
        Ok(Some(match found {
            Some(header) => Piece::Gap {
                bytes,
                commits: header.sequence - self.sequence - 1,
            },
            None if is_torn || self.is_zero(at)? => Piece::TornEnd { bytes },
            None => Piece::DamagedEnd { bytes },
        }))
    }

    /// The id and the last sequence of the frames so far.
    pub fn last(&self) -> (Option<u64>, u64) {
        (self.log, self.sequence)
    }

    fn check(&mut self, at: u64) -> io::Result<Check> {
        let bytes = self.get(at, FRAME_HEADER_BYTES)?;
        if bytes.is_empty() {
            return Ok(Check::End);
        }
        if bytes.len() < FRAME_HEADER_BYTES {
            let magic = &FRAME_MAGIC[..bytes.len().min(FRAME_MAGIC.len())];
            return Ok(if bytes.starts_with(magic) {
                Check::Torn
            } else {
                Check::Bad
            });
        }
        let Some(header) = FrameHeader::decode(bytes) else {
            return Ok(Check::Bad);
        };
        if self.log.is_some_and(|log| log != header.log) || header.sequence <= self.sequence {
            return Ok(Check::Bad);
        }
        let frame = self.get(at, header.frame_bytes())?;
        Ok(if frame.len() < header.frame_bytes() {
            Check::Torn
        } else if header.verify(frame) {
            Check::Good(header)
        } else {
            Check::Bad
        })
    }

    /// The next good frame from here on, or the end of the file.
    fn search(&mut self, mut at: u64) -> io::Result<(u64, Option<FrameHeader>)> {
        let finder = Finder::new(&FRAME_MAGIC);
        while let (Some(found), _) = self.window.find(self.file, &finder, at, self.end)? {
            if let Check::Good(header) = self.check(found)? {
                return Ok((found, Some(header)));
            }
            at = found + 1;
        }
        Ok((self.end, None))
    }

    fn is_zero(&mut self, mut at: u64) -> io::Result<bool> {
        loop {
            let bytes = self.get(at, WINDOW_BYTES - PAGE)?;
            if bytes.is_empty() || !is_zero(bytes) {
                return Ok(bytes.is_empty());
            }
            at += bytes.len() as u64;
        }
    }
}
