//! Calendar arithmetic of the proleptic Gregorian calendar, in whole numbers.

use std::ops::Range;

/// Seconds of a day.
pub(super) const DAY: i64 = 86_400;

/// The years whose points in time can fit into 64 bits of nanoseconds, with one to spare at each end.
pub(super) const YEARS: Range<i64> = 1676..2264;

/// Days from 1970-01-01 to a date. `month` is 1 to 12; `day` may lie outside its month and counts on.
#[inline]
pub(super) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Years that begin in March end with their leap day, so that the months' lengths follow one line, 30.6 × month.
    let year = year - i64::from(month <= 2);
    let month_from_march = i64::from((month + 9) % 12);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Whether the year has a 29th of February.
#[inline]
pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Number of days of a month, 1 to 12.
#[inline]
pub(super) fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a day of an ISO week; Monday is 1. `None` when the year has no such week.
pub(super) fn days_from_week(year: i64, week: u32, weekday: u32) -> Option<i64> {
    let first = first_monday(year);
    let weeks = (first_monday(year + 1) - first) / 7;
    let exists = (1..=weeks).contains(&i64::from(week)) && (1..=7).contains(&weekday);
    exists.then(|| first + 7 * (i64::from(week) - 1) + i64::from(weekday) - 1)
}

/// The Monday of week 1, which is the week that holds the 4th of January.
fn first_monday(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    // 1970-01-01 was a Thursday: three days after a Monday.
    fourth - (fourth + 3).rem_euclid(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_each_other_through_six_centuries() {
        let mut expected = days_from_civil(1600, 1, 1);
        assert_eq!(expected, -135_140);
        for year in 1600..2300 {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    assert_eq!(
                        days_from_civil(year, month, day),
                        expected,
                        "{year}-{month}-{day}"
                    );
                    expected += 1;
                }
            }
        }
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2000, 2, 29), 11_016);
    }

    #[test]
    fn weeks_begin_on_monday_and_belong_to_the_year_of_their_thursday() {
        for (year, week, weekday, date) in [
            (2015, 20, 7, Some((2015, 5, 17))),
            (2009, 53, 5, Some((2010, 1, 1))),
            (2020, 53, 1, Some((2020, 12, 28))),
            (2021, 1, 1, Some((2021, 1, 4))),
            (2021, 53, 1, None),
            (2021, 0, 1, None),
            (2021, 1, 8, None),
        ] {
            let expected = date.map(|(year, month, day)| days_from_civil(year, month, day));
            assert_eq!(
                days_from_week(year, week, weekday),
                expected,
                "{year}-W{week}-{weekday}"
            );
        }
    }
}
