//! Arithmetic of the proleptic Gregorian calendar, in whole numbers.
//!
//! Years begin in March inside: they end with their leap day, so that the months' lengths follow one line, 30.6 × month.

/// Days of 400 years, after which the calendar repeats itself.
const DAYS_PER_ERA: i64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;

/// Days from 1970-01-01 to a date. `month` is 1 to 12; `day` may lie outside its month and counts on.
#[inline]
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let month_from_march = i64::from((month + 9) % 12);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_TO_EPOCH
}

/// Year, month and day of a day counted from 1970-01-01, in the years 0 to 9999.
#[inline]
pub fn date_of(day: i64) -> (u32, u32, u32) {
    // A whole era on top keeps January and February of the year 0 positive; it goes again with the year.
    let days = (day + DAYS_TO_EPOCH + DAYS_PER_ERA) as u32;
    let era = days / DAYS_PER_ERA as u32;
    let day_of_era = days % DAYS_PER_ERA as u32;
    // Whole years: leap days are taken out, those of the centuries put back.
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_january_or_february = month >= 10;
    let month = if is_january_or_february {
        month - 9
    } else {
        month + 3
    };
    let year = era * 400 + year_of_era + u32::from(is_january_or_february) - 400;
    (year, month, day)
}

/// Whether the year has a 29th of February.
#[inline]
pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Number of days of a month, 1 to 12.
#[inline]
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a day of an ISO week; Monday is 1. `None` when the year has no such week.
pub fn days_from_week(year: i64, week: u32, weekday: u32) -> Option<i64> {
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
                    assert_eq!(date_of(expected), (year as u32, month, day));
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
