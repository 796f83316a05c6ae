//! The events of a whole message that was received at once, such as the body of an HTTP request.
//!
//! A message is taken as a whole or not at all: [`Documents::read`] checks all of it before [`Documents::push`] hands the first
//! event on. JSON documents stay the bytes that they were; copied are only those whose keys are put in order (see
//! [`batch::json`]) and those with line feeds between their tokens, which become spaces, because outputs write a
//! document a line.

use std::ops::Range;

use batch::{BatchBuilder, Encoding, Span, json};
use bytes::Bytes;

use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// A JSON object a line. Blank lines count for nothing.
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
    list: Vec<Document>,
    /// Documents that had to be rewritten.
    side: Vec<u8>,
    dotted: bool,
}

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
        self.list.clear();
        self.side.clear();
        self.dotted = false;
        let start = message.len() - without_mark(message).len();
        let read = if u32::try_from(message.len()).is_err() {
            Err((0, "the message is too long".to_owned()))
        } else {
            match format {
                BodyFormat::Lines => self.lines(message, start),
                BodyFormat::Ndjson => self.ndjson(message, start),
                BodyFormat::Json => self.json(message, start),
            }
        };
        read.map_err(|(offset, reason)| {
            self.list.clear();
            let before = &message[..offset.min(message.len())];
            BodyError {
                line: memchr::memchr_iter(b'\n', before).count() + 1,
                reason,
            }
        })
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds the events from the one numbered `from` on, as many as the batch takes; gives the number behind the last one.
    /// `message` is what was read. Event `n` starts at `first + n` in its stream.
    pub fn push(
        &self,
        message: &Bytes,
        from: usize,
        first: u64,
        builder: &mut BatchBuilder,
    ) -> usize {
        let buffer = builder.buffer(message.clone());
        let beside = if self.side.is_empty() {
            buffer
        } else {
            builder.buffer(Bytes::copy_from_slice(&self.side))
        };
        if self.dotted {
            builder.dotted_keys();
        }
        let mut next = from;
        for document in &self.list[from..] {
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
        next
    }

    fn lines(&mut self, message: &[u8], start: usize) -> Result<(), (usize, String)> {
        let is_utf8 = simdutf8::basic::from_utf8(message).is_ok();
        for_each_line(message, start, |line| {
            let text = &message[line.clone()];
            if is_utf8 || simdutf8::basic::from_utf8(text).is_ok() {
                self.within(line);
            } else {
                let start = self.side.len();
                let repaired = String::from_utf8_lossy(text);
                self.side.extend_from_slice(repaired.as_bytes());
                self.beside(start);
            }
            Ok(())
        })
    }

    fn ndjson(&mut self, message: &[u8], start: usize) -> Result<(), (usize, String)> {
        check_utf8(message)?;
        for_each_line(message, start, |line| {
            let text = &message[line.clone()];
            let trimmed = text.trim_ascii();
            if trimmed.is_empty() {
                return Ok(());
            }
            let begin = line.start + (text.len() - text.trim_ascii_start().len());
            let scan = json::validate_object(trimmed)
                .map_err(|error| (begin + error.offset, broken(error.kind)))?;
            self.document(message, begin..begin + trimmed.len(), scan);
            Ok(())
        })
    }

    fn json(&mut self, message: &[u8], start: usize) -> Result<(), (usize, String)> {
        check_utf8(message)?;
        let mut at = skip_whitespace(message, start);
        while at < message.len() {
            at = match message[at] {
                b'[' => self.array(message, at + 1)?,
                _ => self.object(message, at)?,
            };
            at = skip_whitespace(message, at);
        }
        Ok(())
    }

    /// Reads the elements of an array whose first one stands behind `at`; gives where it ends.
    fn array(&mut self, message: &[u8], at: usize) -> Result<usize, (usize, String)> {
        let mut at = skip_whitespace(message, at);
        if message.get(at) == Some(&b']') {
            return Ok(at + 1);
        }
        loop {
            at = skip_whitespace(message, self.object(message, at)?);
            match message.get(at) {
                Some(b',') => at = skip_whitespace(message, at + 1),
                Some(b']') => return Ok(at + 1),
                Some(_) => return Err((at, "broken JSON: `,` or `]` is expected".to_owned())),
                None => return Err((at, broken(json::JsonErrorKind::UnexpectedEnd))),
            }
        }
    }

    fn object(&mut self, message: &[u8], at: usize) -> Result<usize, (usize, String)> {
        let (scan, end) = json::validate_object_at(message, at)
            .map_err(|error| (error.offset, broken(error.kind)))?;
        self.document(message, at..end, scan);
        Ok(end)
    }

    #[inline]
    fn document(&mut self, message: &[u8], range: Range<usize>, scan: json::Scan) {
        self.dotted |= scan.dotted_keys;
        let text = &message[range.clone()];
        let has_lines = memchr::memchr2(b'\n', b'\r', text).is_some();
        if !scan.rewrite && !has_lines {
            return self.within(range);
        }
        let start = self.side.len();
        if scan.rewrite {
            json::normalise(text, &mut self.side);
        } else {
            self.side.extend_from_slice(text);
        }
        // Within a string a line feed is written `\n`: what is found stands between tokens.
        for byte in &mut self.side[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        self.beside(start);
    }

    #[inline]
    fn within(&mut self, range: Range<usize>) {
        self.list.push(Document {
            start: range.start as u32,
            len: range.len() as u32,
            is_beside: false,
        });
    }

    fn beside(&mut self, start: usize) {
        self.list.push(Document {
            start: start as u32,
            len: (self.side.len() - start) as u32,
            is_beside: true,
        });
    }
}

/// Calls for every line from `start` on, without its end.
fn for_each_line<E>(
    message: &[u8],
    start: usize,
    mut each: impl FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut begin = start;
    for end in memchr::memchr_iter(b'\n', &message[start..]) {
        let end = start + end;
        let has_return = end > begin && message[end - 1] == b'\r';
        each(begin..end - usize::from(has_return))?;
        begin = end + 1;
    }
    if begin < message.len() {
        each(begin..message.len())?;
    }
    Ok(())
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

fn check_utf8(message: &[u8]) -> Result<(), (usize, String)> {
    if simdutf8::basic::from_utf8(message).is_ok() {
        return Ok(());
    }
    let valid = std::str::from_utf8(message).map_or_else(|error| error.valid_up_to(), str::len);
    Err((valid, "not UTF-8".to_owned()))
}

fn broken(kind: json::JsonErrorKind) -> String {
    format!("broken JSON: {kind}")
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
        assert_eq!(
            documents.push(&message, 0, 5, &mut builder),
            documents.len()
        );
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
                "line 2: broken JSON: unexpected character",
            ),
            (
                "{\"a\":1}\n[1]\n",
                Ndjson,
                "line 2: broken JSON: not a JSON object",
            ),
            (
                "{\"a\":1} {\"a\":2}\n",
                Ndjson,
                "line 1: broken JSON: unexpected characters after",
            ),
            (
                "[{\"a\":1},\n2]",
                Json,
                "line 2: broken JSON: not a JSON object",
            ),
            (
                "[{\"a\":1}\n",
                Json,
                "line 2: broken JSON: unexpected end of JSON",
            ),
            (
                "[{\"a\":1}\n\n{\"a\":1}]",
                Json,
                "line 3: broken JSON: `,` or `]` is expected",
            ),
            (
                "\n\n{\"a\"",
                Json,
                "line 3: broken JSON: unexpected end of JSON",
            ),
            ("17", Json, "line 1: broken JSON: not a JSON object"),
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
