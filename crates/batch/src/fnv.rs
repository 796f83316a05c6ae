//! FNV-1a, over 64 and over 128 bits: hashes that never change, for what is kept on disk or compared between runs.
//!
//! It keeps apart what differs by chance. Who can choose the bytes can make two hashes equal. It takes a byte at a time, so
//! it is for names and fingerprints of a few hundred bytes, not for tables.
//! Constants: <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>.

const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

const OFFSET_BASIS_64: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME_64: u64 = 0x0000_0100_0000_01b3;

/// A hash of 128 bits that is being made.
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

    /// Takes the next of several parts: its length as well, so that moving bytes from one part to the next changes the hash.
    pub fn add_part(&mut self, part: &[u8]) {
        self.add(&(part.len() as u64).to_le_bytes());
        self.add(part);
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

/// The hash of these bytes, 128 bits.
pub fn fnv128(bytes: &[u8]) -> u128 {
    let mut hash = Fnv128::new();
    hash.add(bytes);
    hash.value()
}

/// The hash of these bytes, 64 bits.
pub fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_BASIS_64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME_64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_draft() {
        let cases: [(&[u8], u64, u128); 3] = [
            (b"", OFFSET_BASIS_64, OFFSET_BASIS),
            (
                b"a",
                0xaf63_dc4c_8601_ec8c,
                0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964,
            ),
            (
                b"foobar",
                0x8594_4171_f739_67e8,
                0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18,
            ),
        ];
        for (bytes, short, long) in cases {
            assert_eq!((fnv64(bytes), fnv128(bytes)), (short, long), "{bytes:?}");
        }
    }

    #[test]
    fn parts_are_kept_apart() {
        let hash = |parts: &[&[u8]]| {
            let mut hash = Fnv128::new();
            parts.iter().for_each(|part| hash.add_part(part));
            hash.value()
        };
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"ab"]), hash(&[b"ab", b""]));
        // As ids of streams have been made ever since.
        assert_eq!(hash(&[b"a"]), fnv128(b"\x01\0\0\0\0\0\0\0a"));
    }
}
