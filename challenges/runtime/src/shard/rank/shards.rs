//! The elements of A, B and the moments that a rank owns.
//!
//! ```text
//! a tensor (rows, columns)    its part of a layer: some rows, or some columns
//!                             its shard of that: some rows
//! ```
//!
//! So each rank has a rectangle of each tensor, and all of them together have every element once: where several have
//! the
//! same elements, the first of them owns them.

use std::ops::Range;

use reference::fsdp::{Cut, Shards};
use reference::graph::interpret::Values;
use reference::llama::train;

use super::{Placed, Rank};
use crate::shard::Error;

/// A rectangle of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The tensor.
    pub name: String,
    /// Rows, by the first dimension.
    pub rows: Range<usize>,
    /// Elements of each row.
    pub columns: Range<usize>,
    /// The elements, f32, row by row.
    pub bytes: Vec<u8>,
}

impl Rank<'_> {
    /// The moments that this rank owns.
    ///
    /// # Errors
    /// If its device cannot copy them.
    pub fn own_moments(&self) -> Result<Vec<Slice>, Error> {
        let mut all = Vec::new();
        for (name, _) in &self.trained {
            for moment in train::moments(name) {
                all.extend(self.slice(name, moment)?);
            }
        }
        Ok(all)
    }

    /// A and B, whole. Every rank calls this.
    ///
    /// # Errors
    /// If a device cannot copy them, and what another rank says.
    pub fn adapter(&self) -> Result<Values<f32>, Error> {
        let whole = |(name, _): (String, _)| Ok((name.clone(), self.whole(&name, &name)?));
        self.layout.trained().into_iter().map(whole).collect()
    }

    /// The elements of a moment that this rank owns; `None` if there are none.
    fn slice(&self, name: &str, moment: String) -> Result<Option<Slice>, Error> {
        let (part, shards) = self.layout.part(name).expect("what is trained is a parameter");
        let Placed { shared, .. } = self.layout.placed(name).expect("as well");
        if shared.cut == Cut::Whole && self.place.at.part > 0 {
            return Ok(None);
        }
        let element = part.dtype.bytes();
        let own_row = part.shape.iter().skip(1).product::<usize>().max(1);
        let [held, columns] = shared.held(self.place.at.part);
        let owned = owned(shards, self.place.at.shard);
        let first = owned.start / own_row;
        let last = (owned.end / own_row).min(held.len()); // rows after those of the tensor are padding
        if first >= last || columns.is_empty() {
            return Ok(None);
        }
        let shard = self.shard(&moment, shards.len * element)?;
        let from = owned.start - shards.ranges[self.place.at.shard].start;
        let rows = shard[from * element..].chunks(own_row * element).take(last - first);
        let bytes = rows.flat_map(|row| &row[..columns.len() * element]).copied().collect();
        let rows = held.start + first..held.start + last;
        Ok(Some(Slice { name: moment, rows, columns, bytes }))
    }
}

/// The elements of a shard that no shard before it has.
fn owned(shards: &Shards, shard: usize) -> Range<usize> {
    let before = shards.ranges[..shard].iter().map(|range| range.end).max().unwrap_or(0);
    let own = &shards.ranges[shard];
    own.start.max(before).min(own.end)..own.end
}
