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

/// Copies rows of some bytes each side by side; those that lie side by side already at once.
pub fn gather(
    device: &dyn Device,
    from: &Buffer,
    bytes: usize,
    rows: &[usize],
    to: &mut Buffer,
) -> Result<(), Error> {
    let mut first = 0;
    for run in adjacent(rows) {
        let len = run.len() * bytes;
        device.copy_at(to, first, from, run[0] * bytes, len).map_err(device_error)?;
        first += len;
    }
    Ok(())
}

/// Rows, as far as each is the next of the one before.
fn adjacent(rows: &[usize]) -> impl Iterator<Item = &[usize]> {
    rows.chunk_by(|row, next| row + 1 == *next)
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
        for name in outputs.names() {
            if let Some(values) = self.values.get_mut(name) {
                outputs.read(name, |bytes| take(values, rows, bytes)).map_err(Error::Session)?;
            } else if name == "hidden.grad" {
                self.take_gradient(name, rows, outputs)?;
            } // what chunks add up stays where it is
        }
        Ok(())
    }

    /// Puts the gradient of a chunk's states where it belongs.
    fn take_gradient(&mut self, name: &str, rows: &[usize], outputs: &Outputs<'_>) -> Result<(), Error> {
        let own = match (&mut self.of_hidden, &mut self.hidden) {
            (Some(own), _) => own,
            (None, Hidden::Donated(buffer)) => buffer,
            (None, Hidden::Borrowed(_)) => return Ok(()), // nobody asked for it
        };
        let mut first = 0;
        for run in adjacent(rows) {
            let len = run.len() * self.row;
            outputs.copy_to(name, first..first + len, own, run[0] * self.row).map_err(Error::Session)?;
            first += len;
        }
        Ok(())
    }
}

/// Puts a number of each row where it belongs.
fn take(values: &mut [f32], rows: &[usize], bytes: &[u8]) {
    let numbers = bytes.as_chunks().0.iter().map(|four| f32::from_ne_bytes(*four));
    rows.iter().zip(numbers).for_each(|(row, value)| values[*row] = value);
}
