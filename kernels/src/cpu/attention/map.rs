//! What a mask leaves of the blocks of an attention: looked at once a run, before anything is computed, and kept as a
//! bit a score where it leaves some. A mask that depends on the score is asked each time instead.

use super::{Block, Work};
use crate::cpu::Cpu;
use crate::error::DeviceError;

/// What the queries of a block may see of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sees {
    Nothing,
    /// A bit for each key, 16 a word; each query begins with a new word.
    Some(Vec<u16>),
    All,
    /// It depends on the score.
    Ask,
}

/// What every block sees. A mask that is the same for all sequences, or heads, has one map for them.
#[derive(Debug)]
pub(super) struct Map {
    cells: Vec<Sees>,
    kinds: [usize; 2], // sequences and heads that differ
    rows: usize,
    columns: usize,
}

impl Map {
    /// Looks at the mask.
    ///
    /// # Safety
    /// As for [`Cpu::attention`].
    pub unsafe fn of(cpu: &Cpu, work: &Work) -> Result<Self, DeviceError> {
        let attention = work.attention;
        let counts = [attention.batch, attention.heads];
        let count =
            |dim: usize| if work.programs.mask_varies[dim] { counts[dim] } else { counts[dim].min(1) };
        let (kinds, rows, columns) = ([count(0), count(1)], work.rows(), work.columns());
        let map = |cells| Self { cells, kinds, rows, columns };
        let cells = kinds[0] * kinds[1] * rows * columns;
        if work.programs.mask.is_none() {
            let sees = if work.programs.masked.is_some() { Sees::Ask } else { Sees::All };
            return Ok(map(vec![sees; cells]));
        }
        let cell = |n: usize| {
            let (row, column) = (n / columns % rows, n % columns);
            let (batch, head) = (n / columns / rows / kinds[1], n / columns / rows % kinds[1]);
            // SAFETY: the caller's.
            unsafe { cpu.look(work, &work.block(batch, head, row, column)) }
        };
        Ok(map(cpu.each_of(cells, cell)?))
    }

    /// What a block sees.
    pub fn at(&self, batch: usize, head: usize, row: usize, column: usize) -> &Sees {
        let (batch, head) = (batch.min(self.kinds[0] - 1), head.min(self.kinds[1] - 1));
        &self.cells[((batch * self.kinds[1] + head) * self.rows + row) * self.columns + column]
    }
}

impl Cpu {
    /// Runs the mask on a block.
    unsafe fn look(&self, work: &Work, block: &Block) -> Result<Sees, DeviceError> {
        let Some(mask) = &work.programs.mask else { return Ok(Sees::All) };
        let mut scratch = self.scratch(block.lanes());
        let allowed = &mut scratch.floats()[..block.lanes()];
        // SAFETY: the caller's; the mask reads no block, and writes whole numbers of the size of an f32.
        unsafe { work.apply(mask, block, &[std::ptr::null_mut()], allowed.as_mut_ptr())? };
        let count = allowed.iter().filter(|allowed| allowed.to_bits() != 0).count();
        Ok(match count {
            0 => Sees::Nothing,
            count if count == block.lanes() => Sees::All,
            _ => Sees::Some(allowed.chunks(block.keys).flat_map(words).collect()),
        })
    }
}

/// A row of conditions, 16 a word.
fn words(row: &[f32]) -> impl Iterator<Item = u16> + '_ {
    let bit = |(i, allowed): (usize, &f32)| u16::from(allowed.to_bits() != 0) << i;
    row.chunks(16).map(move |some| some.iter().enumerate().map(bit).sum())
}
