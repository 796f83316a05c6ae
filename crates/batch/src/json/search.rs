//! Looking for several keys at once, in many objects.
//!
//! Most objects have none of the keys that are looked for. So a single pass over the text sorts them out: it stops at
//! quotes before the first byte of one of the keys, and compares there. Only a key that occurs in quotes somewhere is
//! then searched for by itself.

use std::ops::Range;

use super::lanes::{Lanes, WIDTH};
use super::{byte_at, find};

/// Keys that one pass looks for together.
const GROUP: usize = 4;

/// A set of keys, numbered in their order.
pub(crate) struct Keys {
    groups: Vec<Group>,
}

struct Group {
    /// The first byte of each key; that of the first key again where there are fewer.
    firsts: [u8; GROUP],
    keys: Vec<Vec<u8>>,
}

impl Keys {
    /// Keys as [`super::write_string_body`] writes them.
    pub fn new(keys: impl Iterator<Item = Vec<u8>>) -> Self {
        let keys: Vec<Vec<u8>> = keys.collect();
        let groups = keys.chunks(GROUP).map(Group::new).collect();
        Self { groups }
    }

    /// Calls `found` with the number of each key that `object` has as a member, and the place of its value. The object
    /// is in normal form.
    pub fn find_each(&self, object: &[u8], mut found: impl FnMut(usize, Range<usize>)) {
        for (index, group) in self.groups.iter().enumerate() {
            let mut quoted = group.quoted_in(object);
            while quoted != 0 {
                let number = quoted.trailing_zeros() as usize;
                quoted &= quoted - 1;
                if let Some(value) = find(object, &group.keys[number]) {
                    found(index * GROUP + number, value);
                }
            }
        }
    }
}

impl Group {
    fn new(keys: &[Vec<u8>]) -> Self {
        // The byte behind the quote that opens an empty key is the one that closes it.
        let first = |key: &Vec<u8>| key.first().copied().unwrap_or(b'"');
        let mut firsts = [first(&keys[0]); GROUP];
        for (slot, key) in firsts.iter_mut().zip(keys) {
            *slot = first(key);
        }
        Self {
            firsts,
            keys: keys.to_vec(),
        }
    }

    /// The keys that stand in quotes anywhere in the text, a bit each; one that does not is no member.
    fn quoted_in(&self, text: &[u8]) -> u32 {
        if self.keys.len() == 1 {
            return 1;
        }
        let mut seen = 0;
        let (parts, _) = text.as_chunks::<WIDTH>();
        let (nexts, _) = text.get(1..).unwrap_or_default().as_chunks::<WIDTH>();
        let mut pos = 0;
        for (part, next) in parts.iter().zip(nexts) {
            let hits = Lanes::new(*part).quotes_before(Lanes::new(*next), self.firsts);
            if hits != 0 {
                seen |= self.quoted_at(text, pos, hits);
            }
            pos += WIDTH;
        }
        // The last places again in one step: a key that is seen twice is still seen.
        let start = text.len().saturating_sub(WIDTH + 1);
        let next = Lanes::load(text, start + 1);
        let hits = Lanes::load(text, start).quotes_before(next, self.firsts);
        seen | self.quoted_at(text, start, hits)
    }

    fn quoted_at(&self, text: &[u8], pos: usize, mut hits: u32) -> u32 {
        let mut seen = 0;
        while hits != 0 {
            let start = pos + hits.trailing_zeros() as usize + 1;
            hits &= hits - 1;
            for (number, key) in self.keys.iter().enumerate() {
                let end = start + key.len();
                if byte_at(text, end) == b'"' && text.get(start..end) == Some(key) {
                    seen |= 1 << number;
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(keys: &[String], object: &str) -> Vec<(usize, Range<usize>)> {
        let keys = Keys::new(keys.iter().map(|key| key.clone().into_bytes()));
        let mut found = Vec::new();
        keys.find_each(object.as_bytes(), |number, at| found.push((number, at)));
        found
    }

    #[test]
    fn members_are_told_from_other_text() {
        let keys = ["a", "bc", "", "d\\\"", "message", "log"].map(str::to_owned);
        for (object, expected) in [
            ("{}", vec![]),
            (r#"{"a":1}"#, vec![0]),
            (r#"{"x":"a","bc" : 2,"y":{"message":1}}"#, vec![1]),
            (r#"{"":1,"d\"":2}"#, vec![2, 3]),
            (r#"{"log":{"a":1},"mess":"age","message":"a"}"#, vec![4, 5]),
            (r#"{"x":["a","log"],"bcd":"\"a\""}"#, vec![]),
        ] {
            let numbers: Vec<usize> = found(&keys, object).iter().map(|(n, _)| *n).collect();
            assert_eq!(numbers, expected, "{object}");
        }
    }

    proptest! {
        #[test]
        fn all_keys_are_found_as_one_would_be(
            keys in prop::collection::btree_set("[ab]{0,3}", 0..9),
            members in prop::collection::btree_map("[ab]{0,3}", "[ab\",:{}]{0,20}", 0..9),
        ) {
            let keys: Vec<String> = keys.into_iter().collect();
            let object = serde_json::to_string(&members).expect("it writes");
            let expected: Vec<_> = keys
                .iter()
                .enumerate()
                .filter_map(|(number, key)| Some((number, find(object.as_bytes(), key.as_bytes())?)))
                .collect();
            prop_assert_eq!(found(&keys, &object), expected);
        }
    }
}
