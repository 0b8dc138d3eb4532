//! Today, in UTC, as a report writes it.
//!
//! Days since 1970 to year, month, day: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
//! `civil_from_days`. A date library would be the largest dependency of the grader for these ten lines.

use std::time::{SystemTime, UNIX_EPOCH};

/// `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let (year, month, day) = civil((seconds / 86_400) as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `YYYYMMDD-HHMMSS`, for the name of a backup.
pub(crate) fn stamp() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let of_day = seconds % 86_400;
    let time = format!("{:02}{:02}{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{}-{time}", today().replace('-', ""))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// When something was, as it is reported at `now`: `10:42 UTC` on the same day, else `2026-11-22`.
pub(crate) fn describe(when: u64, now: u64) -> String {
    if when / 86_400 == now / 86_400 {
        let of_day = when % 86_400;
        return format!("{:02}:{:02} UTC", of_day / 3600, of_day / 60 % 60);
    }
    let days = i64::try_from(when / 86_400).unwrap_or(0).min(10_000_000); // a file may say anything
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // from 0000-03-01
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153; // from March
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (year_of_era + era * 400, if month < 10 { month + 3 } else { month - 9 });
    (year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::{civil, describe};

    #[test]
    fn a_time_of_today_is_told_by_the_clock_and_others_by_the_day() {
        let now = 1_795_305_600; // midnight
        assert_eq!(describe(now + 10 * 3600 + 42 * 60, now + 86_399), "10:42 UTC");
        assert_eq!(describe(now - 1, now), "2026-11-21");
        assert!(!describe(u64::MAX, 0).is_empty());
    }

    #[test]
    fn days_become_dates_across_leap_years_and_centuries() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_777), (2026, 11, 20));
        assert_eq!(civil(47_540), (2100, 2, 28));
        assert_eq!(civil(47_541), (2100, 3, 1));
    }
}
