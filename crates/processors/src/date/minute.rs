//! The minute read last: events that follow each other mostly differ in their second alone.
//!
//! Why this is right: a format is read step by step from left to right, and what a step takes depends only on the
//! bytes from its place on. A text of the same length that has digits where the remembered one has its second and fraction,
//! and the same bytes everywhere else, is therefore cut into the same pieces; only these two pieces differ. The second
//! and the fraction are added to the minute, whose zone offset is one and the same throughout ([`Zone::is_steady`] was
//! asked), so that the difference between the two texts is the difference between the two points in time. What depends on
//! the current date is forgotten with each batch.
//!
//! [`Zone::is_steady`]: datetime::Zone::is_steady

use datetime::NANOS_PER_SECOND;

use super::fields::{Moment, SecondPlace};

/// Texts of this length and longer are not remembered, nor are shorter ones than half of it.
const LENGTH_MAX: usize = 32;

/// A text that was read, with its second and fraction taken out.
///
/// The text lies in two blocks of 16 bytes, its first and its last, which may overlap. A mask hides second and fraction.
#[derive(Clone, Debug)]
pub(super) struct Minute {
    length: usize,
    first: u128,
    first_mask: u128,
    last: u128,
    last_mask: u128,
    place: SecondPlace,
    /// Nanoseconds since 1970 of the minute's start.
    start: i64,
}

impl Minute {
    /// Remembers a text with what it gave; `None` when that says nothing about other texts.
    pub fn remember(text: &[u8], moment: Moment) -> Option<Self> {
        let place = moment.second?;
        if text.len() < LENGTH_MAX / 2 || text.len() > LENGTH_MAX {
            return None;
        }
        let end = place.at
            + 2
            + if place.fraction_digits > 0 {
                1 + place.fraction_digits
            } else {
                0
            };
        // The byte between second and fraction is compared like all others.
        let shown = |at: usize| at < place.at || at >= end || at == place.at + 2;
        let mask = |from: usize| {
            (0..16)
                .filter(|at| shown(from + at))
                .fold(0, |mask, at| mask | 0xff << (8 * at))
        };
        let (first, last) = blocks(text)?;
        let (first_mask, last_mask) = (mask(0), mask(text.len() - 16));
        let start = moment.nanos.checked_sub(since_minute(text, place)?)?;
        Some(Self {
            length: text.len(),
            first: first & first_mask,
            first_mask,
            last: last & last_mask,
            last_mask,
            place,
            start,
        })
    }

    /// The point in time of a text of this minute; `None` for every other text.
    #[inline]
    pub fn read(&self, text: &[u8]) -> Option<i64> {
        if text.len() != self.length {
            return None;
        }
        let (first, last) = blocks(text)?;
        if (first & self.first_mask) ^ self.first | (last & self.last_mask) ^ self.last != 0 {
            return None;
        }
        self.start.checked_add(since_minute(text, self.place)?)
    }
}

/// The first and the last 16 bytes.
#[inline]
fn blocks(text: &[u8]) -> Option<(u128, u128)> {
    let first = text.first_chunk::<16>()?;
    let last = text.last_chunk::<16>()?;
    Some((u128::from_le_bytes(*first), u128::from_le_bytes(*last)))
}

/// Nanoseconds from the start of the minute; `None` where there are other bytes than digits, or a leap second.
#[inline]
fn since_minute(text: &[u8], place: SecondPlace) -> Option<i64> {
    let [tens @ b'0'..=b'5', ones @ b'0'..=b'9'] = text.get(place.at..place.at + 2)? else {
        return None;
    };
    let second = i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let mut nanos = second * NANOS_PER_SECOND;
    let mut unit = NANOS_PER_SECOND;
    if place.fraction_digits > 0 {
        for digit in text.get(place.at + 3..place.at + 3 + place.fraction_digits)? {
            if !digit.is_ascii_digit() {
                return None;
            }
            unit /= 10;
            nanos += i64::from(digit - b'0') * unit;
        }
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::super::fields::Surroundings;
    use super::super::format::Format;
    use super::*;
    use datetime::Zone;
    use proptest::prelude::*;

    const FORMATS: [&str; 7] = [
        "dd/MMM/yyyy:HH:mm:ss Z",
        "yyyy-MM-dd HH:mm:ss.SSS",
        "ISO8601",
        "ss:mm:HH dd/MM/yyyy",
        "EEE, d MMM yyyy HH:mm:ss,SSSSSSSSS",
        "yyyyMMddHHmmssSSS",
        "MMM dd yyyy hh:mm:ss a",
    ];

    /// Texts that fit one of the formats, with some bytes changed.
    fn text() -> impl Strategy<Value = String> {
        let parts = (
            0..8usize,
            2014..2016,
            1..=12u32,
            1..=31u32,
            0..24u32,
            0..60u32,
            0..=61u32,
            0..1_000_000_000u32,
        );
        let text = parts.prop_map(
            |(form, year, month, day, hour, minute, second, nanos)| match form {
                0 => format!("{day:02}/May/{year}:{hour:02}:{minute:02}:{second:02} +0200"),
                1 => format!(
                    "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03}",
                    nanos % 1000
                ),
                2 => format!(
                    "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z"
                ),
                3 => format!("{second:02}:{minute:02}:{hour:02} {day:02}/{month:02}/{year}"),
                4 => format!("Mon, {day} Mar {year} {hour:02}:{minute:02}:{second:02},{nanos:09}"),
                5 => format!(
                    "{year}{month:02}{day:02}{hour:02}{minute:02}{second:02}{:03}",
                    nanos % 1000
                ),
                6 => format!(
                    "Oct {day:02} {year} {:02}:{minute:02}:{second:02} pM",
                    hour % 12 + 1
                ),
                _ => format!("{year}-10-25T02:{minute:02}:{second:02}"),
            },
        );
        (
            text,
            proptest::option::weighted(0.2, (0..40usize, "[0-9:. a-z]")),
        )
            .prop_map(|(mut text, change)| {
                if let Some((at, with)) = change
                    && at < text.len()
                {
                    text.replace_range(at..=at, &with);
                }
                text
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn a_remembered_minute_reads_what_the_format_reads(
            one in text(), second in 0..60u32, nanos in 0..1_000_000_000u32, two in text(), format in 0..FORMATS.len()
        ) {
            let format = Format::compile(FORMATS[format], None).unwrap();
            let zone = Zone::named("Europe/Berlin").unwrap();
            let around = Surroundings { zone: Some(&zone), received: 1_431_857_103 * NANOS_PER_SECOND };
            let Ok(moment) = format.read(one.as_bytes(), &around) else { return Ok(()) };
            let Some(minute) = Minute::remember(one.as_bytes(), moment) else { return Ok(()) };
            let mut near = one.clone();
            near.replace_range(minute.place.at..minute.place.at + 2, &format!("{second:02}"));
            if minute.place.fraction_digits > 0 {
                let from = minute.place.at + 3;
                let digits = &format!("{nanos:09}000")[..minute.place.fraction_digits];
                near.replace_range(from..from + digits.len(), digits);
            }
            // The neighbour hits, or the test would test nothing.
            prop_assert!(minute.read(near.as_bytes()).is_some(), "{}", near);
            for text in [&one, &near, &two] {
                if let Some(nanos) = minute.read(text.as_bytes()) {
                    prop_assert_eq!(Ok(nanos), format.read(text.as_bytes(), &around).map(|moment| moment.nanos), "{}", text);
                }
            }
        }
    }

    #[test]
    fn other_texts_are_not_of_the_minute() {
        let format = Format::compile("dd/MMM/yyyy:HH:mm:ss Z", None).unwrap();
        let around = Surroundings {
            zone: None,
            received: 0,
        };
        let text = b"17/May/2015:10:05:03 +0000";
        let minute = Minute::remember(text, format.read(text, &around).unwrap()).unwrap();
        assert_eq!(
            minute.read(b"17/May/2015:10:05:59 +0000"),
            Some(1_431_857_159 * NANOS_PER_SECOND)
        );
        for other in [
            "17/May/2015:10:06:03 +0000",
            "18/May/2015:10:05:03 +0000",
            "17/May/2015:10:05:03 +0001",
            "17/May/2015:10:05:60 +0000",
            "17/May/2015:10:05:3  +0000",
            "17/May/2015:10:05:03 +000",
        ] {
            assert_eq!(minute.read(other.as_bytes()), None, "{other}");
        }
    }
}
