//! Rows of tensors on a device: gathered for a chunk, and put back.

use std::collections::BTreeMap;

use compiler::session::Outputs;
use kernels::{Buffer, Device};
use reference::graph::{Dim, Type};

use super::error::device as device_error;
use super::{Error, Hidden};
use crate::loss::Problem;

/// Bytes of one row of a tensor of rows.
pub fn row_bytes(ty: &Type) -> usize {
    let elements: i64 = ty.shape[1..].iter().filter_map(Dim::as_fixed).product();
    elements as usize * ty.dtype.bytes()
}

/// Copies bytes to where a tensor begins.
pub fn put(device: &dyn Device, to: &mut Buffer, bytes: &[u8]) -> Result<(), Error> {
    device.upload_at(to, 0, bytes).map_err(device_error)
}

/// Copies rows of some bytes each side by side, over one row of the host's memory.
pub fn gather(
    device: &dyn Device,
    from: &Buffer,
    bytes: usize,
    rows: &[usize],
    to: &mut Buffer,
) -> Result<(), Error> {
    let mut row = vec![0; bytes];
    for (number, place) in rows.iter().enumerate() {
        device.download_at(from, place * bytes, &mut row).map_err(device_error)?;
        device.upload_at(to, number * bytes, &row).map_err(device_error)?;
    }
    Ok(())
}

/// What a run makes of each row.
pub struct Made<'a> {
    device: &'a dyn Device,
    pub hidden: Hidden<'a>,
    pub of_hidden: Option<Buffer>, // its gradient, where that has memory of its own
    pub values: BTreeMap<String, Vec<f32>>,
    row: usize, // bytes of a hidden state
}

impl<'a> Made<'a> {
    pub fn new(
        device: &'a dyn Device,
        problem: &Problem,
        hidden: Hidden<'a>,
        counts: &[bool],
    ) -> Result<Self, Error> {
        let (rows, row) = (counts.len(), problem.width * problem.dtype.bytes());
        let is_borrowed = matches!(hidden, Hidden::Borrowed(_));
        let own = (problem.trains.hidden && is_borrowed).then(|| device.alloc("gradient", rows * row));
        let of_hidden = own.transpose().map_err(device_error)?;
        let values = problem.loss.values().map(|name| (name.to_owned(), vec![0.0; rows])).collect();
        let mut made = Self { device, hidden, of_hidden, values, row };
        made.clear(counts)?;
        Ok(made)
    }

    /// Rows that do not count have no gradient: where it takes over the states' memory, they are emptied.
    fn clear(&mut self, counts: &[bool]) -> Result<(), Error> {
        let Hidden::Donated(buffer) = &mut self.hidden else { return Ok(()) };
        let zeros = vec![0; self.row];
        let mut empty = counts.iter().enumerate().filter(|(_, counts)| !**counts);
        empty
            .try_for_each(|(row, _)| self.device.upload_at(buffer, row * zeros.len(), &zeros))
            .map_err(device_error)
    }

    /// Puts the results of a chunk where they belong.
    pub fn take_all(&mut self, rows: &[usize], outputs: &Outputs<'_>) -> Result<(), Error> {
        let names: Vec<&str> = outputs.names().filter(|name| self.wants(name)).collect();
        for name in names {
            outputs.read(name, |bytes| self.take(name, rows, bytes)).map_err(Error::Session)??;
        }
        Ok(())
    }

    /// Whether an output belongs to rows: what chunks add up stays where it is.
    fn wants(&self, name: &str) -> bool {
        name == "hidden.grad" || self.values.contains_key(name)
    }

    fn take(&mut self, name: &str, rows: &[usize], bytes: &[u8]) -> Result<(), Error> {
        if let Some(values) = self.values.get_mut(name) {
            let numbers = bytes.as_chunks().0.iter().map(|four| f32::from_ne_bytes(*four));
            rows.iter().zip(numbers).for_each(|(row, value)| values[*row] = value);
            return Ok(());
        }
        let own = match (&mut self.of_hidden, &mut self.hidden) {
            (Some(own), _) => own,
            (None, Hidden::Donated(buffer)) => buffer,
            (None, Hidden::Borrowed(_)) => return Ok(()), // nobody asked for it
        };
        let row = self.row;
        let mut pairs = bytes.chunks(row.max(1)).zip(rows);
        pairs.try_for_each(|(from, at)| self.device.upload_at(own, at * row, from)).map_err(device_error)
    }
}
