//! The events of a whole message that was received at once, such as the body of an HTTP request.
//!
//! A message is taken as a whole or not at all: [`Documents::read`] checks all of it before [`Documents::push`] hands the first
//! event on. It lists the events as well, but no more than [`LISTED_MAX`]: a message of line feeds has as many events as
//! bytes, and a list of them would take twelve times its memory. What is beyond is checked, and read again when its turn
//! comes. JSON documents stay the bytes that they were; copied are only those whose keys are put in order (see
//! [`batch::json`]) and those with line feeds between their tokens, which become spaces, because outputs write a
//! document a line.

use std::ops::Range;

use batch::{BatchBuilder, Encoding, Span, json};
use bytes::Bytes;

use crate::lines::write_on_one_line;
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

/// How many events are listed at a time.
const LISTED_MAX: usize = 16 * BATCH_EVENTS_MAX;

/// How many bytes of rewritten documents are kept at a time, the last document not counted.
const SIDE_BYTES_MAX: usize = 1 << 20;

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// One JSON object per line. Blank lines are ignored.
    Ndjson,
    /// JSON objects, arrays of them, or both, one after the other, with whitespace between and within them.
    Json,
    /// Each line is an event of text.
    Lines,
}

impl BodyFormat {
    /// How events of the format are written in batches.
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Ndjson | Self::Json => Encoding::Json,
            Self::Lines => Encoding::Text,
        }
    }

    /// The format that a message seems to have: JSON where its first character begins an object or an array, else lines.
    pub fn guess(message: &[u8]) -> Self {
        match without_mark(message).trim_ascii_start().first() {
            Some(b'{' | b'[') => Self::Json,
            _ => Self::Lines,
        }
    }
}

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BodyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

/// The events of a message. Reused from message to message, so that its memory stays warm.
#[derive(Debug, Default)]
pub struct Documents {
    /// How many events the message has.
    count: usize,
    /// Those that are listed, from number `first` on.
    list: Vec<Document>,
    first: usize,
    /// Documents of the list that had to be rewritten, while it is made and then for the batches.
    rewritten: Vec<u8>,
    side: Bytes,
    dotted: bool,
    format: Option<BodyFormat>,
    is_utf8: bool,
    /// Where the list ends in the message.
    end: Position,
    /// None while the list is made: how many events were only checked.
    checked: Option<usize>,
}

/// A place between two events of a message.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    at: usize,
    /// The next element of a JSON array stands there.
    in_array: bool,
}

impl Position {
    fn is_end(self, message: &[u8]) -> bool {
        self.at >= message.len() && !self.in_array
    }
}

/// What is wrong at an offset.
type Fault = (usize, String);

/// An event, in the message or beside it.
#[derive(Debug, Clone, Copy)]
struct Document {
    start: u32,
    len: u32,
    is_beside: bool,
}

impl Documents {
    /// Reads a message, forgetting the one before.
    ///
    /// # Errors
    /// The first line that is wrong. There are no events then.
    pub fn read(&mut self, message: &[u8], format: BodyFormat) -> Result<(), BodyError> {
        *self = Self {
            list: std::mem::take(&mut self.list),
            rewritten: std::mem::take(&mut self.rewritten),
            format: Some(format),
            ..Self::default()
        };
        self.end.at = message.len() - without_mark(message).len();
        self.check(message, format).map_err(|(offset, reason)| {
            self.list.clear();
            self.count = 0;
            let before = &message[..offset.min(message.len())];
            BodyError {
                line: memchr::memchr_iter(b'\n', before).count() + 1,
                reason,
            }
        })
    }

    fn check(&mut self, message: &[u8], format: BodyFormat) -> Result<(), Fault> {
        if u32::try_from(message.len()).is_err() {
            return Err((0, "the message is too long".to_owned()));
        }
        self.is_utf8 = simdutf8::basic::from_utf8(message).is_ok();
        if format != BodyFormat::Lines && !self.is_utf8 {
            let valid =
                std::str::from_utf8(message).map_or_else(|error| error.valid_up_to(), str::len);
            return Err((valid, "not UTF-8".to_owned()));
        }
        self.fill(message)?;
        self.count = self.list.len();
        if !self.end.is_end(message) {
            self.checked = Some(0);
            let end = self.scan(message, self.end);
            self.count += self.checked.take().unwrap_or_default();
            end?;
        }
        Ok(())
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the events from the one numbered `from` on, as many as the batch takes; gives the number behind the last one,
    /// with which the next call goes on. `message` is what was read. Event `n` starts at `first + n` in its stream.
    pub fn push(
        &mut self,
        message: &Bytes,
        from: usize,
        first: u64,
        builder: &mut BatchBuilder,
    ) -> usize {
        if from < self.count && from == self.first + self.list.len() {
            self.first = from;
            if let Err((offset, reason)) = self.fill(message) {
                unreachable!("the message was checked: {reason} at {offset}");
            }
        }
        let buffer = builder.buffer(message.clone());
        let beside = if self.side.is_empty() {
            buffer
        } else {
            builder.buffer(self.side.clone())
        };
        if self.dotted {
            builder.dotted_keys();
        }
        let mut next = from;
        for document in &self.list[from - self.first..] {
            if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                break;
            }
            let span = Span {
                buffer: if document.is_beside { beside } else { buffer },
                start: document.start,
                len: document.len,
            };
            let place = first + next as u64;
            builder.push(span, place, place + 1);
            next += 1;
        }
        if next == self.count {
            self.side = Bytes::new();
        }
        next
    }

    /// Lists the events behind those that are listed, instead of them.
    fn fill(&mut self, message: &[u8]) -> Result<(), Fault> {
        self.list.clear();
        self.end = self.scan(message, self.end)?;
        self.side = Bytes::copy_from_slice(&self.rewritten);
        self.rewritten.clear();
        self.rewritten.shrink_to(SIDE_BYTES_MAX);
        Ok(())
    }

    /// Reads from a place on, to the end of the message or until the list is full; gives where that is.
    fn scan(&mut self, message: &[u8], from: Position) -> Result<Position, Fault> {
        let at = match self.format {
            Some(BodyFormat::Json) => return self.json(message, from),
            Some(BodyFormat::Ndjson) => self.ndjson(message, from.at),
            Some(BodyFormat::Lines) | None => self.lines(message, from.at),
        };
        at.map(|at| Position {
            at,
            in_array: false,
        })
    }

    fn is_full(&self) -> bool {
        let is_listed = self.checked.is_none();
        is_listed && (self.list.len() >= LISTED_MAX || self.rewritten.len() >= SIDE_BYTES_MAX)
    }

    fn lines(&mut self, message: &[u8], start: usize) -> Result<usize, Fault> {
        for_each_line(message, start, |line| {
            let text = &message[line.clone()];
            if self.checked.is_some() || self.is_utf8 || simdutf8::basic::from_utf8(text).is_ok() {
                self.within(line);
            } else {
                let start = self.rewritten.len();
                let repaired = String::from_utf8_lossy(text);
                self.rewritten.extend_from_slice(repaired.as_bytes());
                self.beside(start);
            }
            Ok(!self.is_full())
        })
    }

    fn ndjson(&mut self, message: &[u8], start: usize) -> Result<usize, Fault> {
        for_each_line(message, start, |line| {
            let text = &message[line.clone()];
            let trimmed = text.trim_ascii();
            if trimmed.is_empty() {
                return Ok(true);
            }
            let begin = line.start + (text.len() - text.trim_ascii_start().len());
            let scan = json::validate_object(trimmed)
                .map_err(|error| (begin + error.offset, broken(error.kind)))?;
            self.document(message, begin..begin + trimmed.len(), scan);
            Ok(!self.is_full())
        })
    }

    fn json(&mut self, message: &[u8], from: Position) -> Result<Position, Fault> {
        let mut place = Position {
            at: skip_whitespace(message, from.at),
            ..from
        };
        while !place.is_end(message) && !self.is_full() {
            if place.in_array {
                let end = skip_whitespace(message, self.object(message, place.at)?);
                place.in_array = match message.get(end) {
                    Some(b',') => true,
                    Some(b']') => false,
                    Some(_) => return Err((end, "invalid JSON: expected `,` or `]`".to_owned())),
                    None => return Err((end, broken(json::JsonErrorKind::UnexpectedEnd))),
                };
                place.at = end + 1;
            } else if message[place.at] == b'[' {
                let inside = skip_whitespace(message, place.at + 1);
                place.in_array = message.get(inside) != Some(&b']');
                place.at = inside + usize::from(!place.in_array);
            } else {
                place.at = self.object(message, place.at)?;
            }
            place.at = skip_whitespace(message, place.at);
        }
        Ok(place)
    }

    fn object(&mut self, message: &[u8], at: usize) -> Result<usize, Fault> {
        let (scan, end) = json::validate_object_at(message, at)
            .map_err(|error| (error.offset, broken(error.kind)))?;
        self.document(message, at..end, scan);
        Ok(end)
    }

    #[inline]
    fn document(&mut self, message: &[u8], range: Range<usize>, scan: json::Scan) {
        self.dotted |= scan.dotted_keys;
        if self.checked.is_some() {
            return self.within(range);
        }
        let text = &message[range.clone()];
        let has_lines = memchr::memchr2(b'\n', b'\r', text).is_some();
        if !scan.rewrite && !has_lines {
            return self.within(range);
        }
        let start = self.rewritten.len();
        write_on_one_line(text, scan.rewrite, &mut self.rewritten);
        self.beside(start);
    }

    /// An event as it is in the message.
    #[inline]
    fn within(&mut self, range: Range<usize>) {
        if let Some(checked) = &mut self.checked {
            *checked += 1;
            return;
        }
        self.list.push(Document {
            start: range.start as u32,
            len: range.len() as u32,
            is_beside: false,
        });
    }

    fn beside(&mut self, start: usize) {
        self.list.push(Document {
            start: start as u32,
            len: (self.rewritten.len() - start) as u32,
            is_beside: true,
        });
    }
}

/// Calls for every line from `start` on, without its end, as long as it is told to go on; gives where the next line begins.
fn for_each_line<E>(
    message: &[u8],
    start: usize,
    mut each: impl FnMut(Range<usize>) -> Result<bool, E>,
) -> Result<usize, E> {
    let mut begin = start;
    for end in memchr::memchr_iter(b'\n', &message[start..]) {
        let end = start + end;
        let has_return = end > begin && message[end - 1] == b'\r';
        let goes_on = each(begin..end - usize::from(has_return))?;
        begin = end + 1;
        if !goes_on {
            return Ok(begin);
        }
    }
    if begin < message.len() {
        each(begin..message.len())?;
    }
    Ok(message.len())
}

/// The message without the byte order mark that it may start with.
fn without_mark(message: &[u8]) -> &[u8] {
    message.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(message)
}

fn skip_whitespace(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    at + rest.iter().position(is_text).unwrap_or(rest.len())
}

fn broken(kind: json::JsonErrorKind) -> String {
    format!("invalid JSON: {kind}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batch::{HostInfo, JsonWriter, Stream};

    use super::*;

    fn read(message: &str, format: BodyFormat) -> Result<Vec<String>, String> {
        let mut documents = Documents::default();
        documents
            .read(message.as_bytes(), format)
            .map_err(|error| error.to_string())?;
        let message = Bytes::copy_from_slice(message.as_bytes());
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(format.encoding(), &host, 0, false);
        builder.stream(&Arc::new(Stream::unnamed(1)));
        let pushed = documents.push(&message, 0, 5, &mut builder);
        assert_eq!(pushed, documents.len());
        let batch = builder.finish();
        let mut rows = Vec::new();
        for row in 0..batch.len() {
            assert_eq!(batch.origin().start(row), 5 + row as u64);
            let mut out = Vec::new();
            JsonWriter::new(&batch).write(row, &mut out);
            rows.push(String::from_utf8(out).expect("UTF-8"));
        }
        Ok(rows)
    }

    #[test]
    fn documents_stay_as_they_came() {
        use BodyFormat::{Json, Ndjson};
        for (message, format, expected) in [
            (
                "{\"a\":1.0}\n\n {\"b\" : 2} \r\n{\"c\":3}",
                Ndjson,
                &["{\"a\":1.0}", "{\"b\" : 2}", "{\"c\":3}"][..],
            ),
            ("\u{feff}{\"a\":1}", Ndjson, &["{\"a\":1}"]),
            ("", Ndjson, &[]),
            (
                "[{\"a\":1} , {\"b\":[2]}]",
                Json,
                &["{\"a\":1}", "{\"b\":[2]}"],
            ),
            (" [ ] ", Json, &[]),
            (
                "{\n  \"a\": \"x\\ny\",\r\n  \"b\": 1\n}\n",
                Json,
                &["{   \"a\": \"x\\ny\",    \"b\": 1 }"],
            ),
            (
                "{\"a\":1}\n{\"a\":2}{\"a\":3}[{\"a\":4}]",
                Json,
                &["{\"a\":1}", "{\"a\":2}", "{\"a\":3}", "{\"a\":4}"],
            ),
            ("{\"a\":1,\"a\":2}", Json, &["{\"a\":2}"]),
        ] {
            assert_eq!(read(message, format).expect(message), expected, "{message}");
        }
    }

    #[test]
    fn a_broken_message_has_no_events() {
        use BodyFormat::{Json, Ndjson};
        for (message, format, error) in [
            (
                "{\"a\":1}\n{\"a\":}\n",
                Ndjson,
                "line 2: invalid JSON: unexpected character",
            ),
            (
                "{\"a\":1}\n[1]\n",
                Ndjson,
                "line 2: invalid JSON: not a JSON object",
            ),
            (
                "{\"a\":1} {\"a\":2}\n",
                Ndjson,
                "line 1: invalid JSON: unexpected characters after",
            ),
            (
                "[{\"a\":1},\n2]",
                Json,
                "line 2: invalid JSON: not a JSON object",
            ),
            (
                "[{\"a\":1}\n",
                Json,
                "line 2: invalid JSON: unexpected end of JSON",
            ),
            (
                "[{\"a\":1}\n\n{\"a\":1}]",
                Json,
                "line 3: invalid JSON: expected `,` or `]`",
            ),
            (
                "\n\n{\"a\"",
                Json,
                "line 3: invalid JSON: unexpected end of JSON",
            ),
            ("17", Json, "line 1: invalid JSON: not a JSON object"),
        ] {
            let found = read(message, format).expect_err(message);
            assert!(found.starts_with(error), "{message}: {found}");
        }
        let mut documents = Documents::default();
        let error = documents.read(b"{\"a\":1}\n{\"b\":\"\xff\"}", Json);
        assert_eq!(
            error.expect_err("not UTF-8").to_string(),
            "line 2: not UTF-8"
        );
        assert!(documents.is_empty());
    }

    #[test]
    fn lines_are_repaired_one_by_one() {
        let mut documents = Documents::default();
        documents
            .read(b"one\r\n\ntw\xffo\nthree", BodyFormat::Lines)
            .expect("lines are never broken");
        let texts: Vec<_> = documents
            .list
            .iter()
            .map(|line| (line.len, line.is_beside))
            .collect();
        assert_eq!(texts, [(3, false), (0, false), (6, true), (5, false)]);
        assert_eq!(documents.side, "tw\u{fffd}o".as_bytes());
    }

    #[test]
    fn more_events_than_are_listed_come_out_in_order() {
        use BodyFormat::{Json, Lines, Ndjson};
        let count = 2 * LISTED_MAX + 7;
        // Each kind of document, those that are rewritten included.
        let document = |n: usize| match n % 3 {
            0 => format!("{{\"n\":{n}}}"),
            1 => format!("{{\"n\":0,\"n\":{n}}}"),
            _ => format!("{{\"n\":\r{n}}}"),
        };
        let documents: Vec<String> = (0..count).map(document).collect();
        let (half, rest) = documents.split_at(count / 2);
        let json = format!("[{}] {}", half.join(" , "), rest.join(" "));
        let numbers: String = (0..count).map(|n| format!("{n}\n")).collect();
        for (format, message) in [
            (Json, json.as_str()),
            (Ndjson, &documents.join("\n")),
            (Lines, &numbers),
        ] {
            let mut documents = Documents::default();
            // What is read before must not matter.
            documents
                .read(b"{\"a\":1,\"a\":2}", format)
                .expect("a document");
            let message = Bytes::copy_from_slice(message.as_bytes());
            documents.read(&message, format).expect("good");
            assert_eq!(documents.len(), count, "{format:?}");
            let host = Arc::new(HostInfo { name: "h".into() });
            let (mut from, mut row) = (0, 0);
            while from < count {
                let mut builder = BatchBuilder::new(format.encoding(), &host, 0, false);
                builder.stream(&Arc::new(Stream::unnamed(1)));
                from = documents.push(&message, from, 0, &mut builder);
                assert!(documents.list.capacity() <= 2 * LISTED_MAX);
                let batch = builder.finish();
                let writer = JsonWriter::new(&batch);
                for at in 0..batch.len() {
                    let mut out = Vec::new();
                    writer.write(at, &mut out);
                    let text = String::from_utf8(out).expect("UTF-8");
                    let parts = if format == Lines {
                        format!("\"message\":\"{row}\"")
                    } else {
                        format!("{row}}}")
                    };
                    assert!(text.contains(&parts), "{format:?} {row}: {text}");
                    row += 1;
                }
            }
            assert_eq!((from, row), (count, count));
        }
    }

    #[test]
    fn what_is_broken_behind_the_list_is_found_before_anything_is_taken() {
        let lines = "{}\n".repeat(LISTED_MAX + 5);
        let mut documents = Documents::default();
        for (message, format, line) in [
            (lines.clone() + "{\"a\"", BodyFormat::Ndjson, LISTED_MAX + 6),
            (lines.clone() + "[{},", BodyFormat::Json, LISTED_MAX + 6),
            (
                format!("[{}", "{},".repeat(LISTED_MAX)),
                BodyFormat::Json,
                1,
            ),
        ] {
            let error = documents.read(message.as_bytes(), format);
            assert_eq!(error.expect_err("broken").line, line);
            assert!(documents.is_empty());
        }
    }

    #[test]
    fn a_guess_looks_at_the_first_character() {
        for (message, format) in [
            (" \n{\"a\":1}", BodyFormat::Json),
            ("\u{feff}[", BodyFormat::Json),
            ("<34>Oct", BodyFormat::Lines),
            ("", BodyFormat::Lines),
        ] {
            assert_eq!(BodyFormat::guess(message.as_bytes()), format, "{message}");
        }
    }
}
