//! The time that `strftime_now` writes.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment by the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Of the Gregorian calendar.
    pub year: i32,
    /// From 1 to 12.
    pub month: u32,
    /// From 1 on.
    pub day: u32,
    /// From 0 to 23.
    pub hour: u32,
    /// From 0 to 59.
    pub minute: u32,
    /// From 0 to 59.
    pub second: u32,
}

/// Where the time comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock, in UTC. Transformers takes the machine's local time.
    #[default]
    Utc,
    /// Always the same moment, so that a text can be rendered again.
    Fixed(Moment),
}

impl Clock {
    /// What time it is.
    pub fn now(self) -> Moment {
        match self {
            Clock::Fixed(moment) => moment,
            Clock::Utc => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Moment::of(since.as_secs())
            }
        }
    }
}

impl Moment {
    /// The moment so many seconds after 1970 began. Source: Hinnant, "chrono-compatible low-level date algorithms".
    fn of(seconds: u64) -> Moment {
        let days = (seconds / 86_400) as i64 + 719_468;
        let era = days.div_euclid(146_097);
        let day = days.rem_euclid(146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let rest = seconds % 86_400;
        Moment {
            year: (year + era * 400 + i64::from(month >= 10)) as i32,
            month: if month < 10 { month + 3 } else { month - 9 } as u32,
            day: (day - (153 * month + 2) / 5 + 1) as u32,
            hour: (rest / 3600) as u32,
            minute: (rest / 60 % 60) as u32,
            second: (rest % 60) as u32,
        }
    }

    fn leap(self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    /// The day of the year, from 1.
    pub(super) fn day_of_year(self) -> u32 {
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let month = self.month.clamp(1, 12);
        before[month as usize - 1] + self.day + u32::from(month > 2 && self.leap())
    }

    /// The day of the week, Sunday being 0.
    pub(super) fn weekday(self) -> u32 {
        self.days().rem_euclid(7) as u32
    }

    /// The days from the one before the year 1 began.
    fn days(self) -> i64 {
        let year = i64::from(self.year) - 1;
        let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        before + i64::from(self.day_of_year())
    }

    /// The seconds since 1970 began, in UTC.
    pub(super) fn seconds(self) -> i64 {
        /// [`Moment::days`] of 1970-01-01.
        const EPOCH: i64 = 719_163;
        let in_day = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        (self.days() - EPOCH) * 86_400 + in_day
    }

    /// The year and the week of ISO 8601: weeks begin on Mondays, and the first one has the year's first Thursday.
    pub(super) fn iso_week(self) -> (i64, i64) {
        let thursday = self.days() + 3 - i64::from((self.weekday() + 6) % 7);
        let first_day = |year: i64| {
            let before = year - 1;
            before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) + 1
        };
        let own = i64::from(self.year);
        let year = if thursday < first_day(own) {
            own - 1
        } else if thursday >= first_day(own + 1) {
            own + 1
        } else {
            own
        };
        (year, (thursday - first_day(year)) / 7 + 1)
    }
}
