//! How a time is written, in the letters that Logstash's users know from Joda-Time.
//!
//! `y` year, `M` month (`MMM` its short name, `MMMM` its name), `d` day, `D` day of the year, `H` hour, `m` minute, `s`
//! second, `x` and `w` year and number of the ISO week. A letter given several times is padded with zeros to that width;
//! `yy` is the year's last two digits. Text in single quotes stands for itself, as does everything that is no letter;
//! `''` is a quote.

use std::io::Write;

use jiff::Zoned;

use super::TemplateError;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// The letters of templates, and those of `formatTime`.
const LETTERS: &str = "yMdDHmsxw";
const MORE_LETTERS: &str = "yMdDHmsxwShaEZz";

/// How a time is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeFormat {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(String),
    Letter { letter: char, width: usize },
}

impl TimeFormat {
    /// Reads a format that begins at byte `start` of a template.
    pub fn parse(format: &str, start: usize) -> Result<Self, TemplateError> {
        Self::parse_letters(format, start, LETTERS)
    }

    /// Reads a format with the letters for fractions of a second and zones.
    pub fn parse_zoned(format: &str) -> Result<Self, TemplateError> {
        Self::parse_letters(format, 0, MORE_LETTERS)
    }

    fn parse_letters(format: &str, start: usize, letters: &str) -> Result<Self, TemplateError> {
        let mut tokens = Vec::new();
        let mut pos = 0;
        while let Some(first) = format[pos..].chars().next() {
            let (token, len) =
                token(first, &format[pos..], letters).map_err(|(message, len)| {
                    let at = start + pos;
                    TemplateError {
                        message,
                        at: at..at + len,
                    }
                })?;
            tokens.push(token);
            pos += len;
        }
        if tokens.is_empty() {
            return Err(TemplateError {
                message: "a time format stands after the plus sign, such as `yyyy-MM-dd`"
                    .to_owned(),
                at: start..start,
            });
        }
        Ok(Self { tokens })
    }

    /// Seconds within which the text stays the same, counted from 1970.
    pub fn step(&self) -> i64 {
        let step = |token: &Token| match token {
            Token::Letter { letter: 's', .. } => 1,
            Token::Letter { letter: 'm', .. } => 60,
            Token::Letter { letter: 'H', .. } => 3_600,
            _ => 86_400,
        };
        self.tokens.iter().map(step).min().unwrap_or(86_400)
    }

    /// Appends a time in a zone.
    pub fn write_zoned(&self, time: &Zoned, out: &mut Vec<u8>) {
        for token in &self.tokens {
            match token {
                Token::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Token::Letter { letter, width } => write_letter(*letter, *width, time, out),
            }
        }
    }
}

/// The token at the start of `rest`, which begins with `first`, and its length; or what is wrong with how many bytes.
fn token(first: char, rest: &str, letters: &str) -> Result<(Token, usize), (String, usize)> {
    match first {
        '\'' => {
            let close = rest[1..].find('\'');
            let close = close.ok_or_else(|| ("a quote is not closed".to_owned(), rest.len()))?;
            let text = if close == 0 { "'" } else { &rest[1..=close] };
            Ok((Token::Literal(text.to_owned()), close + 2))
        }
        letter if letters.contains(letter) => {
            let width = rest.chars().take_while(|&next| next == first).count();
            Ok((Token::Letter { letter, width }, width))
        }
        'Y' => {
            let width = rest.chars().take_while(|&next| next == first).count();
            let (given, meant) = ("Y".repeat(width), "y".repeat(width));
            Err((
                format!("`{given}` is not the year here; did you mean `{meant}`?"),
                width,
            ))
        }
        letter if letter.is_ascii_alphabetic() => {
            let known: Vec<String> = letters.chars().map(String::from).collect();
            let message = format!(
                "`{letter}` is not a letter of time formats here: they are {}; text stands in single quotes",
                known.join(" ")
            );
            Err((message, 1))
        }
        other => Ok((Token::Literal(other.into()), other.len_utf8())),
    }
}

fn write_letter(letter: char, width: usize, time: &Zoned, out: &mut Vec<u8>) {
    let name_of = |name: &'static str| if width >= 4 { name } else { &name[..3] };
    let number = match letter {
        'M' if width >= 3 => {
            let name = MONTHS[usize::from(time.month().unsigned_abs()) - 1];
            return out.extend_from_slice(name_of(name).as_bytes());
        }
        'E' => {
            let day = time.weekday().to_sunday_zero_offset();
            let name = WEEKDAYS[usize::from(day.unsigned_abs())];
            return out.extend_from_slice(name_of(name).as_bytes());
        }
        'a' => return out.extend_from_slice(if time.hour() < 12 { b"AM" } else { b"PM" }),
        'S' => return write_fraction(time.subsec_nanosecond(), width, out),
        'Z' | 'z' => return write_zone(letter, width, time, out),
        'y' if width == 2 => i32::from(time.year()).rem_euclid(100),
        'y' => i32::from(time.year()),
        'x' => i32::from(time.date().iso_week_date().year()),
        'M' => i32::from(time.month()),
        'w' => i32::from(time.date().iso_week_date().week()),
        'd' => i32::from(time.day()),
        'D' => i32::from(time.day_of_year()),
        'H' => i32::from(time.hour()),
        'h' => (i32::from(time.hour()) + 11) % 12 + 1,
        'm' => i32::from(time.minute()),
        _ => i32::from(time.second()),
    };
    write!(out, "{number:0width$}").expect("writing to memory does not fail");
}

/// So many digits of a second's fraction, cut; beyond nanoseconds zeros.
fn write_fraction(nanos: i32, width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    write!(out, "{nanos:09}").expect("writing to memory does not fail");
    out.resize(start + width, b'0');
}

fn write_zone(letter: char, width: usize, time: &Zoned, out: &mut Vec<u8>) {
    let offset = match (letter, width) {
        ('z', _) => time.strftime("%Z").to_string(),
        (_, 1) => time.strftime("%z").to_string(),
        (_, 2) => time.strftime("%:z").to_string(),
        _ => match time.time_zone().iana_name() {
            Some(name) => name.to_owned(),
            None => time.strftime("%:z").to_string(),
        },
    };
    out.extend_from_slice(offset.as_bytes());
}
