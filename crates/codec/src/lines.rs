//! Lines: as events of text, or with a JSON document in each.
//!
//! A line ends with its terminator; the last line of a stream may lack it. A byte order mark at the start of a stream is
//! passed over; offsets count it. Empty lines are events of text, and nothing between JSON documents. NUL bytes stay. The
//! check for UTF-8 runs over the whole chunk at once; only where it fails the lines are checked one by one, and each broken
//! one is copied and repaired.
//!
//! Here are the paths for lines of UTF-8 that all become events; [`crate::records`] has the one for everything else.

use std::ops::Range;

use batch::json;

use crate::chunk::Chunk;
use crate::decoder::Decoder;
use crate::rows::{CHUNK, Rows, StreamSpan, Text};
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

/// A line in its chunk.
struct Line {
    /// Its bytes, terminator excluded.
    range: Range<usize>,
    place: StreamSpan,
}

/// The lines of a chunk from its position on.
struct Lines<'c> {
    bytes: &'c [u8],
    terminators: memchr::Memchr<'c>,
    /// A carriage return before a terminator belongs to it.
    with_returns: bool,
    /// Where `terminators` began to look.
    from: usize,
    position: usize,
    start: u64,
    end: u64,
}

impl<'c> Lines<'c> {
    fn of(chunk: &'c Chunk, terminator: u8) -> Self {
        let from = chunk.position;
        Self {
            bytes: &chunk.bytes,
            terminators: memchr::memchr_iter(terminator, &chunk.bytes[from..]),
            with_returns: terminator == b'\n',
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
        if let Some(terminator) = self.terminators.next() {
            let terminator = self.from + terminator;
            self.position = terminator + 1;
            let has_return =
                terminator > start && self.bytes[terminator - 1] == b'\r' && self.with_returns;
            let place = StreamSpan {
                start: place_start,
                end: self.start + self.position as u64,
            };
            return Some(Line {
                range: start..terminator - usize::from(has_return),
                place,
            });
        }
        self.position = self.bytes.len();
        let place = StreamSpan {
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
    pub(crate) fn text_lines(
        &mut self,
        chunk: &Chunk,
        terminator: u8,
        rows: &mut Rows<'_>,
    ) -> usize {
        let bytes_max = if chunk.is_utf8 == Some(true) {
            self.record_max
        } else {
            0
        };
        let mut lines = Lines::of(chunk, terminator);
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
    fn doubtful_line(&mut self, chunk: &Chunk, line: &Line, rows: &mut Rows<'_>) {
        let (text, is_cut) = self.cut_and_repaired(chunk, CHUNK, line.range.clone(), line.place);
        rows.push_text(&text, line.place);
        if is_cut {
            rows.tag(&self.tags.truncated, None);
        }
    }

    /// Adds the documents of the chunk, as many as a batch takes. What is no document becomes an event of text.
    pub(crate) fn json_lines(
        &mut self,
        chunk: &Chunk,
        terminator: u8,
        rows: &mut Rows<'_>,
    ) -> usize {
        let mut lines = Lines::of(chunk, terminator);
        for line in lines.by_ref() {
            let trimmed = trim(&chunk.bytes, line.range.clone());
            if trimmed.is_empty() {
                self.dropped.add("blank", 1, line.place.bytes());
                continue;
            }
            if chunk.is_utf8 == Some(true) && line.range.len() <= self.record_max {
                let text = Text::InChunk {
                    buffer: CHUNK,
                    start: line.range.start,
                    bytes: &chunk.bytes[line.range.clone()],
                };
                let start = line.range.start;
                let part = trimmed.start - start..trimmed.end - start;
                self.document(&text, part, line.place, false, rows);
            } else {
                self.doubtful_document(chunk, &line, trimmed, rows);
            }
            if is_enough(rows, chunk, line.range.end) {
                break;
            }
        }
        lines.position
    }

    /// Adds a document that may be too long or broken.
    #[cold]
    fn doubtful_document(
        &mut self,
        chunk: &Chunk,
        line: &Line,
        trimmed: Range<usize>,
        rows: &mut Rows<'_>,
    ) {
        let range = self.shortened(line.range.clone(), trimmed);
        let (text, is_cut) = self.cut_and_repaired(chunk, CHUNK, range, line.place);
        let part = trim(text.bytes(), 0..text.bytes().len());
        self.document(&text, part, line.place, false, rows);
        if is_cut {
            rows.tag(&self.tags.truncated, None);
        }
    }

    /// A line, or only what is not whitespace of it where the line is too long.
    pub(crate) fn shortened(&self, line: Range<usize>, trimmed: Range<usize>) -> Range<usize> {
        if line.len() > self.record_max {
            trimmed
        } else {
            line
        }
    }

    /// Adds the document in this part of a line, or the whole line as text; what was learned of the document. A document of
    /// several lines becomes one line, because outputs write one per line.
    #[inline]
    pub(crate) fn document(
        &mut self,
        line: &Text<'_>,
        part: Range<usize>,
        place: StreamSpan,
        of_lines: bool,
        rows: &mut Rows<'_>,
    ) -> Option<json::Scan> {
        let text = &line.bytes()[part.clone()];
        let scan = match rows.builder.validate_object(text) {
            Ok(scan) => scan,
            Err(error) => {
                self.broken_document(line, part.start, place, error, rows);
                return None;
            }
        };
        if scan.dotted_keys {
            rows.builder.dotted_keys();
        }
        if of_lines {
            rows.push_written(place, |out| write_on_one_line(text, scan.rewrite, out));
        } else if scan.rewrite {
            rows.push_written(place, |out| json::normalise(text, out));
        } else {
            rows.push_part(line, part, place);
            rows.builder.members_last();
        }
        Some(scan)
    }

    /// Adds a line that holds no document.
    #[cold]
    fn broken_document(
        &mut self,
        line: &Text<'_>,
        start: usize,
        place: StreamSpan,
        mut error: json::JsonError,
        rows: &mut Rows<'_>,
    ) {
        self.counts.broken_documents += 1;
        self.firsts.broken_document.get_or_insert(place.start);
        error.offset += start;
        rows.push_text(line, place);
        rows.tag(
            &self.tags.broken_json,
            Some(format!("invalid JSON: {error} of the line")),
        );
    }
}

/// Writes a valid document with blanks in place of its line ends, and with its keys in order if it has to be rewritten.
pub(crate) fn write_on_one_line(document: &[u8], rewrite: bool, out: &mut Vec<u8>) {
    let start = out.len();
    if rewrite {
        json::normalise(document, out);
    } else {
        out.extend_from_slice(document);
    }
    // Within a string a line feed is written `\n`: those that are found stand between tokens.
    for byte in &mut out[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

/// Whether a batch takes no further event, where the last one of the chunk ended at `end`.
#[inline]
fn is_enough(rows: &Rows<'_>, chunk: &Chunk, end: usize) -> bool {
    rows.builder.len() == BATCH_EVENTS_MAX || end - chunk.position >= BATCH_BYTES_MAX
}

/// `range` without the ASCII whitespace around its text.
#[inline]
pub(crate) fn trim(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &bytes[range.clone()];
    let start = range.start + (text.len() - text.trim_ascii_start().len());
    let end = range.end - (text.len() - text.trim_ascii_end().len());
    start..end.max(start)
}
