//! Launches in their order, and beside them a bar for each buffer, from its first write to its last read.

use super::memory::Buffer;
use super::number::bytes;
use super::plot::{Anchor, Ink, Plot, WIDTH};

const ROW: f64 = 20.0;
const TOP: f64 = 46.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;

/// The figure: a row for each launch, a last one for what is there afterwards.
pub fn lives(title: &str, launches: &[String], buffers: &[Buffer]) -> String {
    let words = launches.iter().map(|launch| launch.chars().count()).max().unwrap_or(0).min(LONGEST);
    let border = (LEFT + 26.0 + 7.2 * words as f64).clamp(110.0, 270.0);
    let columns = columns(buffers);
    let count = columns.iter().max().map_or(1, |last| last + 1);
    let width = ((RIGHT - border) / count as f64).min(58.0);
    let mut plot = Plot::new(title, &describe(launches, buffers));
    plot.text((LEFT, 38.0), Anchor::Start, Ink::Quiet, "launch");
    plot.text((RIGHT, 38.0), Anchor::End, Ink::Quiet, "a bar is a buffer, first write to last read");
    for (number, launch) in launches.iter().map(|name| fitting(name)).chain(["done".into()]).enumerate() {
        let y = TOP + ROW * number as f64;
        plot.line((LEFT, y + ROW), (RIGHT, y + ROW), 1.0, Ink::Grid);
        if number < launches.len() {
            plot.text((LEFT + 16.0, y + 14.0), Anchor::End, Ink::Quiet, &number.to_string());
        }
        plot.text((LEFT + 24.0, y + 14.0), Anchor::Start, Ink::Text, &launch);
    }
    for (buffer, column) in buffers.iter().zip(&columns) {
        let left = border + width * *column as f64;
        let (top, bottom) =
            (TOP + ROW * buffer.first as f64 + 2.0, TOP + ROW * (buffer.last + 1) as f64 - 2.0);
        let ink = if buffer.last >= launches.len() { Ink::Bound } else { Ink::Attempt };
        plot.area((left, top), (left + width - 4.0, bottom), ink, 0.3);
        plot.area((left, top), (left + 3.0, bottom), ink, 1.0);
        if width >= 50.0 {
            plot.text((left + width / 2.0, top + 12.0), Anchor::Middle, Ink::Quiet, &bytes(buffer.bytes));
        }
    }
    plot.finish(TOP + ROW * (launches.len() + 1) as f64 + 8.0)
}

/// Characters of a launch's name that have room beside the bars.
const LONGEST: usize = 30;

/// Characters of a longer name that are shown: a narrow font gives room for all, a wide one for these.
const SHOWN: usize = 27;

/// A name, or as much of it as has room.
fn fitting(name: &str) -> String {
    if name.chars().count() <= LONGEST {
        return name.to_owned();
    }
    let begin: String = name.chars().take(SHOWN).collect();
    format!("{begin}\u{2026}")
}

/// A column for each buffer, the first that is free for all of its life.
pub fn columns(buffers: &[Buffer]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|i| (buffers[*i].first, buffers[*i].last));
    let mut until: Vec<usize> = Vec::new();
    let mut columns = vec![0; buffers.len()];
    for i in order {
        let free = until.iter().position(|last| *last < buffers[i].first);
        columns[i] = free.unwrap_or(until.len());
        until.resize(until.len().max(columns[i] + 1), 0);
        until[columns[i]] = buffers[i].last;
    }
    columns
}

fn describe(launches: &[String], buffers: &[Buffer]) -> String {
    let one = |buffer: &Buffer| format!("{} from {} to {}", bytes(buffer.bytes), buffer.first, buffer.last);
    let buffers: Vec<String> = buffers.iter().map(one).collect();
    format!("{} launches: {}. Buffers: {}.", launches.len(), launches.join("; "), buffers.join(", "))
}
