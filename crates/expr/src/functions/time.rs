//! Functions of points in time and durations.

use datetime::{NANOS_PER_SECOND, span};
use jiff::tz::TimeZone;

use super::Takes::{Any, Text, Time};
use super::run::{Refused, Run};
use super::{BEYOND, FunctionDoc, Kind, text_of, time_of};
use crate::fault::What;
use crate::number::Num;
use crate::template::time_text::TimeText;
use crate::time::{self, TimePart};
use crate::value::Val;

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "timestamp",
        &[Any],
        Kind::Call(timestamp),
        [
            "timestamp(value) -> timestamp",
            "A point in time from an RFC 3339 text, or from a whole number of seconds since 1970; 1677-09-21 to 2262-04-11.",
            "timestamp(@timestamp) - timestamp('2024-02-29T12:00:00Z') > duration('30m')",
        ],
    ),
    FunctionDoc::new(
        "epochMillis",
        &[Any],
        Kind::Call(epoch_millis),
        [
            "epochMillis(value) -> int or timestamp",
            "The milliseconds since 1970 of a timestamp; of a whole number of milliseconds the timestamp.",
            "epochMillis(@timestamp) == 1709210096789 && epochMillis(1709210096789) == @timestamp",
        ],
    ),
    FunctionDoc::new(
        "formatTime",
        &[Time, Text, Text],
        Kind::Prepared(format_time),
        [
            "formatTime(time, format[, timezone]) -> string",
            "A timestamp as text, in UTC or a time zone such as `Europe/Berlin` or `+02:00`. A format with a `%` in it is one of strftime (`%Y-%m-%d %H:%M:%S`, `%s`, `%3f`), any other one of Joda-Time (letters y M d D H h m s S a E x w Z z; text in single quotes).",
            "formatTime(@timestamp, 'yyyy-MM-dd HH:mm:ss.SSS') == '2024-02-29 12:34:56.789' && formatTime(@timestamp, '%d/%b/%Y %H:%M', '+02:00') == '29/Feb/2024 14:34'",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "duration",
        &[Any],
        Kind::Call(duration),
        [
            "duration(text) -> duration",
            "A span of time; units are `ns`, `us`, `ms`, `s`, `m`, `h` and `d` (24 hours). A duration divided by a duration is a number: `d / duration('1ms')` are its milliseconds. It may be multiplied with and divided by a number.",
            "duration('1h30m') == duration('90m') && duration('1.5s') / duration('1ms') == 1500 && duration('1m') / 2 == duration('30s')",
        ],
    ),
    FunctionDoc::new(
        "parseDuration",
        &[Any],
        Kind::Call(parse_duration),
        [
            "parseDuration(text) -> duration",
            "A span of time as people and programs write it: `1h 30m`, `250 ms`, `2 days`, `1.5 seconds`, `01:02:03.5` (hours, minutes, seconds), `PT1H30M` (ISO 8601). Years and months have no fixed length and are an error, and so are a number without a unit (`took * duration('1s')` says that they are seconds) and a comma between digits.",
            "parseDuration('1 hour 30 min') == duration('90m') && parseDuration('00:00:01.250') / duration('1ms') == 1250",
        ],
    ),
    part("getFullYear", TimePart::FullYear, [
        "time.getFullYear([timezone]) -> int",
        "The year of a timestamp, in UTC or a time zone such as `Europe/Berlin`, `+02:00` or `02:00`.",
        "@timestamp.getFullYear() == 2024",
    ]),
    part("getMonth", TimePart::Month, [
        "time.getMonth([timezone]) -> int",
        "The month of a timestamp, January being 0.",
        "@timestamp.getMonth() == 1",
    ]),
    part("getDate", TimePart::Date, [
        "time.getDate([timezone]) -> int",
        "The day of the month, the first being 1.",
        "@timestamp.getDate() == 29",
    ]),
    part("getDayOfMonth", TimePart::DayOfMonth, [
        "time.getDayOfMonth([timezone]) -> int",
        "The day of the month, the first being 0.",
        "@timestamp.getDayOfMonth() == 28",
    ]),
    part("getDayOfWeek", TimePart::DayOfWeek, [
        "time.getDayOfWeek([timezone]) -> int",
        "The day of the week, Sunday being 0.",
        "@timestamp.getDayOfWeek() == 4",
    ]),
    part("getDayOfYear", TimePart::DayOfYear, [
        "time.getDayOfYear([timezone]) -> int",
        "The day of the year, the first being 0.",
        "@timestamp.getDayOfYear() == 59",
    ]),
    part("getHours", TimePart::Hours, [
        "time.getHours([timezone]) -> int",
        "The hour of a timestamp; of a duration all of it in whole hours.",
        "@timestamp.getHours() == 12 && @timestamp.getHours('02:00') == 14 && duration('90m').getHours() == 1",
    ]),
    part("getMinutes", TimePart::Minutes, [
        "time.getMinutes([timezone]) -> int",
        "The minute of a timestamp; of a duration all of it in whole minutes.",
        "@timestamp.getMinutes() == 34 && duration('90m').getMinutes() == 90",
    ]),
    part("getSeconds", TimePart::Seconds, [
        "time.getSeconds([timezone]) -> int",
        "The second of a timestamp; of a duration all of it in whole seconds.",
        "@timestamp.getSeconds() == 56 && duration('2m').getSeconds() == 120",
    ]),
    part("getMilliseconds", TimePart::Milliseconds, [
        "time.getMilliseconds([timezone]) -> int",
        "The milliseconds of a timestamp or a duration beyond its whole seconds.",
        "@timestamp.getMilliseconds() == 789 && duration('1.5s').getMilliseconds() == 500",
    ]),
];

const fn part(name: &'static str, part: TimePart, docs: [&'static str; 3]) -> FunctionDoc {
    FunctionDoc::new(name, &[Any, Text], Kind::Part(part), docs).optional(1)
}

fn timestamp<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if args[0].number().is_some() {
        return of_epoch(&args[0], NANOS_PER_SECOND, "whole seconds");
    }
    match &args[0] {
        Val::Time(_) | Val::Text(_) => time_of(&args[0]).map(Val::Time),
        other => Err(What::Needs("a text or a number of seconds", other.kind())),
    }
}

/// The point in time so many units after the beginning of 1970.
fn of_epoch<'a>(value: &Val<'a>, unit: i64, wanted: &'static str) -> Result<Val<'a>, What> {
    let Some(Num::Int(count)) = value.number() else {
        return Err(What::Needs(wanted, value.kind()));
    };
    let nanos = count.checked_mul(unit.into());
    let nanos = nanos.and_then(|nanos| i64::try_from(nanos).ok());
    nanos.map(Val::Time).ok_or(match unit {
        NANOS_PER_SECOND => What::Other(
            "so many seconds are beyond the year 2262; `epochMillis(…)` takes milliseconds",
        ),
        _ => BEYOND,
    })
}

fn epoch_millis<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if args[0].number().is_some() {
        return of_epoch(&args[0], 1_000_000, "whole milliseconds");
    }
    Ok(Val::Int(time_of(&args[0])?.div_euclid(1_000_000)))
}

/// The text of a span of time; a number says nothing of its unit.
fn span_text<'v>(value: &'v Val<'_>) -> Result<&'v str, What> {
    const NEEDS: &str =
        "a text with a unit such as \"1.5s\" (a number of seconds is `x * duration(\"1s\")`)";
    match value.number() {
        Some(_) => Err(What::Needs(NEEDS, value.kind())),
        None => text_of(value),
    }
}

fn duration<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if let Val::Duration(nanos) = args[0] {
        return Ok(Val::Duration(nanos));
    }
    let nanos = span::parse(span_text(&args[0])?);
    nanos
        .map(Val::Duration)
        .ok_or(What::Unreadable("a duration such as 90s, 1h30m or 250ms"))
}

fn parse_duration<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    span::parse_loose(span_text(&args[0])?)
        .map(Val::Duration)
        .ok_or(What::Unreadable(
            "a duration such as 1h 30m, 01:30:00 or PT1H30M",
        ))
}

/// The zone that an argument names.
fn zone_of(value: &Val<'_>) -> Result<TimeZone, What> {
    let zone = time::zone_named(text_of(value)?).ok_or(What::Unreadable("a time zone"))?;
    Ok(zone.into())
}

/// The zone of an argument that may be left out or be a constant; nothing where it is neither.
fn constant_zone(
    args: &[Option<&Val<'static>>],
    number: usize,
) -> Result<Option<TimeZone>, Refused> {
    match args.get(number) {
        None => Ok(Some(TimeZone::UTC)),
        Some(None) => Ok(None),
        Some(Some(zone)) => match zone_of(zone) {
            Ok(zone) => Ok(Some(zone)),
            Err(what) => Err(Refused::new(number, what.to_string())),
        },
    }
}

/// A part of a time or a duration, in a zone if there is a second argument.
pub(super) fn bind_part(part: TimePart, args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let of = move |value: &Val<'_>, zone: &TimeZone| {
        let part = match value {
            Val::Duration(nanos) => part.of_duration(*nanos),
            _ => match value.time() {
                Some(nanos) => part.of_time(nanos, zone),
                None => None,
            },
        };
        part.map(Val::Int)
            .ok_or(What::Needs("a timestamp", value.kind()))
    };
    Ok(match constant_zone(args, 1)? {
        Some(zone) => Run::call(move |args| of(&args[0], &zone)),
        None => Run::call(move |args| of(&args[0], &zone_of(&args[1])?)),
    })
}

fn format_time(args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let Some(Some(Val::Text(format))) = args.get(1) else {
        return Err(Refused::new(1, "the format must be a text literal"));
    };
    let format = TimeText::parse_zoned(&String::from_utf8_lossy(format)).map_err(|error| {
        let message = format!("broken time format: {}", error.message);
        Refused::new(1, message)
    })?;
    let write = move |nanos: i64, zone: &TimeZone, out: &mut Vec<u8>| {
        let written = format.write(nanos, zone, out);
        written.map_err(|_| What::Other("the time cannot be written in this format"))
    };
    Ok(match constant_zone(args, 2)? {
        Some(zone) => Run::write(move |args, out| write(time_of(&args[0])?, &zone, out)),
        None => Run::write(move |args, out| write(time_of(&args[0])?, &zone_of(&args[2])?, out)),
    })
}
