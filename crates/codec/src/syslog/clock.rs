//! From a time as it is written to a point in time: the zone and the year that it leaves out.

use datetime::civil::{date_of, days_from_civil, is_leap};
use datetime::{DAY, NANOS_PER_SECOND, Zone};

use super::stamp::Stamp;

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
        let seconds = received.div_euclid(NANOS_PER_SECOND) + DAY;
        let limit = seconds + zone.offset_at(seconds);
        let (limit_year, ..) = date_of(limit.div_euclid(DAY));
        Self {
            zone,
            limit,
            limit_year: limit_year.into(),
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
        let offset = match (stamp.offset, self.zone) {
            (Some(offset), _) | (None, &Zone::Fixed(offset)) => i64::from(offset),
            (None, Zone::Rules(_)) => self.offset_at(local)?,
        };
        (local - offset)
            .checked_mul(NANOS_PER_SECOND)?
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

    /// The zone's offset at a local time.
    #[inline]
    fn offset_at(&mut self, local: i64) -> Option<i64> {
        let minute = local.div_euclid(60);
        match self.minute {
            Some((known, offset)) if known == minute => Some(offset),
            _ => self.look_up(local, minute),
        }
    }

    fn look_up(&mut self, local: i64, minute: i64) -> Option<i64> {
        let offset = local - self.zone.to_utc(local)?;
        if self.zone.is_steady(minute * 60) {
            self.minute = Some((minute, offset));
        }
        Some(offset)
    }
}

/// Seconds since 1970 of a stamp in a year, as if it were UTC.
#[inline]
fn local_seconds(stamp: &Stamp, year: i64) -> i64 {
    days_from_civil(year, stamp.month, stamp.day) * DAY + i64::from(stamp.second_of_day)
}
