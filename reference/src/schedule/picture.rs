//! A timeline as text: a row of characters for each rank, on one axis of time.
//!
//! ```text
//! 0: F0--F1--........BW0-----....BW1-----
//! 1: ....F0--BW0-----F1--BW1-----........
//! ```
//!
//! An operation begins with its name, as much of it as there is room for, and goes on as `-`; idle time is `.`. Every
//! character is as long a time, so an operation that is shorter than one may not be seen.

use std::fmt::Write;

use super::{Schedule, Span, Timeline};

impl Timeline {
    /// The picture of the timeline of a schedule, so many characters wide.
    pub fn picture(&self, schedule: &Schedule, columns: usize) -> String {
        let scale = columns as f64 / self.makespan();
        let mut out = String::new();
        for (rank, (line, spans)) in schedule.ranks().iter().zip(self.spans()).enumerate() {
            let mut row = vec!['.'; columns];
            for (operation, span) in line.iter().zip(spans) {
                draw(&mut row, &operation.to_string(), *span, scale);
            }
            let _ = writeln!(out, "{rank}: {}", row.iter().collect::<String>()); // a String takes all
        }
        out
    }
}

fn draw(row: &mut [char], name: &str, span: Span, scale: f64) {
    let column = |time: f64| ((time * scale).round() as usize).min(row.len());
    let (start, end) = (column(span.start), column(span.end));
    let text = name.chars().chain(std::iter::repeat('-'));
    row[start..end.max(start)].iter_mut().zip(text).for_each(|(cell, letter)| *cell = letter);
}
