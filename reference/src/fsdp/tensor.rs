//! Layers shared by several ranks: tensor parallelism.
//!
//! ```text
//! column   y_r = x W_r^T            W cut by rows (out): each rank has some outputs      q, k, v, gate, up
//! row      y = sum_r x_r W_r^T      W cut by columns (in): each rank has some inputs     o, down
//! ```
//!
//! A column-parallel product is followed by a row-parallel one, so that a rank needs nobody between them: its heads of
//! the attention, its part of the MLP. The sum of the row-parallel products is what ranks do together. The same holds
//! of an adapter's pair x A^T B^T: where the outputs are cut, B is; where the inputs are, A is; the other one is whole.
//!
//! A rank's layer is the same layer of a smaller model: [`local`]. Its quantised weights keep their codes; their scales
//! are decoded to f32, since the blocks of a rank are no longer those 256 that share a second-level scale. That makes no
//! difference to any dequantised bit, and takes 3 bytes more for each block.
//!
//! Heads are shared equally. The width of the MLP is shared in units of a block, and what a rank has less than the others
//! is padding: rows and columns of zeros, whose outputs and gradients are zeros. Where a row is no whole number of
//! blocks, blocks are halved until it is: both halves have the scale of the whole.
//!
//! Source: Shoeybi et al., "Megatron-LM" (2019), section 3.

use std::fmt;
use std::ops::Range;

use crate::llama::{Spec, Storage};
use crate::nf4::{Quantized, Scales, block_absmax};

/// How ranks share a matrix (out, in), or a tensor of other dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Everyone has all of it.
    Whole,
    /// Each has some of the first dimension.
    Rows,
    /// Each has some of the second dimension.
    Columns,
}

/// Sizes that ranks cannot share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uneven {
    /// What is cut.
    pub what: String,
    /// Its size.
    pub found: usize,
    /// What it has to be a multiple of.
    pub multiple: usize,
}

impl fmt::Display for Uneven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, found, multiple } = self;
        write!(f, "expected {what} to be a multiple of {multiple}, found {found}")
    }
}

impl std::error::Error for Uneven {}

/// A tensor and how ranks share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// By which dimension.
    pub cut: Cut,
    /// Dimensions of the tensor.
    pub whole: Vec<usize>,
    /// Dimensions of a rank's part, padding included.
    pub local: Vec<usize>,
}

/// The smallest block of a quantised weight.
const SMALLEST_BLOCK: usize = 32;

/// The model whose layers are those of one of several ranks: its heads, its part of the MLP.
///
/// Fails where heads or key heads cannot be shared equally, or blocks would lie on two ranks however small they are.
pub fn local(spec: &Spec, ranks: usize) -> Result<Spec, Uneven> {
    let mut own = spec.clone();
    if ranks == 1 {
        return Ok(own);
    }
    let heads = [("the number of heads", &mut own.config.heads), ("of key heads", &mut own.config.key_heads)];
    for (what, size) in heads {
        divided(what, *size, ranks)?;
        *size /= ranks;
    }
    let width = spec.config.intermediate;
    let unit = projections(spec).map(|(_, block, inputs)| block_of(block, inputs)).min().unwrap_or(1);
    own.config.intermediate = width.div_ceil(unit).div_ceil(ranks) * unit;
    for (name, block, inputs) in projections(spec) {
        let smaller = block_of(block, inputs);
        if smaller < SMALLEST_BLOCK {
            divided(&format!("the inputs of `{name}`"), inputs, SMALLEST_BLOCK)?;
        }
        let Some(Storage::Nf4 { block_size, nested, .. }) = own.storages.get_mut(name) else { continue };
        (*block_size, *nested) = (smaller, None);
    }
    for (name, block, inputs) in projections(&own) {
        divided(&format!("the inputs of `{name}` on each of {ranks} ranks"), inputs, block)?;
    }
    Ok(own)
}

/// The quantised projections of a model: name, elements of a block, inputs.
fn projections(spec: &Spec) -> impl Iterator<Item = (&str, usize, usize)> {
    let config = &spec.config;
    spec.storages.iter().filter_map(|(name, storage)| {
        let Storage::Nf4 { block_size, .. } = storage else { return None };
        let mut projections = config.projections().into_iter();
        let (_, _, inputs) = projections.find(|(module, ..)| name.contains(&format!(".{module}.")))?;
        Some((name.as_str(), *block_size, inputs))
    })
}

/// The largest part of a block of which a row is a whole number.
fn block_of(block: usize, inputs: usize) -> usize {
    let mut smaller = block;
    while smaller > 1 && !inputs.is_multiple_of(smaller) {
        smaller /= 2;
    }
    smaller
}

fn divided(what: &str, found: usize, multiple: usize) -> Result<(), Uneven> {
    if found.is_multiple_of(multiple) {
        Ok(())
    } else {
        Err(Uneven { what: what.to_owned(), found, multiple })
    }
}

impl Shared {
    /// Whether parts of these dimensions, on so many ranks, are the whole tensor.
    pub fn is_complete(&self, ranks: usize) -> bool {
        let Self { cut, whole, local } = self;
        let dim = match cut {
            Cut::Whole => return whole == local,
            Cut::Rows => 0,
            Cut::Columns => 1,
        };
        let same = |i: usize| i == dim || whole[i] == local[i];
        whole.len() == local.len()
            && whole.len() > dim
            && (0..whole.len()).all(same)
            && local[dim].saturating_mul(ranks) >= whole[dim]
    }

    /// The rows of a rank and the elements of each, as [rows, elements of a row] of the whole and of the part.
    fn matrices(&self) -> [[usize; 2]; 2] {
        [&self.whole, &self.local]
            .map(|shape| [shape.first().copied().unwrap_or(1), shape.iter().skip(1).product()])
    }

    /// What a rank has: rows, and elements of a row, of the whole.
    pub fn held(&self, rank: usize) -> [Range<usize>; 2] {
        let [[rows, row], [own_rows, own_row]] = self.matrices();
        let at = |own: usize, all: usize| (rank * own).min(all)..((rank + 1) * own).min(all);
        match self.cut {
            Cut::Whole => [0..rows, 0..row],
            Cut::Rows => [at(own_rows, rows), 0..row],
            Cut::Columns => [0..rows, at(own_row, row)],
        }
    }

    /// A rank's part of the elements of a row-major matrix of items: `unit` elements are an item. What is padding is
    /// `padding`.
    fn part_of<T: Clone>(&self, items: &[T], unit: usize, rank: usize, padding: &T) -> Vec<T> {
        let [[_, row], [own_rows, own_row]] = self.matrices();
        let [rows, columns] = self.held(rank);
        let mut part = vec![padding.clone(); own_rows * own_row / unit];
        for (to, from) in rows.enumerate() {
            let from = (from * row + columns.start) / unit..(from * row + columns.end) / unit;
            part[to * own_row / unit..][..from.len()].clone_from_slice(&items[from]);
        }
        part
    }

    /// A rank's part of the bytes of a tensor whose elements have so many bytes; padding is zeros.
    ///
    /// # Panics
    /// If there are fewer bytes than the tensor has elements.
    pub fn part(&self, bytes: &[u8], element_bytes: usize, rank: usize) -> Vec<u8> {
        let elements: Vec<&[u8]> = bytes.chunks(element_bytes).collect();
        self.part_of(&elements, 1, rank, &&[0; 16][..element_bytes]).concat()
    }

    /// The bytes of a tensor from everyone's parts, in rank order.
    ///
    /// # Panics
    /// If a part has fewer bytes than a rank's elements.
    pub fn together(&self, parts: &[impl AsRef<[u8]>], element_bytes: usize) -> Vec<u8> {
        let [[_, row], [_, own_row]] = self.matrices();
        let mut whole = vec![0; self.whole.iter().product::<usize>() * element_bytes];
        for (rank, part) in parts.iter().enumerate() {
            let [rows, columns] = self.held(rank);
            let count = columns.len() * element_bytes;
            for (from, to) in rows.enumerate() {
                let to = (to * row + columns.start) * element_bytes;
                whole[to..to + count]
                    .copy_from_slice(&part.as_ref()[from * own_row * element_bytes..][..count]);
            }
        }
        whole
    }

    /// A rank's part of a quantised weight: the same codes, and one f32 for each of its blocks, which are `block`
    /// elements long.
    ///
    /// # Panics
    /// If a block would lie on two ranks, which [`local`] refuses.
    pub fn quantized<B: AsRef<[u8]>>(&self, weight: &Quantized<B>, block: usize, rank: usize) -> Quantized {
        let view = weight.view();
        let scale = |element: usize| block_absmax(&view.absmax, element / view.block_size);
        let scales: Vec<f32> = (0..view.len).step_by(block).map(scale).collect();
        Quantized {
            shape: self.local.clone(),
            dtype: weight.dtype,
            packed: self.part_of(view.packed, 2, rank, &ZEROS),
            table: weight.table,
            block_size: block,
            absmax: Scales::Single(self.part_of(&scales, block, rank, &0.0)),
        }
    }
}

/// Two codes of the table's 0.
const ZEROS: u8 = 0x77;
