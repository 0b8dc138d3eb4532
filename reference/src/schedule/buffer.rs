//! A rank's buffer for dequantised weights, as it fills and empties; the rule is at the top of `schedule/workload.rs`.

use std::collections::VecDeque;

use super::workload::Buffer;

/// Which chunks' weights are there.
pub(super) struct Buffered {
    buffer: Buffer,
    /// Chunks and how many reads each has left, in the order of their D.
    there: VecDeque<(usize, Option<usize>)>,
}

impl Buffered {
    pub(super) fn new(buffer: Buffer) -> Self {
        Self { buffer, there: VecDeque::new() }
    }

    /// D: a chunk's weights come in, the oldest go out if there is no room.
    pub(super) fn load(&mut self, chunk: usize) {
        self.there.retain(|(other, _)| *other != chunk);
        if self.there.len() == self.buffer.chunks {
            self.there.pop_front();
        }
        self.there.push_back((chunk, self.buffer.reads));
    }

    /// Whether a chunk's weights are there.
    pub(super) fn holds(&self, chunk: usize) -> bool {
        self.there.iter().any(|(other, _)| *other == chunk)
    }

    /// An operation reads a chunk's weights; whether they are there.
    pub(super) fn read(&mut self, chunk: usize) -> bool {
        let found = self.holds(chunk);
        for (_, left) in self.there.iter_mut().filter(|(other, _)| *other == chunk) {
            *left = left.map(|left| left - 1);
        }
        self.there.retain(|(_, left)| *left != Some(0));
        found
    }
}
