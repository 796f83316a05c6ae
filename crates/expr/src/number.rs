//! Numbers of any size, read from text as it stands and compared without losing digits.
//!
//! Whole numbers compare exactly however long they are; where a side has a fraction or an exponent both become 64-bit
//! floats. Text counts as a number when it reads as `-?digits[.digits][e±digits]`, leading zeros allowed.

use std::cmp::Ordering;

/// A number, as comparisons and arithmetic see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num<'a> {
    /// A whole number of up to 38 digits.
    Int(i128),
    /// The digits of a longer one, sign included, without leading zeros.
    Big(&'a [u8]),
    /// Any other number.
    Float(f64),
}

/// So many digits always fit into 128 bits.
const INT_DIGITS_MAX: usize = 38;

impl<'a> Num<'a> {
    /// Reads a number; nothing where the text is none.
    #[inline]
    pub fn read(text: &'a [u8]) -> Option<Self> {
        if let Some(short) = read_short(text) {
            return Some(Self::Int(i128::from(short)));
        }
        Self::read_long(text)
    }

    fn read_long(text: &'a [u8]) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix(b"-") {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let len = digits
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if len == 0 {
            return None;
        }
        if len < digits.len() {
            return is_fraction(&digits[len..]).then(|| Self::Float(to_f64(text)));
        }
        let zeros = digits.iter().take_while(|&&byte| byte == b'0').count();
        let significant = &digits[zeros..];
        if significant.len() > INT_DIGITS_MAX {
            // Zeros between the sign and the digits are rare enough to give up exactness for them.
            let clean = if negative {
                (zeros == 0).then_some(text)
            } else {
                Some(significant)
            };
            return Some(clean.map_or_else(|| Self::Float(to_f64(text)), Self::Big));
        }
        let value = significant
            .iter()
            .fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
        Some(Self::Int(if negative { -value } else { value }))
    }

    /// The nearest 64-bit float.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(n) => n as f64,
            Self::Big(text) => to_f64(text),
            Self::Float(n) => n,
        }
    }

    /// How two numbers compare; nothing where one is not a number (NaN).
    #[inline]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            (Self::Big(a), Self::Big(b)) => Some(compare_big(a, b)),
            (Self::Big(a), Self::Int(_)) => Some(if a[0] == b'-' {
                Ordering::Less
            } else {
                Ordering::Greater
            }),
            (Self::Int(_), Self::Big(_)) => other.compare(self).map(Ordering::reverse),
            _ => self.to_f64().partial_cmp(&other.to_f64()),
        }
    }
}

/// The common case: one to eighteen digits.
#[inline]
pub(crate) fn read_short(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(value)
}

/// Whether this can stand behind the digits of a number: `.5`, `e3`, `.5E-3`.
fn is_fraction(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut rest = text;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let len = digits(fraction);
        if len == 0 {
            return false;
        }
        rest = &fraction[len..];
    }
    let Some((b'e' | b'E', exponent)) = rest.split_first() else {
        return rest.is_empty();
    };
    let exponent = match exponent {
        [b'+' | b'-', exponent @ ..] => exponent,
        _ => exponent,
    };
    !exponent.is_empty() && digits(exponent) == exponent.len()
}

/// The float that a text of the right grammar stands for.
fn to_f64(text: &[u8]) -> f64 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(f64::NAN)
}

fn compare_big(a: &[u8], b: &[u8]) -> Ordering {
    match (a.strip_prefix(b"-"), b.strip_prefix(b"-")) {
        (Some(a), Some(b)) => compare_digits(b, a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => compare_digits(a, b),
    }
}

fn compare_digits(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_reads_as_a_number() {
        for text in [
            "0",
            "-0",
            "007",
            "200",
            "1.5",
            "-1e9",
            "1E+2",
            "2.5e-3",
            "123456789012345678901234567890123456789012345",
        ] {
            assert!(Num::read(text.as_bytes()).is_some(), "{text}");
        }
        for text in [
            "", "-", "+1", " 1", "1 ", "1.", ".5", "1e", "1e+", "0x10", "inf", "NaN", "1_000",
            "1,5", "12a", "--1",
        ] {
            assert_eq!(Num::read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn order_of_numbers() {
        let ascending = [
            "-1e300",
            "-123456789012345678901234567890123456789012346",
            "-123456789012345678901234567890123456789012345",
            "-99999999999999999999999999999999999999",
            "-9223372036854775808",
            "-1.5",
            "0",
            "0.1",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551615",
            "18446744073709551616",
            "123456789012345678901234567890123456789012345",
            "123456789012345678901234567890123456789012346",
            "1e60",
        ];
        let read = |text: &'static str| Num::read(text.as_bytes()).expect(text);
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(read(a).compare(read(b)), Some(i.cmp(&j)), "{a} and {b}");
            }
        }
        assert_eq!(read("200").compare(read("0200")), Some(Ordering::Equal));
        assert_eq!(read("200").compare(read("2e2")), Some(Ordering::Equal));
        assert_eq!(read("-0").compare(read("0")), Some(Ordering::Equal));
        assert_eq!(Num::Float(f64::NAN).compare(read("1")), None);
    }

    proptest! {
        #[test]
        fn whole_numbers_compare_as_they_should(a: i128, b: i128, zeros in 0usize..3) {
            let text = format!("{}{}{}", if a < 0 { "-" } else { "" }, "0".repeat(zeros), a.unsigned_abs());
            let other = b.to_string();
            let (read, other) = (Num::read(text.as_bytes()).unwrap(), Num::read(other.as_bytes()).unwrap());
            let exact = !matches!((read, other), (Num::Float(_), _) | (_, Num::Float(_)));
            prop_assert!(read.compare(other) == Some(a.cmp(&b)) || !exact);
        }

        #[test]
        fn floats_read_back(n in proptest::num::f64::NORMAL) {
            let text = format!("{n:e}");
            prop_assert_eq!(Num::read(text.as_bytes()).map(Num::to_f64), Some(n));
        }
    }
}
