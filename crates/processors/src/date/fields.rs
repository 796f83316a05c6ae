//! The parts of a time as they were read, and the point in time that they make.

use std::ops::Range;

use datetime::civil::{days_from_civil, days_from_week, days_in_month, is_leap};
use datetime::{DAY, NANOS_PER_SECOND, Zone};

/// The years whose points in time can fit into 64 bits of nanoseconds, with one to spare at each end.
const YEARS: Range<i64> = 1676..2264;

/// Why a text gives no point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The text is not of the format, or names a date that does not exist.
    Mismatch,
    /// The point in time does not fit into 64 bits of nanoseconds.
    OutOfRange,
    /// The text has no zone, and the event gives none.
    NoZone,
}

/// What a time depends on beside its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    /// The zone of texts that name none.
    pub zone: Option<&'a Zone>,
    /// When the batch was received, in nanoseconds since 1970.
    pub received: i64,
}

/// A point in time, and where in its text the second stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Nanoseconds since 1970.
    pub nanos: i64,
    /// The place of the second, where texts that differ in nothing else are as many seconds apart as these say.
    pub second: Option<SecondPlace>,
}

/// Where two digits of seconds stand in a text, and how many digits of a fraction follow one byte after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SecondPlace {
    pub at: usize,
    pub fraction_digits: usize,
}

/// The parts of a time; what was not read has its default.
#[derive(Debug)]
pub(super) struct Fields {
    pub year: Option<i64>,
    pub short_year: bool,
    pub before_christ: bool,
    pub week_year: Option<i64>,
    pub week: Option<u32>,
    pub weekday: u32,
    pub month: u32,
    pub day: u32,
    pub day_of_year: Option<u32>,
    pub hour: u32,
    pub is_half_day_hour: bool,
    pub is_afternoon: bool,
    pub minute: u32,
    pub second: u32,
    pub nanos: i64,
    pub zone: Option<Zone>,
    pub place: Option<SecondPlace>,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            year: None,
            short_year: false,
            before_christ: false,
            week_year: None,
            week: None,
            weekday: 1,
            month: 1,
            day: 1,
            day_of_year: None,
            hour: 0,
            is_half_day_hour: false,
            is_afternoon: false,
            minute: 0,
            second: 0,
            nanos: 0,
            zone: None,
            place: None,
        }
    }
}

impl Fields {
    /// The point in time.
    pub fn moment(&self, around: &Surroundings<'_>) -> Result<Moment, Fault> {
        let zone = self.zone.as_ref().or(around.zone).ok_or(Fault::NoZone)?;
        let afternoon = if self.is_half_day_hour && self.is_afternoon {
            12
        } else {
            0
        };
        let minute = self.days(zone, around)? * DAY
            + i64::from(self.hour + afternoon) * 3600
            + i64::from(self.minute) * 60;
        let seconds = zone
            .to_utc(minute + i64::from(self.second))
            .ok_or(Fault::OutOfRange)?;
        let nanos = i128::from(seconds) * i128::from(NANOS_PER_SECOND) + i128::from(self.nanos);
        Ok(Moment {
            nanos: i64::try_from(nanos).map_err(|_| Fault::OutOfRange)?,
            second: self
                .place
                .filter(|_| self.second < 60 && zone.is_steady(minute)),
        })
    }

    /// Days since 1970 of the date.
    fn days(&self, zone: &Zone, around: &Surroundings<'_>) -> Result<i64, Fault> {
        let year = self.full_year(zone, around);
        if self.before_christ || !YEARS.contains(&year) {
            return Err(Fault::OutOfRange);
        }
        if let Some(week) = self.week {
            return days_from_week(year, week, self.weekday).ok_or(Fault::Mismatch);
        }
        if let Some(day) = self.day_of_year {
            let exists = day <= 365 + u32::from(is_leap(year));
            return if exists {
                Ok(days_from_civil(year, 1, day))
            } else {
                Err(Fault::Mismatch)
            };
        }
        if self.day > days_in_month(year, self.month) {
            return Err(Fault::Mismatch);
        }
        Ok(days_from_civil(year, self.month, self.day))
    }

    /// The year with what the current date adds to it: the century, or all of it.
    fn full_year(&self, zone: &Zone, around: &Surroundings<'_>) -> i64 {
        let given = if self.week.is_some() {
            self.week_year.or(self.year)
        } else {
            self.year.or(self.week_year)
        };
        if let (Some(year), false) = (given, self.short_year) {
            return year;
        }
        let (now, month) = zone.year_and_month(around.received.div_euclid(NANOS_PER_SECOND));
        match given {
            // From 80 years ago to 19 years ahead, as Logstash reads two digits.
            Some(short) => now - 80 + (short - (now - 80)).rem_euclid(100),
            None => match (self.month, month) {
                (12, 1) => now - 1,
                (1, 12) => now + 1,
                _ => now,
            },
        }
    }
}
