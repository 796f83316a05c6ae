//! Numbers with a known form: payment cards, IBANs and IPv4 addresses.
//!
//! Lengths and beginnings of card numbers: <https://en.wikipedia.org/wiki/Payment_card_number>; the check digit is that of
//! ISO/IEC 7812-1 (Luhn). Lengths of IBANs: the IBAN Registry of SWIFT, ISO 13616; check digits: ISO 7064, MOD 97-10.

/// The most digits that a card number has.
const CARD_DIGITS_MAX: usize = 19;
const CARD_DIGITS_MIN: usize = 12;

/// The digits of a group that is not the first one of a card number.
const GROUP_DIGITS_MIN: usize = 3;

/// Fewer digits than this are in no IBAN; words behind a country's letters are no IBAN.
const IBAN_DIGITS_MIN: usize = 8;

/// Where the card number that begins at `start` ends: the longest one. A digit is at `start`.
pub(super) fn card(text: &[u8], start: usize) -> Option<usize> {
    if is_fraction(text, start) {
        return None;
    }
    let mut digits = [0; CARD_DIGITS_MAX];
    let (mut len, mut at) = (0, start);
    let mut end = None;
    let mut dotted = None;
    loop {
        let group = digits_at(text, at, CARD_DIGITS_MAX + 1);
        let group_min = if len == 0 { 4 } else { GROUP_DIGITS_MIN };
        if group < group_min || len + group > CARD_DIGITS_MAX {
            return end;
        }
        if dotted == Some(true) && group != 4 {
            return end;
        }
        for (digit, byte) in digits[len..].iter_mut().zip(&text[at..at + group]) {
            *digit = byte - b'0';
        }
        len += group;
        at += group;
        let is_end = !continues(text, at) && (dotted != Some(true) || len == 16);
        if len >= CARD_DIGITS_MIN && is_end && is_card(&digits[..len]) {
            end = Some(at);
        }
        let separator = separator(text, at);
        let is_dot = text.get(at) == Some(&b'.');
        let mixes = is_dot != *dotted.get_or_insert(is_dot);
        if separator == 0 || mixes || is_dot && group != 4 {
            return end;
        }
        at += separator;
    }
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
    if !matches!(
        rest.first(),
        Some(b' ' | b'-' | b'.' | b'+' | b'_' | b'%' | 0x80..)
    ) {
        return 0;
    }
    let found = SEPARATORS.into_iter().find(|text| rest.starts_with(text));
    found.map_or(0, <[u8]>::len)
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
