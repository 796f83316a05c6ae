//! From a time as it is written to a point in time: the zone and the year that it leaves out.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use super::stamp::{Stamp, is_leap};

const DAY: i64 = 86_400;

/// The zone of times that name no offset.
#[derive(Clone, Debug)]
pub struct Zone {
    rules: TimeZone,
    /// The offset in seconds east of Greenwich, where there is only one.
    fixed: Option<i64>,
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Self::from(TimeZone::UTC)
    }

    /// The zone of the machine; UTC where it has none.
    pub fn of_host() -> Self {
        Self::from(TimeZone::system())
    }

    /// A zone by IANA name such as `Europe/Berlin`, or an offset such as `+02:00` or `-0330`. `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(seconds) = offset(name.as_bytes()) {
            let offset = Offset::from_seconds(seconds).ok()?;
            return Some(Self::from(TimeZone::fixed(offset)));
        }
        TimeZone::get(name).ok().map(Self::from)
    }
}

impl From<TimeZone> for Zone {
    fn from(rules: TimeZone) -> Self {
        let fixed = rules.to_fixed_offset().ok();
        Self {
            fixed: fixed.map(|offset| offset.seconds().into()),
            rules,
        }
    }
}

/// Reads an offset of hours and minutes, in seconds.
fn offset(name: &[u8]) -> Option<i32> {
    let (sign, digits) = match name {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let digits = match digits {
        [a, b] => [*a, *b, b'0', b'0'],
        [a, b, c, d] | [a, b, b':', c, d] => [*a, *b, *c, *d],
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let [a, b, c, d] = digits.map(|digit| i32::from(digit - b'0'));
    let (hours, minutes) = (a * 10 + b, c * 10 + d);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Turns the times of one batch into points in time.
pub(super) struct Clock<'z> {
    zone: &'z Zone,
    /// The latest local time that a time without a year may be: a day after the batch was received.
    limit: i64,
    limit_year: i64,
    /// The last local minute that was looked up and its offset, which all of it has.
    minute: Option<(i64, i64)>,
}

impl<'z> Clock<'z> {
    /// A clock for a batch that was received then, in nanoseconds since 1970.
    pub fn new(zone: &'z Zone, received: i64) -> Self {
        let seconds = received.div_euclid(1_000_000_000) + DAY;
        let (offset, year) = match Timestamp::from_second(seconds) {
            Ok(time) => {
                let offset = zone.rules.to_offset(time);
                (offset.seconds().into(), offset.to_datetime(time).year())
            }
            Err(_) => (0, 1970),
        };
        Self {
            zone,
            limit: seconds + offset,
            limit_year: year.into(),
            minute: None,
        }
    }

    /// Nanoseconds since 1970. `None` when 64 bits do not hold them.
    ///
    /// A time without a year gets the latest year that puts it at most a day after the receive time.
    #[inline]
    pub fn resolve(&mut self, stamp: &Stamp) -> Option<i64> {
        let local = match stamp.year {
            Some(year) => local_seconds(stamp, year),
            None => self.latest(stamp),
        };
        let offset = match (stamp.offset, self.zone.fixed) {
            (Some(offset), _) => offset.into(),
            (None, Some(fixed)) => fixed,
            (None, None) => self.offset_at(local)?,
        };
        (local - offset)
            .checked_mul(1_000_000_000)?
            .checked_add(stamp.nanos.into())
    }

    /// The local time of a stamp without a year.
    #[inline]
    fn latest(&self, stamp: &Stamp) -> i64 {
        let is_leap_day = stamp.month == 2 && stamp.day == 29;
        let mut year = self.limit_year;
        loop {
            let local = local_seconds(stamp, year);
            if local <= self.limit && (!is_leap_day || is_leap(year)) {
                return local;
            }
            year -= 1;
        }
    }

    /// The zone's offset at a local time. What the clock shows twice, when it is put back, is the earlier of the two;
    /// what it skips when it is put forward counts on as if it had not been.
    #[inline]
    fn offset_at(&mut self, local: i64) -> Option<i64> {
        let minute = local.div_euclid(60);
        match self.minute {
            Some((known, offset)) if known == minute => Some(offset),
            _ => self.look_up(local, minute),
        }
    }

    fn look_up(&mut self, local: i64, minute: i64) -> Option<i64> {
        let at = |local| {
            let zone = &self.zone.rules;
            Some(zone.to_ambiguous_timestamp(datetime(local)?).offset())
        };
        let steady = |local| match at(local) {
            Some(AmbiguousOffset::Unambiguous { offset }) => Some(offset),
            _ => None,
        };
        // No zone changes twice within a minute, so that its ends speak for all of it.
        if let Some(first) = steady(minute * 60)
            && steady(minute * 60 + 60) == Some(first)
        {
            self.minute = Some((minute, first.seconds().into()));
        }
        let offset = match at(local)? {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
        };
        Some(offset.seconds().into())
    }
}

/// The date and time of day of a local time in seconds, given as if it were UTC.
fn datetime(local: i64) -> Option<DateTime> {
    let time = Timestamp::from_second(local).ok()?;
    Some(Offset::UTC.to_datetime(time))
}

/// Seconds since 1970 of a stamp in a year, as if it were UTC.
#[inline]
fn local_seconds(stamp: &Stamp, year: i64) -> i64 {
    days_from_civil(year, stamp.month, stamp.day) * DAY + i64::from(stamp.second_of_day)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. A day beyond its month's end counts on.
#[inline]
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Years that begin in March end with their leap day, so that the months' lengths follow one line, 30.6 × month.
    let year = year - i64::from(month <= 2);
    let month_from_march = i64::from((month + 9) % 12);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
