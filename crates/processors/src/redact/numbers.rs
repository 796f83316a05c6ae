//! Numbers with a known form: payment cards, IBANs and IPv4 addresses.
//!
//! Lengths and beginnings of card numbers: <https://en.wikipedia.org/wiki/Payment_card_number>; the check digit is that of
//! ISO/IEC 7812-1 (Luhn). Lengths of IBANs: the IBAN Registry of SWIFT, ISO 13616; check digits: ISO 7064, MOD 97-10.

use std::ops::Range;

/// The most digits that a card number has.
const CARD_DIGITS_MAX: usize = 19;
const CARD_DIGITS_MIN: usize = 12;

/// The most groups of digits in which cards are written.
const GROUPS_MAX: usize = 5;

/// Numbers that may stand beside the groups of a card, such as a year and a check number. More are a row of numbers.
const NUMBERS_BESIDE_MAX: usize = 2;

/// Fewer digits than this are in no IBAN; words behind a country's letters are no IBAN.
const IBAN_DIGITS_MIN: usize = 8;

/// Where the card number that begins at `start` ends: the longest one. A digit is at `start`.
pub(super) fn card(text: &[u8], start: usize) -> Option<usize> {
    // Most numbers of four digits or more are told from cards by one byte further on.
    let may_be_one = match text.get(start + 4)? {
        b'0'..=b'9' => {
            let last = text.get(start + CARD_DIGITS_MIN - 1);
            last.is_some_and(u8::is_ascii_digit)
        }
        byte => may_separate(*byte),
    };
    if !may_be_one || is_fraction(text, start) {
        return None;
    }
    let mut digits = [0; CARD_DIGITS_MAX];
    let mut groups = [0; GROUPS_MAX];
    let (mut len, mut count, mut at) = (0, 0, start);
    let mut end = None;
    let mut dotted = None;
    loop {
        let group = digits_at(text, at, CARD_DIGITS_MAX + 1);
        if count == GROUPS_MAX || len + group > CARD_DIGITS_MAX {
            return end;
        }
        for (digit, byte) in digits[len..].iter_mut().zip(&text[at..at + group]) {
            *digit = byte - b'0';
        }
        groups[count] = group;
        count += 1;
        len += group;
        at += group;
        let groups = &groups[..count];
        let is_dotted = dotted == Some(true);
        // Those of American Express and Diners Club, which begin with 3, also have six digits in the middle.
        let is_written_so = match groups {
            [only] => *only >= CARD_DIGITS_MIN,
            [4, 4, 4, 4] => true,
            [4, 6, 4 | 5] => digits[0] == 3 && !is_dotted,
            [4, 8, 4] | [4, 4, 5] | [4, 4, 4, 3] | [4, 4, 4, 4, 2 | 3] => !is_dotted,
            _ => false,
        };
        if is_written_so
            && !continues(text, at)
            && is_card(&digits[..len])
            && stands_alone(text, start..at, count > 1)
        {
            end = Some(at);
        }
        if !matches!(groups, [4] | [4, 4 | 6 | 8] | [4, 4, 4] | [4, 4, 4, 4]) {
            return end;
        }
        let separator = separator(text, at);
        let is_dot = text.get(at) == Some(&b'.');
        let mixes = is_dot != *dotted.get_or_insert(is_dot);
        if separator == 0 || mixes {
            return end;
        }
        at += separator;
    }
}

/// Whether a number with a card's digits is neither a part of a UUID nor, where it is written in groups, of a row of numbers.
fn stands_alone(text: &[u8], number: Range<usize>, is_divided: bool) -> bool {
    const UUID_GROUP_MAX: usize = 12;
    let (before, behind) = (&text[..number.start], &text[number.end..]);
    let is_long = !is_divided && number.len() > UUID_GROUP_MAX;
    let is_word = |byte: &&u8| byte.is_ascii_alphanumeric();
    let is_uuid_part = |word: &[u8]| {
        let is_hex = word.len() >= 4 && word.iter().all(u8::is_ascii_hexdigit);
        is_hex && !(is_long && is_number(word))
    };
    if let Some(before) = before.strip_suffix(b"-") {
        let letters = before.iter().rev().take(UUID_GROUP_MAX + 1);
        let len = letters.take_while(is_word).count();
        if is_uuid_part(&before[before.len() - len..]) {
            return false;
        }
    }
    if let Some(behind) = behind.strip_prefix(b"-") {
        let letters = behind.iter().take(UUID_GROUP_MAX + 1);
        let word = &behind[..letters.take_while(is_word).count()];
        if is_uuid_part(word) && !is_year(word) {
            return false;
        }
    }
    !is_divided || !is_in_row(before, behind)
}

/// Whether what stands in front of and behind groups of digits makes them part of a row of numbers, as tables and statistics have them:
/// one of four digits, other than a year behind them, or several.
fn is_in_row(before: &[u8], behind: &[u8]) -> bool {
    const BYTES_MAX: usize = 64;
    let is_blank = |byte: &u8| b" \t+_".contains(byte);
    let before = &before[before.len().saturating_sub(BYTES_MAX)..];
    let behind = &behind[..behind.len().min(BYTES_MAX)];
    let count = |words: &mut dyn Iterator<Item = &[u8]>| {
        let words = words.filter(|word| !word.is_empty());
        words.take_while(|word| is_number(word)).count()
    };
    let mut beside = 0;
    if before.last().is_some_and(is_blank) {
        let last = before.rsplit(is_blank).find(|word| !word.is_empty());
        if last.is_some_and(|word| word.len() == 4 && is_number(word)) {
            return true;
        }
        beside += count(&mut before.rsplit(is_blank));
    }
    if behind.first().is_some_and(is_blank) {
        let next = behind.split(is_blank).find(|word| !word.is_empty());
        if next.is_some_and(|word| word.len() == 4 && is_number(word) && !is_year(word)) {
            return true;
        }
        beside += count(&mut behind.split(is_blank));
    }
    beside > NUMBERS_BESIDE_MAX
}

/// Whether a word is a number, be it with a point or a comma in it.
fn is_number(word: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b".,".contains(byte);
    word.first().is_some_and(u8::is_ascii_digit) && word.iter().all(is_part)
}

/// Whether a word is a year of this century, such as that in which a card expires.
fn is_year(word: &[u8]) -> bool {
    word.len() == 4 && word.starts_with(b"20") && is_number(word)
}

/// Whether a digit is part of a number's fraction: a digit and a point are in front of it.
fn is_fraction(text: &[u8], start: usize) -> bool {
    matches!(text[..start], [.., digit, b'.'] if digit.is_ascii_digit())
}

/// Whether what ends at `at` is part of something longer: a word or a number with a fraction.
fn continues(text: &[u8], at: usize) -> bool {
    match text.get(at) {
        Some(b'.') => text.get(at + 1).is_some_and(u8::is_ascii_digit),
        byte => byte.is_some_and(u8::is_ascii_alphanumeric),
    }
}

/// The number of digits at `at`, counted up to a maximum.
pub(super) fn digits_at(text: &[u8], at: usize, max: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let digits = rest.iter().take(max);
    digits.take_while(|byte| byte.is_ascii_digit()).count()
}

/// The length of what may stand between two groups of digits: a blank, a dash, a point, also those of URLs, or a dash between
/// two blanks.
fn separator(text: &[u8], at: usize) -> usize {
    const SEPARATORS: [&[u8]; 14] = [
        b" - ",
        b" ",
        b"-",
        b".",
        b"+",
        b"_",
        b"%20",
        b"%2D",
        b"%2d",
        "\u{a0}".as_bytes(),
        "\u{202f}".as_bytes(),
        "\u{2010}".as_bytes(),
        "\u{2011}".as_bytes(),
        "\u{2013}".as_bytes(),
    ];
    let rest = text.get(at..).unwrap_or_default();
    if !rest.first().is_some_and(|byte| may_separate(*byte)) {
        return 0;
    }
    let found = SEPARATORS.into_iter().find(|text| rest.starts_with(text));
    found.map_or(0, <[u8]>::len)
}

/// Whether what stands between two groups of digits may begin with a byte.
fn may_separate(byte: u8) -> bool {
    matches!(byte, b' ' | b'-' | b'.' | b'+' | b'_' | b'%' | 0x80..)
}

/// Whether digits are a card number by their beginning, their length and the check digit.
fn is_card(digits: &[u8]) -> bool {
    let first = digits[..4]
        .iter()
        .fold(0, |number, digit| number * 10 + u32::from(*digit));
    let lengths = match first {
        4000..=4999 => matches!(digits.len(), 13 | 16 | 19),
        5100..=5599 | 2221..=2720 | 8600 | 9792 | 9860 => digits.len() == 16,
        3400..=3499 | 3700..=3799 => digits.len() == 15,
        3000..=3059 | 3095 | 3600..=3699 | 3800..=3999 => digits.len() >= 14,
        2200..=2204 | 3528..=3589 | 8100..=8299 => digits.len() >= 16,
        5000..=5099 | 5600..=6999 => true,
        _ => false,
    };
    lengths && luhn(digits)
}

fn luhn(digits: &[u8]) -> bool {
    let weighed = digits.iter().rev().enumerate().map(|(place, &digit)| {
        let doubled = digit * 2;
        match place % 2 {
            0 => u32::from(digit),
            _ => u32::from(doubled / 10 + doubled % 10),
        }
    });
    weighed.sum::<u32>() % 10 == 0
}

/// Where the IPv4 address that begins at `start` ends. A digit is at `start`.
pub(super) fn ipv4(text: &[u8], start: usize) -> Option<usize> {
    if is_fraction(text, start) {
        return None;
    }
    let mut at = start;
    let mut others_are_zero = true;
    for part in 0..4 {
        if part > 0 {
            (text.get(at) == Some(&b'.')).then_some(())?;
            at += 1;
        }
        let len = digits_at(text, at, 4);
        let digits = text.get(at..at + len)?;
        let number = digits
            .iter()
            .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        if !(1..=3).contains(&len) || number > 255 {
            return None;
        }
        others_are_zero &= part == 0 || number == 0;
        at += len;
    }
    // `Chrome/120.0.0.0`: browsers write their version so, and it is the address of no host.
    let is_version = others_are_zero
        && matches!(text[..start], [.., letter, b'/'] if letter.is_ascii_alphabetic());
    (!continues(text, at) && !is_version).then_some(at)
}

/// Where the IBAN that begins at `start` ends.
pub(super) fn iban(text: &[u8], start: usize) -> Option<usize> {
    let head = text.get(start..start + 4)?;
    if !head[2].is_ascii_digit() || !head[3].is_ascii_digit() {
        return None;
    }
    let country = [head[0].to_ascii_uppercase(), head[1].to_ascii_uppercase()];
    let (_, len) = IBANS.iter().find(|(letters, _)| **letters == country)?;
    let mut characters = [0; IBAN_LEN_MAX];
    let mut at = start;
    for (place, character) in characters[..*len].iter_mut().enumerate() {
        if place > 0 && !text.get(at)?.is_ascii_alphanumeric() {
            at += separator(text, at);
        }
        *character = *text.get(at).filter(|byte| byte.is_ascii_alphanumeric())?;
        at += 1;
    }
    let characters = &characters[..*len];
    let digits = characters.iter().filter(|byte| byte.is_ascii_digit());
    let ends = !text.get(at).is_some_and(u8::is_ascii_alphanumeric);
    (ends && digits.count() >= IBAN_DIGITS_MIN && mod_97(characters) == 1).then_some(at)
}

/// The remainder of an IBAN, whose first four characters count as the last ones, and letters as 10 to 35.
fn mod_97(characters: &[u8]) -> u32 {
    let (head, rest) = characters.split_at(4);
    rest.iter().chain(head).fold(0, |remainder, byte| {
        let value = u32::from(match byte {
            b'0'..=b'9' => byte - b'0',
            letter => letter.to_ascii_uppercase() - b'A' + 10,
        });
        let scale = if value < 10 { 10 } else { 100 };
        (remainder * scale + value) % 97
    })
}

const IBAN_LEN_MAX: usize = 33;

/// The length of the IBANs of a country.
const IBANS: [(&[u8; 2], usize); 89] = [
    (b"AD", 24),
    (b"AE", 23),
    (b"AL", 28),
    (b"AT", 20),
    (b"AZ", 28),
    (b"BA", 20),
    (b"BE", 16),
    (b"BG", 22),
    (b"BH", 22),
    (b"BI", 27),
    (b"BR", 29),
    (b"BY", 28),
    (b"CH", 21),
    (b"CR", 22),
    (b"CY", 28),
    (b"CZ", 24),
    (b"DE", 22),
    (b"DJ", 27),
    (b"DK", 18),
    (b"DO", 28),
    (b"EE", 20),
    (b"EG", 29),
    (b"ES", 24),
    (b"FI", 18),
    (b"FK", 18),
    (b"FO", 18),
    (b"FR", 27),
    (b"GB", 22),
    (b"GE", 22),
    (b"GI", 23),
    (b"GL", 18),
    (b"GR", 27),
    (b"GT", 28),
    (b"HN", 28),
    (b"HR", 21),
    (b"HU", 28),
    (b"IE", 22),
    (b"IL", 23),
    (b"IQ", 23),
    (b"IS", 26),
    (b"IT", 27),
    (b"JO", 30),
    (b"KW", 30),
    (b"KZ", 20),
    (b"LB", 28),
    (b"LC", 32),
    (b"LI", 21),
    (b"LT", 20),
    (b"LU", 20),
    (b"LV", 21),
    (b"LY", 25),
    (b"MC", 27),
    (b"MD", 24),
    (b"ME", 22),
    (b"MK", 19),
    (b"MN", 20),
    (b"MR", 27),
    (b"MT", 31),
    (b"MU", 30),
    (b"NI", 28),
    (b"NL", 18),
    (b"NO", 15),
    (b"OM", 23),
    (b"PK", 24),
    (b"PL", 28),
    (b"PS", 29),
    (b"PT", 25),
    (b"QA", 29),
    (b"RO", 24),
    (b"RS", 22),
    (b"RU", 33),
    (b"SA", 24),
    (b"SC", 31),
    (b"SD", 18),
    (b"SE", 24),
    (b"SI", 19),
    (b"SK", 24),
    (b"SM", 27),
    (b"SO", 23),
    (b"ST", 25),
    (b"SV", 28),
    (b"TL", 23),
    (b"TN", 24),
    (b"TR", 26),
    (b"UA", 29),
    (b"VA", 22),
    (b"VG", 24),
    (b"XK", 20),
    (b"YE", 30),
];

#[cfg(test)]
mod tests {
    use super::super::finder::SecretFinder;
    use super::super::preset::Preset;
    use crate::testing::numbers;

    /// How many of the texts held a "card" before groupings and neighbours were looked at: 33 of 100,000 UUIDs; of 1,000 texts each, 30 requests, and
    /// 452, 118, 205 and 74 rows of twelve, five, nine and four numbers.
    #[test]
    fn identifiers_and_rows_of_numbers_are_seldom_taken_for_cards() {
        let mut random = numbers(1);
        let finder = SecretFinder::new([Preset::Card].into_iter().collect(), Vec::new());
        let mut found = Vec::new();
        let mut count = |texts: u64, text: &mut dyn FnMut() -> String| {
            let mut hits = 0;
            for _ in 0..texts {
                finder.find(text().as_bytes(), &mut found);
                hits += usize::from(!found.is_empty());
            }
            hits
        };
        let mut hex = |len: u32| {
            let digits = random(1 << 16) << 32 | random(1 << 16) << 16 | random(1 << 16);
            format!(
                "{:0len$x}",
                digits & ((1 << (4 * len)) - 1),
                len = len as usize
            )
        };
        let mut uuid = || {
            let (a, b, c, d) = (hex(8), hex(4), hex(3), hex(3));
            format!("/pods/{a}-{b}-4{c}-8{d}-{}/volumes", hex(12))
        };
        assert_eq!(count(100_000, &mut uuid), 0);
        let mut random = numbers(2);
        let mut request = || {
            let (sent, received) = (10_000 + random(90_000), 10_000 + random(90_000));
            format!("GET /x 464 {sent} {received} 898")
        };
        assert_eq!(count(1000, &mut request), 0);
        let mut random = numbers(3);
        let mut row = |len: usize, from: u64, below: u64| {
            let numbers: Vec<String> = (0..len)
                .map(|_| (from + random(below - from)).to_string())
                .collect();
            numbers.join(" ")
        };
        assert_eq!(count(1000, &mut || row(12, 1000, 10_000)), 0);
        // A year may stand behind a card.
        assert!(count(1000, &mut || row(5, 1000, 10_000)) <= 2);
        assert_eq!(count(1000, &mut || row(9, 100, 100_000)), 0);
        // Four numbers of four digits are written like a card.
        let alone = count(1000, &mut || row(4, 1000, 10_000));
        assert!((20..60).contains(&alone), "{alone}");
    }
}
