//! Walks a log from its header to its end and tells frames that verify from what does not.
//!
//! Reads in windows of 256 KiB, or of one frame where that is larger. After bytes that do not verify, the walk resumes at
//! the next frame that does, carries the log's id, and comes later in sequence.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::{FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, HEADER_BYTES, Header};

const WINDOW_BYTES: usize = 256 << 10;

/// A file, read in order through a buffer, up to the end it had at first: what is appended meanwhile is not torn.
pub(crate) struct Window<'a> {
    file: &'a File,
    end: u64,
    buffer: Vec<u8>,
    /// Where the buffer's bytes lie in the file.
    start: u64,
    filled: usize,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a File) -> io::Result<Self> {
        Ok(Self {
            file,
            end: file.metadata()?.len(),
            buffer: Vec::new(),
            start: 0,
            filled: 0,
        })
    }

    /// So many bytes of the file; fewer at its end.
    pub fn get(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let end = at + length as u64;
        if at < self.start || end > self.start + self.filled as u64 {
            self.fill(at, length.max(WINDOW_BYTES))?;
        }
        let from = usize::try_from(at - self.start).expect("within the buffer");
        Ok(&self.buffer[from..self.filled.min(from + length)])
    }

    fn fill(&mut self, at: u64, length: usize) -> io::Result<()> {
        (self.start, self.filled) = (at, 0);
        let rest = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let length = length.min(rest);
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        while self.filled < length {
            let into = &mut self.buffer[self.filled..length];
            match self.file.read_at(into, at + self.filled as u64) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(failure) if failure.kind() == io::ErrorKind::Interrupted => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

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
    window: Window<'a>,
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
    pub fn new(file: &'a File) -> io::Result<(Self, Header)> {
        let mut window = Window::new(file)?;
        let header = Header::decode(window.get(0, HEADER_BYTES)?);
        let (at, log) = match header {
            Header::Valid { log } => (HEADER_BYTES as u64, Some(log)),
            _ => (0, None),
        };
        let scan = Self {
            window,
            at,
            log,
            sequence: 0,
        };
        Ok((scan, header))
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
                let bytes = self.window.get(at, header.frame_bytes())?;
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
        let bytes = self.window.get(at, FRAME_HEADER_BYTES)?;
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
        let frame = self.window.get(at, header.frame_bytes())?;
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
        loop {
            let bytes = self.window.get(at, WINDOW_BYTES)?;
            let (read, found) = (bytes.len(), memchr::memmem::find(bytes, &FRAME_MAGIC));
            if let Some(skipped) = found {
                at += skipped as u64;
                if let Check::Good(header) = self.check(at)? {
                    return Ok((at, Some(header)));
                }
                at += 1;
            } else if read < WINDOW_BYTES {
                return Ok((at + read as u64, None));
            } else {
                // A magic may begin in the last bytes of this window.
                at += (read - FRAME_MAGIC.len() + 1) as u64;
            }
        }
    }

    fn is_zero(&mut self, mut at: u64) -> io::Result<bool> {
        loop {
            let bytes = self.window.get(at, WINDOW_BYTES)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            if bytes.len() < WINDOW_BYTES {
                return Ok(true);
            }
            at += bytes.len() as u64;
        }
    }
}
