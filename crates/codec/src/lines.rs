//! Lines: as events of text, or with a JSON document in each.
//!
//! A line ends with a line feed, before which a carriage return does not count; the last line of a stream may lack it.
//! A byte order mark at the start of a stream is passed over; offsets count it. Empty lines are events of text, and nothing between JSON documents. NUL bytes stay. The check for UTF-8 runs over the
//! whole chunk at once; only where it fails the lines are checked one by one, and each broken one is copied and repaired.

use std::ops::Range;

use batch::json;

use crate::chunk::Chunk;
use crate::decoder::Decoder;
use crate::rows::{Place, Rows, Text};
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

/// A line in its chunk.
struct Line {
    /// Its bytes, terminator excluded.
    range: Range<usize>,
    place: Place,
}

impl Line {
    /// Whether the stream holds more of the line than the chunk does: two more bytes may be its terminator.
    fn is_partial(&self) -> bool {
        self.place.end - self.place.start > self.range.len() as u64 + 2
    }
}

/// The lines of a chunk from its position on.
struct Lines<'c> {
    bytes: &'c [u8],
    newlines: memchr::Memchr<'c>,
    /// Where `newlines` began to look.
    from: usize,
    position: usize,
    start: u64,
    end: u64,
}

impl<'c> Lines<'c> {
    fn of(chunk: &'c Chunk) -> Self {
        let from = chunk.position;
        let newlines = memchr::memchr_iter(b'\n', &chunk.bytes[from..]);
        Self {
            bytes: &chunk.bytes,
            newlines,
            from,
            position: from,
            start: chunk.start,
            end: chunk.end,
        }
    }
}

impl Iterator for Lines<'_> {
    type Item = Line;

    #[inline]
    fn next(&mut self) -> Option<Line> {
        let start = self.position;
        let place_start = self.start + start as u64;
        if let Some(newline) = self.newlines.next() {
            let newline = self.from + newline;
            self.position = newline + 1;
            let has_return = newline > start && self.bytes[newline - 1] == b'\r';
            let place = Place {
                start: place_start,
                end: self.start + self.position as u64,
            };
            return Some(Line {
                range: start..newline - usize::from(has_return),
                place,
            });
        }
        self.position = self.bytes.len();
        let place = Place {
            start: place_start,
            end: self.end,
        };
        (start < self.position).then_some(Line {
            range: start..self.position,
            place,
        })
    }
}

impl Decoder {
    /// Adds the lines of the chunk, as many as a batch takes.
    pub(crate) fn text_lines(&mut self, chunk: &Chunk, rows: &mut Rows) -> usize {
        let bytes_max = if chunk.is_utf8 == Some(true) {
            self.record_max
        } else {
            0
        };
        let mut lines = Lines::of(chunk);
        for line in lines.by_ref() {
            if line.range.len() <= bytes_max {
                rows.push(line.range.start, line.range.len(), line.place);
            } else {
                self.doubtful_line(chunk, &line, rows);
            }
            if is_enough(rows, chunk, line.range.end) {
                break;
            }
        }
        lines.position
    }

    /// Adds a line that may be too long or broken.
    #[cold]
    fn doubtful_line(&mut self, chunk: &Chunk, line: &Line, rows: &mut Rows) {
        let (text, is_cut) = self.cut_and_repaired(chunk, line.range.clone(), line.is_partial());
        rows.push_text(line.range.start, &text, line.place);
        if is_cut {
            rows.tag(&self.tags.truncated, None);
        }
    }

    /// Adds the documents of the chunk, as many as a batch takes. What is no document becomes an event of text.
    pub(crate) fn json_lines(&mut self, chunk: &Chunk, rows: &mut Rows) -> usize {
        let mut lines = Lines::of(chunk);
        for line in lines.by_ref() {
            let trimmed = trim(&chunk.bytes, line.range.clone());
            if trimmed.is_empty() {
                continue;
            }
            if chunk.is_utf8 == Some(true) && line.range.len() <= self.record_max {
                let text = Text::InChunk(&chunk.bytes[trimmed.clone()]);
                self.document(chunk, &line, trimmed, &text, false, rows);
            } else {
                let (text, is_cut) =
                    self.cut_and_repaired(chunk, trimmed.clone(), line.is_partial());
                self.document(chunk, &line, trimmed, &text, is_cut, rows);
            }
            if is_enough(rows, chunk, line.range.end) {
                break;
            }
        }
        lines.position
    }

    /// Adds the document `text`, which stood at `trimmed` in the chunk before it was repaired.
    #[inline]
    fn document(
        &mut self,
        chunk: &Chunk,
        line: &Line,
        trimmed: Range<usize>,
        text: &Text<'_>,
        is_cut: bool,
        rows: &mut Rows,
    ) {
        match json::validate_object(text.bytes()) {
            Ok(scan) => {
                if scan.dotted_keys {
                    rows.builder.dotted_keys();
                }
                match text {
                    _ if scan.rewrite => {
                        rows.push_written(line.place, |out| json::normalise(text.bytes(), out));
                    }
                    Text::InChunk(text) => rows.push(trimmed.start, text.len(), line.place),
                    Text::Repaired(text) => {
                        rows.push_written(line.place, |out| out.extend_from_slice(text));
                    }
                }
            }
            Err(error) => self.broken_document(chunk, line, trimmed.start, error, rows),
        }
        if is_cut {
            rows.tag(&self.tags.truncated, None);
        }
    }

    /// Adds a line that holds no document.
    #[cold]
    fn broken_document(
        &mut self,
        chunk: &Chunk,
        line: &Line,
        start: usize,
        mut error: json::JsonError,
        rows: &mut Rows,
    ) {
        // The line was repaired before, which was counted then.
        let counts = self.counts;
        let (text, _) = self.cut_and_repaired(chunk, line.range.clone(), line.is_partial());
        self.counts = counts;
        self.counts.broken_documents += 1;
        self.firsts.broken_document.get_or_insert(line.place.start);
        error.offset += start - line.range.start;
        rows.push_text(line.range.start, &text, line.place);
        rows.tag(
            &self.tags.broken_json,
            Some(format!("broken JSON: {error} of the line")),
        );
    }

    /// A line cut to what is allowed, at a whole character, and with U+FFFD in place of what is not UTF-8; whether it
    /// was cut. A partial line was cut by whoever read it.
    fn cut_and_repaired<'c>(
        &mut self,
        chunk: &'c Chunk,
        range: Range<usize>,
        is_partial: bool,
    ) -> (Text<'c>, bool) {
        let place = chunk.start + range.start as u64;
        let mut line = &chunk.bytes[range];
        let is_cut = is_partial || line.len() > self.record_max;
        if line.len() > self.record_max {
            line = &line[..floor_char_boundary(line, self.record_max)];
        }
        if is_cut {
            self.counts.truncated += 1;
            self.firsts.truncated.get_or_insert(place);
        }
        if chunk.is_utf8 == Some(true) || simdutf8::basic::from_utf8(line).is_ok() {
            return (Text::InChunk(line), is_cut);
        }
        self.counts.invalid_utf8 += 1;
        self.firsts.invalid_utf8.get_or_insert(place);
        (
            Text::Repaired(String::from_utf8_lossy(line).into_owned().into_bytes()),
            is_cut,
        )
    }
}

/// Whether a batch takes no further event, where the last one of the chunk ended at `end`.
#[inline]
fn is_enough(rows: &Rows, chunk: &Chunk, end: usize) -> bool {
    rows.builder.len() == BATCH_EVENTS_MAX || end - chunk.position >= BATCH_BYTES_MAX
}

/// `range` without the ASCII whitespace around its text.
#[inline]
fn trim(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &bytes[range.clone()];
    let start = range.start + (text.len() - text.trim_ascii_start().len());
    let end = range.end - (text.len() - text.trim_ascii_end().len());
    start..end.max(start)
}

/// The largest position up to `at` where no character is cut in two, if the text is UTF-8.
fn floor_char_boundary(text: &[u8], at: usize) -> usize {
    let is_boundary = |at: &usize| text[*at] & 0xC0 != 0x80;
    (at.saturating_sub(3)..=at)
        .rev()
        .find(is_boundary)
        .unwrap_or(at)
}
