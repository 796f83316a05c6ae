//! Where lines end.
//!
//! In UTF-16 a terminator is two bytes, which count only at an even offset of the stream: elsewhere they are halves of two
//! characters.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What ends a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LineEnding {
    /// A line feed, optionally preceded by a carriage return.
    #[default]
    Lf,
    /// A carriage return.
    Cr,
    /// A zero byte.
    Nul,
}

/// How the terminator is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    One,
    /// The character first, then a zero.
    Little,
    /// A zero first, then the character.
    Big,
}

/// Finds where lines end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminator {
    character: u8,
    width: Width,
}

impl Terminator {
    pub(crate) fn new(ending: LineEnding, encoding: Option<&'static Encoding>) -> Self {
        let character = match ending {
            LineEnding::Lf => b'\n',
            LineEnding::Cr => b'\r',
            LineEnding::Nul => 0,
        };
        let unknown = Self {
            character,
            width: Width::One,
        };
        unknown.in_charset(encoding)
    }

    /// The same terminator in another encoding.
    pub(crate) fn in_charset(self, encoding: Option<&'static Encoding>) -> Self {
        let width = match encoding {
            Some(encoding) if encoding == UTF_16LE => Width::Little,
            Some(encoding) if encoding == UTF_16BE => Width::Big,
            _ => Width::One,
        };
        Self { width, ..self }
    }

    /// The single byte that ends a line; none in UTF-16.
    #[inline]
    pub(crate) fn byte(self) -> Option<u8> {
        (self.width == Width::One).then_some(self.character)
    }

    /// Bytes of a terminator.
    pub(crate) fn len(self) -> usize {
        if self.width == Width::One { 1 } else { 2 }
    }

    /// Whether the terminator is the one byte that separates the lines of a message.
    pub(crate) fn is_plain_newline(self) -> bool {
        self.byte() == Some(b'\n')
    }

    /// Where the first terminator from `from` on starts; `bytes` lie at `offset` in their stream.
    pub(crate) fn find(self, bytes: &[u8], from: usize, offset: u64) -> Option<usize> {
        let found = memchr::memchr_iter(self.character, &bytes[from..]).map(|at| from + at);
        match self.width {
            Width::One => memchr::memchr(self.character, &bytes[from..]).map(|at| from + at),
            _ => found
                .filter_map(|at| self.start_of_pair(bytes, at, offset))
                .find(|at| *at >= from),
        }
    }

    /// Where the last terminator ends of which some byte stands at `from` or behind.
    #[inline]
    pub(crate) fn last_end(self, bytes: &[u8], from: usize, offset: u64) -> Option<usize> {
        if self.width == Width::One {
            return memchr::memrchr(self.character, &bytes[from..]).map(|at| from + at + 1);
        }
        let from = from.saturating_sub(1);
        memchr::memrchr_iter(self.character, &bytes[from..])
            .find_map(|at| self.start_of_pair(bytes, from + at, offset))
            .map(|start| start + 2)
    }

    /// Length of a line without the carriage return that belongs to its terminator.
    #[inline]
    pub(crate) fn without_return(self, line: &[u8]) -> usize {
        if self.character != b'\n' {
            return line.len();
        }
        let tail: &[u8] = match self.width {
            Width::One => b"\r",
            Width::Little => b"\r\0",
            Width::Big => b"\0\r",
        };
        line.len() - if line.ends_with(tail) { tail.len() } else { 0 }
    }

    /// Where the terminator starts whose character is at `at`.
    fn start_of_pair(self, bytes: &[u8], at: usize, offset: u64) -> Option<usize> {
        let (start, zero) = match self.width {
            Width::One => return Some(at),
            Width::Little => (at, at + 1),
            Width::Big => (at.checked_sub(1)?, at.checked_sub(1)?),
        };
        let is_even = (offset + start as u64).is_multiple_of(2);
        (is_even && bytes.get(zero) == Some(&0)).then_some(start)
    }
}
