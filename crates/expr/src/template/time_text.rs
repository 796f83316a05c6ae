//! How a time is written: in the letters of Joda-Time, or in those of strftime where the format has a percent sign.

use std::fmt::Write as _;

use datetime::NANOS_PER_SECOND;
use jiff::Zoned;
use jiff::tz::TimeZone;

use super::TemplateError;
use super::time_format::TimeFormat;
use crate::time;
use crate::time_letters::{FormatUse, MisusedLetter, check_time_letters};

/// How a time is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimeText {
    Joda(TimeFormat),
    Strftime(Box<str>),
}

/// The time lies outside of what can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beyond;

impl TimeText {
    /// Reads a format of a template, which begins at byte `start` of it.
    pub fn parse(format: &str, start: usize) -> Result<Self, TemplateError> {
        let parsed = match format.contains('%') {
            true => Self::strftime(format, start),
            false => TimeFormat::parse(format, start).map(Self::Joda),
        };
        checked(format, start, parsed?)
    }

    /// Reads a format with the letters for fractions of a second and zones.
    pub fn parse_zoned(format: &str) -> Result<Self, TemplateError> {
        let parsed = match format.contains('%') {
            true => Self::strftime(format, 0),
            false => TimeFormat::parse_zoned(format).map(Self::Joda),
        };
        checked(format, 0, parsed?)
    }

    fn strftime(format: &str, start: usize) -> Result<Self, TemplateError> {
        let probe = jiff::Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        match jiff::fmt::strtime::format(format, &probe) {
            Ok(_) => Ok(Self::Strftime(format.into())),
            Err(error) => Err(TemplateError {
                message: format!("broken strftime format: {error}"),
                at: start..start + format.len(),
            }),
        }
    }

    /// The span around a time, in nanoseconds, within which the text stays the same: its number and its length.
    pub fn span(&self, nanos: i64, zone: &TimeZone) -> (i64, i64) {
        const FIRST_OF_1972: i64 = 63_072_000;
        let seconds = match self {
            Self::Joda(format) if *zone == TimeZone::UTC => format.step(),
            // Since 1972 clocks have differed by whole minutes.
            Self::Joda(format) if nanos > FIRST_OF_1972 * NANOS_PER_SECOND => format.step().min(60),
            Self::Joda(_) => 1,
            Self::Strftime(format) if has_fraction(format) => return (nanos, 1),
            Self::Strftime(_) => 1,
        };
        let length = seconds * NANOS_PER_SECOND;
        (nanos.div_euclid(length), length)
    }

    /// Appends a time in nanoseconds since 1970.
    pub fn write(&self, nanos: i64, zone: &TimeZone, out: &mut Vec<u8>) -> Result<(), Beyond> {
        let time = time::zoned(nanos, zone).ok_or(Beyond)?;
        match self {
            Self::Joda(format) => format.write_zoned(&time, out),
            Self::Strftime(format) => write_strftime(format, &time, out)?,
        }
        Ok(())
    }
}

/// Refuses letters that cannot be meant so.
fn checked(format: &str, start: usize, parsed: TimeText) -> Result<TimeText, TemplateError> {
    match check_time_letters(format, FormatUse::Write) {
        Ok(()) => Ok(parsed),
        Err(MisusedLetter { at, message }) => Err(TemplateError {
            message,
            at: start + at.start..start + at.end,
        }),
    }
}

/// Appends without memory of its own.
fn write_strftime(format: &str, time: &Zoned, out: &mut Vec<u8>) -> Result<(), Beyond> {
    struct Bytes<'o>(&'o mut Vec<u8>);
    impl std::fmt::Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    write!(Bytes(out), "{}", time.strftime(format)).map_err(|_| Beyond)
}

/// Whether some letter of a strftime format writes parts of a second.
fn has_fraction(format: &str) -> bool {
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let letter =
            rest[at + 1..].trim_start_matches(|c: char| !c.is_ascii_alphabetic() && c != '%');
        if letter.starts_with(['f', 'N']) {
            return true;
        }
        rest = letter.get(1..).unwrap_or_default();
    }
    false
}
