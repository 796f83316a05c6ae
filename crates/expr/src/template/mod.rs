//! Texts with fields and times in them: `%{host.name}/access-%{+yyyy-MM-dd}.log`.
//!
//! | spelling | gives |
//! | --- | --- |
//! | `%{field}` | the field's text, in any spelling of a field name, `@metadata` included |
//! | `%{+FORMAT}` | the event's time, in UTC unless another zone is set, see `time_format`; with a `%` in it, strftime's |
//! | `%%` | a percent sign; one before anything but `{` and `%` stands for itself |
//!
//! What stands for a field that is absent or null is the caller's choice: [`Absent`].
//!
//! A template is parsed once, bound to the columns of each batch, and rendered row by row without allocating. The
//! event's time is its `@timestamp`; where that is absent or no RFC 3339 time, the time it was received.

pub(crate) mod time_format;
pub(crate) mod time_text;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Column, FieldPath, FieldRead, Value};
use datetime::Zone;
use jiff::tz::TimeZone;

use crate::event_times::EventTimes;
use crate::time;
use time_text::TimeText;

/// The spellings of a template in one sentence of Markdown, for the descriptions of components that take one.
#[macro_export]
macro_rules! template_syntax {
    () => {
        "`%{field}` is a field's text, `%{+yyyy-MM-dd}` or `%{+%Y-%m-%d}` the event's time in UTC, or in the zone of the setting \
         `timezone` where there is one, `%%` a percent sign. A time format with a `%` in it is one of strftime, any other one has \
         the letters of Joda-Time (y M d D H m s x w, other text in single quotes)."
    };
}

/// A text with fields and times in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    Field {
        path: FieldPath,
        /// The reference as it stands in the template.
        reference: Box<str>,
    },
    Time(TimeText, TimeZone),
}

/// What is wrong with a template, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong.
    pub message: String,
    /// Where, in bytes of the text.
    pub at: Range<usize>,
}

impl TemplateError {
    /// The error as one of the setting that holds the text, with its place in the file.
    pub fn in_setting(self, setting: &config::Node) -> config::ConfigError {
        setting.error(self.message).pointing_at_range(self.at)
    }
}

/// The zone in the setting `timezone` of a component; UTC where it is not set.
///
/// # Errors
/// It is no time zone, with its place.
pub fn zone_setting(node: &config::Node) -> Result<Zone, config::ConfigError> {
    let Some(setting) = node.get("timezone").filter(|setting| !setting.is_null()) else {
        return Ok(Zone::UTC);
    };
    let text = setting.as_str().unwrap_or_default();
    time::zone_named(text).ok_or_else(|| config::no_zone(setting, text, &[]))
}

/// What a reference to a field that is absent or null gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// This text.
    Text(&'static str),
    /// The reference as it is written in the template.
    AsWritten,
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
                let close = closing_brace(inner).ok_or_else(|| not_closed(at..text.len()))?;
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
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
            pieces.push(Piece::Literal(literal.into()));
        }
        Ok(Self { pieces })
    }

    /// With times in this zone instead of UTC.
    #[must_use]
    pub fn in_zone(mut self, zone: Zone) -> Self {
        let zone = TimeZone::from(zone);
        for piece in &mut self.pieces {
            if let Piece::Time(_, known) = piece {
                known.clone_from(&zone);
            }
        }
        self
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

    /// The text with this one in the place of every field and time, such as `*` for a pattern that fits all texts.
    pub fn with_each(&self, place: &str) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Literal(text) => text,
            Piece::Field { .. } | Piece::Time(..) => place,
        });
        pieces.collect()
    }

    /// The fields that it names, to find out whether any event has them.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Field { path, .. } => Some(Arc::new(FieldRead::always(path.clone()))),
            Piece::Literal(_) | Piece::Time(..) => None,
        })
    }

    /// The template over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &Batch, absent: Absent) -> BoundTemplate<'a> {
        let pieces = self.pieces.iter();
        BoundTemplate {
            pieces: pieces.map(|piece| piece.bind(batch, absent)).collect(),
            received: batch.received(),
        }
    }
}

fn not_closed(at: Range<usize>) -> TemplateError {
    let message = "`%{` is not closed by `}` (a percent sign before a brace is written `%%`)";
    TemplateError {
        message: message.to_owned(),
        at,
    }
}

/// Where the brace that ends a placeholder stands. Quotes may hold braces: anywhere in a time format, as in
/// `%{+yyyy'}'}`, and right behind a bracket in a field name, as in `%{a['}']}`.
fn closing_brace(inner: &str) -> Option<usize> {
    let is_format = inner.starts_with('+');
    let mut quote = None;
    let mut before = 0;
    for (at, byte) in inner.bytes().enumerate() {
        let opens = match byte {
            b'\'' => is_format || before == b'[',
            b'"' => !is_format && before == b'[',
            _ => false,
        };
        match quote {
            Some(open) if byte == open => quote = None,
            None if byte == b'}' => return Some(at),
            None if opens => quote = Some(byte),
            _ => {}
        }
        before = byte;
    }
    // A quote that never ends: what is wrong with it is said best by whoever reads what stands between the braces.
    inner.find('}')
}

impl Piece {
    /// What stands between the braces, which begins at `start` in the template.
    fn parse(inner: &str, start: usize) -> Result<Self, TemplateError> {
        if let Some(format) = inner.strip_prefix('+') {
            return Ok(Self::Time(
                TimeText::parse(format, start + 1)?,
                TimeZone::UTC,
            ));
        }
        let path = FieldPath::parse(inner).map_err(|error| TemplateError {
            message: format!("`{inner}` is not a field name: {error}"),
            at: start..start + inner.len(),
        })?;
        let reference = format!("%{{{inner}}}").into();
        Ok(Self::Field { path, reference })
    }

    fn bind(&self, batch: &Batch, absent: Absent) -> BoundPiece<'_> {
        match self {
            Self::Literal(text) => BoundPiece::Literal(text.as_bytes()),
            Self::Field { path, reference } => BoundPiece::Field {
                column: batch.column(path),
                absent: match absent {
                    Absent::Text(text) => text,
                    Absent::AsWritten => reference,
                },
            },
            Self::Time(format, zone) => BoundPiece::Time(BoundTime {
                format,
                zone,
                times: EventTimes::of(batch),
                last: None,
                text: Vec::new(),
            }),
        }
    }
}

/// A template over the columns of one batch.
#[derive(Debug)]
pub struct BoundTemplate<'a> {
    pieces: Vec<BoundPiece<'a>>,
    received: i64,
}

#[derive(Debug)]
enum BoundPiece<'a> {
    Literal(&'a [u8]),
    Field {
        column: Arc<Column>,
        absent: &'a str,
    },
    Time(BoundTime<'a>),
}

impl BoundTemplate<'_> {
    /// With another time for events that have none of their own than the one at which they were received.
    pub fn undated(self, nanos: i64) -> Self {
        Self {
            received: nanos,
            ..self
        }
    }

    /// Whether every row of the batch is known to have the same text: no time is named, and only fields that stand once for all of
    /// them.
    pub fn is_constant(&self) -> bool {
        self.pieces.iter().all(|piece| match piece {
            BoundPiece::Literal(_) => true,
            BoundPiece::Field { column, .. } => column.as_constant().is_some(),
            BoundPiece::Time(_) => false,
        })
    }

    /// Whether every field is there in this row.
    pub fn is_given(&self, row: usize) -> bool {
        self.pieces.iter().all(|piece| match piece {
            BoundPiece::Field { column, .. } => {
                !matches!(column.value(row), Value::Missing | Value::Null)
            }
            BoundPiece::Literal(_) | BoundPiece::Time(_) => true,
        })
    }

    /// Appends the text of a row.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        self.write_with(row, out, |_, _| {});
    }

    /// Appends the text of a row; `clean` is shown where the text of each field that is there begins and may change it.
    pub fn write_with(
        &mut self,
        row: usize,
        out: &mut Vec<u8>,
        clean: impl Fn(&mut Vec<u8>, usize),
    ) {
        for piece in &mut self.pieces {
            match piece {
                BoundPiece::Literal(text) => out.extend_from_slice(text),
                BoundPiece::Field { column, absent } => match column.value(row) {
                    Value::Missing | Value::Null => out.extend_from_slice(absent.as_bytes()),
                    value => {
                        let start = out.len();
                        value.write_text(out);
                        clean(out, start);
                    }
                },
                BoundPiece::Time(time) => time.write(row, self.received, out),
            }
        }
    }
}

/// A time format over one batch, whose events lie close together in time: the last text is mostly the next one too.
#[derive(Debug)]
struct BoundTime<'a> {
    format: &'a TimeText,
    zone: &'a TimeZone,
    times: EventTimes,
    /// The span of time that `text` holds for.
    last: Option<(i64, i64)>,
    text: Vec<u8>,
}

impl BoundTime<'_> {
    fn write(&mut self, row: usize, received: i64, out: &mut Vec<u8>) {
        let nanos = self.times.own_nanos(row).unwrap_or(received);
        let span = self.format.span(nanos, self.zone);
        if self.last != Some(span) {
            self.last = Some(span);
            self.text.clear();
            // Every time of 64-bit nanoseconds has a year that can be written.
            let written = self.format.write(nanos, self.zone, &mut self.text);
            debug_assert!(written.is_ok(), "a format that was tried");
        }
        out.extend_from_slice(&self.text);
    }
}
