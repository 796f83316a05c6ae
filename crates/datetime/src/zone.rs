//! Time zones: from a local time to a point in time, and back.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// Where a local time gets its offset from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Seconds east of Greenwich.
    Fixed(i32),
    /// The rules of a place.
    Rules(TimeZone),
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self::Fixed(0);

    /// The zone of the machine; UTC where it has none.
    pub fn of_host() -> Self {
        Self::from(TimeZone::system())
    }

    /// A zone by IANA name such as `Europe/Berlin`, or an offset as [`offset`] reads it. `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        if let Some((seconds, length)) = offset(name.as_bytes()) {
            return (length == name.len()).then_some(Self::Fixed(seconds));
        }
        TimeZone::get(name).ok().map(Self::from)
    }

    /// The names of all zones that [`Zone::named`] knows by name.
    pub fn names() -> Vec<String> {
        let names = jiff::tz::db().available();
        names.map(|name| name.to_string()).collect()
    }

    /// Seconds since 1970 of a local time given as if it were UTC. `None` when the calendar ends before it.
    ///
    /// What the clock shows twice, when it is put back, is the earlier of the two; what it skips when it is put forward
    /// counts on as if it had not been.
    pub fn to_utc(&self, local: i64) -> Option<i64> {
        match self {
            Self::Fixed(offset) => Some(local - i64::from(*offset)),
            Self::Rules(zone) => {
                let offset = match Self::ambiguous(zone, local)? {
                    AmbiguousOffset::Unambiguous { offset } => offset,
                    AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => {
                        before
                    }
                };
                Some(local - i64::from(offset.seconds()))
            }
        }
    }

    /// Whether all local times of a minute, given by its first second, have one and the same offset.
    pub fn is_steady(&self, minute: i64) -> bool {
        let Self::Rules(zone) = self else { return true };
        let at = |local| match Self::ambiguous(zone, local) {
            Some(AmbiguousOffset::Unambiguous { offset }) => Some(offset),
            _ => None,
        };
        // No zone changes twice within a minute, so that its ends speak for all of it. A leap second reads as the
        // next minute's first.
        at(minute).is_some_and(|first| at(minute + 60) == Some(first))
    }

    /// Seconds east of Greenwich at a point in time, in seconds since 1970; zero beyond the calendar's ends.
    pub fn offset_at(&self, seconds: i64) -> i64 {
        match self {
            Self::Fixed(offset) => i64::from(*offset),
            Self::Rules(zone) => match Timestamp::from_second(seconds) {
                Ok(time) => i64::from(zone.to_offset(time).seconds()),
                Err(_) => 0,
            },
        }
    }

    /// The year and month that the zone's calendar shows at a point in time, in seconds since 1970.
    pub fn year_and_month(&self, seconds: i64) -> (i64, u32) {
        let local = seconds + self.offset_at(seconds);
        datetime(local).map_or((1970, 1), |local| {
            (i64::from(local.year()), local.month() as u32)
        })
    }

    fn ambiguous(zone: &TimeZone, local: i64) -> Option<AmbiguousOffset> {
        Some(zone.to_ambiguous_timestamp(datetime(local)?).offset())
    }
}

impl From<TimeZone> for Zone {
    fn from(zone: TimeZone) -> Self {
        match zone.to_fixed_offset() {
            Ok(offset) => Self::Fixed(offset.seconds()),
            Err(_) => Self::Rules(zone),
        }
    }
}

/// The rules by which a zone shows times.
impl From<Zone> for TimeZone {
    fn from(zone: Zone) -> Self {
        match zone {
            Zone::Fixed(seconds) => {
                Offset::from_seconds(seconds).map_or(Self::UTC, Offset::to_time_zone)
            }
            Zone::Rules(zone) => zone,
        }
    }
}

/// The date and time of day of a local time in seconds, given as if it were UTC.
fn datetime(local: i64) -> Option<DateTime> {
    let time = Timestamp::from_second(local).ok()?;
    Some(Offset::UTC.to_datetime(time))
}

/// Reads an offset at the start of a text, `+02`, `+0200`, `+02:00`, `+020000` or `+02:00:00`, with `-` as well, and less than a
/// day: seconds east of Greenwich, and how many bytes it took.
#[inline]
pub fn offset(text: &[u8]) -> Option<(i32, usize)> {
    let sign = match text.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = two_digits(text, 1).filter(|hours| *hours < 24)?;
    let mut seconds = hours * 3600;
    let mut at = 3;
    let colon = text.get(at) == Some(&b':');
    for unit in [60, 1] {
        let from = at + usize::from(colon);
        match two_digits(text, from).filter(|part| *part < 60) {
            Some(part) if !colon || text[at] == b':' => {
                seconds += part * unit;
                at = from + 2;
            }
            _ => break,
        }
    }
    Some((sign * seconds, at))
}

#[inline]
pub(crate) fn two_digits(text: &[u8], at: usize) -> Option<i32> {
    match text.get(at..at + 2)? {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Some(i32::from(tens - b'0') * 10 + i32::from(ones - b'0'))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DAY;
    use crate::civil::days_from_civil;

    #[test]
    fn offsets_in_their_spellings() {
        for (text, expected) in [
            ("+0000", Some((0, 5))),
            ("-0730", Some((-27_000, 5))),
            ("+02", Some((7200, 3))),
            ("+02:00 x", Some((7200, 6))),
            ("+01:00:30", Some((3630, 9))),
            ("+010030", Some((3630, 7))),
            ("+0260", Some((7200, 3))),
            ("+2", None),
            ("+24", None),
            ("02", None),
            ("", None),
        ] {
            assert_eq!(offset(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn clocks_that_are_put_forward_and_back() {
        let zone = Zone::named("Europe/Berlin").expect("the zone exists");
        let local = |month, day, hour: i64, minute: i64| {
            days_from_civil(2024, month, day) * DAY + hour * 3600 + minute * 60
        };
        for (month, day, hour, offset_hours, steady) in [
            (3, 31, 1, 1, true),
            // Skipped: 02:30 reads as 03:30 in summer time, one hour after 01:30.
            (3, 31, 2, 1, false),
            (3, 31, 3, 2, true),
            // Shown twice: the first one, still summer time.
            (10, 27, 2, 2, false),
            (10, 27, 3, 1, true),
        ] {
            let at = local(month, day, hour, 30);
            assert_eq!(
                zone.to_utc(at),
                Some(at - offset_hours * 3600),
                "{month} {day} {hour}"
            );
            assert_eq!(zone.is_steady(at), steady, "{month} {day} {hour}");
        }
        // The last minute before the gap touches it with its 60th second.
        assert!(!zone.is_steady(local(3, 31, 1, 59)));
    }

    #[test]
    fn names_are_zones_or_offsets() {
        assert!(matches!(Zone::named("UTC"), Some(Zone::Fixed(0))));
        assert!(matches!(Zone::named("-03:30"), Some(Zone::Fixed(-12_600))));
        assert!(matches!(
            Zone::named("America/New_York"),
            Some(Zone::Rules(_))
        ));
        assert!(Zone::named("Europe/Atlantis").is_none());
        assert!(Zone::named("+02:00x").is_none());
    }

    #[test]
    fn the_calendar_is_the_zones() {
        let new_year = days_from_civil(2025, 1, 1) * DAY;
        assert_eq!(Zone::Fixed(0).year_and_month(new_year - 1), (2024, 12));
        assert_eq!(Zone::Fixed(3600).year_and_month(new_year - 1), (2025, 1));
        let zone = Zone::named("America/New_York").expect("the zone exists");
        assert_eq!(zone.year_and_month(new_year + 4 * 3600), (2024, 12));
    }
}
