//! What a render may take: steps, bytes, time and depth. They are counted in a [`Meter`](super::context::Meter).

use std::time::Duration;

use super::error::{Error, Kind};

/// What a template and a render of it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the template's source.
    pub source_bytes: usize,
    /// How deep values may be nested, given or built.
    pub depth: usize,
    /// Steps of the engine: statements, turns of loops, and expressions.
    pub steps: u64,
    /// Bytes that one text, list or dict may take, and all variables together.
    pub value_bytes: usize,
    /// Bytes that all values built during the render may take together, and what is read again and again.
    pub work_bytes: usize,
    /// Bytes of the text that comes out.
    pub output_bytes: usize,
    /// Time from start to end.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            source_bytes: 1 << 20,
            depth: 200,
            steps: 10_000_000,
            value_bytes: 64 << 20,
            work_bytes: 1 << 30,
            output_bytes: 64 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// Which limit was met, and so which sentence says it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Source,
    Depth,
    Steps,
    Value,
    Variables,
    Work,
    Output,
    Time,
}

impl Limits {
    /// The error of exceeding one of them.
    pub(crate) fn exceeded(&self, limit: Limit) -> Error {
        let (what, most, name) = match limit {
            Limit::Source => ("source", bytes_text(self.source_bytes), "source_bytes"),
            Limit::Depth => ("depth", self.depth.to_string(), "depth"),
            Limit::Steps => ("steps", self.steps.to_string(), "steps"),
            Limit::Value => ("a value", bytes_text(self.value_bytes), "value_bytes"),
            Limit::Variables => ("variables", bytes_text(self.value_bytes), "value_bytes"),
            Limit::Work => ("work", bytes_text(self.work_bytes), "work_bytes"),
            Limit::Output => ("output", bytes_text(self.output_bytes), "output_bytes"),
            Limit::Time => ("time", format!("{:?}", self.time), "time"),
        };
        let verb = if matches!(limit, Limit::Steps | Limit::Variables) { "exceed" } else { "exceeds" };
        Error::new(Kind::Limit, format!("{what} {verb} {most} (`Limits::{name}`)"))
    }
}

/// `16 MiB`, or the bytes where there is no whole unit.
fn bytes_text(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0);
    whole.map_or_else(|| format!("{bytes} bytes"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}
