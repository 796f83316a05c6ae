//! The validator: one pass, no recursion, no allocation.
//!
//! Strings and numbers are scanned sixteen bytes at a time, containers live in a stack of bits. Every key is hashed on
//! the way and compared with its object's other keys ([`KeyHashes`]); only two equal hashes, or an object too large for
//! the fixed table, cost the second pass that compares the keys themselves.

use super::duplicates::{KeyHashes, has_duplicate_keys, mix};
use super::lanes::{Lanes, WIDTH};
use super::{DEPTH_MAX, JsonError, JsonErrorKind, Scan, byte_at, skip_whitespace};

/// Checks that `text`, which is UTF-8, is one JSON object (RFC 8259) with nothing but whitespace around it.
///
/// # Errors
/// The first thing that is wrong, with its offset in bytes.
pub fn validate_object(text: &[u8]) -> Result<Scan, JsonError> {
    validate_object_within(text, DEPTH_MAX)
}

/// As [`validate_object`]; containers may nest `depth_max` deep, but no deeper than [`DEPTH_MAX`].
///
/// # Errors
/// The first thing that is wrong, with its offset in bytes.
pub fn validate_object_within(text: &[u8], depth_max: usize) -> Result<Scan, JsonError> {
    let mut validator = Validator::new(text, NoObserver);
    validator.depth_max = depth_max.min(DEPTH_MAX);
    validator.run_object()
}

/// As [`validate_object`], for a text of at most 64 KiB; notes what it passes.
///
/// # Errors
/// The first thing that is wrong, with its offset in bytes.
pub(crate) fn validate_object_noting(text: &[u8], noted: &mut Noted) -> Result<Scan, JsonError> {
    debug_assert!(text.len() <= usize::from(u16::MAX));
    noted.clear();
    let noting = Noting {
        noted,
        members: 0,
        elements: 0,
    };
    let mut validator = Validator::new(text, noting);
    let scan = validator.run_object()?;
    let Noting {
        noted,
        members,
        elements,
    } = validator.observer;
    (noted.members_len, noted.elements_len) = (members, elements);
    Ok(scan)
}

/// What was passed in an object.
#[derive(Debug)]
pub(crate) struct Noted {
    members: [u16; MEMBERS_MAX],
    members_len: usize,
    elements: [u16; ELEMENTS_MAX],
    elements_len: usize,
}

/// Room for places, powers of two.
const MEMBERS_MAX: usize = 128;
const ELEMENTS_MAX: usize = 256;

impl Noted {
    /// Nothing was passed.
    pub fn new() -> Self {
        Self {
            members: [0; MEMBERS_MAX],
            members_len: 0,
            elements: [0; ELEMENTS_MAX],
            elements_len: 0,
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.members_len, self.elements_len) = (0, 0);
    }

    /// Where the keys of the object's own members open; none if there is no room for all.
    pub fn members(&self) -> &[u16] {
        let all = (self.members_len < MEMBERS_MAX).then(|| &self.members[..self.members_len]);
        all.unwrap_or_default()
    }

    /// Where the elements of these members begin; none if there is no room for all.
    pub fn elements(&self) -> &[u16] {
        let all = (self.elements_len < ELEMENTS_MAX).then(|| &self.elements[..self.elements_len]);
        all.unwrap_or_default()
    }
}

/// Checks the JSON object that stands at `start` of `text`, which is UTF-8, and gives where it ends. What follows is left alone.
///
/// # Errors
/// The first thing that is wrong, with its offset in `text`.
pub fn validate_object_at(text: &[u8], start: usize) -> Result<(Scan, usize), JsonError> {
    if byte_at(text, start) != b'{' {
        return Err(JsonError {
            offset: start,
            kind: JsonErrorKind::NotAnObject,
        });
    }
    let mut validator = Validator::new(text, NoObserver);
    let end = validator.value(start)?;
    let scan = validator.scan(&text[start..end]);
    Ok((scan, end))
}

/// Checks that `text`, which is UTF-8, is one JSON value of any type with nothing but whitespace around it.
///
/// # Errors
/// The first thing that is wrong, with its offset in bytes.
pub fn validate(text: &[u8]) -> Result<Scan, JsonError> {
    Validator::new(text, NoObserver).run(skip_whitespace(text, 0))
}

/// What hears of the places of keys and elements.
trait Observer {
    /// A key in an object of this depth, 1 for the outermost.
    fn add_key(&mut self, place: usize, depth: usize);
    /// An element of an array of this depth.
    fn add_element(&mut self, place: usize, depth: usize);
}

/// Nothing does.
struct NoObserver;

impl Observer for NoObserver {
    #[inline(always)]
    fn add_key(&mut self, _: usize, _: usize) {}
    #[inline(always)]
    fn add_element(&mut self, _: usize, _: usize) {}
}

/// What is noted, while it is.
struct Noting<'a> {
    noted: &'a mut Noted,
    members: usize,
    elements: usize,
}

/// Every place is written, so that there is no branch; only one that is wanted is not overwritten.
impl Observer for Noting<'_> {
    #[inline(always)]
    fn add_key(&mut self, place: usize, depth: usize) {
        self.noted.members[self.members % MEMBERS_MAX] = place as u16;
        self.members += usize::from(depth == 1);
    }

    #[inline(always)]
    fn add_element(&mut self, place: usize, depth: usize) {
        self.noted.elements[self.elements % ELEMENTS_MAX] = place as u16;
        self.elements += usize::from(depth == 2);
    }
}

struct Validator<'a, O> {
    text: &'a [u8],
    observer: O,
    containers: Containers,
    depth_max: usize,
    keys: KeyHashes,
    escaped_keys: bool,
    dots: u32,
}

impl<'a, O: Observer> Validator<'a, O> {
    fn new(text: &'a [u8], observer: O) -> Self {
        Self {
            text,
            observer,
            containers: Containers::default(),
            depth_max: DEPTH_MAX,
            keys: KeyHashes::new(),
            escaped_keys: false,
            dots: 0,
        }
    }

    #[inline(always)]
    fn run_object(&mut self) -> Result<Scan, JsonError> {
        let start = skip_whitespace(self.text, 0);
        if byte_at(self.text, start) != b'{' {
            return Err(JsonError {
                offset: start,
                kind: JsonErrorKind::NotAnObject,
            });
        }
        self.run(start)
    }

    #[inline(always)]
    fn run(&mut self, start: usize) -> Result<Scan, JsonError> {
        let end = skip_whitespace(self.text, self.value(start)?);
        if end < self.text.len() {
            return Err(JsonError {
                offset: end,
                kind: JsonErrorKind::TrailingBytes,
            });
        }
        Ok(self.scan(self.text))
    }

    /// What was learned of the object, which is `text`.
    #[inline(always)]
    fn scan(&self, text: &[u8]) -> Scan {
        let rewrite = self.escaped_keys || (self.keys.suspicious() && has_duplicate_keys(text));
        Scan {
            rewrite,
            dotted_keys: self.dots != 0,
        }
    }

    /// Reads the value at `pos` and returns where it ends.
    #[inline(always)]
    fn value(&mut self, mut pos: usize) -> Result<usize, JsonError> {
        let text = self.text;
        loop {
            match byte_at(text, pos) {
                b'"' => pos = string(text, pos + 1)?,
                b'0'..=b'9' | b'-' => pos = number(text, pos)?,
                b'{' => {
                    self.open(pos, true)?;
                    pos = skip_whitespace(text, pos + 1);
                    if byte_at(text, pos) != b'}' {
                        pos = self.key(pos)?;
                        continue;
                    }
                }
                b'[' => {
                    self.open(pos, false)?;
                    pos = skip_whitespace(text, pos + 1);
                    if byte_at(text, pos) != b']' {
                        self.observer.add_element(pos, self.containers.depth);
                        continue;
                    }
                }
                b't' => pos = literal(text, pos, b"true")?,
                b'f' => pos = literal(text, pos, b"false")?,
                b'n' => pos = literal(text, pos, b"null")?,
                _ => return Err(unexpected(text, pos)),
            }
            match self.after_value(pos)? {
                Next::Value(at) => pos = at,
                Next::End(at) => return Ok(at),
            }
        }
    }

    /// What follows a value: the next one, or the end of the text's outermost value.
    #[inline(always)]
    fn after_value(&mut self, mut pos: usize) -> Result<Next, JsonError> {
        while self.containers.depth > 0 {
            pos = skip_whitespace(self.text, pos);
            let in_object = self.containers.in_object();
            match byte_at(self.text, pos) {
                b',' => {
                    pos = skip_whitespace(self.text, pos + 1);
                    return if in_object {
                        self.key(pos).map(Next::Value)
                    } else {
                        self.observer.add_element(pos, self.containers.depth);
                        Ok(Next::Value(pos))
                    };
                }
                b'}' if in_object => {
                    self.keys.close();
                    self.containers.pop();
                }
                b']' if !in_object => self.containers.pop(),
                _ => return Err(unexpected(self.text, pos)),
            }
            pos += 1;
        }
        Ok(Next::End(pos))
    }

    #[inline(always)]
    fn open(&mut self, pos: usize, object: bool) -> Result<(), JsonError> {
        if self.containers.depth == self.depth_max {
            return Err(JsonError {
                offset: pos,
                kind: JsonErrorKind::TooDeep(self.depth_max),
            });
        }
        self.containers.push(object);
        if object {
            self.keys.open();
        }
        Ok(())
    }

    /// Reads the key whose opening quote should be at `pos`, and the colon; returns where the member's value begins.
    #[inline(always)]
    fn key(&mut self, pos: usize) -> Result<usize, JsonError> {
        if byte_at(self.text, pos) != b'"' {
            return Err(unexpected(self.text, pos));
        }
        self.observer.add_key(pos, self.containers.depth);
        let mut pos = self.key_body(pos + 1)?;
        if byte_at(self.text, pos) != b':' {
            pos = skip_whitespace(self.text, pos);
            if byte_at(self.text, pos) != b':' {
                return Err(unexpected(self.text, pos));
            }
        }
        Ok(skip_whitespace(self.text, pos + 1))
    }

    /// Reads and hashes the key that begins at `start`; returns the position after its closing quote.
    #[inline(always)]
    fn key_body(&mut self, start: usize) -> Result<usize, JsonError> {
        let (mut pos, mut hash) = (start, 0);
        loop {
            let lanes = Lanes::load(self.text, pos);
            let stops = lanes.string_stops();
            let dots = lanes.mask_of(b'.');
            if stops == 0 {
                self.dots |= dots;
                hash = mix(hash, lanes.words());
                pos += WIDTH;
                continue;
            }
            // The mask of the bytes below the lowest stop, at most fifteen of them.
            self.dots |= dots & (stops & stops.wrapping_neg()).wrapping_sub(1);
            let len = stops.trailing_zeros() as usize;
            if byte_at(self.text, pos + len) != b'"' {
                let (end, dotted) = escaped_key(self.text, start, pos + len)?;
                self.escaped_keys = true;
                self.dots |= u32::from(dotted);
                return Ok(end);
            }
            self.keys.add(mix(hash, lanes.words_of(len)));
            return Ok(pos + len + 1);
        }
    }
}

/// A key with an escape in it, at `stop` the first: the position after its closing quote, and whether its text holds a
/// dot. The rewrite will compare it, so it is not hashed.
#[cold]
#[inline(never)]
fn escaped_key(text: &[u8], start: usize, stop: usize) -> Result<(usize, bool), JsonError> {
    let end = string(text, escape(text, stop)?)?;
    let mut plain = Vec::new();
    super::unescape(&text[start..end - 1], &mut plain);
    Ok((end, plain.contains(&b'.')))
}

enum Next {
    Value(usize),
    End(usize),
}

/// The open containers as bits, object or array: the innermost 64 in a register, the others spilled.
#[derive(Default)]
struct Containers {
    depth: usize,
    recent: u64,
    spilled: [u64; DEPTH_MAX / 64],
}

impl Containers {
    #[inline(always)]
    fn push(&mut self, object: bool) {
        if self.depth.is_multiple_of(64) {
            self.spilled[self.depth / 64] = self.recent;
        }
        self.recent = self.recent << 1 | u64::from(object);
        self.depth += 1;
    }

    #[inline(always)]
    fn pop(&mut self) {
        self.depth -= 1;
        self.recent >>= 1;
        if self.depth.is_multiple_of(64) {
            self.recent = self.spilled[self.depth / 64];
        }
    }

    #[inline(always)]
    fn in_object(&self) -> bool {
        self.recent & 1 == 1
    }
}

/// Scans a string from behind its opening quote; returns the position after its closing quote.
#[inline(always)]
fn string(text: &[u8], mut pos: usize) -> Result<usize, JsonError> {
    loop {
        let stops = Lanes::load(text, pos).string_stops();
        if stops == 0 {
            pos += WIDTH;
            continue;
        }
        pos += stops.trailing_zeros() as usize;
        if byte_at(text, pos) == b'"' {
            return Ok(pos + 1);
        }
        pos = escape(text, pos)?;
    }
}

/// A string scan stopped at `pos`, and not at a quote: returns the position after the escape sequence there.
#[inline(never)]
fn escape(text: &[u8], pos: usize) -> Result<usize, JsonError> {
    match text.get(pos) {
        None => return Err(unexpected(text, pos)),
        Some(b'\\') => {}
        Some(_) => {
            return Err(JsonError {
                offset: pos,
                kind: JsonErrorKind::ControlCharacter,
            });
        }
    }
    let invalid = JsonError {
        offset: pos,
        kind: JsonErrorKind::InvalidEscape,
    };
    match text.get(pos + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(pos + 2),
        Some(b'u') => match text.get(pos + 2..pos + 6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(pos + 6),
            _ => Err(invalid),
        },
        Some(_) => Err(invalid),
        None => Err(unexpected(text, pos + 1)),
    }
}

/// Scans a number, which may be of any length.
#[inline(always)]
fn number(text: &[u8], start: usize) -> Result<usize, JsonError> {
    let integer = start + usize::from(byte_at(text, start) == b'-');
    let digits = digits(text, integer);
    let pos = integer + digits;
    if digits == 0 || (digits > 1 && text[integer] == b'0') {
        return Err(JsonError {
            offset: start,
            kind: JsonErrorKind::InvalidNumber,
        });
    }
    match byte_at(text, pos) {
        b'.' | b'e' | b'E' => fraction(text, start, pos),
        _ => Ok(pos),
    }
}

/// Scans a number from behind its integer part.
#[inline(never)]
fn fraction(text: &[u8], start: usize, mut pos: usize) -> Result<usize, JsonError> {
    let invalid = JsonError {
        offset: start,
        kind: JsonErrorKind::InvalidNumber,
    };
    if byte_at(text, pos) == b'.' {
        let count = digits(text, pos + 1);
        if count == 0 {
            return Err(invalid);
        }
        pos += 1 + count;
    }
    if let b'e' | b'E' = byte_at(text, pos) {
        pos += 1 + usize::from(matches!(byte_at(text, pos + 1), b'+' | b'-'));
        let count = digits(text, pos);
        if count == 0 {
            return Err(invalid);
        }
        pos += count;
    }
    Ok(pos)
}

#[inline(always)]
fn digits(text: &[u8], pos: usize) -> usize {
    let mut total = 0;
    loop {
        let count = Lanes::load(text, pos + total).leading_digits();
        total += count;
        if count < WIDTH {
            return total;
        }
    }
}

#[inline(always)]
fn literal(text: &[u8], pos: usize, word: &[u8]) -> Result<usize, JsonError> {
    if text[pos..].starts_with(word) {
        return Ok(pos + word.len());
    }
    let same = text[pos..]
        .iter()
        .zip(word)
        .take_while(|(a, b)| a == b)
        .count();
    Err(unexpected(text, pos + same))
}

#[cold]
fn unexpected(text: &[u8], offset: usize) -> JsonError {
    let kind = if offset < text.len() {
        JsonErrorKind::UnexpectedByte
    } else {
        JsonErrorKind::UnexpectedEnd
    };
    JsonError { offset, kind }
}
