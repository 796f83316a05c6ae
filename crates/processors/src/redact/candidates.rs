//! Where something may begin in a text: 64 bytes at a time, as bit masks, without a branch for each word.

use wide::u8x16;

const BLOCK: usize = 64;
const LANES: usize = 16;

/// It begins the colours of terminals.
const ESCAPE: u8 = 0x1b;

/// So many colons at least has an IPv6 address without two in a row.
const COLONS_MIN: u32 = 6;

/// Which letters may begin something, as the first ones of a word.
#[derive(Debug, Clone)]
pub(super) struct Beginnings {
    /// For each ASCII letter, which ASCII character may follow it: a bit for each.
    pairs: [[u8; 16]; 128],
    /// All ones if any letter may, with a digit two bytes further on.
    ibans: u64,
}

impl Beginnings {
    /// None but letters with a digit two bytes further on, if `ibans` are wanted.
    pub fn new(ibans: bool) -> Self {
        Self {
            pairs: [[0; 16]; 128],
            ibans: if ibans { u64::MAX } else { 0 },
        }
    }

    /// Something may begin with these two letters.
    pub fn add(&mut self, [first, second]: [u8; 2]) {
        self.pairs[usize::from(first)][usize::from(second / 8)] |= 1 << (second % 8);
    }

    /// Whether something may begin with these bytes.
    #[inline(always)]
    pub fn has(&self, first: u8, second: u8) -> bool {
        let followers = &self.pairs[usize::from(first % 128)];
        (first | second).is_ascii()
            && followers[usize::from(second % 128 / 8)] >> (second % 8) & 1 != 0
    }

    /// Which of these letters, in the block at `pos`, begin something.
    #[inline(always)]
    fn of(&self, mut letters: u64, text: &[u8], pos: usize) -> u64 {
        let mut found = 0;
        // Without a branch for what is found: most are none, but nobody can tell which.
        while letters != 0 {
            let place = letters.trailing_zeros();
            let at = pos + place as usize;
            let second = text.get(at + 1).copied().unwrap_or(0);
            found |= u64::from(self.has(text[at], second)) << place;
            letters &= letters - 1;
        }
        found
    }
}

/// The places of a text at which something may begin, ascending:
/// * `@`, `%`, `\` and [`ESCAPE`], the first of two `=`, a colon with a slash behind it, and those that may belong to an IPv6 address;
/// * a letter at the beginning of a word with which something may begin;
/// * a digit at the beginning of a word: the first of four, and one that is followed by a point, after two more digits at most, and by so
///   many digits and points that they may be an IPv4 address.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    text: &'a [u8],
    beginnings: &'a Beginnings,
    /// Where the block of `left` begins.
    pos: usize,
    /// Those that were not given yet, a bit for each byte.
    left: u64,
    /// The block behind.
    next: Masks,
    /// One if the byte before `next` belongs to a word.
    before: u64,
}

impl<'a> Candidates<'a> {
    // Inlined, as are the others, so that masks stay in registers: moved as a whole, they would be read before they are written.
    #[inline(always)]
    pub fn new(text: &'a [u8], beginnings: &'a Beginnings) -> Self {
        let mut candidates = Self {
            text,
            beginnings,
            pos: 0,
            left: 0,
            next: Masks::load(text, 0),
            before: 0,
        };
        candidates.advance(0);
        candidates
    }

    /// Goes on to the block at `pos`, which is `next`.
    #[inline(always)]
    fn advance(&mut self, pos: usize) {
        let here = self.next;
        let behind = pos + BLOCK;
        self.next = match behind < self.text.len() {
            true => Masks::load(self.text, behind),
            false => Masks::default(),
        };
        let words = here.digits | here.letters;
        let starts = words & !(words << 1 | self.before);
        // What stands so many bytes further on.
        let digits = |by: u32| here.digits >> by | self.next.digits << (64 - by);
        let points = |by: u32| here.points >> by | self.next.points << (64 - by);
        let four = digits(1) & digits(2) & digits(3);
        let parts = |by: u32| digits(by) | points(by);
        let address = parts(1) & parts(2) & parts(3) & parts(4) & parts(5) & parts(6);
        let part = points(1) | digits(1) & (points(2) | digits(2) & points(3));
        let numbers = starts & here.digits & (four | address & part);
        let keys = here.equals & (here.equals >> 1 | self.next.equals << 63);
        let letters = starts & here.letters;
        let ibans = letters & digits(2) & self.beginnings.ibans;
        let names = self.beginnings.of(letters, self.text, pos);
        self.left = here.signs | keys | self.colons(here) | numbers | ibans | names;
        self.before = words >> 63;
        self.pos = pos;
    }

    /// The colons of a block, which is followed by `next`, that something may lie around.
    #[inline(always)]
    fn colons(&self, here: Masks) -> u64 {
        let (this, next) = (here.colons, self.next.colons);
        if this == 0 {
            return 0;
        }
        // No IPv6 address reaches further than the next block from its first colon.
        let in_a_row = this & (this >> 1 | next << 63) | next & next >> 1;
        match in_a_row == 0 && this.count_ones() + next.count_ones() < COLONS_MIN {
            true => this & (here.slashes >> 1 | self.next.slashes << 63),
            false => this,
        }
    }
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.left == 0 {
            let behind = self.pos + BLOCK;
            if behind >= self.text.len() {
                return None;
            }
            self.advance(behind);
        }
        let place = self.pos + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Some(place)
    }
}

/// What the bytes of a block are, a bit for each byte.
#[derive(Debug, Clone, Copy, Default)]
struct Masks {
    digits: u64,
    letters: u64,
    points: u64,
    colons: u64,
    equals: u64,
    /// Of both kinds.
    slashes: u64,
    /// `@`, `%`, `\` and [`ESCAPE`].
    signs: u64,
}

impl Masks {
    /// The block at `pos`; behind the end of the text, nothing is anything.
    #[inline(always)]
    fn load(text: &[u8], pos: usize) -> Self {
        let rest = &text[pos..];
        let mut masks = Self::default();
        // Most blocks are whole; the same loop over a length that is known is unrolled.
        if let Some(block) = rest.first_chunk::<BLOCK>() {
            let (parts, _) = block.as_chunks::<LANES>();
            for (part, bytes) in parts.iter().enumerate() {
                masks.add(u8x16::new(*bytes), part * LANES);
            }
            return masks;
        }
        let (parts, last) = rest.as_chunks::<LANES>();
        for (part, bytes) in parts.iter().enumerate() {
            masks.add(u8x16::new(*bytes), part * LANES);
        }
        if !last.is_empty() {
            masks.add(last_lanes(text, last.len()), parts.len() * LANES);
        }
        masks
    }

    #[inline(always)]
    fn add(&mut self, lanes: u8x16, shift: usize) {
        let is = |byte: u8| lanes.simd_eq(u8x16::splat(byte));
        let bits = |found: u8x16| u64::from(found.to_bitmask()) << shift;
        let below = |lanes: u8x16, count: u8| lanes.min(u8x16::splat(count - 1)).simd_eq(lanes);
        let small = lanes | u8x16::splat(0x20);
        self.digits |= bits(below(lanes - u8x16::splat(b'0'), 10));
        self.letters |= bits(below(small - u8x16::splat(b'a'), 26));
        self.points |= bits(is(b'.'));
        self.colons |= bits(is(b':'));
        self.equals |= bits(is(b'='));
        let backslashes = is(b'\\');
        self.slashes |= bits(is(b'/') | backslashes);
        self.signs |= bits(is(b'@') | is(b'%') | backslashes | is(ESCAPE));
    }
}

/// The last bytes of a text, fewer than sixteen, with zeros behind them.
#[inline]
fn last_lanes(text: &[u8], len: usize) -> u8x16 {
    if let Some(last) = text.last_chunk::<LANES>() {
        let word = u128::from_le_bytes(*last) >> (8 * (LANES - len));
        return u8x16::new(word.to_le_bytes());
    }
    let mut bytes = [0; LANES];
    bytes[..len].copy_from_slice(&text[text.len() - len..]);
    u8x16::new(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [[u8; 2]; 3] = [*b"ab", *b"cA", *b"z_"];

    fn found(text: &[u8], ibans: bool) -> Vec<usize> {
        let mut beginnings = Beginnings::new(ibans);
        NAMES.into_iter().for_each(|name| beginnings.add(name));
        Candidates::new(text, &beginnings).collect()
    }

    fn expected(text: &[u8], ibans: bool) -> Vec<usize> {
        let is = |at: usize, what: fn(&u8) -> bool| text.get(at).is_some_and(what);
        let begins = |at: &usize| {
            let at = *at;
            let is_first = at == 0 || !is(at - 1, u8::is_ascii_alphanumeric);
            let rest = &text[at..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let parts = rest
                .iter()
                .take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
            let is_address = parts.count() >= 7 && rest.get(digits) == Some(&b'.');
            let is_number = digits >= 4 || digits > 0 && is_address;
            let is_name = NAMES.iter().any(|name| rest.starts_with(name));
            let is_iban = is(at, u8::is_ascii_alphabetic) && is(at + 2, u8::is_ascii_digit);
            let is_sign = b"@%\\\x1b".contains(&text[at])
                || rest.starts_with(b"==")
                || rest.starts_with(b":/")
                || rest.starts_with(b":\\")
                || text[at] == b':' && is_crowded(text, at);
            is_sign || is_first && (is_number || is_name || ibans && is_iban)
        };
        (0..text.len()).filter(begins).collect()
    }

    /// Whether the block of `at` and the next one have two colons in a row, or six.
    fn is_crowded(text: &[u8], at: usize) -> bool {
        let pos = at - at % BLOCK;
        let here = &text[pos..text.len().min(pos + 2 * BLOCK)];
        let colons = here.iter().filter(|byte| **byte == b':').count();
        colons >= 6 || here.windows(2).any(|pair| pair == b"::")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn candidates_are_those_that_a_look_at_each_byte_finds(
            text in "([0-9.]{0,8}|[a-cA-CzZ0-9]{0,70}|[ @::==%\\\\\u{1b}_`{\\[/éß-]{0,4}){0,40}",
            ibans in any::<bool>(),
        ) {
            prop_assert_eq!(found(text.as_bytes(), ibans), expected(text.as_bytes(), ibans));
        }
    }

    #[test]
    fn every_byte_is_what_it_is() {
        for byte in 0..=255 {
            for len in 1..20 {
                let text = vec![byte; len];
                assert_eq!(found(&text, true), expected(&text, true));
            }
        }
    }
}
