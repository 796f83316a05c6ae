//! FNV-1a over 128 bits: a hash that is defined for ever, needs no crate and is fed a few hundred bytes at a time.
//!
//! It keeps apart what differs by chance. Who can choose the bytes can make two hashes equal.
//! Constants: <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>.

const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A hash that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fnv128(u128);

impl Fnv128 {
    /// The hash of nothing.
    pub fn new() -> Self {
        Self(OFFSET_BASIS)
    }

    /// Takes the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
        });
    }

    /// The hash of what was taken so far.
    pub fn value(self) -> u128 {
        self.0
    }
}

impl Default for Fnv128 {
    fn default() -> Self {
        Self::new()
    }
}

/// The hash of these bytes.
pub fn fnv128(bytes: &[u8]) -> u128 {
    let mut hash = Fnv128::new();
    hash.add(bytes);
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_draft() {
        assert_eq!(fnv128(b""), OFFSET_BASIS);
        assert_eq!(fnv128(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
