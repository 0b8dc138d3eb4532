//! The time that `strftime_now` writes.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use super::context::Context;
use super::error::Error;

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

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

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
    fn day_of_year(self) -> u32 {
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let month = self.month.clamp(1, 12);
        before[month as usize - 1] + self.day + u32::from(month > 2 && self.leap())
    }

    /// The day of the week, Sunday being 0.
    fn weekday(self) -> u32 {
        let year = i64::from(self.year) - 1;
        let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        (before + i64::from(self.day_of_year())).rem_euclid(7) as u32
    }

    /// The moment by a format of C's `strftime`, in its own locale and without a time zone.
    pub(crate) fn format(self, cx: &Context, format: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut chars = format.chars().peekable();
        while let Some(c) = chars.next() {
            cx.charge(16)?;
            if c != '%' {
                out.push(c);
                continue;
            }
            let bare = chars.next_if_eq(&'-').is_some();
            match chars.next() {
                Some(code) => self.field(cx, code, bare, &mut out),
                None => out.push('%'),
            }
        }
        Ok(out)
    }

    fn field(self, cx: &Context, code: char, bare: bool, out: &mut String) {
        let half = if self.hour % 12 == 0 { 12 } else { self.hour % 12 };
        let (day, month) = (DAYS[self.weekday() as usize], MONTHS[self.month.clamp(1, 12) as usize - 1]);
        let padded = |number: u32, width: usize| {
            if bare { number.to_string() } else { format!("{number:0width$}") }
        };
        let weeks = |first: u32| (self.day_of_year() + 6 - (self.weekday() + 7 - first) % 7) / 7;
        let text = match code {
            'Y' => self.year.to_string(),
            'y' => padded(self.year.rem_euclid(100) as u32, 2),
            'C' => padded(self.year.div_euclid(100) as u32, 2),
            'm' => padded(self.month, 2),
            'd' => padded(self.day, 2),
            'e' => format!("{:>2}", self.day),
            'H' => padded(self.hour, 2),
            'k' => format!("{:>2}", self.hour),
            'I' => padded(half, 2),
            'l' => format!("{half:>2}"),
            'M' => padded(self.minute, 2),
            'S' => padded(self.second, 2),
            'f' => "000000".into(),
            'j' => padded(self.day_of_year(), 3),
            'w' => self.weekday().to_string(),
            'u' => (if self.weekday() == 0 { 7 } else { self.weekday() }).to_string(),
            'U' => padded(weeks(0), 2),
            'W' => padded(weeks(1), 2),
            'A' => day.into(),
            'a' => day[..3].into(),
            'B' => month.into(),
            'b' | 'h' => month[..3].into(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            'P' => if self.hour < 12 { "am" } else { "pm" }.into(),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            'Z' | 'z' => String::new(),
            _ => {
                let longer = match code {
                    'D' | 'x' => "%m/%d/%y",
                    'F' => "%Y-%m-%d",
                    'T' | 'X' => "%H:%M:%S",
                    'R' => "%H:%M",
                    'r' => "%I:%M:%S %p",
                    'c' => "%a %b %e %H:%M:%S %Y",
                    _ => {
                        let _ = write!(out, "%{}{code}", if bare { "-" } else { "" });
                        return;
                    }
                };
                self.format(cx, longer).unwrap_or_default()
            }
        };
        out.push_str(&text);
    }
}
