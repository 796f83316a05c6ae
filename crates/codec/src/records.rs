//! Records of any kind as events: those that the chunker put together, lines in other encodings than UTF-8, and lines of
//! which not all become events.

use std::borrow::Cow;
use std::ops::Range;

use batch::{Encoding, json};

use crate::charset;
use crate::chunk::{Chunk, Origin, Record};
use crate::decoder::Decoder;
use crate::lines::trim;
use crate::rows::{CHUNK, CHUNK_SIDE, Rows, StreamSpan, Text};
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

/// A record as text.
struct TextRecord<'c> {
    text: Text<'c>,
    place: StreamSpan,
    is_cut: bool,
    origin: Option<Origin>,
}

impl Decoder {
    /// Adds the records of the chunk, as many as a batch takes; gives the position behind them.
    pub(crate) fn records(&mut self, chunk: &Chunk, rows: &mut Rows<'_>) -> usize {
        let mut position = chunk.position;
        let mut bytes = 0;
        while position < chunk.positions() {
            let found = match &chunk.records {
                Some(records) => {
                    let record = &records.list[position];
                    position += 1;
                    self.assembled(chunk, &records.side, record)
                }
                None => {
                    let (found, end) = self.next_line(chunk, position);
                    position = end;
                    found
                }
            };
            bytes += found.place.bytes() as usize;
            if !self.is_no_row(chunk, found.text.bytes(), found.place) {
                self.record(&found, rows);
            }
            if rows.builder.len() == BATCH_EVENTS_MAX || bytes >= BATCH_BYTES_MAX {
                break;
            }
        }
        position
    }

    /// The line at `position`, and where the next one starts.
    fn next_line<'c>(&mut self, chunk: &'c Chunk, position: usize) -> (TextRecord<'c>, usize) {
        let terminator = chunk.format.terminator;
        let (line, end) = match terminator.find(&chunk.bytes, position, chunk.start) {
            Some(at) => {
                let len = terminator.without_return(&chunk.bytes[position..at]);
                (position..position + len, at + terminator.len())
            }
            None => (position..chunk.bytes.len(), chunk.bytes.len()),
        };
        let place_end = if end == chunk.bytes.len() {
            chunk.end
        } else {
            chunk.start + end as u64
        };
        let place = StreamSpan {
            start: chunk.start + position as u64,
            end: place_end,
        };
        let trimmed = match self.encoding {
            Encoding::Json => trim(&chunk.bytes, line.clone()),
            _ => line.clone(),
        };
        let (text, is_cut) = match chunk.format.charset {
            Some(charset) => self.decoded(chunk, charset, line, place),
            None => self.cut_and_repaired(chunk, CHUNK, self.shortened(line, trimmed), place),
        };
        let found = TextRecord {
            text,
            place,
            is_cut,
            origin: None,
        };
        (found, end)
    }

    /// A line that is not in UTF-8, decoded.
    fn decoded<'c>(
        &mut self,
        chunk: &'c Chunk,
        charset: &'static encoding_rs::Encoding,
        line: Range<usize>,
        place: StreamSpan,
    ) -> (Text<'c>, bool) {
        let is_cut = line.len() > self.record_max;
        // An even number cuts no code unit of UTF-16 in two.
        let kept = if is_cut {
            self.record_max & !1
        } else {
            line.len()
        };
        let start = line.start;
        let (text, replaced) = charset::decode(charset, &chunk.bytes[start..start + kept], is_cut);
        let text = match text {
            Cow::Borrowed(text) => Text::InChunk {
                buffer: CHUNK,
                start,
                bytes: text.as_bytes(),
            },
            Cow::Owned(text) => Text::Written(text.into_bytes()),
        };
        self.count_replaced(replaced, place);
        self.cut(text, is_cut, place)
    }

    /// A record that the chunker put together.
    fn assembled<'c>(
        &mut self,
        chunk: &'c Chunk,
        side: &'c [u8],
        record: &Record,
    ) -> TextRecord<'c> {
        let (buffer, bytes) = if record.in_side {
            (CHUNK_SIDE, side)
        } else {
            (CHUNK, &chunk.bytes[..])
        };
        let place = StreamSpan {
            start: record.start,
            end: record.end,
        };
        let start = record.at as usize;
        let text = Text::InChunk {
            buffer,
            start,
            bytes: &bytes[start..start + record.len],
        };
        self.count_replaced(record.replaced, place);
        let (text, is_cut) = self.cut(text, record.is_cut, place);
        // A cut, a length before a message or the end of a datagram may go through a character, which the check of the whole
        // cannot know.
        let is_within = |at: usize| {
            bytes
                .get(at)
                .is_some_and(|byte| (0x80..0xC0).contains(byte))
        };
        let splits = is_within(start) || is_within(start + record.len);
        let is_utf8 = chunk.is_utf8 == Some(true) && !is_cut && !splits;
        let text = self.repaired(text, is_utf8, place);
        TextRecord {
            text,
            place,
            is_cut,
            origin: record.origin,
        }
    }

    /// Adds a record, unless it is filtered out.
    fn record(&mut self, found: &TextRecord<'_>, rows: &mut Rows<'_>) {
        let text = found.text.bytes();
        if let Some(reason) = self.filter.as_ref().and_then(|filter| filter.refuses(text)) {
            return self.dropped.add(reason, 1, found.place.bytes());
        }
        let mut has_time = false;
        let part = trim(text, 0..text.len());
        if self.encoding == Encoding::Text {
            rows.push_text(&found.text, found.place);
        } else if part.is_empty() {
            return self.dropped.add("blank", 1, found.place.bytes());
        } else if found.origin == Some(Origin::Other) {
            rows.push_text(&found.text, found.place);
        } else {
            let of_lines = memchr::memchr2(b'\n', b'\r', &text[part.clone()]).is_some();
            let scan = self.document(&found.text, part.clone(), found.place, of_lines, rows);
            has_time = found.origin.is_some()
                && scan.is_some_and(|scan| says_time(&text[part], scan.rewrite));
        }
        if found.is_cut {
            rows.tag(&self.tags.truncated, None);
        }
        if let Some(origin) = found.origin {
            rows.origin(origin, has_time);
            if origin == Origin::Other {
                self.counts.broken_containers += 1;
                let first = &mut self.firsts.broken_container;
                first.get_or_insert(found.place.start);
                rows.tag(&self.tags.broken_container, None);
            }
        }
    }

    /// A line cut to what is allowed, at a whole character, and with U+FFFD in place of what is not UTF-8; whether it
    /// was cut.
    pub(crate) fn cut_and_repaired<'c>(
        &mut self,
        chunk: &'c Chunk,
        buffer: u32,
        range: Range<usize>,
        place: StreamSpan,
    ) -> (Text<'c>, bool) {
        let text = Text::InChunk {
            buffer,
            start: range.start,
            bytes: &chunk.bytes[range],
        };
        // The stream may hold more of the last line than the chunk does.
        let is_partial = place.end > chunk.start + chunk.bytes.len() as u64;
        let (text, is_cut) = self.cut(text, is_partial, place);
        let text = self.repaired(text, chunk.is_utf8 == Some(true), place);
        (text, is_cut)
    }

    /// A text cut to what is allowed, at a whole character; whether it was cut, be it before.
    fn cut<'c>(&mut self, text: Text<'c>, is_cut: bool, place: StreamSpan) -> (Text<'c>, bool) {
        let is_longer = text.bytes().len() > self.record_max;
        if !is_longer && !is_cut {
            return (text, false);
        }
        self.counts.truncated += 1;
        self.firsts.truncated.get_or_insert(place.start);
        if !is_longer {
            return (text, true);
        }
        let kept = floor_char_boundary(text.bytes(), self.record_max);
        let text = match text {
            Text::InChunk {
                buffer,
                start,
                bytes,
            } => Text::InChunk {
                buffer,
                start,
                bytes: &bytes[..kept],
            },
            Text::Written(mut text) => {
                text.truncate(kept);
                Text::Written(text)
            }
        };
        (text, true)
    }

    /// A text with U+FFFD in place of what is not UTF-8.
    fn repaired<'c>(&mut self, text: Text<'c>, is_utf8: bool, place: StreamSpan) -> Text<'c> {
        if is_utf8 || simdutf8::basic::from_utf8(text.bytes()).is_ok() {
            return text;
        }
        self.count_replaced(true, place);
        Text::Written(
            String::from_utf8_lossy(text.bytes())
                .into_owned()
                .into_bytes(),
        )
    }

    fn count_replaced(&mut self, replaced: bool, place: StreamSpan) {
        if replaced {
            self.counts.invalid_utf8 += 1;
            self.firsts.invalid_utf8.get_or_insert(place.start);
        }
    }
}

/// Whether a document says its time.
fn says_time(document: &[u8], rewrite: bool) -> bool {
    const TIME: &[u8] = b"@timestamp";
    if !rewrite {
        return json::find(document, TIME).is_some();
    }
    let mut normal = Vec::new();
    json::normalise(document, &mut normal);
    json::find(&normal, TIME).is_some()
}

/// The largest position up to `at` where no character is cut in two, if the text is UTF-8.
fn floor_char_boundary(text: &[u8], at: usize) -> usize {
    let is_boundary = |at: &usize| text[*at] & 0xC0 != 0x80;
    (at.saturating_sub(3)..=at)
        .rev()
        .find(is_boundary)
        .unwrap_or(at)
}
