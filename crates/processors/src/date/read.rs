//! Reading the parts of a text, one after the other.

use super::fields::{Fields, SecondPlace};
use super::item::{FormatItem, NumberField};
use super::names::{NameOf, Names};
use datetime::zone::{self, Zone};

/// English month names; the first three letters are the short ones.
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// English weekdays from Monday; the first three letters are the short ones.
const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// A text with the place of the next byte to read.
pub(super) struct TextReader<'a> {
    pub text: &'a [u8],
    pub at: usize,
}

impl TextReader<'_> {
    pub fn step(&mut self, step: &FormatItem, fields: &mut Fields) -> Option<()> {
        match step {
            FormatItem::Text(expected) => self.literal(expected)?,
            FormatItem::Pad => {
                let rest = &self.text[self.at..];
                self.at += rest.iter().take_while(|byte| **byte == b' ').count();
            }
            FormatItem::Number {
                part,
                digits,
                least,
                most,
            } => {
                let start = self.at;
                let number = self.number(1, usize::from(*digits))?;
                if !(u32::from(*least)..=u32::from(*most)).contains(&number) {
                    return None;
                }
                if *part == NumberField::Second && self.at - start == 2 {
                    fields.place = Some(SecondPlace {
                        at: start,
                        fraction_digits: 0,
                    });
                }
                set(fields, *part, number);
            }
            FormatItem::Year {
                week_based,
                least,
                most,
            } => {
                let year = i64::from(self.number(usize::from(*least), usize::from(*most))?);
                *if *week_based {
                    &mut fields.week_year
                } else {
                    &mut fields.year
                } = Some(year);
            }
            FormatItem::ShortYear { week_based } => {
                let year = i64::from(self.number(2, 2)?);
                fields.short_year = true;
                *if *week_based {
                    &mut fields.week_year
                } else {
                    &mut fields.year
                } = Some(year);
            }
            FormatItem::Fraction { digits } => {
                let start = self.at;
                fields.nanos = self.fraction(usize::from(*digits))?;
                // A fraction that stands elsewhere counts as one of the bytes that must be the same.
                if let Some(place) = &mut fields.place
                    && start == place.at + 3
                {
                    place.fraction_digits = self.at - start;
                }
            }
            FormatItem::Month => fields.month = self.name(&MONTHS)?,
            FormatItem::Weekday => fields.weekday = self.name(&WEEKDAYS)?,
            FormatItem::HalfDay => fields.is_afternoon = self.one_of(&[b"am", b"pm"])? == 1,
            FormatItem::Era => {
                fields.before_christ = self.one_of(&[b"ad", b"ce", b"bce", b"bc"])? > 1;
            }
            FormatItem::Offset => fields.zone = Some(self.offset()?),
            FormatItem::Zone => fields.zone = Some(self.zone()?),
        }
        Some(())
    }

    /// Reads a number of `least` to `most` (at most 9) digits.
    #[inline]
    pub fn number(&mut self, least: usize, most: usize) -> Option<u32> {
        let mut number = 0;
        let start = self.at;
        while let Some(digit @ b'0'..=b'9') = self.text.get(self.at)
            && self.at - start < most
        {
            number = number * 10 + u32::from(digit - b'0');
            self.at += 1;
        }
        (self.at - start >= least).then_some(number)
    }

    /// Reads at most `most` digits after a decimal point, at least one, as nanoseconds; those past the ninth are cut off.
    #[inline]
    pub fn fraction(&mut self, most: usize) -> Option<i64> {
        let (mut nanos, mut unit) = (0, 100_000_000);
        let start = self.at;
        while let Some(digit @ b'0'..=b'9') = self.text.get(self.at)
            && self.at - start < most
        {
            nanos += i64::from(digit - b'0') * unit;
            unit /= 10;
            self.at += 1;
        }
        (self.at > start).then_some(nanos)
    }

    #[inline]
    fn literal(&mut self, expected: &[u8]) -> Option<()> {
        let found = self.text.get(self.at..self.at + expected.len())?;
        self.at += expected.len();
        (found == expected || found.eq_ignore_ascii_case(expected)).then_some(())
    }

    /// Reads one of some English names, long or short, and gives its number from 1.
    fn name(&mut self, names: &[&str]) -> Option<u32> {
        let rest = &self.text[self.at..];
        let begins = |name: &str| {
            rest.len() >= name.len() && rest[..name.len()].eq_ignore_ascii_case(name.as_bytes())
        };
        let index = names.iter().position(|name| begins(&name[..3]))?;
        let name = names[index];
        self.at += if begins(name) { name.len() } else { 3 };
        Some(index as u32 + 1)
    }

    /// Reads a name of another language with the point after it, unless the format has one there.
    pub fn local_name(
        &mut self,
        names: &Names,
        of: NameOf,
        next: Option<&FormatItem>,
    ) -> Option<u32> {
        let (number, length) = names.read(of, &self.text[self.at..])?;
        self.at += length;
        let has_point = matches!(next, Some(FormatItem::Text(text)) if text.starts_with(b"."));
        self.at += usize::from(!has_point && self.text.get(self.at) == Some(&b'.'));
        Some(number)
    }

    fn one_of(&mut self, words: &[&[u8]]) -> Option<usize> {
        let rest = &self.text[self.at..];
        let begins = |word: &&[u8]| {
            rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word)
        };
        let index = words.iter().position(begins)?;
        self.at += words[index].len();
        Some(index)
    }

    /// Reads `Z` or an offset.
    #[inline]
    pub fn offset(&mut self) -> Option<Zone> {
        if let Some(b'Z' | b'z') = self.text.get(self.at) {
            self.at += 1;
            return Some(Zone::UTC);
        }
        let (seconds, length) = zone::offset(&self.text[self.at..])?;
        self.at += length;
        Some(Zone::Fixed(seconds))
    }

    fn zone(&mut self) -> Option<Zone> {
        let rest = &self.text[self.at..];
        if let Some(b'+' | b'-') = rest.first() {
            return self.offset();
        }
        let belongs =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+');
        let length = rest.iter().take_while(|byte| belongs(byte)).count();
        let name = std::str::from_utf8(&rest[..length]).ok()?;
        self.at += length;
        Zone::named(name)
    }
}

/// What a step names.
pub(super) fn name_of(step: &FormatItem) -> Option<NameOf> {
    match step {
        FormatItem::Month => Some(NameOf::Month),
        FormatItem::Weekday => Some(NameOf::Weekday),
        FormatItem::HalfDay => Some(NameOf::HalfDay),
        _ => None,
    }
}

pub(super) fn set_name(fields: &mut Fields, of: NameOf, number: u32) {
    match of {
        NameOf::Month => fields.month = number,
        NameOf::Weekday => fields.weekday = number,
        NameOf::HalfDay => fields.is_afternoon = number == 1,
    }
}

fn set(fields: &mut Fields, part: NumberField, number: u32) {
    match part {
        NumberField::Month => fields.month = number,
        NumberField::Day => fields.day = number,
        NumberField::DayOfYear => fields.day_of_year = Some(number),
        NumberField::Week => fields.week = Some(number),
        NumberField::Weekday => fields.weekday = number,
        NumberField::Hour => fields.hour = number,
        NumberField::HourFromOne => fields.hour = number % 24,
        NumberField::HalfDayHour | NumberField::HalfDayHourFromOne => {
            fields.hour = number % 12;
            fields.is_half_day_hour = true;
        }
        NumberField::Minute => fields.minute = number,
        NumberField::Second => fields.second = number,
    }
}
