//! The events of a buffer of frames.

use std::ops::Range;

use batch::{BatchBuilder, Span, json};
use bytes::Bytes;
use memchr::memmem::Finder;

use super::metadata::{Split, split};
use super::{FrameError, number};
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

/// How much of the memory for rewritten documents is kept for the next ones.
const KEPT_BYTES: usize = 1 << 20;

/// The events of a buffer. Reused from buffer to buffer, so that its memory stays warm.
///
/// Documents stay in the buffer. Those that are rewritten lie beside it: pairs, and JSON whose keys are put in order (see
/// [`batch::json`]). Line feeds between the tokens of a document become spaces, because outputs write a document a line.
/// The member `@metadata` becomes the event's metadata, and `@metadata._id` its id.
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    side: Vec<u8>,
    pairs: Vec<u8>,
    dotted: bool,
    depth_max: usize,
    metadata_key: Finder<'static>,
    id_key: Finder<'static>,
}

/// A piece of the buffer, or of what lies beside it.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u32,
    len: u32,
    is_beside: bool,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    document: Piece,
    metadata: Option<Piece>,
    id: Option<Piece>,
}

/// The buffers of events, when nothing is read into them any more.
#[derive(Debug, Clone, Default)]
pub struct Buffers {
    body: Bytes,
    side: Bytes,
}

impl Default for Events {
    fn default() -> Self {
        Self::new(json::DEPTH_MAX)
    }
}

impl Events {
    /// No events; documents may nest `depth_max` deep, but no deeper than [`json::DEPTH_MAX`].
    pub fn new(depth_max: usize) -> Self {
        Self {
            list: Vec::new(),
            side: Vec::new(),
            pairs: Vec::new(),
            dotted: false,
            depth_max,
            metadata_key: Finder::new("\"@metadata\""),
            id_key: Finder::new("\"_id\""),
        }
    }
}

impl Events {
    /// Adds the JSON document that stands in a range of the buffer.
    ///
    /// # Errors
    /// It is no JSON object. Nothing is added.
    pub fn json(
        &mut self,
        buffer: &mut [u8],
        range: Range<usize>,
        sequence: u32,
    ) -> Result<(), FrameError> {
        let refused = |reason: String| FrameError::Document { sequence, reason };
        let text = &mut buffer[range.clone()];
        if simdutf8::basic::from_utf8(text).is_err() {
            return Err(refused("not UTF-8".to_owned()));
        }
        let scan = json::validate_object_within(text, self.depth_max)
            .map_err(|error| refused(format!("invalid JSON: {error}")))?;
        self.dotted |= scan.dotted_keys;
        if scan.rewrite {
            let start = self.side.len();
            json::normalise(text, &mut self.side);
            self.beside(start);
            return Ok(());
        }
        let event = event_in(text, range.start, &self.metadata_key, &self.id_key);
        let event = self.unescaped(buffer, event);
        self.list.push(event);
        Ok(())
    }

    /// Adds an event of pairs, which stand in a range of the buffer. Invalid UTF-8 is replaced, and of a key that comes several
    /// times the last value counts.
    pub fn pairs(&mut self, buffer: &[u8], range: Range<usize>, count: u32) {
        let mut at = range.start;
        let mut text = || {
            let length = number(buffer, at).unwrap_or_default() as usize;
            let start = at + 4;
            at = start + length;
            String::from_utf8_lossy(&buffer[start..at])
        };
        self.pairs.clear();
        self.pairs.push(b'{');
        for pair in 0..count {
            if pair > 0 {
                self.pairs.push(b',');
            }
            json::write_string(&mut self.pairs, text().as_bytes());
            self.pairs.push(b':');
            json::write_string(&mut self.pairs, text().as_bytes());
        }
        self.pairs.push(b'}');
        let start = self.side.len();
        // What was just written is valid.
        let scan = json::validate_object(&self.pairs).unwrap_or_default();
        self.dotted |= scan.dotted_keys;
        match scan.rewrite {
            true => json::normalise(&self.pairs, &mut self.side),
            false => self.side.extend_from_slice(&self.pairs),
        }
        self.beside(start);
    }

    /// Adds the document that was written beside the buffer.
    fn beside(&mut self, start: usize) {
        let mut side = std::mem::take(&mut self.side);
        let event = event_in(&mut side[start..], start, &self.metadata_key, &self.id_key);
        self.side = side;
        let is_beside = true;
        let piece = |piece: Piece| Piece { is_beside, ..piece };
        let event = Event {
            document: piece(event.document),
            metadata: event.metadata.map(piece),
            id: event.id.map(piece),
        };
        let event = self.unescaped(&[], event);
        self.list.push(event);
    }

    /// The event with an id without escapes.
    fn unescaped(&mut self, buffer: &[u8], event: Event) -> Event {
        let Some(id) = event.id else { return event };
        let range = id.start as usize..(id.start + id.len) as usize;
        let raw = match id.is_beside {
            true => &self.side[range],
            false => &buffer[range],
        };
        if !json::has_escape(raw) {
            return event;
        }
        let raw = raw.to_vec();
        let start = self.side.len();
        json::unescape(&raw, &mut self.side);
        let id = Piece {
            start: start as u32,
            len: (self.side.len() - start) as u32,
            is_beside: true,
        };
        Event {
            id: Some(id),
            ..event
        }
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Ends reading into the buffer. `keep` copies what had to be rewritten to where it stays.
    pub fn freeze(&mut self, body: Bytes, keep: impl FnOnce(&[u8]) -> Bytes) -> Buffers {
        let side = match self.side.is_empty() {
            true => Bytes::new(),
            false => keep(&self.side),
        };
        self.side.clear();
        self.side.shrink_to(KEPT_BYTES);
        self.pairs.shrink_to(KEPT_BYTES);
        Buffers { body, side }
    }

    /// Adds the events of a range to a batch, as many as it takes; gives the number behind the last one, with which the next
    /// call goes on, and how many ids cannot be ids. Event `n` starts at `first + n` in its stream.
    pub fn push(
        &self,
        buffers: &Buffers,
        range: Range<usize>,
        first: u64,
        builder: &mut BatchBuilder,
    ) -> (usize, usize) {
        let body = builder.buffer(buffers.body.clone());
        let side = match buffers.side.is_empty() {
            true => body,
            false => builder.buffer(buffers.side.clone()),
        };
        if self.dotted {
            builder.dotted_keys();
        }
        let span = |piece: Piece| Span {
            buffer: if piece.is_beside { side } else { body },
            start: piece.start,
            len: piece.len,
        };
        let (mut next, mut refused) = (range.start, 0);
        for event in &self.list[range] {
            if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                break;
            }
            let place = first + next as u64;
            builder.push(span(event.document), place, place + 1);
            if let Some(metadata) = event.metadata {
                builder.metadata_last(span(metadata));
            }
            if let Some(id) = event.id {
                refused += usize::from(builder.id_last(span(id)).is_err());
            }
            next += 1;
        }
        (next, refused)
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.list.clear();
        self.side.clear();
        self.dotted = false;
    }
}

/// The event of a document that lies at `start` of its buffer.
#[inline]
fn event_in(
    text: &mut [u8],
    start: usize,
    metadata_key: &Finder<'_>,
    id_key: &Finder<'_>,
) -> Event {
    let before = text.len() - text.trim_ascii_start().len();
    let text = &mut text[before..];
    let len = text.trim_ascii_end().len();
    let (text, start) = (&mut text[..len], start + before);
    // Within a string a line feed is written `\n`: what is found stands between tokens.
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'\n', b'\r', &text[at..]) {
        at += found;
        text[at] = b' ';
    }
    let piece = |range: Range<usize>| Piece {
        start: (start + range.start) as u32,
        len: range.len() as u32,
        is_beside: false,
    };
    // Looking for the key costs less than finding out that there is no such member.
    let has_metadata = metadata_key.find(text).is_some();
    let Some(Split { document, metadata }) = has_metadata.then(|| split(text)).flatten() else {
        return Event {
            document: piece(0..text.len()),
            metadata: None,
            id: None,
        };
    };
    let object = &text[metadata.clone()];
    let has_id = id_key.find(object).is_some();
    let id = has_id.then(|| json::find(object, b"_id")).flatten();
    let id = id.filter(|id| object[id.start] == b'"');
    let id = id.map(|id| metadata.start + id.start + 1..metadata.start + id.end - 1);
    Event {
        document: piece(document),
        metadata: Some(piece(metadata)),
        id: id.map(piece),
    }
}
