//! JSON documents that are not one per line: elements of arrays, and documents of several lines (see [`crate::layout`]).
//!
//! A scan finds out where each document ends. It knows JSON's structure, not all of its grammar: the decoder validates what was
//! found. Between documents, blanks, commas and the brackets of arrays are passed over, and it is not checked whether they are
//! complete: the elements of an array that is still being written are given as they come, and reading can resume between any two
//! documents without knowing more than that. A bracket behind which text follows on the same line that is no document belongs to that
//! text: nobody would recognize `[1]` in `1]`.
//!
//! A broken document, or text that is none, becomes one record. It ends with a closing brace, or before an opening brace or a
//! bracket, which is the first character of a line that is indented no more than the record; with documents written by programs this
//! is where the document ends, or where the next one begins. Where there is no such line, it ends with the stream.
//!
//! # Invariants
//! - Between two documents the scan knows nothing but the column, which can be told from the bytes before.
//! - A document longer than the limit is read over, and only its first bytes are kept.

use bytes::Bytes;

use crate::resume::{Check, Resume};

use super::assembler::{Record, Records};
use super::window::Window;
use super::{Chunk, LineFormat};

/// A document that is indented further counts as not indented. Must be less than [`crate::CHECK_BYTES`].
const INDENT_MAX: u32 = 200;

/// How many blanks and brackets may stand between a bracket and the text that it belongs to.
const BRACKET_MAX: u64 = 200;

/// What may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// A document, or what separates it from the one before.
    Between,
    /// As `Between`, but brackets that may belong to text are open.
    Bracket,
    KeyOrEnd,
    Key,
    Colon,
    Value,
    ValueOrEnd,
    CommaOrEnd,
    /// The rest of a string.
    String {
        is_key: bool,
    },
    /// The character behind a backslash.
    Escape {
        is_key: bool,
    },
    /// The rest of a number or of `true`, `false`, `null`.
    Scalar,
    /// The rest of a broken document.
    Broken,
}

/// A document that is not whole.
#[derive(Debug)]
struct Open {
    start: u64,
    indent: u32,
    /// Its first bytes and the check of its start, where it is too long for the window.
    long: Option<(Vec<u8>, Check)>,
}

/// Makes records of JSON documents.
#[derive(Debug)]
pub(super) struct Documents {
    state: Expected,
    /// The open arrays and objects: whether each is an object.
    containers: Vec<bool>,
    /// Offset behind the last byte that was looked at.
    scanned: u64,
    /// How many blanks stand between the start of the line and `scanned`; none where something else does.
    column: Option<u32>,
    open: Option<Open>,
    records: Vec<Record>,
    side: Vec<u8>,
    /// Bytes since the last chunk that belong to no document.
    blank: u64,
}

impl Documents {
    /// Reads on at `offset`, which lies between documents; `tail` stands right before.
    pub(super) fn new(offset: u64, tail: &[u8]) -> Self {
        let blanks = tail
            .iter()
            .rev()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
            .count();
        let begins_line = match tail.len().checked_sub(blanks + 1) {
            Some(before) => tail[before] == b'\n',
            None => offset == blanks as u64,
        };
        Self {
            state: Expected::Between,
            containers: Vec::new(),
            scanned: offset,
            column: begins_line.then_some(blanks as u32),
            open: None,
            records: Vec::new(),
            side: Vec::new(),
            blank: 0,
        }
    }

    /// Whether there are records.
    pub(super) fn is_ready(&self) -> bool {
        !self.records.is_empty()
    }

    /// Looks at the bytes of the window that it has not seen.
    pub(super) fn scan(&mut self, window: &Window) {
        let (bytes, start) = (window.bytes(), window.start());
        if self.scanned == 0 && bytes.starts_with(b"\xEF\xBB\xBF") {
            (self.scanned, self.blank) = (3, 3);
        }
        let mut at = (self.scanned - start) as usize;
        while at < bytes.len() {
            at = match self.state {
                Expected::Between => self.between(window, at),
                Expected::Bracket => self.bracket(window, at),
                Expected::String { is_key } => self.string(bytes, at, is_key),
                Expected::Escape { is_key } => {
                    // A line feed breaks the string also there.
                    self.state = Expected::String { is_key };
                    at + usize::from(bytes[at] != b'\n')
                }
                Expected::Scalar => self.scalar(bytes, at),
                Expected::Broken => self.broken(window, at),
                _ => self.structure(window, at),
            };
        }
        self.scanned = start + at as u64;
    }

    fn between(&mut self, window: &Window, at: usize) -> usize {
        let byte = window.bytes()[at];
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b']') {
            self.blank += 1;
            self.pass(byte);
            return at + 1;
        }
        let indent = self.column.filter(|column| *column <= INDENT_MAX);
        self.open = Some(Open {
            start: window.start() + at as u64,
            indent: indent.unwrap_or(0),
            long: None,
        });
        if byte == b'[' {
            self.pass(byte);
            self.state = Expected::Bracket;
            return at + 1;
        }
        if byte != b'{' {
            self.state = Expected::Broken;
            return at;
        }
        self.pass(byte);
        self.containers.clear();
        self.containers.push(true);
        self.state = Expected::KeyOrEnd;
        at + 1
    }

    /// Finds out whether brackets are those of an array, or belong to text.
    fn bracket(&mut self, window: &Window, at: usize) -> usize {
        let byte = window.bytes()[at];
        let end = window.start() + at as u64;
        let is_far = self
            .open
            .as_ref()
            .is_some_and(|open| end - open.start >= BRACKET_MAX);
        match byte {
            b' ' | b'\t' | b'\r' | b'[' if !is_far => {
                self.pass(byte);
                return at + 1;
            }
            b' ' | b'\t' | b'\r' | b'[' | b'\n' | b',' | b']' | b'{' => self.drop_brackets(end),
            _ => self.state = Expected::Broken,
        }
        at
    }

    /// Brackets that stand before `end` separate documents.
    fn drop_brackets(&mut self, end: u64) {
        if self.state == Expected::Bracket {
            self.state = Expected::Between;
            self.blank += self.open.take().map_or(0, |open| end - open.start);
        }
    }

    fn string(&mut self, bytes: &[u8], at: usize, is_key: bool) -> usize {
        let Some(end) = memchr::memchr3(b'"', b'\\', b'\n', &bytes[at..]) else {
            return bytes.len();
        };
        let end = at + end;
        self.state = match bytes[end] {
            b'"' if is_key => Expected::Colon,
            b'"' => Expected::CommaOrEnd,
            b'\\' => Expected::Escape { is_key },
            _ => {
                self.state = Expected::Broken;
                return end;
            }
        };
        end + 1
    }

    fn scalar(&mut self, bytes: &[u8], at: usize) -> usize {
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
        let len = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
        if at + len < bytes.len() {
            self.state = Expected::CommaOrEnd;
        }
        at + len
    }

    /// Takes what stands between the strings, numbers and words of a document.
    fn structure(&mut self, window: &Window, at: usize) -> usize {
        let byte = window.bytes()[at];
        let in_object = self.containers.last() == Some(&true);
        self.state = match (self.state, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => self.state,
            (Expected::KeyOrEnd | Expected::Key, b'"') => Expected::String { is_key: true },
            (Expected::Colon, b':') => Expected::Value,
            (Expected::Value | Expected::ValueOrEnd, b'"') => Expected::String { is_key: false },
            (Expected::Value | Expected::ValueOrEnd, b'{' | b'[') => {
                if self.containers.len() == batch::json::DEPTH_MAX {
                    self.state = Expected::Broken;
                    return at;
                }
                self.containers.push(byte == b'{');
                match byte {
                    b'{' => Expected::KeyOrEnd,
                    _ => Expected::ValueOrEnd,
                }
            }
            (Expected::Value | Expected::ValueOrEnd, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                Expected::Scalar
            }
            (Expected::CommaOrEnd, b',') if in_object => Expected::Key,
            (Expected::CommaOrEnd, b',') => Expected::Value,
            (Expected::KeyOrEnd, b'}') | (Expected::ValueOrEnd, b']') => {
                return self.close(window, at);
            }
            (Expected::CommaOrEnd, b'}') if in_object => return self.close(window, at),
            (Expected::CommaOrEnd, b']') if !in_object => return self.close(window, at),
            _ => {
                self.state = Expected::Broken;
                return at;
            }
        };
        self.pass(byte);
        at + 1
    }

    fn close(&mut self, window: &Window, at: usize) -> usize {
        self.pass(window.bytes()[at]);
        self.containers.pop();
        self.state = Expected::CommaOrEnd;
        if self.containers.is_empty() {
            self.end(window, at + 1);
        }
        at + 1
    }

    fn broken(&mut self, window: &Window, at: usize) -> usize {
        let bytes = window.bytes();
        let Some(column) = self.column else {
            let Some(len) = memchr::memchr(b'\n', &bytes[at..]) else {
                return bytes.len();
            };
            self.column = Some(0);
            return at + len + 1;
        };
        let is_outside = self.open.as_ref().is_some_and(|open| column <= open.indent);
        match bytes[at] {
            b'{' | b'[' | b']' if is_outside => {
                self.end(window, at);
                at
            }
            b'}' if is_outside => {
                self.pass(b'}');
                self.end(window, at + 1);
                at + 1
            }
            byte => {
                self.pass(byte);
                at + 1
            }
        }
    }

    /// Moves the column over a byte.
    #[inline]
    fn pass(&mut self, byte: u8) {
        self.column = match byte {
            b'\n' => Some(0),
            b' ' | b'\t' | b'\r' => self.column.map(|column| column.saturating_add(1)),
            _ => None,
        };
    }

    /// Gives the document that is open and ends `end` bytes behind the window's start.
    fn end(&mut self, window: &Window, end: usize) {
        self.state = Expected::Between;
        let Some(open) = self.open.take() else { return };
        let (at, text_len, is_cut) = match &open.long {
            Some((text, _)) => {
                let at = self.side.len() as u64;
                self.side.extend_from_slice(text.trim_ascii_end());
                (at, text.trim_ascii_end().len(), true)
            }
            None => {
                let start = (open.start - window.start()) as usize;
                let text = window.bytes()[start..end].trim_ascii_end();
                (open.start, text.len(), false)
            }
        };
        self.records.push(Record {
            at,
            len: text_len,
            in_side: is_cut,
            is_cut,
            replaced: false,
            start: open.start,
            end: window.start() + end as u64,
            origin: None,
        });
    }

    /// Takes what no record needs out of the window; whether there was any.
    pub(super) fn forget(&mut self, window: &mut Window) -> bool {
        let kept = self.kept(window);
        let in_window = self.records.iter().any(|record| !record.in_side);
        if kept == 0 || in_window {
            return false;
        }
        window.forget(kept);
        true
    }

    /// Keeps the first bytes of the document that fills the window.
    pub(super) fn give_up(&mut self, window: &mut Window, kept: usize) {
        if let Some(open) = &mut self.open {
            let text = window.bytes()[..kept].to_vec();
            open.long = Some((text, window.check(0)));
        }
        let passed = self.kept(window);
        window.forget(passed);
        window.release();
    }

    /// The records so far, and what stands between them.
    pub(super) fn take(&mut self, window: &mut Window, format: LineFormat) -> Option<Chunk> {
        (self.is_ready() || self.blank > 0).then(|| self.chunk(window, format))
    }

    /// What is left at the end of the stream.
    pub(super) fn finish(&mut self, window: &mut Window, format: LineFormat) -> Option<Chunk> {
        let end = window.bytes().len();
        self.drop_brackets(window.start() + end as u64);
        self.end(window, end);
        self.take(window, format)
    }

    fn chunk(&mut self, window: &mut Window, format: LineFormat) -> Chunk {
        let (offset, check) = match &self.open {
            Some(Open {
                start,
                long: Some((_, check)),
                ..
            }) => (*start, *check),
            _ => {
                let kept = self.kept(window);
                (window.start() + kept as u64, window.check(kept))
            }
        };
        let mut list = std::mem::take(&mut self.records);
        for record in list.iter_mut().filter(|record| !record.in_side) {
            record.at -= window.start();
        }
        let kept = self.kept(window);
        let bytes = if list.iter().any(|record| !record.in_side) {
            window.cut_off(kept)
        } else {
            window.forget(kept);
            Bytes::new()
        };
        let blank = std::mem::take(&mut self.blank);
        let source: u64 = list.iter().map(|record| record.end - record.start).sum();
        Chunk {
            bytes,
            start: list.first().map_or(offset, |record| record.start),
            end: list.last().map_or(offset, |record| record.end),
            source_bytes: source + blank,
            after: Resume {
                offset,
                check,
                ..Resume::default()
            },
            position: 0,
            is_utf8: None,
            format,
            records: Some(Box::new(Records {
                list,
                attrs: Vec::new(),
                side: std::mem::take(&mut self.side).into(),
                blank,
            })),
            header: None,
        }
    }

    /// Where in the window begins what is still needed.
    fn kept(&self, window: &Window) -> usize {
        let needed = match &self.open {
            Some(Open {
                start, long: None, ..
            }) => *start,
            _ => self.scanned,
        };
        (needed - window.start()) as usize
    }
}
