//! Ranges of time, as `--since`, `--until`, and `FROM..TO`.

use std::ops::Range;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use clap::Args;
use datetime::span;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use profiler::store::name::nanoseconds;

use super::files::ALWAYS;

/// Which profiles of a store count.
#[derive(Args, Default)]
pub struct RangeArgs {
    /// Of stores, only from this time on: how long ago, as in 24h, or 2026-11-24, 2026-11-24T13:00 or 2026-11-24T13:00:00Z; UTC where no offset is given.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Of stores, only until this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl RangeArgs {
    /// In nanoseconds since 1970.
    pub fn range(&self) -> anyhow::Result<Range<i64>> {
        let side = |text: &Option<String>, default| match text {
            Some(text) => moment(text),
            None => Ok(default),
        };
        ordered(side(&self.since, ALWAYS.start)?..side(&self.until, ALWAYS.end)?)
    }
}

/// A range as `FROM..TO`, of which either may be missing.
pub fn parse(text: &str) -> anyhow::Result<Range<i64>> {
    let Some((from, to)) = text.split_once("..") else {
        bail!(
            "`{text}` is not a range of time: write FROM..TO, as in 2026-11-23..2026-11-24 or 2h..1h"
        );
    };
    let side = |text: &str, default| match text {
        "" => Ok(default),
        text => moment(text),
    };
    ordered(side(from, ALWAYS.start)?..side(to, ALWAYS.end)?)
}

fn ordered(range: Range<i64>) -> anyhow::Result<Range<i64>> {
    if range.is_empty() {
        bail!("the range of time ends before it begins");
    }
    Ok(range)
}

/// A point in time.
fn moment(text: &str) -> anyhow::Result<i64> {
    if text == "now" {
        return Ok(nanoseconds(SystemTime::now()));
    }
    if let Some(ago) = span::parse(text) {
        return Ok(nanoseconds(SystemTime::now()).saturating_sub(ago));
    }
    let utc = |time: DateTime| time.to_zoned(TimeZone::UTC).ok().map(|it| it.timestamp());
    let date = |text: &str| {
        text.parse::<Date>()
            .ok()
            .map(|date| date.to_datetime(jiff::civil::Time::midnight()))
    };
    let time = text
        .parse::<Timestamp>()
        .ok()
        .or_else(|| utc(text.parse::<DateTime>().ok()?))
        .or_else(|| utc(date(text)?));
    let time = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    time.ok_or_else(|| {
        anyhow!("`{text}` is not a time: write how long ago, as in 24h, or 2026-11-24, 2026-11-24T13:00 or 2026-11-24T13:00:00Z")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_all_ways() {
        let second = 1_000_000_000;
        for (text, seconds) in [
            ("2026-11-24", 1_795_478_400),
            ("2026-11-24T13:00", 1_795_478_400 + 13 * 3600),
            ("2026-11-24T13:00:00Z", 1_795_478_400 + 13 * 3600),
            ("2026-11-24T13:00:00+01:00", 1_795_478_400 + 12 * 3600),
        ] {
            assert_eq!(moment(text).unwrap(), seconds * second, "{text}");
        }
        let ago = nanoseconds(SystemTime::now()) - moment("2h").unwrap();
        assert!((7140 * second..7260 * second).contains(&ago), "{ago}");
        for text in ["", "yesterday", "2026-13-01", "13:00"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_have_two_sides() {
        assert_eq!(parse("..").unwrap(), ALWAYS);
        let range = parse("2026-11-23..2026-11-24").unwrap();
        assert_eq!(range.end - range.start, 86_400_000_000_000);
        assert!(parse("2h..1h").unwrap().start < parse("2h..1h").unwrap().end);
        assert!(parse("1h..2h").is_err());
        assert!(parse("1h").is_err());
    }
}
