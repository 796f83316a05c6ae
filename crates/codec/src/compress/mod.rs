//! Compressed data as it is found in the wild, from its start or from a checkpoint: gzip (RFC 1952) with any number of
//! members, zstd (RFC 8878) with any number of frames.
//!
//! - Checksums and lengths are checked at the end of each member or frame, also after a resume.
//! - What follows the last one and is none itself is ignored, like gzip(1) does; [`Decompressor::has_garbage`] tells,
//!   unless it is padding of zeros.
//! - The end of the data is not final: a file that grows is read on where it ended.
//! - A checkpoint is taken at the end of each member or frame, and within members of gzip at the first boundary of two
//!   deflate blocks behind each 4 MiB of content. Within a frame of zstd there are none, so a resume repeats the frame.
//!
//! # Limits
//! - A [`Decompressor`] takes 45 KiB within gzip, and 32 KiB more while a checkpoint within a member waits to be taken.
//!   Zstd takes 94 KiB, three blocks of at most 128 KiB, and the window that the frame asks for, at most 128 MiB. Nothing
//!   is allocated before the first member or frame, and nothing is kept behind the last one once
//!   [`Decompressor::finish`] was called.
//! - A deflate block is as long as its compressor likes. Most make them of 16,384 symbols, but some, at their fastest
//!   level, one of a whole member, in which there is no checkpoint then.

mod checkpoint;
mod format;
mod gzip;
mod raw;
mod zstd;

use crate::error::CodecError;

pub use self::zstd::stated_bytes as zstd_stated_bytes;
pub use checkpoint::Checkpoint;
pub use format::Format;

/// How much content lies between two checkpoints within a member, in bytes. Less makes a resume repeat less: 4 MiB take
/// a few milliseconds to inflate.
const CHECKPOINT_INTERVAL_BYTES: u64 = 4 << 20;

/// The longest magic number, in bytes.
const MAGIC_BYTES_MAX: usize = 4;

/// How data that starts with these bytes is compressed. Needs no more than 4 bytes; a part of a magic number is none.
///
/// A frame of zstd that is to be skipped counts too.
pub fn recognise(start: &[u8]) -> Option<Format> {
    Format::ALL.into_iter().find(|format| {
        start
            .get(..format.magic_bytes())
            .is_some_and(|start| format.may_start(start))
    })
}

/// Whether [`recognise`] may find something once there are more bytes than these.
pub fn is_undecided(start: &[u8]) -> bool {
    Format::ALL
        .into_iter()
        .any(|format| start.len() < format.magic_bytes() && format.may_start(start))
}

impl Format {
    fn magic_bytes(self) -> usize {
        match self {
            Self::Gzip => gzip::MAGIC.len(),
            Self::Zstd => zstd::MAGIC.len(),
        }
    }

    /// Whether these bytes are the first ones of a magic number.
    fn may_start(self, seen: &[u8]) -> bool {
        match (self, seen) {
            (Self::Gzip, _) => gzip::MAGIC.starts_with(seen),
            (Self::Zstd, [0x50..=0x5F, rest @ ..]) => zstd::SKIPPABLE_MAGIC.starts_with(rest),
            (Self::Zstd, _) => zstd::MAGIC.starts_with(seen),
        }
    }
}

/// Decompresses gzip or zstd.
pub struct Decompressor {
    format: Format,
    place: StreamState,
    /// What reads members or frames, from the first one on.
    coder: Option<Coder>,
    /// Compressed bytes consumed, from the start of the file.
    input: u64,
    /// Decompressed bytes, from the start of the content.
    output: u64,
    has_garbage: bool,
    interval: u64,
    /// Where the last checkpoint lies in the content.
    last_checkpoint: u64,
    /// The newest checkpoint, until it is taken.
    checkpoint: Option<Checkpoint>,
}

enum StreamState {
    /// A member or frame may start here: so many bytes of its magic number were seen. `first` is false behind one.
    Between {
        magic: [u8; MAGIC_BYTES_MAX],
        seen: usize,
        first: bool,
    },
    Inside,
    /// Behind the last one: everything is ignored.
    Trailing,
    Broken(CodecError),
}

enum Coder {
    Gzip(gzip::Member),
    Zstd(zstd::Frame),
}

/// What one step of a coder did.
struct Progress {
    consumed: usize,
    produced: usize,
    event: Event,
}

enum Event {
    /// There may be more to do with what is there.
    Going,
    /// Only more input or space helps.
    Stuck,
    /// At a boundary of blocks, with so many bits left over.
    Boundary {
        bits: u8,
    },
    /// Behind the member or frame.
    End,
    Failed(String),
}

impl Progress {
    fn stuck() -> Self {
        Self {
            consumed: 0,
            produced: 0,
            event: Event::Stuck,
        }
    }
}

/// What one step did.
#[derive(Debug, PartialEq, Eq)]
pub struct Decompressed {
    /// Compressed bytes that were read.
    pub consumed: usize,
    /// Decompressed bytes that were written. They are good, even with a failure.
    pub produced: usize,
    /// Why nothing more can be read.
    pub failure: Option<CodecError>,
}

impl Decompressor {
    /// At the start of compressed data.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            place: StreamState::between(true),
            coder: None,
            input: 0,
            output: 0,
            has_garbage: false,
            interval: CHECKPOINT_INTERVAL_BYTES,
            last_checkpoint: 0,
            checkpoint: None,
        }
    }

    /// With another interval of checkpoints within members, in bytes of content. For tests of what happens between.
    pub fn with_interval(mut self, interval: u64) -> Self {
        self.interval = interval.max(1);
        self
    }

    /// At a checkpoint: the next input is [`Checkpoint::input`] on, the next content [`Checkpoint::output`] on.
    ///
    /// # Errors
    /// There is no memory.
    pub fn resume(checkpoint: &Checkpoint) -> Result<Self, CodecError> {
        let format = checkpoint.format;
        let (place, coder) = match &checkpoint.inside {
            None => (StreamState::between(false), None),
            Some(inside) => {
                let member = gzip::Member::resume(inside);
                let member = member.ok_or(CodecError::NoMemory { format })?;
                (StreamState::Inside, Some(Coder::Gzip(member)))
            }
        };
        Ok(Self {
            place,
            coder,
            input: checkpoint.input,
            output: checkpoint.output,
            last_checkpoint: checkpoint.output,
            ..Self::new(format)
        })
    }

    /// Decompresses what is there into `output`. It stops when `input` is read or `output` is full; behind the last
    /// input, it is called with none until it produces nothing. After a failure it only repeats that.
    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Decompressed {
        let mut step = Decompressed {
            consumed: 0,
            produced: 0,
            failure: None,
        };
        loop {
            let rest = &input[step.consumed..];
            match &self.place {
                StreamState::Broken(failure) => {
                    step.failure = Some(failure.clone());
                    return step;
                }
                StreamState::Trailing => {
                    self.has_garbage |= rest.iter().any(|byte| *byte != 0);
                    self.input += rest.len() as u64;
                    step.consumed = input.len();
                    return step;
                }
                StreamState::Between { .. } => {
                    let Some(byte) = rest.first() else {
                        return step;
                    };
                    step.consumed += 1;
                    self.between(*byte);
                }
                StreamState::Inside => {
                    if !self.inside(rest, output, &mut step) {
                        return step;
                    }
                }
            }
        }
    }

    /// Says that the compressed data ends here. When there is more later, [`Self::step`] may be called again.
    ///
    /// # Errors
    /// It ends in the middle of a member or frame, or it was corrupt before.
    pub fn finish(&mut self) -> Result<(), CodecError> {
        match &self.place {
            StreamState::Trailing | StreamState::Between { first: false, .. } => {
                self.coder = None;
                Ok(())
            }
            StreamState::Between { first: true, .. } | StreamState::Inside => {
                Err(CodecError::Truncated {
                    format: self.format,
                    offset: self.input,
                })
            }
            StreamState::Broken(failure) => Err(failure.clone()),
        }
    }

    /// Whether something that is neither a member or frame nor zeros follows the last one. Final at the end of the data.
    pub fn has_garbage(&self) -> bool {
        let has_half_magic = matches!(
            self.place,
            StreamState::Between {
                seen: 1..,
                first: false,
                ..
            }
        );
        self.has_garbage || has_half_magic
    }

    /// How the data is compressed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Compressed bytes consumed, from the start of the file.
    pub fn input_offset(&self) -> u64 {
        self.input
    }

    /// Decompressed bytes produced, from the start of the content.
    pub fn output_offset(&self) -> u64 {
        self.output
    }

    /// The newest checkpoint, unless it was taken before.
    pub fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        self.checkpoint.take()
    }

    /// Decompresses within a member or frame; whether to go on.
    fn inside(&mut self, rest: &[u8], output: &mut [u8], step: &mut Decompressed) -> bool {
        let Some(coder) = &mut self.coder else {
            return false;
        };
        let space = &mut output[step.produced..];
        let progress = match coder {
            Coder::Zstd(frame) => frame.step(rest, space),
            Coder::Gzip(member) => {
                let next = self.last_checkpoint.saturating_add(self.interval);
                let left = next.saturating_sub(self.output);
                let space_max = if left == 0 { u64::MAX } else { left };
                let space_max = usize::try_from(space_max).unwrap_or(usize::MAX);
                let space_bytes = space.len().min(space_max);
                member.step(rest, &mut space[..space_bytes], left == 0)
            }
        };
        step.consumed += progress.consumed;
        step.produced += progress.produced;
        self.input += progress.consumed as u64;
        self.output += progress.produced as u64;
        match progress.event {
            Event::Going => {}
            Event::Stuck => return false,
            Event::Boundary { bits } => self.capture(Some(bits)),
            Event::End => {
                self.place = StreamState::between(false);
                self.capture(None);
            }
            Event::Failed(reason) => self.fail(self.input, reason),
        }
        true
    }

    /// Takes a checkpoint, within a member if there are bits left over.
    fn capture(&mut self, bits: Option<u8>) {
        let inside = match (bits, &self.coder) {
            (Some(bits), Some(Coder::Gzip(member))) => Some(member.capture(bits)),
            _ => None,
        };
        self.last_checkpoint = self.output;
        self.checkpoint = Some(Checkpoint {
            format: self.format,
            input: self.input,
            output: self.output,
            inside,
        });
    }

    /// Looks at a byte outside of members and frames.
    fn between(&mut self, byte: u8) {
        let StreamState::Between { magic, seen, first } = &mut self.place else {
            return;
        };
        let (first, start) = (*first, self.input - *seen as u64);
        self.input += 1;
        magic[*seen] = byte;
        *seen += 1;
        let (magic, seen) = (*magic, *seen);
        if self.format.may_start(&magic[..seen]) {
            if seen == self.format.magic_bytes() {
                self.start(&magic[..seen]);
            }
        } else if first {
            let what = match self.format {
                Format::Gzip => "not a gzip header",
                Format::Zstd => "not a zstd frame",
            };
            self.fail(start, what.to_owned());
        } else {
            self.has_garbage |= seen > 1 || byte != 0;
            self.place = StreamState::Trailing;
        }
    }

    /// Starts a member or frame with the coder that is there, or a new one.
    fn start(&mut self, magic: &[u8]) {
        let coder = self.coder.take().or_else(|| match self.format {
            Format::Gzip => gzip::Member::new().map(Coder::Gzip),
            Format::Zstd => zstd::Frame::new().map(Coder::Zstd),
        });
        let Some(mut coder) = coder else {
            let format = self.format;
            self.place = StreamState::Broken(CodecError::NoMemory { format });
            return;
        };
        match &mut coder {
            Coder::Gzip(member) => member.start(),
            Coder::Zstd(frame) => frame.start(magic),
        }
        self.coder = Some(coder);
        self.place = StreamState::Inside;
    }

    fn fail(&mut self, offset: u64, reason: String) {
        self.coder = None;
        self.place = StreamState::Broken(CodecError::Corrupt {
            format: self.format,
            offset,
            reason,
        });
    }
}

impl StreamState {
    fn between(first: bool) -> Self {
        Self::Between {
            magic: [0; MAGIC_BYTES_MAX],
            seen: 0,
            first,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Reads everything; how it ends.
    fn end(mut from: Decompressor, data: &[u8]) -> Result<(), CodecError> {
        let mut output = vec![0; 1 << 20];
        loop {
            let rest = &data[from.input_offset() as usize..];
            let step = from.step(rest, &mut output);
            match step.failure {
                Some(failure) => return Err(failure),
                None if step.produced == 0 && rest.is_empty() => return from.finish(),
                None => {}
            }
        }
    }

    #[test]
    fn a_member_of_more_than_4_gib_tells_its_length_without_them() {
        let content: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&content).expect("a vector takes it");
        let data = encoder.finish().expect("a vector takes it");
        let mut from = Decompressor::new(Format::Gzip).with_interval(100_000);
        from.step(&data, &mut vec![0; 500_000]);
        let checkpoint = from.take_checkpoint().expect("there is one");
        for (more, is_good) in [(0, true), (1 << 32, true), (3 << 32, true), (1, false)] {
            let mut checkpoint = checkpoint.clone();
            if let Some(inside) = &mut checkpoint.inside {
                inside.length += more;
            }
            let resumed = Decompressor::resume(&checkpoint).expect("memory");
            assert_eq!(end(resumed, &data).is_ok(), is_good, "{more}");
        }
    }

    #[test]
    fn what_is_not_in_use_takes_nothing() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(b"content").expect("a vector takes it");
        let data = encoder.finish().expect("a vector takes it");
        let mut from = Decompressor::new(Format::Gzip);
        assert!(from.coder.is_none(), "before the first byte");
        from.step(&data[..1], &mut [0; 100]);
        assert!(from.coder.is_none(), "there is only a part of its magic");
        from.step(&data[1..], &mut [0; 100]);
        assert!(from.coder.is_some(), "there may be another member");
        assert_eq!(from.finish(), Ok(()));
        assert!(from.coder.is_none());
    }

    #[test]
    fn it_can_go_to_another_thread() {
        fn assert_send<T: Send>() {}
        assert_send::<Decompressor>();
        assert_send::<Checkpoint>();
    }
}
