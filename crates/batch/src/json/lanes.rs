//! Sixteen and sixty-four bytes at a time: the masks that the JSON readers and writers are made of.
//!
//! A load never fails: bytes beyond the end of the text read as zero. Zero is a control character, which no JSON text
//! holds, so every scan stops there by itself and its caller sees that the position lies beyond the end.

use wide::u8x16;

/// How many bytes one load takes.
pub(crate) const WIDTH: usize = 16;

/// Sixteen bytes of text. In a mask, bit `i` stands for byte `i`.
#[derive(Clone, Copy)]
pub(crate) struct Lanes(u8x16);

impl Lanes {
    #[inline(always)]
    pub(crate) fn new(bytes: [u8; WIDTH]) -> Self {
        Self(u8x16::new(bytes))
    }

    #[inline(always)]
    pub(crate) fn load(text: &[u8], pos: usize) -> Self {
        match text.get(pos..).and_then(|rest| rest.first_chunk()) {
            Some(whole) => Self::new(*whole),
            None => {
                let (low, high) = last_words(text, pos);
                Self::new((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
            }
        }
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u8x16 {
        self.0.simd_eq(u8x16::splat(byte))
    }

    #[inline(always)]
    fn at_most(self, byte: u8) -> u8x16 {
        self.0.min(u8x16::splat(byte)).simd_eq(self.0)
    }

    /// The bytes that equal `byte`.
    #[inline(always)]
    pub(crate) fn mask_of(self, byte: u8) -> u32 {
        self.eq(byte).to_bitmask()
    }

    /// The bytes that both have.
    #[inline(always)]
    pub(crate) fn equal_to(self, other: Self) -> u32 {
        self.0.simd_eq(other.0).to_bitmask()
    }

    /// The bytes that are no ASCII characters.
    #[inline(always)]
    pub(crate) fn not_ascii(self) -> u32 {
        self.0.to_bitmask()
    }

    /// Where a quote, and in the two other loads at the same place the bytes `last` and a quote stand.
    #[inline(always)]
    pub(crate) fn quoted(self, at_last: Self, behind: Self, last: u8) -> u32 {
        (self.eq(b'"') & at_last.eq(last) & behind.eq(b'"')).to_bitmask()
    }

    /// Where a quote stands and, in the load from the next byte on, one of `bytes`.
    #[inline(always)]
    pub(crate) fn quotes_before(self, next: Self, bytes: [u8; 4]) -> u32 {
        let [a, b, c, d] = bytes.map(|byte| next.eq(byte));
        (self.eq(b'"') & (a | b | c | d)).to_bitmask()
    }

    /// What a string scan stops at: quote, backslash, control characters.
    #[inline(always)]
    pub(crate) fn string_stops(self) -> u32 {
        (self.eq(b'"') | self.eq(b'\\') | self.at_most(0x1F)).to_bitmask()
    }

    /// What the scan of a string that is known to be valid stops at. Zero is among them, for the end of the text.
    #[inline(always)]
    pub(crate) fn quotes_and_backslashes(self) -> u32 {
        (self.eq(b'"') | self.eq(b'\\') | self.eq(0)).to_bitmask()
    }

    /// What ends a number or a literal: comma, closing bracket, whitespace, the end of the text.
    #[inline(always)]
    pub(crate) fn scalar_ends(self) -> u32 {
        (self.eq(b',') | self.eq(b']') | self.eq(b'}') | self.at_most(b' ')).to_bitmask()
    }

    /// The first `len` bytes, at most fifteen, as two numbers; the others count as zero.
    #[inline(always)]
    pub(crate) fn words_of(self, len: usize) -> (u64, u64) {
        const WINDOW: [u8; 2 * WIDTH] = {
            let mut bytes = [0; 2 * WIDTH];
            let mut i = 0;
            while i < WIDTH {
                bytes[i] = 0xFF;
                i += 1;
            }
            bytes
        };
        let mask = WINDOW[WIDTH - (len & (WIDTH - 1))..]
            .first_chunk()
            .map_or([0; WIDTH], |mask| *mask);
        Self(self.0 & u8x16::new(mask)).words()
    }

    /// The bytes as two numbers.
    #[inline(always)]
    pub(crate) fn words(self) -> (u64, u64) {
        let word = u128::from_le_bytes(self.0.to_array());
        (word as u64, (word >> 64) as u64)
    }

    /// How many ASCII digits the bytes begin with.
    #[inline(always)]
    pub(crate) fn leading_digits(self) -> usize {
        let from_zero = self.0 - u8x16::splat(b'0');
        let digits = from_zero.min(u8x16::splat(9)).simd_eq(from_zero);
        (!digits.to_bitmask()).trailing_zeros() as usize
    }
}

/// The last bytes of the text, from `pos` on, and zeros behind them: the text's last sixteen bytes moved down, which
/// costs less than a copy of odd length. Two words, because those are returned in registers.
#[inline(never)]
fn last_words(text: &[u8], pos: usize) -> (u64, u64) {
    let left = text.len().saturating_sub(pos);
    if left == 0 {
        return (0, 0);
    }
    let word = match text.last_chunk::<WIDTH>() {
        Some(last) => u128::from_le_bytes(*last) >> (8 * (WIDTH - left)),
        None => {
            let mut bytes = [0; WIDTH];
            bytes[..left].copy_from_slice(&text[pos..]);
            u128::from_le_bytes(bytes)
        }
    };
    (word as u64, (word >> 64) as u64)
}

/// Sixty-four bytes of valid JSON with what lies inside strings masked out.
#[derive(Clone, Copy, Default)]
pub(crate) struct Block {
    /// Quotes that open a string.
    pub(crate) opening_quotes: u64,
    /// `{` and `[` outside strings.
    pub(crate) opens: u64,
    /// `}` and `]` outside strings.
    pub(crate) closes: u64,
}

/// What one block hands to the next: whether it ended inside a string, and whether its last byte escapes the next one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Carry {
    in_string: u64,
    escaped: u64,
}

impl Carry {
    /// Whether the last block ended inside a string.
    #[inline(always)]
    pub(crate) fn is_in_string(&self) -> bool {
        self.in_string != 0
    }
}

impl Block {
    /// How many bytes a block holds.
    pub(crate) const WIDTH: usize = 64;

    /// Reads the block at `pos`; `carry` comes from the block before and is brought up to date.
    #[inline(always)]
    pub(crate) fn load(text: &[u8], pos: usize, carry: &mut Carry) -> Self {
        match text.get(pos..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => Self::new(bytes, carry),
            None => Self::load_last(text, pos, carry),
        }
    }

    #[inline(never)]
    fn load_last(text: &[u8], pos: usize, carry: &mut Carry) -> Self {
        let mut masks = BlockMasks::default();
        for shift in (0..text.len().saturating_sub(pos)).step_by(WIDTH) {
            masks.add(Lanes::load(text, pos + shift), shift);
        }
        Self::of(masks, carry)
    }

    #[inline(always)]
    fn new(bytes: &[u8; Self::WIDTH], carry: &mut Carry) -> Self {
        let mut masks = BlockMasks::default();
        let (parts, _) = bytes.as_chunks::<WIDTH>();
        for (part, bytes) in parts.iter().enumerate() {
            masks.add(Lanes::new(*bytes), part * WIDTH);
        }
        Self::of(masks, carry)
    }

    #[inline(always)]
    fn of(masks: BlockMasks, carry: &mut Carry) -> Self {
        let BlockMasks {
            mut quotes,
            backslashes,
            opens,
            closes,
        } = masks;
        if backslashes | carry.escaped != 0 {
            quotes &= !escaped(backslashes, carry);
        }
        let in_string = prefix_xor(quotes) ^ carry.in_string;
        carry.in_string = ((in_string as i64) >> 63) as u64;
        Self {
            opening_quotes: quotes & in_string,
            opens: opens & !in_string,
            closes: closes & !in_string,
        }
    }
}

/// Where the bytes stand in sixty-four that a [`Block`] is made of, inside strings and outside.
#[derive(Clone, Copy, Default)]
struct BlockMasks {
    quotes: u64,
    backslashes: u64,
    opens: u64,
    closes: u64,
}

impl BlockMasks {
    #[inline(always)]
    fn add(&mut self, lanes: Lanes, shift: usize) {
        // The two kinds of brackets differ in this bit alone.
        let brackets = Lanes(lanes.0 | u8x16::splat(b'{' ^ b'['));
        self.quotes |= u64::from(lanes.mask_of(b'"')) << shift;
        self.backslashes |= u64::from(lanes.mask_of(b'\\')) << shift;
        self.opens |= u64::from(brackets.mask_of(b'{')) << shift;
        self.closes |= u64::from(brackets.mask_of(b'}')) << shift;
    }
}

/// The bytes that stand behind an odd run of backslashes.
fn escaped(backslashes: u64, carry: &mut Carry) -> u64 {
    let mut left = backslashes & !carry.escaped;
    let mut escaped = carry.escaped;
    carry.escaped = 0;
    while left != 0 {
        let at = left.trailing_zeros();
        if at == 63 {
            carry.escaped = 1;
            break;
        }
        escaped |= 2 << at;
        left &= !(3 << at);
    }
    escaped
}

/// Bit `i` is the exclusive or of the bits `0..=i`.
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_read_zero_beyond_the_end() {
        let text: Vec<u8> = (1..=40).collect();
        for len in 0..text.len() {
            for pos in 0..=len + 2 {
                let mut expected = [0; WIDTH];
                for (to, from) in expected.iter_mut().zip(text[..len].iter().skip(pos)) {
                    *to = *from;
                }
                assert_eq!(
                    Lanes::load(&text[..len], pos).0.to_array(),
                    expected,
                    "length {len}, position {pos}"
                );
            }
        }
    }

    #[test]
    fn masks_agree_with_a_byte_at_a_time() {
        let at = |mask: u32, i: usize| mask >> i & 1 == 1;
        for byte in 0..=255u8 {
            let lanes = Lanes::new([byte; WIDTH]);
            for i in [0, 7, 15] {
                assert_eq!(
                    at(lanes.string_stops(), i),
                    byte < 0x20 || b"\"\\".contains(&byte)
                );
                assert_eq!(
                    at(lanes.quotes_and_backslashes(), i),
                    b"\0\"\\".contains(&byte)
                );
                assert_eq!(
                    at(lanes.scalar_ends(), i),
                    byte <= 0x20 || b",]}".contains(&byte)
                );
            }
            assert_eq!(
                lanes.leading_digits(),
                if byte.is_ascii_digit() { WIDTH } else { 0 }
            );
        }
        assert_eq!(Lanes::new(*b"12a4567890123456").leading_digits(), 2);
    }

    #[test]
    fn blocks_know_strings_and_escapes_across_their_borders() {
        for lead in 0..140 {
            let mut text = vec![b' '; lead];
            text.extend_from_slice(br#"{"a\\\"{":["}\\",1]}"#);
            let mut carry = Carry::default();
            let (mut opens, mut closes, mut quotes) = (0, 0, 0);
            for pos in (0..text.len()).step_by(Block::WIDTH) {
                let block = Block::load(&text, pos, &mut carry);
                opens += block.opens.count_ones();
                closes += block.closes.count_ones();
                quotes += block.opening_quotes.count_ones();
            }
            assert_eq!(
                (opens, closes, quotes),
                (2, 2, 2),
                "{lead} bytes before the object"
            );
        }
    }
}
