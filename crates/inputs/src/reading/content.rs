//! The content of a stream, decompressed: where its bytes come from is a [`ByteSource`], a file or a pipe.
//!
//! Nothing that was read ahead is kept here between two reads: a source is asked for its bytes by their position, and one
//! that cannot give them twice keeps them itself.

use std::io;

use codec::compress::Checkpoint;
use codec::{CodecError, Decompressor};

/// How many times larger compressed logs become, mostly less.
const EXPANSION: u64 = 16;

/// What a read gave.
#[derive(Debug)]
pub(crate) enum Got {
    /// So many bytes.
    Bytes(usize),
    /// There are no more now.
    Nothing,
    /// The content is whole and ends here.
    End,
    /// The compressed data stops before its end.
    Truncated(CodecError),
    /// The compressed data is broken here.
    Broken(CodecError),
    /// The file was truncated, and other bytes stand before our position.
    Replaced,
}

/// Where the bytes of a content come from. Positions are asked for in order, each once more at most.
pub(crate) trait ByteSource {
    /// Reads what lies at `offset`, where it is not compressed.
    ///
    /// # Errors
    /// What the system says.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<Got>;

    /// The compressed bytes at `offset`, as many as there are at hand: in `scratch`, or where the source keeps them. Empty at
    /// the end; none where there are none now. A source that may lack them gives none after the first time in a read.
    ///
    /// # Errors
    /// What the system says.
    fn compressed<'a>(
        &'a mut self,
        offset: u64,
        scratch: &'a mut [u8],
        is_first: bool,
    ) -> io::Result<Option<&'a [u8]>>;

    /// How large it is, if that is known.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Whether the content begins as it must. `first` is what its first read gave, which had so much `room`.
    ///
    /// # Errors
    /// What the system says.
    fn begins_right(
        &mut self,
        _first: &[u8],
        _room: usize,
        _is_compressed: bool,
    ) -> io::Result<bool> {
        Ok(true)
    }
}

/// The content of a stream from some place on.
pub(crate) struct Content<S> {
    source: S,
    /// Offset of the next byte, decompressed.
    offset: u64,
    decompressor: Option<Box<Decompressor>>,
    /// What is broken behind what was given; data that failed once says less when it is asked again.
    failure: Option<CodecError>,
}

impl<S> Content<S> {
    /// The content from its start, or from where the decompressor is.
    pub(crate) fn new(source: S, decompressor: Option<Decompressor>) -> Self {
        Self {
            source,
            offset: decompressor.as_ref().map_or(0, Decompressor::output_offset),
            decompressor: decompressor.map(Box::new),
            failure: None,
        }
    }

    /// Where its bytes come from.
    pub(crate) fn source(&self) -> &S {
        &self.source
    }

    /// The same, to be changed.
    pub(crate) fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Offset of the next byte, decompressed.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to another place in content that is not compressed.
    pub(crate) fn go_to(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Bytes of the source that were read.
    pub(crate) fn disk_offset(&self) -> u64 {
        self.decompressor
            .as_ref()
            .map_or(self.offset, |decompressor| decompressor.input_offset())
    }

    /// Whether it is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.decompressor.is_some()
    }

    /// What decompresses it, where something that is no compressed data follows what is.
    pub(crate) fn garbage_of(&self) -> Option<&Decompressor> {
        self.decompressor
            .as_deref()
            .filter(|decompressor| decompressor.has_garbage())
    }

    /// The newest checkpoint that was not taken yet.
    pub(crate) fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        self.decompressor.as_mut()?.take_checkpoint()
    }
}

impl<S: ByteSource> Content<S> {
    /// How many bytes the next reads give, as far as the size of the source tells: a little more rather than less.
    pub(crate) fn expected_bytes(&self) -> u64 {
        let left = self
            .source
            .size()
            .map_or(u64::MAX, |size| size.saturating_sub(self.disk_offset()));
        let expansion = if self.is_compressed() { EXPANSION } else { 1 };
        // Room that is left shows that there is no more.
        left.saturating_mul(expansion).saturating_add(64)
    }

    /// Reads what follows. `scratch` is for compressed bytes.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn read(&mut self, into: &mut [u8], scratch: &mut [u8]) -> io::Result<Got> {
        let got = match (&mut self.decompressor, &self.failure) {
            (None, _) => self.source.read(self.offset, into)?,
            (Some(_), Some(failure)) => Got::Broken(failure.clone()),
            (Some(decompressor), None) => {
                let (source, failure) = (&mut self.source, &mut self.failure);
                inflate(source, decompressor, into, scratch, failure)?
            }
        };
        if let Got::Bytes(read) = got {
            let (first, room) = (&into[..read], into.len());
            let is_compressed = self.decompressor.is_some();
            if self.offset == 0 && !self.source.begins_right(first, room, is_compressed)? {
                return Ok(Got::Replaced);
            }
            self.offset += read as u64;
        }
        Ok(got)
    }
}

fn inflate(
    source: &mut impl ByteSource,
    decompressor: &mut Decompressor,
    into: &mut [u8],
    scratch: &mut [u8],
    failure: &mut Option<CodecError>,
) -> io::Result<Got> {
    // First comes what there was no room for before: a pipe may have nothing more for long.
    let mut produced = decompressor.step(&[], into).produced;
    let mut is_first = produced == 0;
    while produced < into.len() {
        let at = decompressor.input_offset();
        let compressed = match source.compressed(at, scratch, is_first) {
            // What is good leaves first; the error shows again with the next read.
            Err(_) if produced > 0 => return Ok(Got::Bytes(produced)),
            Ok(None) if produced > 0 => return Ok(Got::Bytes(produced)),
            Ok(None) => return Ok(Got::Nothing),
            Ok(Some(compressed)) => compressed,
            Err(error) => return Err(error),
        };
        is_first = false;
        let mut rest = compressed;
        loop {
            let step = decompressor.step(rest, &mut into[produced..]);
            produced += step.produced;
            rest = &rest[step.consumed..];
            if let Some(failed) = step.failure {
                let failed = failure.insert(failed);
                // What is good leaves first.
                return Ok(if produced > 0 {
                    Got::Bytes(produced)
                } else {
                    Got::Broken(failed.clone())
                });
            }
            if produced == into.len() || (step.produced == 0 && step.consumed == 0) {
                break;
            }
            if rest.is_empty() && !compressed.is_empty() {
                break;
            }
        }
        if compressed.is_empty() {
            break;
        }
    }
    if produced > 0 {
        return Ok(Got::Bytes(produced));
    }
    Ok(match decompressor.finish() {
        Ok(()) => Got::End,
        Err(error) => Got::Truncated(error),
    })
}
