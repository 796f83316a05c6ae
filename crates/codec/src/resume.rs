//! Where a later run goes on, and how it finds out that the bytes before are still the same.
//!
//! All offsets count bytes of the stream as they are read, decompressed but not decoded, terminators included.

use batch::fnv::fnv128;

/// How many of the bytes before an offset count for its [`Check`].
pub const CHECK_BYTES: usize = 256;

/// The last bytes before an offset, [`CHECK_BYTES`] at most, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// How many bytes count.
    pub len: u16,
    /// Their hash, see [`batch::fnv`].
    pub hash: u128,
}

impl Check {
    /// The check of what `before` ends with.
    pub fn of(before: &[u8]) -> Self {
        let counted = &before[before.len().saturating_sub(CHECK_BYTES)..];
        Self {
            len: counted.len() as u16,
            hash: fnv128(counted),
        }
    }

    /// Whether `before` ends with the bytes that this check was made of.
    pub fn matches(&self, before: &[u8]) -> bool {
        before
            .len()
            .checked_sub(usize::from(self.len))
            .is_some_and(|from| Self::of(&before[from..]) == *self)
    }
}

impl Default for Check {
    fn default() -> Self {
        Self::of(&[])
    }
}

/// Lines behind [`Resume::offset`] that were given already: those of a container log whose records stand between the lines
/// of a record that was not finished. A line of one of the three kinds is passed over where it starts below the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Skip {
    /// Lines of `stdout`.
    pub stdout: u64,
    /// Lines of `stderr`.
    pub stderr: u64,
    /// Lines that are no container lines.
    pub other: u64,
}

/// Where a later run goes on. A chunker that is made of it, and given the bytes from `offset` on, gives the records that
/// the one before would have given next.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Resume {
    /// Where to read on.
    pub offset: u64,
    /// Of container logs: the lines behind `offset` that were given already.
    pub skip: Option<Skip>,
    /// The bytes right before `offset`.
    pub check: Check,
    /// What the byte order mark at the start of a stream in UTF-16 said; none without one.
    pub big_endian: Option<bool>,
}

/// The last bytes of what went by, as many as a [`Check`] needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Vec<u8>);

impl Tail {
    /// The end of `before`.
    pub(crate) fn new(before: &[u8]) -> Self {
        Self(before[before.len().saturating_sub(CHECK_BYTES)..].to_vec())
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes what went by next.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(CHECK_BYTES)..];
        let kept = CHECK_BYTES - bytes.len();
        self.0.drain(..self.0.len().saturating_sub(kept));
        self.0.extend_from_slice(bytes);
    }

    /// The check behind these bytes and `then`.
    pub(crate) fn check(&self, then: &[u8]) -> Check {
        if then.len() >= CHECK_BYTES {
            return Check::of(then);
        }
        Check::of(&[&self.0, then].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_gives_the_check_of_the_whole() {
        let content: Vec<u8> = (0..2000u32).map(|n| (n * n) as u8).collect();
        for step in [1, 7, 255, 256, 257, 900] {
            let mut tail = Tail::default();
            for (index, piece) in content.chunks(step).enumerate() {
                let end = (index * step + piece.len()).min(content.len());
                assert_eq!(tail.check(piece), Check::of(&content[..end]));
                tail.push(piece);
                assert_eq!(tail.check(&[]), Check::of(&content[..end]));
            }
        }
    }

    #[test]
    fn a_check_is_of_the_last_bytes_only() {
        let check = Check::of(b"some bytes");
        assert!(check.matches(b"more than some bytes"));
        assert!(!check.matches(b"ome bytes") && !check.matches(b"some bytez"));
        assert_eq!(Check::default().len, 0);
        assert!(Check::default().matches(b"anything"));
    }
}
