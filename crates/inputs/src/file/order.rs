//! What is to be done with a file when it is its turn.

/// What is to be done with a file that is read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Look for more.
    Read,
    /// Give the record that waits for its end.
    Flush,
    /// Look for more, then give everything that is left, half a line too, and close.
    Close,
    /// Give everything that was read, look for no more, and close.
    Finish,
}

impl Order {
    /// The one that does more.
    pub(super) fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::Finish, _) | (_, Self::Finish) => Self::Finish,
            (Self::Close, _) | (_, Self::Close) => Self::Close,
            // What comes after a flush is read first.
            (Self::Read, _) | (_, Self::Read) => Self::Read,
            _ => Self::Flush,
        }
    }
}
