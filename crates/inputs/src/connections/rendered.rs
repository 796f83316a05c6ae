//! Documents that are written anew for a batch, because what was received is no document: an envelope around one, or a line with
//! labels.
//!
//! They are written one after the other into one buffer, up to [`CHUNK_BYTES`] or as many as a batch holds. The buffer is kept
//! from chunk to chunk; its content goes into memory of the budget when it leaves.

use std::ops::Range;
use std::sync::Arc;

use batch::json::{self, Kind};
use batch::{BatchBuilder, Encoding, Reservation, Span, Stream};
use bytes::Bytes;
use codec::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

use super::answer::Answer;
use super::batcher::Joiner;

/// How much is written at a time, the last document not counted.
const CHUNK_BYTES: usize = 512 << 10;

/// How much of the buffer is kept for the next chunk.
const KEPT_BYTES: usize = 2 * CHUNK_BYTES;

/// The tag of events whose sender gave an id that is none.
pub(crate) const ID_TAG: &str = "_eventidfailure";

/// Documents of a chunk, and what belongs to them.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    text: Vec<u8>,
    rows: Vec<Row>,
    dotted: bool,
}

/// A document, and where its id and its metadata lie in the same buffer. Empty ranges are none.
#[derive(Debug, Default, Clone)]
pub(crate) struct Row {
    /// The document.
    pub(crate) document: Range<usize>,
    /// The id that its sender gave.
    pub(crate) id: Range<usize>,
    /// A JSON object that is to be readable under `@metadata`.
    pub(crate) metadata: Range<usize>,
    /// A tag, and why it is there.
    pub(crate) tag: Option<(&'static str, &'static str)>,
}

impl Row {
    /// Writes the id that an object gives as its member `key`, where it has one.
    pub(crate) fn write_id(&mut self, object: &[u8], key: &[u8], out: &mut Vec<u8>) {
        let Some(value) = json::find(object, key) else {
            return;
        };
        let (value, start) = (&object[value], out.len());
        match json::kind(value) {
            Kind::String => json::unescape(&value[1..value.len() - 1], out),
            Kind::Number => out.extend_from_slice(value),
            _ => {}
        }
        self.id = start..out.len();
        if self.id.is_empty() {
            self.tag = Some((
                ID_TAG,
                "the id of the event (`id_field`) is empty, or not text",
            ));
        }
    }
}

/// A member's name as a key for [`Row::write_id`].
pub(crate) fn id_key(name: &str) -> Vec<u8> {
    let mut key = Vec::new();
    json::write_string_body(&mut key, name.as_bytes());
    key
}

impl Rendered {
    /// Where documents, ids and metadata are written.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// How much was written.
    pub(crate) fn position(&self) -> usize {
        self.text.len()
    }

    /// Says what a row consists of.
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Says that some document has a key with a dot.
    pub(crate) fn dotted_keys(&mut self) {
        self.dotted = true;
    }

    /// Rows of this chunk.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows of this chunk.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether the chunk is to leave before the next document is written.
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_EVENTS_MAX || self.text.len() >= CHUNK_BYTES
    }

    /// What was written.
    pub(crate) fn written(&self) -> &[u8] {
        &self.text
    }

    /// Forgets the chunk.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(KEPT_BYTES);
        self.rows.clear();
        self.dotted = false;
    }

    /// Adds rows from number `from` on to a batch, as many as it takes; gives the number behind the last one. `buffer` holds
    /// what was written. The row numbered 0 starts at `first` in its stream.
    pub(crate) fn fill(
        &self,
        from: usize,
        first: u64,
        buffer: &Bytes,
        builder: &mut BatchBuilder,
    ) -> usize {
        let buffer = builder.shared_buffer(buffer);
        let span = |range: &Range<usize>| Span {
            buffer,
            start: range.start as u32,
            len: range.len() as u32,
        };
        if self.dotted {
            builder.dotted_keys();
        }
        let mut next = from;
        for row in &self.rows[from..] {
            if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                break;
            }
            let place = first + next as u64;
            builder.push(span(&row.document), place, place + 1);
            if !row.metadata.is_empty() {
                builder.metadata_last(span(&row.metadata));
            }
            if !row.id.is_empty()
                && let Err(error) = builder.id_last(span(&row.id))
            {
                builder.tag_last(&ID_TAG.into(), Some(error.to_string().into()));
            }
            if let Some((tag, reason)) = row.tag {
                builder.tag_last(&tag.into(), Some(reason.into()));
            }
            next += 1;
        }
        next
    }

    /// Adds the chunk to the batches of a message, in memory that is reserved for it, and forgets it.
    pub(crate) fn leave<M: Clone, R: Send + 'static>(
        &mut self,
        mark: &M,
        (stream, first): (&Arc<Stream>, u64),
        reservation: &mut Reservation,
        answer: &Answer<R>,
        joiner: &mut Joiner<M, R>,
    ) {
        let len = self.text.len();
        let size = reservation.pool().fitting(len).max(len);
        joiner.grow(reservation, size);
        let mut buffer = reservation.take(size);
        buffer[..len].copy_from_slice(&self.text);
        let buffer = buffer.freeze_fitting(len);
        let mut from = 0;
        while from < self.rows.len() {
            joiner.join((Encoding::Json, false), mark.clone(), answer, |builder| {
                builder.stream(stream);
                from = self.fill(from, first, &buffer, builder);
            });
        }
        self.clear();
    }
}

/// Replaces line feeds between the tokens of JSON by spaces, because outputs write a document a line. Within a string none can
/// stand.
pub(crate) fn on_one_line(json: &mut [u8]) {
    if memchr::memchr2(b'\n', b'\r', json).is_none() {
        return;
    }
    for byte in json {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}
