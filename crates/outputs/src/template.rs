//! Texts with fields and times in them: `%{host.name}/access-%{+yyyy-MM-dd}.log`.
//!
//! | spelling | gives |
//! | --- | --- |
//! | `%{field}` | the field's text, in any spelling of a field name, `@metadata` included; `-` where it is absent or null |
//! | `%{+FORMAT}` | the event's time in UTC, see [`TimeFormat`] |
//! | `%%` | a percent sign; one before anything but `{` and `%` stands for itself |
//!
//! A template is parsed once, bound to the columns of each batch, and rendered row by row without allocating. The
//! event's time is its `@timestamp`; where that is absent or no RFC 3339 time, the time it was received.

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Column, FieldPath, Value};
use config::{ConfigError, Node};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// What an absent field gives.
const ABSENT: &[u8] = b"-";

/// A text with fields and times in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Field(FieldPath),
    Time(TimeFormat),
}

/// What is wrong with a template, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong.
    pub message: String,
    /// Where, in bytes.
    pub range: Range<usize>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// A brace that is not closed, something that is no field name, or an unknown letter in a time format.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut pos = 0;
        while let Some(at) = text[pos..].find('%').map(|at| pos + at) {
            literal.push_str(&text[pos..at]);
            let rest = &text[at + 1..];
            if let Some(inner) = rest.strip_prefix('{') {
                let close = closing_brace(inner).ok_or_else(|| TemplateError {
                    message:
                        "`%{` is not closed by `}` (a percent sign before a brace is written `%%`)"
                            .to_owned(),
                    range: at..text.len(),
                })?;
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::parse(&inner[..close], at + 2)?);
                pos = at + 2 + close + 1;
            } else {
                literal.push('%');
                pos = at + if rest.starts_with('%') { 2 } else { 1 };
            }
        }
        literal.push_str(&text[pos..]);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self { pieces })
    }

    /// The template in the setting `name` of `node`; `%{message}` where it is not set.
    ///
    /// # Errors
    /// As for [`Template::parse`], with the place in the configuration.
    pub fn setting(node: &Node, name: &str, text: Option<&str>) -> Result<Self, ConfigError> {
        Self::parse(text.unwrap_or("%{message}")).map_err(|error| {
            node.nearest(name)
                .error(error.message)
                .pointing_at_range(error.range)
        })
    }

    /// The text of a template without fields and times.
    pub fn constant(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The text before the first field or time.
    pub fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Literal(text)) => text,
            _ => "",
        }
    }

    /// The template over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &Batch) -> Bound<'a> {
        let pieces = self
            .pieces
            .iter()
            .map(|piece| BoundPiece::new(piece, batch))
            .collect();
        Bound {
            pieces,
            received: batch.received(),
        }
    }
}

/// Where the brace that ends a placeholder stands; quotes may hold braces, as in `%{a['}']}` and `%{+yyyy'}'}`.
fn closing_brace(inner: &str) -> Option<usize> {
    let mut quoted = false;
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    inner.find('}')
}

impl Piece {
    /// What stands between the braces, which begins at `start` in the template.
    fn parse(inner: &str, start: usize) -> Result<Self, TemplateError> {
        if let Some(format) = inner.strip_prefix('+') {
            return Ok(Self::Time(TimeFormat::parse(format, start + 1)?));
        }
        match FieldPath::parse(inner) {
            Ok(path) => Ok(Self::Field(path)),
            Err(error) => {
                let message = format!("`{inner}` is not a field name: {error}");
                Err(TemplateError {
                    message,
                    range: start..start + inner.len(),
                })
            }
        }
    }
}

/// A template over the columns of one batch.
#[derive(Debug)]
pub struct Bound<'a> {
    pieces: Vec<BoundPiece<'a>>,
    received: i64,
}

#[derive(Debug)]
enum BoundPiece<'a> {
    Literal(&'a [u8]),
    Field(Arc<Column>),
    /// Events of a batch lie close together in time, so that the last text is mostly the next one too.
    Time {
        format: &'a TimeFormat,
        column: Arc<Column>,
        last: Option<i64>,
        text: Vec<u8>,
    },
}

impl<'a> BoundPiece<'a> {
    fn new(piece: &'a Piece, batch: &Batch) -> Self {
        match piece {
            Piece::Literal(text) => Self::Literal(text.as_bytes()),
            Piece::Field(path) => Self::Field(batch.column(path)),
            Piece::Time(format) => {
                let column = batch.column(&FieldPath::from_keys(["@timestamp"]));
                Self::Time {
                    format,
                    column,
                    last: None,
                    text: Vec::new(),
                }
            }
        }
    }
}

impl Bound<'_> {
    /// Appends the text of a row.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        self.write_with(row, out, |_, _| {});
    }

    /// Appends the text of a row; `clean` is shown where the text of each field begins and may change it.
    pub fn write_with(
        &mut self,
        row: usize,
        out: &mut Vec<u8>,
        clean: impl Fn(&mut Vec<u8>, usize),
    ) {
        for piece in &mut self.pieces {
            match piece {
                BoundPiece::Literal(text) => out.extend_from_slice(text),
                BoundPiece::Field(column) => {
                    let start = out.len();
                    match column.value(row) {
                        Value::Missing | Value::Null => out.extend_from_slice(ABSENT),
                        value => {
                            value.write_text(out);
                            clean(out, start);
                        }
                    }
                }
                BoundPiece::Time {
                    format,
                    column,
                    last,
                    text,
                } => {
                    let seconds =
                        time_of(column.value(row), self.received).div_euclid(1_000_000_000);
                    let step = seconds.div_euclid(format.step);
                    if *last != Some(step) {
                        *last = Some(step);
                        text.clear();
                        format.write(seconds, text);
                    }
                    out.extend_from_slice(text);
                }
            }
        }
    }
}

/// Nanoseconds since 1970 of a value that is or reads as a time, or else `otherwise`.
fn time_of(value: Value<'_>, otherwise: i64) -> i64 {
    match value {
        Value::Time(nanos) => nanos,
        Value::Text(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
            .and_then(|time| i64::try_from(time.as_nanosecond()).ok())
            .unwrap_or(otherwise),
        _ => otherwise,
    }
}

/// How a time is written, in the letters that Logstash's users know from Joda-Time: `y` year, `M` month (`MMM` its short
/// name, `MMMM` its name), `d` day, `D` day of the year, `H` hour, `m` minute, `s` second, `x` and `w` year and number of the
/// ISO week. A letter given several times is padded with zeros to that width (`yy` is the year's last two digits). Text in single quotes stands for
/// itself, as does everything that is no letter; `''` is a quote. Times are in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeFormat {
    tokens: Vec<Token>,
    /// Seconds within which the text stays the same.
    step: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(String),
    Letter { letter: char, width: usize },
}

impl TimeFormat {
    /// Reads a format that begins at byte `start` of a template.
    fn parse(format: &str, start: usize) -> Result<Self, TemplateError> {
        let error = |message: String, range: Range<usize>| {
            Err(TemplateError {
                message,
                range: start + range.start..start + range.end,
            })
        };
        let mut tokens = Vec::new();
        let mut step = 86_400;
        let mut pos = 0;
        while let Some(letter) = format[pos..].chars().next() {
            let rest = &format[pos..];
            let len = match letter {
                '\'' => {
                    let Some(close) = rest[1..].find('\'') else {
                        return error("a quote is not closed".to_owned(), pos..format.len());
                    };
                    let text = if close == 0 { "'" } else { &rest[1..=close] };
                    tokens.push(Token::Literal(text.to_owned()));
                    close + 2
                }
                'y' | 'M' | 'd' | 'D' | 'H' | 'm' | 's' | 'x' | 'w' => {
                    let width = rest.chars().take_while(|&next| next == letter).count();
                    step = step.min(match letter {
                        's' => 1,
                        'm' => 60,
                        'H' => 3600,
                        _ => 86_400,
                    });
                    tokens.push(Token::Letter { letter, width });
                    width
                }
                _ if letter.is_ascii_alphabetic() => {
                    let message = format!(
                        "`{letter}` is not a letter of time formats here: they are y M d D H m s x w; text stands in single quotes"
                    );
                    return error(message, pos..pos + 1);
                }
                _ => {
                    tokens.push(Token::Literal(letter.into()));
                    letter.len_utf8()
                }
            };
            pos += len;
        }
        if tokens.is_empty() {
            return error(
                "a time format stands after the plus sign, such as `yyyy-MM-dd`".to_owned(),
                0..0,
            );
        }
        Ok(Self { tokens, step })
    }

    /// Appends a time in seconds since 1970.
    fn write(&self, seconds: i64, out: &mut Vec<u8>) {
        // Seconds made of 64-bit nanoseconds lie well within jiff's years.
        let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
        let time = TimeZone::UTC.to_datetime(time);
        for token in &self.tokens {
            match token {
                Token::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Token::Letter { letter, width } => write_letter(*letter, *width, time, out),
            }
        }
    }
}

fn write_letter(letter: char, width: usize, time: DateTime, out: &mut Vec<u8>) {
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
    let number = match letter {
        'M' if width >= 3 => {
            let name = MONTHS[usize::from(time.month().unsigned_abs()) - 1];
            let name = if width == 3 { &name[..3] } else { name };
            return out.extend_from_slice(name.as_bytes());
        }
        'y' if width == 2 => i32::from(time.year()).rem_euclid(100),
        'y' => i32::from(time.year()),
        'x' => i32::from(time.date().iso_week_date().year()),
        'M' => i32::from(time.month()),
        'w' => i32::from(time.date().iso_week_date().week()),
        'd' => i32::from(time.day()),
        'D' => i32::from(time.day_of_year()),
        'H' => i32::from(time.hour()),
        'm' => i32::from(time.minute()),
        _ => i32::from(time.second()),
    };
    out.extend_from_slice(format!("{number:0width$}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn render(template: &str, batch: &Batch) -> Vec<String> {
        let template = Template::parse(template).expect("a template");
        let mut bound = template.bind(batch);
        let text = |row| {
            let mut out = Vec::new();
            bound.write(row, &mut out);
            String::from_utf8(out).expect("text")
        };
        (0..batch.len()).map(text).collect()
    }

    #[test]
    fn fields_and_times_are_filled_in() {
        let batch = testing::documents(&[
            r#"{"@timestamp":"2024-02-29T23:05:09.5Z","a":{"b":7},"x.y":"dot","n":null,"list":[1,"z"]}"#,
            r#"{"a":{"b":"text"}}"#,
        ]);
        for (template, first, second) in [
            ("plain", "plain", "plain"),
            ("", "", ""),
            ("100% %%{a} %", "100% %{a} %", "100% %{a} %"),
            ("<%{a.b}>", "<7>", "<text>"),
            ("%{[a][b]}%{n}", "7-", "text-"),
            ("%{list} %{[x.y]}", "[1,\"z\"] dot", "- -"),
            ("%{+yyyy-MM-dd}", "2024-02-29", "1970-01-01"),
            ("%{+yy.M.d H:m:s}", "24.2.29 23:5:9", "70.1.1 0:0:0"),
            (
                "%{+HHmmss}.%{+xxxx'W'ww}",
                "230509.2024W09",
                "000000.1970W01",
            ),
            (
                "%{+DDD MMM MMMM ''}",
                "060 Feb February '",
                "001 Jan January '",
            ),
            ("%{+yyyy'}'}", "2024}", "1970}"),
            ("%{@metadata.host.name}", "test-host", "test-host"),
        ] {
            assert_eq!(render(template, &batch), [first, second], "{template}");
        }
    }

    #[test]
    fn the_time_follows_the_event() {
        let batch = testing::documents(&[
            r#"{"@timestamp":"2024-01-01T00:00:59Z"}"#,
            r#"{"@timestamp":"2024-01-01T00:01:00Z"}"#,
            r#"{"@timestamp":"nonsense"}"#,
            r#"{"@timestamp":"1969-12-31T23:59:59.9Z"}"#,
            r#"{"@timestamp":"2024-01-01T01:00:59+01:00"}"#,
        ]);
        assert_eq!(
            render("%{+HH:mm}", &batch),
            ["00:00", "00:01", "00:00", "23:59", "00:00"]
        );
        assert_eq!(
            render("%{+yyyy}", &batch),
            ["2024", "2024", "1970", "1969", "2024"]
        );
    }

    #[test]
    fn errors_point_into_the_text() {
        for (template, range, message) in [
            ("a %{b", 2..5, "not closed"),
            ("a %{}", 4..4, "not a field name"),
            ("a %{b..c}", 4..8, "not a field name"),
            ("%{+}", 3..3, "time format"),
            ("%{+yyyy-QQ}", 8..9, "`Q`"),
            ("%{+yyyy'T}", 7..9, "quote"),
        ] {
            let error = Template::parse(template).expect_err(template);
            assert_eq!(error.range, range, "{template}");
            assert!(error.message.contains(message), "{template}: {error}");
        }
    }

    #[test]
    fn constants_are_known() {
        assert_eq!(
            Template::parse("a%%b").expect("fine").constant(),
            Some("a%b")
        );
        assert_eq!(Template::parse("").expect("fine").constant(), Some(""));
        let template = Template::parse("/logs/%{a}").expect("fine");
        assert_eq!((template.constant(), template.prefix()), (None, "/logs/"));
    }
}
