//! Which blocks are looked at.

/// Sequences, both ends included.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
}

impl Range {
    /// All.
    pub const ALL: Self = Self {
        from: 0,
        to: u64::MAX,
    };

    pub(super) fn holds(self, sequence: u64) -> bool {
        (self.from..=self.to).contains(&sequence)
    }
}
