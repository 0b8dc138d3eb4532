//! Numbers as people read them: few digits, one unit a table.

use scorecard::Measurement;

/// A unit of time for numbers that stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Microseconds.
    Micro,
    /// Milliseconds.
    Milli,
}

impl Time {
    /// The unit in which the largest of these microseconds has at most four digits before the point.
    pub fn of(us: impl Iterator<Item = f64>) -> Self {
        if us.fold(0.0, f64::max) < 1000.0 { Self::Micro } else { Self::Milli }
    }

    /// Microseconds in this unit, without its name.
    pub fn scaled(self, us: f64) -> f64 {
        if self == Self::Micro { us } else { us / 1000.0 }
    }

    /// The unit's name in ASCII.
    pub fn name(self) -> &'static str {
        if self == Self::Micro { "us" } else { "ms" }
    }

    /// Microseconds in this unit, three digits and the name.
    pub fn show(self, us: f64) -> String {
        format!("{} {}", digits(self.scaled(us)), self.name())
    }
}

/// Three significant digits, trailing zeros kept, large and tiny values in powers of ten.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value == 0.0 => "0".into(),
        _ if !(1e-3..1e7).contains(&size) => format!("{value:.2e}"),
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The shortest text of a round number.
pub fn tick(value: f64) -> String {
    let text = format!("{value:.6}");
    if value.abs() >= 1e7 || (value != 0.0 && value.abs() < 1e-5) {
        return format!("{value:.0e}");
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A count with its thousands apart: `1,234,567`.
pub fn count(value: f64) -> String {
    if value.fract() != 0.0 || value.abs() >= 1e15 {
        return digits(value);
    }
    let text = format!("{:.0}", value.abs());
    let grouped: String = text
        .chars()
        .enumerate()
        .flat_map(|(i, c)| (i > 0 && (text.len() - i) % 3 == 0).then_some(',').into_iter().chain([c]))
        .collect();
    if value < 0.0 { format!("-{grouped}") } else { grouped }
}

/// Bytes in the largest binary unit that leaves at least one: `32 MiB`.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut scaled, mut power) = (value, 0);
    while scaled.abs() >= 1024.0 && power + 1 < units.len() {
        (scaled, power) = (scaled / 1024.0, power + 1);
    }
    let text = if scaled.fract() == 0.0 { format!("{scaled:.0}") } else { digits(scaled) };
    format!("{text} {}", units[power])
}

/// A number with its unit.
pub fn quantity(measurement: &Measurement) -> String {
    match measurement.unit.as_str() {
        "count" => count(measurement.value),
        "B" => bytes(measurement.value),
        "B/thread" => format!("{} a thread", bytes(measurement.value)),
        unit @ "steps" => format!("{} {unit}", count(measurement.value)),
        unit => format!("{} {unit}", digits(measurement.value)),
    }
}

/// A speed-up with its interval: `5.97x [5.95, 5.99]`.
pub fn ratio(measurement: &Measurement) -> String {
    let interval = measurement.interval.map(|[lo, hi]| format!(" [{}, {}]", digits(lo), digits(hi)));
    format!("{}x{}", digits(measurement.value), interval.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_three_digits() {
        let shown = [0.0, 0.3417, 4.096, 5.0, 9.996, 61.24, 612.7, 35125.0, 2e9].map(digits);
        assert_eq!(shown, ["0", "0.342", "4.10", "5.00", "10.0", "61.2", "613", "35125", "2.00e9"]);
        assert_eq!([0.5, 1.05, 20.0, 1e9].map(tick), ["0.5", "1.05", "20", "1e9"]);
    }

    #[test]
    fn counts_and_bytes_are_grouped() {
        assert_eq!([1.0, 1234.0, -1234567.0, 0.5].map(count), ["1", "1,234", "-1,234,567", "0.500"]);
        assert_eq!(
            [0.0, 1000.0, 10240.0, 34603008.0, 1.5 * 1024.0].map(bytes),
            ["0 B", "1000 B", "10 KiB", "33 MiB", "1.50 KiB"]
        );
    }
}
