//! Rows of a batch that is being built from one chunk.
//!
//! Documents point into the chunk; those that had to be rewritten point into a buffer beside it.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Span};
use bytes::Bytes;

/// The number of the chunk's buffer, and that of the buffer beside it.
const CHUNK: u32 = 0;
const SIDE: u32 = 1;

/// A batch that is being built from one chunk.
pub(crate) struct Rows {
    pub(crate) builder: BatchBuilder,
    /// Documents that had to be rewritten.
    side: Vec<u8>,
}

/// Text as it stands in the chunk, or as it was repaired.
pub(crate) enum Text<'c> {
    InChunk(&'c [u8]),
    Repaired(Vec<u8>),
}

impl Text<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::InChunk(bytes) => bytes,
            Self::Repaired(bytes) => bytes,
        }
    }
}

/// Where a document starts and ends in its stream.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Rows {
    /// No rows yet; documents may point into `chunk`.
    pub(crate) fn new(mut builder: BatchBuilder, chunk: &Bytes) -> Self {
        let number = builder.buffer(chunk.clone());
        debug_assert_eq!(number, CHUNK, "the chunk is the first buffer");
        Self {
            builder,
            side: Vec::new(),
        }
    }

    /// Adds a document that lies in the chunk at `start`.
    #[inline]
    pub(crate) fn push(&mut self, start: usize, len: usize, place: Place) {
        self.builder
            .push(span_in_chunk(start, len), place.start, place.end);
    }

    /// Adds a document that is written now.
    pub(crate) fn push_written(&mut self, place: Place, write: impl FnOnce(&mut Vec<u8>)) {
        let span = self.write(write);
        self.builder.push(span, place.start, place.end);
    }

    /// Adds a text, which lies in the chunk at `start` unless it was rewritten.
    pub(crate) fn push_text(&mut self, start: usize, text: &Text<'_>, place: Place) {
        let span = match text {
            Text::InChunk(text) => span_in_chunk(start, text.len()),
            Text::Repaired(text) => self.write(|out| out.extend_from_slice(text)),
        };
        self.builder.push_text(span, place.start, place.end);
    }

    /// Tags the row added last.
    pub(crate) fn tag(&mut self, tag: &Arc<str>, message: Option<String>) {
        self.builder.tag_last(tag, message.map(Arc::from));
    }

    /// The batch; none without rows.
    pub(crate) fn finish(mut self) -> Option<Batch> {
        if !self.side.is_empty() {
            let number = self.builder.buffer(Bytes::from(self.side));
            debug_assert_eq!(number, SIDE, "rewritten documents are the second buffer");
        }
        (!self.builder.is_empty()).then(|| self.builder.finish())
    }

    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.side.len();
        write(&mut self.side);
        Span {
            buffer: SIDE,
            start: start as u32,
            len: (self.side.len() - start) as u32,
        }
    }
}

fn span_in_chunk(start: usize, len: usize) -> Span {
    Span {
        buffer: CHUNK,
        start: start as u32,
        len: len as u32,
    }
}
