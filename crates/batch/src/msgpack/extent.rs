//! Where a value ends that arrives in pieces.

use super::{MsgPackError, MsgPackErrorKind, bare_head};

/// Finds the end of a value, whatever the pieces in which its bytes arrive: each head is read once, and the bodies of strings and
/// binary data are passed over before they are there. Checks nothing else, as [`super::value_len`] does.
///
/// It takes no memory for nesting, and no time but for heads.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Where the next head stands. May lie beyond the bytes that are there.
    next: usize,
    /// How many values are still to come.
    left: u64,
}

impl Default for Extent {
    fn default() -> Self {
        Self { next: 0, left: 1 }
    }
}

impl Extent {
    /// Goes on with all bytes from the value's first one on that are there; gives its length when it is whole.
    ///
    /// # Errors
    /// The reserved byte stands where a value must begin.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, MsgPackError> {
        while self.left > 0 {
            match bare_head(bytes, self.next) {
                Ok((head, body)) => {
                    self.next = body.saturating_add(head.body_len());
                    self.left = (self.left - 1).saturating_add(head.values());
                }
                Err(error) if error.kind == MsgPackErrorKind::Truncated => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok((self.next <= bytes.len()).then_some(self.next))
    }

    /// Goes on without the first bytes of the value, which hold nothing that is still to be read: the others are then given as if
    /// they were its first ones.
    pub fn forget(&mut self, bytes: usize) {
        self.next = self.next.saturating_sub(bytes);
    }

    /// How many bytes the value has at least, as far as its heads are known: each value that is still to come has one.
    pub fn len_min(&self) -> u64 {
        (self.next as u64).saturating_add(self.left)
    }
}
