//! Time formats: the letters of Joda-Time, or those of strftime ([`strftime`]), compiled once into a list of steps over bytes.
//!
//! A number takes as many digits as there are, up to its limit, as in Logstash: `dd` reads `7` and `07`.
//! A year that another number follows takes exactly as many digits as it has letters. Names of months and weekdays are
//! English or of one other language, long or short, in any case. Letters in literals are compared without case.

use std::sync::Arc;

use super::literal::Literal;
use super::names::Names;
use super::strftime;

/// A compiled format.
#[derive(Clone, Debug)]
pub(super) enum Format {
    /// Letters and literals.
    Steps(Steps),
    /// One of the names that stand for a whole format.
    Literal(Literal),
}

/// The steps of a format of letters.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// What to read, in order.
    pub list: Vec<FormatItem>,
    /// The language of names; English without.
    pub names: Option<Arc<Names>>,
    /// Whether the format has one place for seconds, and at most one for their fraction.
    pub has_one_second: bool,
    /// Whether the result depends on the current date: no year, or one of two digits.
    pub needs_now: bool,
}

/// One thing to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FormatItem {
    /// These bytes.
    Text(Box<[u8]>),
    /// Any number of blanks.
    Pad,
    /// A number of 1 to `digits` digits within bounds.
    Number {
        part: Part,
        digits: u8,
        least: u16,
        most: u16,
    },
    /// A year of `least` to `most` digits.
    Year {
        week_based: bool,
        least: u8,
        most: u8,
    },
    /// The last two digits of a year.
    ShortYear { week_based: bool },
    /// The digits after the decimal point, at most so many.
    Fraction { digits: u8 },
    /// The name of a month.
    Month,
    /// The name of a weekday.
    Weekday,
    /// AM or PM.
    HalfDay,
    /// AD or BC.
    Era,
    /// `Z` or an offset from Greenwich.
    Offset,
    /// The IANA name of a zone, or an offset.
    Zone,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Month,
    Day,
    DayOfYear,
    Week,
    Weekday,
    Hour,
    /// 1 to 24.
    HourFromOne,
    /// 0 to 11.
    HalfDayHour,
    /// 1 to 12.
    HalfDayHourFromOne,
    Minute,
    Second,
}

/// Why a text is no format, with the byte to look at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormatError {
    pub offset: usize,
    pub message: String,
}

/// The letters that a format may hold.
const LETTERS: &str = "y M d D w x e E a H h K k m s S Z G";

impl Format {
    /// Compiles a format. Its names are English, or those of another language.
    pub fn compile(text: &str, names: Option<&Arc<Names>>) -> Result<Self, FormatError> {
        if text == "%s" {
            return Self::compile("UNIX", names);
        }
        let format = match text.contains('%') {
            true => Steps::new(strftime::compile(text)?, names).map(Self::Steps)?,
            false => Self::joda(text, names).map_err(|error| meant_literal(text, error))?,
        };
        let checked = expr::check_time_letters(text, expr::FormatUse::Read);
        if let (Self::Steps(_), Err(misused)) = (&format, checked) {
            return Err(FormatError {
                offset: misused.at.start,
                message: misused.message,
            });
        }
        Ok(format)
    }

    /// Compiles a format in the letters of Joda-Time.
    pub fn joda(text: &str, names: Option<&Arc<Names>>) -> Result<Self, FormatError> {
        match Literal::named(text) {
            Some(literal) => Ok(Self::Literal(literal)),
            None => Steps::compile(text, names).map(Self::Steps),
        }
    }
}

/// Names the literal that a text likely is meant as, such as `iso8601`.
fn meant_literal(text: &str, error: FormatError) -> FormatError {
    match config::closest(text, Literal::NAMES) {
        Some(name) => FormatError {
            offset: 0,
            message: format!("`{text}` is not a format; did you mean `{name}`?"),
        },
        None => error,
    }
}

impl Steps {
    fn compile(text: &str, names: Option<&Arc<Names>>) -> Result<Self, FormatError> {
        let mut list: Vec<FormatItem> = Vec::new();
        let mut at = 0;
        while let Some(&byte) = text.as_bytes().get(at) {
            let run = text.as_bytes()[at..]
                .iter()
                .take_while(|other| **other == byte)
                .count();
            if byte.is_ascii_alphabetic() {
                list.push(step(byte, run).map_err(|message| FormatError {
                    offset: at,
                    message,
                })?);
                at += run;
            } else if byte == b'\'' {
                at = quoted(text, at, &mut list)?;
            } else {
                add_text(&mut list, &[byte]);
                at += 1;
            }
        }
        Self::new(list, names)
    }

    fn new(mut list: Vec<FormatItem>, names: Option<&Arc<Names>>) -> Result<Self, FormatError> {
        bound_years(&mut list);
        let count =
            |wanted: fn(&FormatItem) -> bool| list.iter().filter(|step| wanted(step)).count();
        if list
            .iter()
            .all(|step| matches!(step, FormatItem::Text(_) | FormatItem::Pad))
        {
            let message = format!("a format needs letters for the parts of a time: {LETTERS}");
            return Err(FormatError { offset: 0, message });
        }
        let seconds = count(|step| {
            matches!(
                step,
                FormatItem::Number {
                    part: Part::Second,
                    ..
                }
            )
        });
        let fractions = count(|step| matches!(step, FormatItem::Fraction { .. }));
        Ok(Self {
            has_one_second: seconds == 1 && fractions <= 1,
            needs_now: count(|step| matches!(step, FormatItem::Year { .. })) == 0,
            list,
            names: names.cloned(),
        })
    }
}

/// The step of a letter that stands `run` times.
pub(super) fn step(letter: u8, run: usize) -> Result<FormatItem, String> {
    let number = |part, digits, least, most| {
        Ok(FormatItem::Number {
            part,
            digits,
            least,
            most,
        })
    };
    match letter {
        b'y' | b'Y' | b'x' if run == 2 => Ok(FormatItem::ShortYear { week_based: letter == b'x' }),
        b'y' | b'Y' | b'x' => Ok(FormatItem::Year { week_based: letter == b'x', least: run.min(9) as u8, most: 9 }),
        b'M' if run > 2 => Ok(FormatItem::Month),
        b'M' => number(Part::Month, 2, 1, 12),
        b'd' => number(Part::Day, 2, 1, 31),
        b'D' => number(Part::DayOfYear, 3, 1, 366),
        b'w' => number(Part::Week, 2, 1, 53),
        b'e' => number(Part::Weekday, 1, 1, 7),
        b'E' => Ok(FormatItem::Weekday),
        b'a' => Ok(FormatItem::HalfDay),
        b'G' => Ok(FormatItem::Era),
        b'H' => number(Part::Hour, 2, 0, 23),
        b'k' => number(Part::HourFromOne, 2, 1, 24),
        b'K' => number(Part::HalfDayHour, 2, 0, 11),
        b'h' => number(Part::HalfDayHourFromOne, 2, 1, 12),
        b'm' => number(Part::Minute, 2, 0, 59),
        // A leap second counts as the next minute's first.
        b's' => number(Part::Second, 2, 0, 60),
        b'S' => Ok(FormatItem::Fraction { digits: run.min(255) as u8 }),
        b'Z' if run > 2 => Ok(FormatItem::Zone),
        b'Z' => Ok(FormatItem::Offset),
        b'z' => Err("names of zones such as `CST` mean several places and cannot be read; use `Z` for offsets, `ZZZ` for \
                     names such as `Europe/Berlin`, or quote the text and set `timezone`"
            .to_owned()),
        _ => {
            let letter = char::from(letter);
            Err(format!("`{letter}` is not a letter of time formats; the letters are {LETTERS}, and other text must be quoted: '{letter}'"))
        }
    }
}

/// Adds the quoted text that begins at `start`, and gives where it ends. Two quotes are one quote.
fn quoted(text: &str, start: usize, list: &mut Vec<FormatItem>) -> Result<usize, FormatError> {
    if text[start + 1..].starts_with('\'') {
        add_text(list, b"'");
        return Ok(start + 2);
    }
    let mut at = start + 1;
    loop {
        let Some(length) = text[at..].find('\'') else {
            return Err(FormatError {
                offset: start,
                message: "the quote is not closed".to_owned(),
            });
        };
        add_text(list, &text.as_bytes()[at..at + length]);
        at += length + 1;
        if !text[at..].starts_with('\'') {
            return Ok(at);
        }
        add_text(list, b"'");
        at += 1;
    }
}

pub(super) fn add_text(list: &mut Vec<FormatItem>, text: &[u8]) {
    match list.last_mut() {
        Some(FormatItem::Text(before)) => *before = [before, text].concat().into(),
        _ => list.push(FormatItem::Text(text.into())),
    }
}

/// A year takes as many digits as there are, unless another number follows.
fn bound_years(list: &mut [FormatItem]) {
    for index in 0..list.len() {
        let number_follows = matches!(
            list.get(index + 1),
            Some(
                FormatItem::Number { .. }
                    | FormatItem::Year { .. }
                    | FormatItem::ShortYear { .. }
                    | FormatItem::Fraction { .. }
            )
        );
        if let FormatItem::Year { least, most, .. } = &mut list[index] {
            if number_follows {
                *most = *least;
            } else {
                *least = 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<FormatItem> {
        match Format::compile(text, None) {
            Ok(Format::Steps(steps)) => steps.list,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn letters_become_steps() {
        let text = |text: &str| FormatItem::Text(text.as_bytes().into());
        let number = |part, digits, least, most| FormatItem::Number {
            part,
            digits,
            least,
            most,
        };
        assert_eq!(
            steps("dd/MMM/yyyy 'at' HH''Z"),
            [
                number(Part::Day, 2, 1, 31),
                text("/"),
                FormatItem::Month,
                text("/"),
                FormatItem::Year {
                    week_based: false,
                    least: 1,
                    most: 9
                },
                text(" at "),
                number(Part::Hour, 2, 0, 23),
                text("'"),
                FormatItem::Offset,
            ]
        );
        assert_eq!(
            steps("yyyyMM")[0],
            FormatItem::Year {
                week_based: false,
                least: 4,
                most: 4
            }
        );
        assert_eq!(steps("'o''clock' H")[0], text("o'clock "));
        assert_eq!(steps("é d")[0], text("é "));
    }

    #[test]
    fn what_is_no_format_is_pointed_at() {
        for (text, offset, part) in [
            ("yyyy-MM-ddTHH", 10, "'T'"),
            ("yyyy z", 5, "ZZZ"),
            ("iso8601", 0, "did you mean `ISO8601`?"),
            ("unix", 0, "did you mean `UNIX`?"),
            ("unix-ms", 0, "did you mean `UNIX_MS`?"),
            ("dd/mm/yyyy HH:mm", 3, "did you mean `MM`?"),
            ("%d/%M/%Y %H:%M", 3, "did you mean `%m`?"),
            ("HH 'o clock", 3, "not closed"),
            ("", 0, "needs letters"),
            ("'now'", 0, "needs letters"),
        ] {
            let error = Format::compile(text, None).expect_err(text);
            assert_eq!(error.offset, offset, "{text}");
            assert!(error.message.contains(part), "{text}: {}", error.message);
        }
    }

    #[test]
    fn formats_know_what_they_depend_on() {
        for (text, has_one_second, needs_now) in [
            ("yyyy-MM-dd HH:mm:ss.SSS", true, false),
            ("MMM d HH:mm:ss", true, true),
            ("yy-MM-dd HH", false, true),
            ("yyyy HH:mm", false, false),
        ] {
            let Ok(Format::Steps(steps)) = Format::compile(text, None) else {
                panic!("{text}")
            };
            assert_eq!(
                (steps.has_one_second, steps.needs_now),
                (has_one_second, needs_now),
                "{text}"
            );
        }
    }
}
