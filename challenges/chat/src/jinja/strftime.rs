//! `strftime` as glibc has it in its own locale: flags, widths and all codes.
//!
//! ```text
//! %[flags][width][E|O]code
//! flags: `-` no padding   `_` spaces   `0` zeros   `^` upper case   `#` the other case
//! ```
//!
//! The moment has no time zone: `%z` and `%Z` are empty, as Python's `datetime` writes them, and `%s` counts in UTC.
//!
//! Source: `strftime_l.c` of the GNU C library; `wrap_strftime` and `time_strftime` of `CPython`.

use super::clock::Moment;
use super::context::Context;
use super::error::{Error, Kind};

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

/// The flags, the width and the modifier of a directive.
#[derive(Clone, Copy, Default)]
struct Style {
    pad: Option<char>,
    upper: bool,
    swap: bool,
    width: usize,
    modifier: Option<char>,
}

/// The first buffer that Python gives to the C library, in bytes.
const BUFFER: usize = 1024;

/// The moment in a format of C's `strftime`.
///
/// As in Python the text is empty if it does not fit into a buffer that is doubled up to 256 times the format's length.
pub(super) fn format(moment: Moment, cx: &Context, format: &str) -> Result<String, Error> {
    if format.contains('\0') {
        return Err(Error::new(Kind::Value, "embedded null character"));
    }
    let format = without_zone(cx, format)?;
    let mut buffer = BUFFER;
    while buffer < format.len().saturating_mul(256) {
        buffer *= 2;
    }
    let mut out = String::new();
    let fits = write(moment, cx, &format, buffer, &mut out)?;
    Ok(if fits && out.len() < buffer { out } else { String::new() })
}

/// The format with what Python itself fills in: `%f`, and nothing for the zone of a time without one.
fn without_zone(cx: &Context, format: &str) -> Result<String, Error> {
    cx.charge(format.len().saturating_mul(3))?;
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code = rest[at + 1..].chars().next();
        match code {
            Some('f') => out.push_str("000000"),
            Some('z' | 'Z') => (),
            _ => out.push('%'),
        }
        out.extend(code.filter(|code| !matches!(code, 'f' | 'z' | 'Z')));
        rest = &rest[at + 1 + code.map_or(0, char::len_utf8)..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Appends a format; returns false if the text becomes longer than `most` bytes.
fn write(moment: Moment, cx: &Context, format: &str, most: usize, out: &mut String) -> Result<bool, Error> {
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        cx.charge(at + 16)?;
        out.push_str(&rest[..at]);
        let directive = &rest[at..];
        let (style, after) = style(&directive[1..]);
        let code = after.chars().next();
        let length = directive.len() - after.len() + code.map_or(0, char::len_utf8);
        let field = Field { moment, style, directive: &directive[..length] };
        let room = most.saturating_sub(out.len());
        if style.width > room {
            return Ok(false);
        }
        cx.grow(out, style.width + directive[..length].len())?;
        let text = field.text(cx, code)?;
        if text.len() > room {
            return Ok(false);
        }
        field.push(&text, out);
        rest = &directive[length..];
    }
    out.push_str(rest);
    Ok(out.len() < most)
}

/// The flags, the width and the modifier at the start of `text`, and what follows them.
fn style(text: &str) -> (Style, &str) {
    let mut style = Style::default();
    let mut rest = text;
    while let Some(flag) = rest.chars().next().filter(|c| "_-0^#".contains(*c)) {
        match flag {
            '^' => style.upper = true,
            '#' => style.swap = true,
            pad => style.pad = Some(pad),
        }
        rest = &rest[1..];
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 {
        style.width = rest[..digits].parse().unwrap_or(usize::MAX).min(i32::MAX as usize);
        rest = &rest[digits..];
    }
    style.modifier = rest.chars().next().filter(|c| matches!(c, 'E' | 'O'));
    (style, &rest[usize::from(style.modifier.is_some())..])
}

/// One directive.
struct Field<'f> {
    moment: Moment,
    style: Style,
    /// All of it, from its percent sign to its code.
    directive: &'f str,
}

/// The text of a directive before it is padded, and the case in which it is written.
struct Written {
    text: String,
    /// The width to which it is padded.
    width: usize,
    lower: bool,
    upper: bool,
}

impl Written {
    fn len(&self) -> usize {
        self.text.len()
    }
}

impl Field<'_> {
    /// Appends what the directive writes, padded to its width.
    fn push(&self, written: &Written, out: &mut String) {
        let fill = if self.style.pad == Some('0') { '0' } else { ' ' };
        out.extend(std::iter::repeat_n(fill, written.width.saturating_sub(written.text.len())));
        if written.lower {
            out.push_str(&written.text.to_ascii_lowercase());
        } else if written.upper {
            out.push_str(&written.text.to_ascii_uppercase());
        } else {
            out.push_str(&written.text);
        }
    }

    /// A text in the case that the flags ask for.
    fn plain(&self, text: impl Into<String>) -> Written {
        Written { text: text.into(), width: self.style.width, lower: false, upper: self.style.upper }
    }

    /// A name, which `#` writes in upper case.
    fn name(&self, text: &str) -> Written {
        Written { upper: self.style.upper || self.style.swap, ..self.plain(text) }
    }

    /// A number with a minimum number of digits, padded by `pad` unless a flag asks for another padding.
    fn number(&self, value: i64, digits: usize, pad: char) -> Written {
        let digits = digits.max(self.style.width);
        let text = value.unsigned_abs().to_string();
        let sign = if value < 0 { "-" } else { "" };
        let missing = digits.saturating_sub(text.len() + sign.len());
        let width = self.style.width;
        let (text, width) = match self.style.pad.unwrap_or(pad) {
            '-' => (format!("{sign}{text}"), width),
            '_' => (format!("{}{sign}{text}", " ".repeat(missing)), width),
            _ => (format!("{sign}{}{text}", "0".repeat(missing)), width),
        };
        Written { text, width, lower: false, upper: false }
    }

    /// A number that is padded by spaces unless `0` or `-` says otherwise.
    fn spaced(&self, value: i64, digits: usize) -> Written {
        let style = Style { pad: self.style.pad.filter(|pad| "0-".contains(*pad)), ..self.style };
        Field { style, ..*self }.number(value, digits, '_')
    }

    /// A format within the format.
    fn nested(&self, cx: &Context, format: &str) -> Result<Written, Error> {
        let mut text = String::new();
        write(self.moment, cx, format, usize::MAX, &mut text)?;
        Ok(self.plain(text))
    }

    fn text(&self, cx: &Context, code: Option<char>) -> Result<Written, Error> {
        let Some(code) = code.filter(|code| self.takes_modifier(*code)) else {
            return Ok(self.plain(self.directive));
        };
        if let Some(format) = longer(code) {
            return self.nested(cx, format);
        }
        Ok(self.simple(code))
    }

    /// Whether a code may have the modifier that it has.
    fn takes_modifier(&self, code: char) -> bool {
        match self.style.modifier {
            None => true,
            Some('E') => !"aAbBdDeFgGhHIjklmMSUVwW".contains(code),
            Some(_) => !"aAcDFxXY".contains(code),
        }
    }

    fn simple(&self, code: char) -> Written {
        let Moment { year, day, hour, minute, second, .. } = self.moment;
        let [year, day, hour, minute, second] =
            [i64::from(year), day.into(), hour.into(), minute.into(), second.into()];
        let (weekday, of_year) = (i64::from(self.moment.weekday()), i64::from(self.moment.day_of_year()) - 1);
        let half = if hour % 12 == 0 { 12 } else { hour % 12 };
        let month = self.moment.month.clamp(1, 12);
        let (day_name, month_name) = (DAYS[weekday as usize], MONTHS[month as usize - 1]);
        let two = |value: i64| self.number(value, 2, '0');
        match code {
            '%' => self.plain("%"),
            'n' => self.plain("\n"),
            't' => self.plain("\t"),
            'a' => self.name(&day_name[..3]),
            'A' => self.name(day_name),
            'b' | 'h' => self.name(&month_name[..3]),
            'B' => self.name(month_name),
            'C' => self.number(year.div_euclid(100), 1, '0'),
            'd' => two(day),
            'e' => self.spaced(day, 2),
            'g' => two(self.moment.iso_week().0.rem_euclid(100)),
            'G' => self.number(self.moment.iso_week().0, 1, '0'),
            'H' => two(hour),
            'I' => two(half),
            'j' => self.number(of_year + 1, 3, '0'),
            'k' => self.spaced(hour, 2),
            'l' => self.spaced(half, 2),
            'm' => two(month.into()),
            'M' => two(minute),
            'p' | 'P' => {
                let lower = code == 'P' || self.style.swap;
                let upper = self.style.upper && !self.style.swap;
                Written { lower, upper, ..self.plain(if hour < 12 { "AM" } else { "PM" }) }
            }
            's' => self.plain(self.moment.seconds().to_string()),
            'S' => two(second),
            'u' => self.number((weekday + 6) % 7 + 1, 1, '0'),
            'U' => two((of_year - weekday + 7) / 7),
            'V' => two(self.moment.iso_week().1),
            'w' => self.number(weekday, 1, '0'),
            'W' => two((of_year - (weekday + 6) % 7 + 7) / 7),
            'y' => two(year.rem_euclid(100)),
            'Y' => self.number(year, 1, '0'),
            'z' => Written { width: 0, ..self.plain("") },
            'Z' => self.plain(""),
            _ => self.plain(self.directive),
        }
    }
}

/// The format that a code abbreviates.
fn longer(code: char) -> Option<&'static str> {
    Some(match code {
        'D' | 'x' => "%m/%d/%y",
        'F' => "%Y-%m-%d",
        'T' | 'X' => "%H:%M:%S",
        'R' => "%H:%M",
        'r' => "%I:%M:%S %p",
        'c' => "%a %b %e %H:%M:%S %Y",
        _ => return None,
    })
}
