//! What a pattern captures, and what becomes of a text that it is matched with.

/// What the text of a capture stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureType {
    /// Text, as it is.
    Text,
    /// A whole number (`:int`).
    Int,
    /// A number with a fraction (`:float`).
    Float,
}

/// One place of the pattern that fills a field. Several may fill the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The keys that lead to the field, outermost first: `[a][b]` and `a.b` are both `a`, `b`.
    pub path: Vec<String>,
    /// The type asked for.
    pub kind: CaptureType,
}

/// Where a capture's text stands: byte offsets into the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// The capture took no part in the match.
    pub const NONE: Span = Span {
        start: u32::MAX,
        end: u32::MAX,
    };

    pub(crate) fn new(start: usize, end: usize) -> Span {
        // Texts of 4 GiB and more are refused before they are matched.
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    /// Whether the capture took no part in the match.
    pub fn is_none(self) -> bool {
        self.start == u32::MAX
    }

    /// The captured bytes; `None` when the capture took no part.
    pub fn of(self, text: &[u8]) -> Option<&[u8]> {
        text.get(self.start as usize..self.end as usize)
    }
}

/// What became of one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pattern was found; [`Scratch::spans`](crate::Scratch::spans) holds the captures.
    Match,
    /// The pattern is not in the text.
    NoMatch,
    /// The search was given up at the match limit.
    LimitReached,
}
