//! Time formats: the letters of Joda-Time, or those of strftime ([`strftime`]), compiled once into a list of steps over bytes.
//!
//! A number takes as many digits as there are, up to its limit, as in Logstash: `dd` reads `7` and `07`.
//! A year that another number follows takes exactly as many digits as it has letters. Names of months and weekdays are
//! English or of one other language, long or short, in any case. Letters in literals are compared without case.

use std::sync::Arc;

use super::fields::{Fault, Fields, Moment, Surroundings};
use super::item::{FormatError, FormatItem, LETTERS, NumberField, add_text, step};
use super::literal::Literal;
use super::names::Names;
use super::read::{TextReader, name_of, set_name};
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

    /// Reads the whole of a text.
    pub fn read(&self, text: &[u8], around: &Surroundings<'_>) -> Result<Moment, Fault> {
        match self {
            Self::Literal(literal) => literal.read(text, around),
            Self::Steps(steps) => steps.fields(text).ok_or(Fault::Mismatch)?.moment(around),
        }
    }

    /// Whether the result depends on the current date.
    pub fn needs_now(&self) -> bool {
        matches!(
            self,
            Self::Steps(Steps {
                needs_now: true,
                ..
            })
        )
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
                    part: NumberField::Second,
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

    fn fields(&self, text: &[u8]) -> Option<Fields> {
        let mut reader = TextReader { text, at: 0 };
        let mut fields = Fields::default();
        for (index, step) in self.list.iter().enumerate() {
            match (&self.names, name_of(step)) {
                (Some(names), Some(of)) => {
                    let number = reader.local_name(names, of, self.list.get(index + 1))?;
                    set_name(&mut fields, of, number);
                }
                _ => reader.step(step, &mut fields)?,
            }
        }
        if !self.has_one_second {
            fields.place = None;
        }
        (reader.at == text.len()).then_some(fields)
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
                number(NumberField::Day, 2, 1, 31),
                text("/"),
                FormatItem::Month,
                text("/"),
                FormatItem::Year {
                    week_based: false,
                    least: 1,
                    most: 9
                },
                text(" at "),
                number(NumberField::Hour, 2, 0, 23),
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
