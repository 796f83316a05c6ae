//! A configuration text with its name, and places in it.

use std::sync::Arc;

/// A text that configuration was read from, kept so that errors can show the line at fault.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The file name as the user gave it, or [`Source::COMMAND_LINE`].
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// The name of a text that was given as an argument.
    pub const COMMAND_LINE: &'static str = "<command line>";

    /// A text read from the file `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            text: text.into(),
        })
    }

    /// A text given on the command line.
    pub fn command_line(text: impl Into<String>) -> Arc<Self> {
        Self::new(Self::COMMAND_LINE, text)
    }

    /// Whether the text was given as an argument.
    pub(crate) fn is_command_line(&self) -> bool {
        self.name == Self::COMMAND_LINE
    }

    /// The line and the column (both from 1, columns in characters) of a byte offset.
    /// An offset past the end counts as the end, one inside a character as that character.
    pub fn locate(&self, offset: usize) -> (usize, usize) {
        let start = self.line_start(offset);
        let offset = self.floor(offset);
        let line = self.text[..start].matches('\n').count() + 1;
        (line, self.text[start..offset].chars().count() + 1)
    }

    /// The text of the line that holds a byte offset, without its line end, and the offset where it starts.
    pub(crate) fn line_at(&self, offset: usize) -> (usize, &str) {
        let start = self.line_start(offset);
        let line = self.text[start..].split('\n').next().unwrap_or_default();
        (start, line.strip_suffix('\r').unwrap_or(line))
    }

    /// The text of a span; empty when the span is not within the text.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    fn line_start(&self, offset: usize) -> usize {
        let before = &self.text[..self.floor(offset)];
        before.rfind('\n').map_or(0, |newline| newline + 1)
    }

    fn floor(&self, offset: usize) -> usize {
        self.text.floor_char_boundary(offset)
    }
}

/// A range of byte offsets in a [`Source`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` up to, not including, `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// A place between two bytes.
    pub fn empty(at: usize) -> Self {
        Self { start: at, end: at }
    }

    /// The smallest span that holds both.
    pub fn join(self, other: Self) -> Self {
        Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters() {
        let source = Source::new("a", "é: 1\r\nb: x\n");
        for (offset, expected) in [
            (0, (1, 1)),
            (2, (1, 2)),
            (5, (1, 5)),
            (7, (2, 1)),
            (10, (2, 4)),
            (12, (3, 1)),
            (99, (3, 1)),
        ] {
            assert_eq!(source.locate(offset), expected, "{offset}");
        }
        assert_eq!(source.line_at(3), (0, "é: 1"));
        assert_eq!(source.line_at(8), (7, "b: x"));
    }
}
