//! The validator: one pass, no recursion, and no allocation at the depths that occur.

use hashbrown::HashSet;

use super::{Head, MsgPackError, MsgPackErrorKind, head};
use crate::json::duplicates::{KeyHashes, mix};
use crate::json::lanes::{Lanes, WIDTH};
use crate::json::{DEPTH_MAX, Scan};

/// Checks that `bytes` are one MessagePack map and nothing else.
///
/// # Errors
/// The first thing that is wrong, with its offset in bytes. Keys that are not UTF-8 or no strings and duplicate keys are no
/// errors but reasons for [`super::normalise`].
pub fn validate_map(bytes: &[u8]) -> Result<Scan, MsgPackError> {
    let (scan, end) = validate_map_at(bytes, 0)?;
    if end < bytes.len() {
        return Err(MsgPackError {
            offset: end,
            kind: MsgPackErrorKind::TrailingBytes,
        });
    }
    Ok(scan)
}

/// Checks the map that begins at `at`; gives where it ends as well.
///
/// # Errors
/// As [`validate_map`], with offsets from the first byte.
pub fn validate_map_at(bytes: &[u8], at: usize) -> Result<(Scan, usize), MsgPackError> {
    let checked = Checks::default().map_at(bytes, at)?;
    Ok((checked.scan, checked.end))
}

/// What is checked beside the format: how deep containers nest, and whether a map has certain keys.
#[derive(Debug, Clone)]
pub struct Checks {
    depth_max: usize,
    /// The hashes of the keys, and a bit for each.
    keys: Vec<u64>,
    bits: u64,
}

/// A map that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// As [`validate_map`] gives it.
    pub scan: Scan,
    /// Where the map ends.
    pub end: usize,
    /// One of the keys may be in the map, not counting the maps in it. Where it says no, none is.
    pub has_key: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Self::new(DEPTH_MAX, [])
    }
}

impl Checks {
    /// Containers may nest `depth_max` deep, but no deeper than [`DEPTH_MAX`], and these keys are looked for.
    pub fn new<'k>(depth_max: usize, keys: impl IntoIterator<Item = &'k str>) -> Self {
        let keys: Vec<u64> = keys
            .into_iter()
            .map(|key| Key::read(key.as_bytes(), 0, key.len()).hash)
            .collect();
        Self {
            depth_max: depth_max.min(DEPTH_MAX),
            bits: keys.iter().fold(0, |bits, hash| bits | Self::bit(*hash)),
            keys,
        }
    }

    fn bit(hash: u64) -> u64 {
        1 << (hash >> 58)
    }

    #[inline(always)]
    fn has(&self, hash: u64) -> bool {
        self.bits & Self::bit(hash) != 0 && self.keys.contains(&hash)
    }

    /// As [`validate_map_at`].
    ///
    /// # Errors
    /// As there.
    pub fn map_at(&self, bytes: &[u8], at: usize) -> Result<Checked, MsgPackError> {
        let (Head::Map(count), body) = head(bytes, at)? else {
            return Err(MsgPackError {
                offset: at,
                kind: MsgPackErrorKind::NotAMap,
            });
        };
        let mut validator = Validator {
            bytes,
            checks: self,
            open: Level::map(count),
            outer: Vec::new(),
            keys: KeyHashes::new(),
            scan: Scan::default(),
            has_key: false,
        };
        validator.keys.open();
        let end = validator.run(body)?;
        let mut scan = validator.scan;
        scan.rewrite |= validator.keys.suspicious() && has_duplicate_keys(&bytes[at..end]);
        Ok(Checked {
            scan,
            end,
            // A key that is rewritten may become any other.
            has_key: validator.has_key || scan.rewrite && !self.keys.is_empty(),
        })
    }
}

/// A container that is being read.
#[derive(Clone, Copy)]
struct Level {
    /// How many values are still to come; in a map, keys count too, so that an even number announces a key.
    left: u64,
    is_map: bool,
    /// It lies inside a key, or is one.
    in_key: bool,
}

impl Level {
    fn map(count: usize) -> Self {
        Self {
            left: 2 * count as u64,
            is_map: true,
            in_key: false,
        }
    }
}

struct Validator<'a> {
    bytes: &'a [u8],
    checks: &'a Checks,
    open: Level,
    outer: Vec<Level>,
    keys: KeyHashes,
    scan: Scan,
    has_key: bool,
}

/// What one pass over a key tells.
struct Key {
    hash: u64,
    has_dots: bool,
    is_ascii: bool,
}

impl Key {
    #[inline(always)]
    fn read(bytes: &[u8], start: usize, end: usize) -> Self {
        let mut pos = start;
        let (mut hash, mut dots, mut high) = (0, 0, 0);
        while end - pos >= WIDTH {
            let lanes = Lanes::load(bytes, pos);
            hash = mix(hash, lanes.words());
            dots |= lanes.mask_of(b'.');
            high |= lanes.not_ascii();
            pos += WIDTH;
        }
        let lanes = Lanes::load(bytes, pos);
        let rest = (1 << (end - pos)) - 1;
        Self {
            hash: mix(hash, lanes.words_of(end - pos)),
            has_dots: (dots | lanes.mask_of(b'.') & rest) != 0,
            is_ascii: (high | lanes.not_ascii() & rest) == 0,
        }
    }
}

impl Validator<'_> {
    /// Reads the outermost map from behind its head; returns where it ends.
    #[inline(always)]
    fn run(&mut self, mut pos: usize) -> Result<usize, MsgPackError> {
        loop {
            while self.open.left == 0 {
                if self.open.is_map {
                    self.keys.close();
                }
                let Some(outer) = self.outer.pop() else {
                    return Ok(pos);
                };
                self.open = outer;
            }
            let is_key = self.open.is_map && self.open.left.is_multiple_of(2);
            self.open.left -= 1;
            let (head, body) = head(self.bytes, pos)?;
            let end = body + head.body_len();
            match head {
                Head::Str(_) if is_key => self.key(body, end),
                Head::Str(_) => {}
                _ => {
                    if is_key {
                        self.scan.rewrite = true;
                        self.scan.dotted_keys |= !matches!(head, Head::Int(_) | Head::UInt(_));
                    }
                    if let Head::Array(_) | Head::Map(_) = head {
                        self.enter(pos, head, is_key)?;
                    }
                }
            }
            pos = end;
        }
    }

    #[inline(always)]
    fn key(&mut self, start: usize, end: usize) {
        let key = Key::read(self.bytes, start, end);
        self.keys.add(key.hash);
        self.scan.dotted_keys |= key.has_dots;
        if !key.is_ascii {
            self.scan.rewrite |= simdutf8::basic::from_utf8(&self.bytes[start..end]).is_err();
        }
        self.has_key |= self.checks.has(key.hash) && self.outer.is_empty();
    }

    #[inline(always)]
    fn enter(&mut self, pos: usize, head: Head, is_key: bool) -> Result<(), MsgPackError> {
        if self.outer.len() + 1 >= self.checks.depth_max {
            return Err(MsgPackError {
                offset: pos,
                kind: MsgPackErrorKind::TooDeep,
            });
        }
        if is_key && self.open.in_key {
            return Err(MsgPackError {
                offset: pos,
                kind: MsgPackErrorKind::NestedKey,
            });
        }
        let is_map = matches!(head, Head::Map(_));
        let inner = Level {
            left: head.values(),
            is_map,
            in_key: is_key || self.open.in_key,
        };
        self.outer.push(std::mem::replace(&mut self.open, inner));
        if is_map {
            self.keys.open();
        }
        Ok(())
    }
}

/// Whether some map of a valid value has the same string as a key twice. Allocates: it runs only upon a suspicion.
#[cold]
fn has_duplicate_keys(bytes: &[u8]) -> bool {
    type Keys<'a> = HashSet<&'a [u8], foldhash::fast::RandomState>;
    let mut open: Vec<(u64, Option<Keys<'_>>)> = vec![(1, None)];
    let mut pos = 0;
    while let Some((left, keys)) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        let is_key = left.is_multiple_of(2);
        *left -= 1;
        let Ok((head, body)) = head(bytes, pos) else {
            return false;
        };
        let end = body + head.body_len();
        if let (Head::Str(_), true, Some(keys)) = (head, is_key, keys)
            && !keys.insert(&bytes[body..end])
        {
            return true;
        }
        match head {
            Head::Map(_) => open.push((head.values(), Some(Keys::default()))),
            Head::Array(_) => open.push((head.values(), None)),
            _ => {}
        }
        pos = end;
    }
    false
}
