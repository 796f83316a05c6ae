//! The rows that a chunk adds to a batch that is being built.
//!
//! Documents point into the chunk; those that had to be rewritten point into a buffer beside it.

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, BatchBuilder, Cell, ColumnBuilder, Edit, FieldPath, Span, json};
use bytes::Bytes;

use crate::chunk::{Chunk, Origin};

/// The number of the chunk's buffer among those that it adds to the batch, and of that with the texts that its chunker wrote.
pub(crate) const CHUNK: u32 = 0;
pub(crate) const CHUNK_SIDE: u32 = 1;

/// What a chunk adds to a batch.
pub(crate) struct Rows<'b> {
    pub(crate) builder: &'b mut BatchBuilder,
    /// The number of the chunk's buffer in the batch.
    first: u32,
    /// Documents that had to be rewritten, and the number of their buffer.
    side: Vec<u8>,
    side_number: u32,
    /// What a container says of each row, and whether the row has a time of its own.
    origins: Vec<(Origin, bool)>,
    /// The attributes that these name.
    attrs: Vec<Arc<[u8]>>,
}

/// Text as it stands in a buffer of the chunk, or as it was rewritten.
pub(crate) enum Text<'c> {
    InChunk {
        buffer: u32,
        start: usize,
        bytes: &'c [u8],
    },
    Written(Vec<u8>),
}

impl Text<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::InChunk { bytes, .. } => bytes,
            Self::Written(bytes) => bytes,
        }
    }
}

/// Where a document starts and ends in its stream.
#[derive(Clone, Copy)]
pub(crate) struct StreamSpan {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl StreamSpan {
    pub(crate) fn bytes(self) -> u64 {
        self.end - self.start
    }
}

impl<'b> Rows<'b> {
    /// No rows yet; documents may point into `chunk`.
    pub(crate) fn new(builder: &'b mut BatchBuilder, chunk: &Chunk) -> Self {
        let first = builder.buffer(chunk.bytes.clone());
        let side_number = match &chunk.records {
            Some(records) => 1 + builder.buffer(records.side.clone()) - first,
            None => CHUNK_SIDE,
        };
        Self {
            builder,
            first,
            side: Vec::new(),
            side_number,
            origins: Vec::new(),
            attrs: match &chunk.records {
                Some(records) => records.attrs.clone(),
                None => Vec::new(),
            },
        }
    }

    /// Adds a document that lies in the chunk at `start`.
    #[inline]
    pub(crate) fn push(&mut self, start: usize, len: usize, place: StreamSpan) {
        let span = span(self.first + CHUNK, start, len);
        self.builder.push(span, place.start, place.end);
    }

    /// Adds a document that is written now.
    pub(crate) fn push_written(&mut self, place: StreamSpan, write: impl FnOnce(&mut Vec<u8>)) {
        let span = self.write(write);
        self.builder.push(span, place.start, place.end);
    }

    /// Adds the document in this part of a text.
    #[inline]
    pub(crate) fn push_part(&mut self, text: &Text<'_>, part: Range<usize>, place: StreamSpan) {
        let span = self.span(text, part);
        self.builder.push(span, place.start, place.end);
    }

    /// Adds an event of text.
    pub(crate) fn push_text(&mut self, text: &Text<'_>, place: StreamSpan) {
        let span = self.span(text, 0..text.bytes().len());
        self.builder.push_text(span, place.start, place.end);
    }

    /// Tags the row added last.
    pub(crate) fn tag(&mut self, tag: &Arc<str>, message: Option<String>) {
        self.builder.tag_last(tag, message.map(Arc::from));
    }

    /// Says what a container says of the row added last. Either all rows have an origin or none.
    pub(crate) fn origin(&mut self, origin: Origin, has_time: bool) {
        self.origins.push((origin, has_time));
    }

    /// Hands over the documents that were rewritten. Gives what containers say of the rows.
    pub(crate) fn finish(self) -> Origins {
        if !self.side.is_empty() {
            let number = self.builder.buffer(Bytes::from(self.side));
            let side_number = self.first + self.side_number;
            debug_assert_eq!(number, side_number, "rewritten documents come last");
        }
        Origins {
            list: self.origins,
            attrs: self.attrs,
        }
    }

    fn span(&mut self, text: &Text<'_>, part: Range<usize>) -> Span {
        match text {
            Text::InChunk { buffer, start, .. } => {
                span(self.first + *buffer, start + part.start, part.len())
            }
            Text::Written(text) => self.write(|out| out.extend_from_slice(&text[part])),
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.side.len();
        write(&mut self.side);
        match self.side.len() - start {
            // The buffer may stay empty, and is not there then.
            0 => span(self.first, 0, 0),
            len => span(self.first + self.side_number, start, len),
        }
    }
}

/// What containers say of the rows of a batch.
pub(crate) struct Origins {
    /// Of each row, with whether it has a time of its own; empty where no container wrote them.
    list: Vec<(Origin, bool)>,
    attrs: Vec<Arc<[u8]>>,
}

impl Origins {
    /// Whether no container wrote the rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sets the fields `@timestamp`, `stream` and `docker.attrs` of the batch.
    pub(crate) fn set(&self, batch: &mut Batch) {
        if self.list.is_empty() {
            return;
        }
        let refused = batch.apply(origin_fields(&self.list));
        debug_assert!(refused.is_empty(), "every event is an object");
        if !self.attrs.is_empty() {
            // An event whose own `docker` is no object keeps that.
            batch.apply(attrs_field(&self.list, &self.attrs));
        }
    }
}

/// The fields `@timestamp` and `stream` of rows that a container wrote.
fn origin_fields(origins: &[(Origin, bool)]) -> Edit {
    let mut times = ColumnBuilder::new(origins.len());
    let mut streams = ColumnBuilder::new(origins.len());
    let names = ["stdout", "stderr"]
        .map(|name| streams.append(|out| out.extend_from_slice(name.as_bytes())));
    for (row, (origin, has_time)) in origins.iter().enumerate() {
        let Origin::Written {
            time, is_stderr, ..
        } = origin
        else {
            continue;
        };
        streams.set(row, Cell::Text(names[usize::from(*is_stderr)]));
        if !has_time {
            times.set(row, Cell::Time(*time));
        }
    }
    let mut edit = Edit::new();
    let path = |name| FieldPath::parse(name).expect("it is one key");
    edit.set(path("@timestamp"), times.finish());
    edit.set(path("stream"), streams.finish());
    edit
}

/// The field `docker.attrs` of rows that a container wrote.
fn attrs_field(origins: &[(Origin, bool)], attrs: &[Arc<[u8]>]) -> Edit {
    let mut column = ColumnBuilder::new(origins.len());
    let mut last: Option<(u32, Span)> = None;
    for (row, (origin, _)) in origins.iter().enumerate() {
        let Origin::Written {
            attrs: Some(number),
            ..
        } = origin
        else {
            continue;
        };
        let span = match last {
            Some((known, span)) if known == *number => span,
            _ => column.append(|out| json::normalise(&attrs[*number as usize], out)),
        };
        last = Some((*number, span));
        column.set(row, Cell::Json(span));
    }
    let mut edit = Edit::new();
    edit.set(FieldPath::from_keys(["docker", "attrs"]), column.finish());
    edit
}

#[inline]
fn span(buffer: u32, start: usize, len: usize) -> Span {
    Span {
        buffer,
        start: start as u32,
        len: len as u32,
    }
}
