//! What a mask leaves of the blocks of an attention: looked at once a run, before anything is computed, and kept as a
//! bit a score where it leaves some. Most blocks are all or nothing by the mask's [bounds]; where those leave it open,
//! the mask is asked for every score. A mask that depends on the score is asked each time instead.
//!
//! The memory of the bits is there before the first run, for as many blocks as masks leave in part in practice: all of
//! them where that is little, else a few in each row and column of blocks. A block beyond that is asked each time, too:
//! it has the same bits, and costs the mask's program once more for each head.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use super::super::engine::floats;
use super::{AttentionCall, Block, bounds};
use crate::buffer::Buffer;
use crate::cpu::Cpu;
use crate::error::DeviceError;
use crate::plan::Attention;

/// What the queries of a block may see of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockMask<'a> {
    Empty,
    /// A bit for each key, 16 a word; each query begins with a new word.
    Partial(&'a [u16]),
    Full,
    /// It depends on the score, or its bits are not kept.
    ScoreDependent,
}

/// Words of a block's bits.
const WORDS: usize = Attention::BLOCK[0] * Attention::BLOCK[1].div_ceil(16);

/// Blocks whose bits are kept at least, if there are so many, and at most: 8 MiB and 64 MiB.
const KEPT: [usize; 2] = [1 << 12, 1 << 15];

/// Blocks of a row or column of blocks whose bits are kept: two edges of a window, and two of documents.
const KEPT_A_ROW: usize = 4;

/// How a cell says what its block sees: one of these, or these many and the number of its bits.
const EMPTY: u32 = 0;
const FULL: u32 = 1;
const SCORE_DEPENDENT: u32 = 2;
const BITS: u32 = 3;

/// Memory for the map of any attention of a plan.
#[derive(Debug, Default)]
pub(crate) struct MapMemory {
    cells: Vec<AtomicU32>,
    bits: Option<Buffer>,
}

/// The blocks of an attention that have a cell of their own, and how many of their bits are kept.
pub(crate) fn map_size(attention: &Attention, varies: [bool; 2]) -> [usize; 2] {
    let (kinds, rows, columns) = grid(attention, varies);
    let kinds = kinds[0] * kinds[1];
    let cells = kinds * rows * columns;
    let a_row = KEPT_A_ROW.saturating_mul(kinds).saturating_mul(rows + columns);
    [cells, cells.min(a_row.clamp(KEPT[0], KEPT[1]))]
}

/// Sequences and heads that differ; rows; columns.
fn grid(attention: &Attention, varies: [bool; 2]) -> ([usize; 2], usize, usize) {
    let counts = [attention.batch, attention.heads];
    let count = |dim: usize| if varies[dim] { counts[dim] } else { counts[dim].min(1) };
    let [queries, keys] = Attention::BLOCK;
    ([count(0), count(1)], attention.queries.div_ceil(queries), attention.keys.div_ceil(keys))
}

impl MapMemory {
    /// Memory for so many blocks, and the bits of so many.
    pub fn new([cells, kept]: [usize; 2]) -> Result<Self, DeviceError> {
        let bits = (kept > 0).then(|| Buffer::new("mask", kept * WORDS * size_of::<u16>())).transpose()?;
        let mut all = Vec::new();
        let bytes = cells.saturating_mul(size_of::<AtomicU32>());
        all.try_reserve_exact(cells).map_err(|_| DeviceError::Memory { tag: "mask", bytes })?;
        all.resize_with(cells, || AtomicU32::new(EMPTY));
        Ok(Self { cells: all, bits })
    }

    /// What it takes.
    pub fn bytes(&self) -> usize {
        self.cells.len() * size_of::<AtomicU32>() + self.bits.as_ref().map_or(0, Buffer::bytes)
    }
}

/// What every block sees. A mask that is the same for all sequences, or heads, has one map for them.
#[derive(Debug)]
pub(super) struct Map<'a> {
    all: Option<BlockMask<'static>>, // what every block sees, if that is known
    cells: &'a [AtomicU32],
    bits: &'a [u16],
    kinds: [usize; 2], // sequences and heads that differ
    rows: usize,
    columns: usize,
}

/// The bits of blocks, each of which one thread writes.
struct Bits {
    at: *mut u16,
    count: usize,
    next: AtomicUsize,
}

// SAFETY: whoever takes a number is the only one that writes the bits of that number.
unsafe impl Sync for Bits {}

impl Bits {
    /// Memory for one block's bits; `None` if there is none left.
    #[allow(clippy::mut_from_ref)] // each number is handed out once
    fn take(&self) -> Option<(u32, &mut [u16])> {
        let number = self.next.fetch_add(1, Relaxed);
        if number >= self.count {
            return None;
        }
        // SAFETY: inside the memory, and nobody else has this number.
        let bits = unsafe { std::slice::from_raw_parts_mut(self.at.add(number * WORDS), WORDS) };
        Some((number as u32, bits))
    }
}

impl<'a> Map<'a> {
    /// Looks at the mask.
    ///
    /// # Safety
    /// As for [`Cpu::attention`].
    pub unsafe fn of(
        cpu: &Cpu,
        work: &AttentionCall,
        memory: &'a mut MapMemory,
    ) -> Result<Self, DeviceError> {
        let (kinds, rows, columns) = grid(work.attention, work.programs.mask_varies);
        let all = match (&work.programs.mask, &work.programs.masked) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(BlockMask::ScoreDependent),
            (None, None) => Some(BlockMask::Full),
        };
        if all.is_some() {
            return Ok(Self { all, cells: &[], bits: &[], kinds, rows, columns });
        }
        let count = kinds[0] * kinds[1] * rows * columns;
        let words = memory.bits.as_mut().map_or(&mut [][..], |bits| bits.view_mut::<u16>());
        let bits = Bits { at: words.as_mut_ptr(), count: words.len() / WORDS, next: AtomicUsize::new(0) };
        let cells = &memory.cells[..count];
        cpu.each_of(count, |n| {
            let (row, column) = (n / columns % rows, n % columns);
            let (batch, head) = (n / columns / rows / kinds[1], n / columns / rows % kinds[1]);
            // SAFETY: the caller's.
            let seen = unsafe { cpu.look(work, &work.block(batch, head, row, column), &bits)? };
            cells[n].store(seen, Relaxed); // the end of `each_of` is one of all threads
            Ok(())
        })?;
        Ok(Self { all, cells, bits: words, kinds, rows, columns })
    }

    /// What a block sees.
    pub fn at(&self, block: &Block, [row, column]: [usize; 2]) -> BlockMask<'a> {
        if let Some(all) = self.all {
            return all;
        }
        let (batch, head) = (block.batch.min(self.kinds[0] - 1), block.head.min(self.kinds[1] - 1));
        let cell = ((batch * self.kinds[1] + head) * self.rows + row) * self.columns + column;
        match self.cells[cell].load(Relaxed) {
            EMPTY => BlockMask::Empty,
            FULL => BlockMask::Full,
            SCORE_DEPENDENT => BlockMask::ScoreDependent,
            cell => {
                let words = block.queries * block.keys.div_ceil(16);
                BlockMask::Partial(&self.bits[(cell - BITS) as usize * WORDS..][..words])
            }
        }
    }
}

impl Cpu {
    /// Runs the mask on a block, and tells what its cell says.
    unsafe fn look(&self, work: &AttentionCall, block: &Block, bits: &Bits) -> Result<u32, DeviceError> {
        let Some(mask) = &work.programs.mask else { return Ok(FULL) };
        let mut scratch = self.scratch.of_this_thread(self);
        // SAFETY: the caller's.
        if let Some(allowed) = unsafe { bounds::of_all(work, mask, block, scratch.bytes()) } {
            return Ok(if allowed { FULL } else { EMPTY });
        }
        let mut rest = scratch.bytes();
        let allowed = floats(&mut rest, block.lanes());
        // SAFETY: the caller's; the mask reads no block, and writes whole numbers of the size of an f32.
        unsafe { work.apply(mask, block, &[std::ptr::null_mut()], allowed.as_mut_ptr(), rest)? };
        let count = allowed.iter().filter(|allowed| allowed.to_bits() != 0).count();
        if count == 0 || count == block.lanes() {
            return Ok(if count == 0 { EMPTY } else { FULL });
        }
        let Some((number, bits)) = bits.take() else { return Ok(SCORE_DEPENDENT) };
        bits.iter_mut().zip(allowed.chunks(block.keys).flat_map(words)).for_each(|(to, word)| *to = word);
        Ok(BITS + number)
    }
}

/// A row of conditions, 16 a word.
fn words(row: &[f32]) -> impl Iterator<Item = u16> + '_ {
    let bit = |(i, allowed): (usize, &f32)| u16::from(allowed.to_bits() != 0) << i;
    row.chunks(16).map(move |some| some.iter().enumerate().map(bit).sum())
}
