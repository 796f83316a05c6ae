//! Gzip as it is found in the wild: RFC 1952, several members one after the other, zeros or garbage behind the last one.
//!
//! Checksums and lengths are checked at the end of each member. Like gzip(1), what follows the last member and is no
//! member itself is ignored; [`Gunzip::has_garbage`] tells, unless it is padding of zeros.

use flate2::{Decompress, FlushDecompress, Status};

use crate::error::CodecError;

/// Whether data that starts with these bytes is gzip.
pub fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

const MAGIC: [u8; 2] = [0x1F, 0x8B];

/// The largest window that deflate has, as a power of two.
const WINDOW_BITS: u8 = 15;

/// Decompresses gzip.
#[derive(Debug)]
pub struct Gunzip {
    state: State,
    /// Compressed bytes read.
    offset: u64,
    has_garbage: bool,
}

#[derive(Debug)]
enum State {
    /// A member may start here, so many bytes of its magic number were seen. `first` is false behind a member.
    Between {
        magic_seen: usize,
        first: bool,
    },
    Member(Decompress),
    /// Everything is ignored.
    Trailing,
}

/// What one step did.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Compressed bytes that were read.
    pub consumed: usize,
    /// Decompressed bytes that were written. They are good, even with a failure.
    pub produced: usize,
    /// Why nothing more can be read.
    pub failure: Option<CodecError>,
}

impl Default for Gunzip {
    fn default() -> Self {
        Self {
            state: State::Between {
                magic_seen: 0,
                first: true,
            },
            offset: 0,
            has_garbage: false,
        }
    }
}

impl Gunzip {
    /// At the start of compressed data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decompresses what is there into `output`. It stops when `input` is read or `output` is full; behind the last
    /// input, it is called with none until it produces nothing.
    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let mut step = Step {
            consumed: 0,
            produced: 0,
            failure: None,
        };
        while step.failure.is_none() {
            let rest = &input[step.consumed..];
            match &mut self.state {
                State::Trailing => {
                    self.has_garbage |= rest.iter().any(|byte| *byte != 0);
                    step.consumed = input.len();
                    break;
                }
                State::Between { .. } if rest.is_empty() => break,
                State::Between { .. } => {
                    step.consumed += 1;
                    step.failure = self.between(rest[0]).err();
                }
                State::Member(_) => {
                    if !self.inflate(rest, output, &mut step) {
                        break;
                    }
                }
            }
        }
        self.offset += step.consumed as u64;
        step
    }

    /// Says that the compressed data ends here.
    ///
    /// # Errors
    /// It ends in the middle of a member.
    pub fn finish(&mut self) -> Result<(), CodecError> {
        match self.state {
            State::Trailing
            | State::Between {
                magic_seen: 0,
                first: false,
            } => Ok(()),
            State::Between { first: false, .. } => {
                self.has_garbage = true;
                Ok(())
            }
            State::Between { first: true, .. } | State::Member(_) => {
                Err(CodecError::GzipTruncated {
                    offset: self.offset,
                })
            }
        }
    }

    /// Whether something that is neither a member nor zeros follows the last member. Final after [`Self::finish`].
    pub fn has_garbage(&self) -> bool {
        self.has_garbage
    }

    /// Compressed bytes read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Decompresses within a member; whether something happened.
    fn inflate(&mut self, rest: &[u8], output: &mut [u8], step: &mut Step) -> bool {
        let State::Member(inflate) = &mut self.state else {
            return false;
        };
        let before = (inflate.total_in(), inflate.total_out());
        let space = &mut output[step.produced..];
        let status = inflate.decompress(rest, space, FlushDecompress::None);
        // These count what was done before a failure too.
        let consumed = (inflate.total_in() - before.0) as usize;
        let produced = (inflate.total_out() - before.1) as usize;
        step.consumed += consumed;
        step.produced += produced;
        match status {
            Ok(Status::StreamEnd) => {
                self.state = State::Between {
                    magic_seen: 0,
                    first: false,
                };
            }
            Ok(_) => return consumed > 0 || produced > 0,
            Err(error) => {
                step.failure = Some(CodecError::GzipCorrupt {
                    offset: self.offset + step.consumed as u64,
                    reason: error.message().unwrap_or("invalid data").to_owned(),
                });
            }
        }
        true
    }

    /// Looks at a byte outside of members.
    fn between(&mut self, byte: u8) -> Result<(), CodecError> {
        let State::Between { magic_seen, first } = &mut self.state else {
            return Ok(());
        };
        if byte != MAGIC[*magic_seen] {
            if *first {
                let reason = "not a gzip header".to_owned();
                return Err(CodecError::GzipCorrupt {
                    offset: self.offset,
                    reason,
                });
            }
            self.has_garbage |= *magic_seen > 0 || byte != 0;
            self.state = State::Trailing;
            return Ok(());
        }
        *magic_seen += 1;
        if *magic_seen == MAGIC.len() {
            let mut inflate = Decompress::new_gzip(WINDOW_BITS);
            let status = inflate.decompress(&MAGIC, &mut [], FlushDecompress::None);
            debug_assert!(status.is_ok(), "the magic number alone is always taken");
            self.state = State::Member(inflate);
        }
        Ok(())
    }
}
