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

/// How many events there is memory for at all times.
const KEPT_EVENTS: usize = 4 * BATCH_EVENTS_MAX;

/// The longest body of a JSON string that may be an id: six bytes each for those of an id.
const ID_BODY_BYTES_MAX: usize = 6 * 512;

/// The events of a buffer. Reused from buffer to buffer, so that its memory stays warm.
///
/// Documents stay in the buffer. Those that are rewritten lie beside it: pairs, and JSON whose keys are put in order (see
/// [`batch::json`]). Before one is, `reserve` is told how much memory all that was rewritten since [`Events::seal`] may take.
/// Line feeds between the tokens of a document become spaces, because outputs write a document a line.
/// The member `@metadata` becomes the event's metadata, and `@metadata._id` its id.
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    /// What is being written beside the buffer, and what was.
    side: Vec<u8>,
    sides: Vec<Bytes>,
    scratch: Vec<u8>,
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
    /// 0 for the buffer, otherwise the number of the one beside it.
    buffer: u32,
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
    sides: Vec<Bytes>,
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
            sides: Vec::new(),
            scratch: Vec::new(),
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
        reserve: impl FnOnce(usize),
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
            // It becomes no longer.
            reserve(start + text.len());
            self.side.reserve(text.len());
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
    pub fn pairs(
        &mut self,
        buffer: &[u8],
        range: Range<usize>,
        count: u32,
        mut reserve: impl FnMut(usize),
    ) {
        let texts = || texts(buffer, range.start, count);
        // Quotes, and what stands behind each text; a brace more than commas.
        let len = texts().map(|text| text_len(text) + 3).sum::<usize>() + 2;
        let start = self.side.len();
        reserve(start + len);
        self.side.reserve(len);
        self.side.push(b'{');
        for (place, text) in texts().enumerate() {
            match place {
                0 => {}
                _ if place % 2 == 0 => self.side.push(b','),
                _ => self.side.push(b':'),
            }
            write_text(&mut self.side, text);
        }
        self.side.push(b'}');
        // What was just written is valid.
        let scan = json::validate_object(&self.side[start..]).unwrap_or_default();
        self.dotted |= scan.dotted_keys;
        if scan.rewrite {
            reserve(self.side.len() + len);
            self.scratch.reserve(len);
            json::normalise(&self.side[start..], &mut self.scratch);
            self.side.truncate(start);
            self.side.append(&mut self.scratch);
            self.scratch.shrink_to(KEPT_BYTES);
        }
        self.beside(start);
    }

    /// Adds the document that was written beside the buffer.
    fn beside(&mut self, start: usize) {
        let mut side = std::mem::take(&mut self.side);
        let event = event_in(&mut side[start..], start, &self.metadata_key, &self.id_key);
        self.side = side;
        let buffer = self.sides.len() as u32 + 1;
        let piece = |piece: Piece| Piece { buffer, ..piece };
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
        let raw = match id.buffer {
            0 => &buffer[range],
            _ => &self.side[range],
        };
        // What is longer is no id whatever stands in it.
        if !json::has_escape(raw) || raw.len() > ID_BODY_BYTES_MAX {
            return event;
        }
        let raw = raw.to_vec();
        let start = self.side.len();
        json::unescape(&raw, &mut self.side);
        let id = Piece {
            start: start as u32,
            len: (self.side.len() - start) as u32,
            buffer: self.sides.len() as u32 + 1,
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

    /// What lies in the buffer is `bytes` nearer to its beginning.
    pub fn move_back(&mut self, bytes: usize) {
        let bytes = bytes as u32;
        for event in &mut self.list {
            let document = Some(&mut event.document);
            let pieces = [document, event.metadata.as_mut(), event.id.as_mut()];
            for piece in pieces.into_iter().flatten() {
                if piece.buffer == 0 {
                    piece.start -= bytes;
                }
            }
        }
    }

    /// How many bytes were rewritten since the last [`Self::seal`].
    pub fn rewritten_len(&self) -> usize {
        self.side.len()
    }

    /// Ends what was rewritten so far: `keep` moves or copies it to where it stays.
    pub fn seal(&mut self, keep: impl FnOnce(&mut Vec<u8>) -> Bytes) {
        if !self.side.is_empty() {
            self.sides.push(keep(&mut self.side));
            self.side.clear();
            self.side.shrink_to(KEPT_BYTES);
        }
    }

    /// Ends reading into the buffer, and what was rewritten.
    pub fn freeze(&mut self, body: Bytes, keep: impl FnOnce(&mut Vec<u8>) -> Bytes) -> Buffers {
        self.seal(keep);
        let sides = std::mem::take(&mut self.sides);
        Buffers { body, sides }
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
        if self.dotted {
            builder.dotted_keys();
        }
        // What the batch calls the buffers that it needs: the body, and the last one beside it.
        let (mut body, mut side) = (None, (0, 0));
        let mut span = |piece: Piece, builder: &mut BatchBuilder| Span {
            buffer: match piece.buffer {
                0 => *body.get_or_insert_with(|| builder.buffer(buffers.body.clone())),
                number => {
                    if side.0 != number {
                        let bytes = buffers.sides[number as usize - 1].clone();
                        side = (number, builder.buffer(bytes));
                    }
                    side.1
                }
            },
            start: piece.start,
            len: piece.len,
        };
        let (mut next, mut refused) = (range.start, 0);
        for event in &self.list[range] {
            if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                break;
            }
            let place = first + next as u64;
            let document = span(event.document, builder);
            builder.push(document, place, place + 1);
            if let Some(metadata) = event.metadata {
                let metadata = span(metadata, builder);
                builder.metadata_last(metadata);
            }
            if let Some(id) = event.id {
                let id = span(id, builder);
                refused += usize::from(builder.id_last(id).is_err());
            }
            next += 1;
        }
        (next, refused)
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(KEPT_EVENTS);
        self.side.clear();
        self.sides.clear();
        self.dotted = false;
    }
}

/// The keys and values of pairs that begin at a place of a buffer.
fn texts(buffer: &[u8], mut at: usize, count: u32) -> impl Iterator<Item = &[u8]> {
    (0..2 * u64::from(count)).map(move |_| {
        let length = number(buffer, at).unwrap_or_default() as usize;
        let start = at + 4;
        at = start + length;
        &buffer[start..at]
    })
}

/// U+FFFD, which stands for invalid UTF-8.
const REPLACEMENT: &str = "\u{fffd}";

/// How long a text is in JSON, without quotes.
fn text_len(text: &[u8]) -> usize {
    let chunks = text.utf8_chunks().map(|chunk| {
        let invalid = usize::from(!chunk.invalid().is_empty());
        json::escaped_len(chunk.valid().as_bytes()) + invalid * REPLACEMENT.len()
    });
    chunks.sum()
}

/// Appends a text as a JSON string.
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        json::write_string_body(out, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(REPLACEMENT.as_bytes());
        }
    }
    out.push(b'"');
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
        buffer: 0,
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
