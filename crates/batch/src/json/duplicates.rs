//! Duplicate keys: a quick suspicion while validating, and the exact answer for the texts that earn it.

use hashbrown::HashSet;
use wide::u32x8;

use super::{byte_at, skip_whitespace, walk};

/// How many hashes are compared at once; the table has as many spare places, so that a load never ends beyond it.
const LANES: usize = 8;
/// How many keys of open objects the table holds, the objects themselves counting as one each.
const KEYS_MAX: usize = 120;

/// The hashes of the keys of all open objects, as a stack without allocation.
///
/// An object's hashes lie next to each other, because those of the objects inside it are gone when its own next key
/// comes. Below them lies where the enclosing object's hashes begin.
pub(crate) struct KeyHashes {
    table: [u32; KEYS_MAX + LANES],
    start: usize,
    top: usize,
    full: bool,
    equal: u32,
}

impl KeyHashes {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            table: [0; KEYS_MAX + LANES],
            start: 0,
            top: 0,
            full: false,
            equal: 0,
        }
    }

    /// Whether two keys of one object may be equal. Without suspicion none are.
    pub(crate) fn suspicious(&self) -> bool {
        self.equal != 0 || self.full
    }

    /// An object begins.
    #[inline(always)]
    pub(crate) fn open(&mut self) {
        if self.push(self.start as u32) {
            self.start = self.top;
        }
    }

    /// The innermost object ends. Once the table was full, nothing in it matters any more.
    #[inline(always)]
    pub(crate) fn close(&mut self) {
        if !self.full {
            self.top = self.start - 1;
            self.start = self.table[self.top] as usize;
        }
    }

    /// A key of the innermost object.
    #[inline(always)]
    pub(crate) fn add(&mut self, hash: u64) {
        let hash = (hash >> 32) as u32;
        let wanted = u32x8::splat(hash);
        let mut at = self.start;
        while at < self.top {
            let Some(hashes) = self.table[at..].first_chunk::<LANES>() else {
                break;
            };
            let valid = (self.top - at).min(LANES);
            self.equal |= u32x8::new(*hashes).simd_eq(wanted).to_bitmask() & ((1 << valid) - 1);
            at += LANES;
        }
        self.push(hash);
    }

    #[inline(always)]
    fn push(&mut self, entry: u32) -> bool {
        if self.top < KEYS_MAX {
            self.table[self.top] = entry;
            self.top += 1;
            return true;
        }
        self.full = true;
        false
    }
}

/// Adds sixteen bytes of a key to its hash. The upper half of the result depends on all of them.
#[inline(always)]
pub(crate) fn mix(hash: u64, (low, high): (u64, u64)) -> u64 {
    let low = (low ^ hash.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    low.wrapping_add(high.wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

/// Whether some object of a valid text without escaped keys has the same key twice. Allocates: it runs only upon a
/// suspicion.
#[cold]
pub(crate) fn has_duplicate_keys(text: &[u8]) -> bool {
    let mut objects: Vec<HashSet<&[u8], foldhash::fast::RandomState>> = Vec::new();
    let mut pos = 0;
    while pos < text.len() {
        match text[pos] {
            b'{' => objects.push(HashSet::default()),
            b'}' => {
                objects.pop();
            }
            b'"' => {
                let end = walk::skip_value(text, pos);
                let is_key = byte_at(text, skip_whitespace(text, end)) == b':';
                if let (true, Some(keys)) = (is_key, objects.last_mut())
                    && !keys.insert(&text[pos + 1..end - 1])
                {
                    return true;
                }
                pos = end;
                continue;
            }
            _ => {}
        }
        pos += 1;
    }
    false
}
