//! One graph for many lengths.
//!
//! A graph whose sizes are symbols is compiled for numbers. So that not every length is a compilation of its own,
//! lengths are rounded up to a few *buckets*, inputs are padded to them and outputs cut. This pass makes that right: of
//! a graph it makes one of the same inputs and outputs in which the sizes of padded symbols are those of the bucket,
//! with an input `length.SYMBOL` (i32, no dimensions) for each real one. Whatever numbers stand in the padding, not a
//! bit of a real result depends on them.
//!
//! **Why that takes a pass.** An operation that works on each element by itself keeps padding where it is. One that
//! adds, compares or looks up across a padded dimension mixes it in, and is right only if it meets a neutral element
//! there:
//!
//! | operation | what its inputs' padding has to hold |
//! |---|---|
//! | element by element, views, `broadcast` | anything |
//! | `div` of i32 | a divisor that is not 0 |
//! | `sum` over a padded dimension | 0 |
//! | `reduce_max` over it | minus infinity |
//! | `matmul` over it | 0 in both factors, for 0 times infinity is no 0 |
//! | `gather` | an index of 0 |
//! | `scatter_add` | an index of 0, and rows of 0 |
//! | `slice` from a number on | anything |
//! | `slice` from a symbol on | becomes a `gather` of the real places |
//! | `concat` after something padded | the constant that follows; otherwise it becomes a `gather` |
//! | `reshape` that takes merged dimensions apart elsewhere | becomes a `gather` of every element |
//! | collectives | anything, where all ranks have one length; what is gathered is real rank by rank |
//! | `attention` | its mask forbids it; values that are finite |
//! | `attention_grad` | its mask forbids it; queries, keys and the gradient finite, values 0; by definition, for an extra |
//!
//! A mean is a sum over a sum of ones, and right by itself.
//!
//! **What it costs.** A `select` where something would leak, on the node that it comes from and for all who use it,
//! since padding may hold anything, 0 too. What is 0 already, or some other known number, is not masked again: the rows
//! of a product whose left rows are 0, the labels that are ignored. A fused compiler makes it part of the loop that
//! writes the node. The alternative, to compute with what is there and trust that it is small or cancels, costs nothing
//! and is right by luck: one NaN in a buffer that was used before, times a weight of 0, is a NaN in every gradient.
//!
//! **What is taken for granted.** Inputs of floats without a padded dimension are finite, in the types that they are
//! cast to, and so are dequantised weights: 0 times a weight is 0. Both the length and the bucket satisfy what is known
//! of the symbol. Where the graph without padding fails, the padded one may not. Positions in a dimension fit an i32.
//!
//! **What is refused.** A size that would shrink where a symbol grows, such as `S - T`; a symbol that the graph does
//! not have; an input that is called `length.SYMBOL` already. All others are done: an input's real part is the leading
//! part of each of its dimensions, whatever polynomial its size is, and so is an output's, also where a dimension was
//! merged of several.

mod arrange;
mod attend;
mod emit;
mod layout;
mod neutral;
mod sizes;

use std::collections::BTreeSet;
use std::error;
use std::fmt;

use reference::graph::{self, Graph, Id, Symbol};

use layout::Padding;

pub use sizes::length_name;

/// A graph that may be padded.
#[derive(Clone, Debug, PartialEq)]
pub struct Padded {
    /// The graph.
    pub graph: Graph,
    /// How many selects it has for the sake of padding, those of indices among them.
    pub selects: usize,
}

/// Why a graph cannot be padded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// No size of the graph has the symbol in it.
    Unknown {
        /// The symbol.
        symbol: Symbol,
    },
    /// The name of a length is the name of an input.
    Taken {
        /// The name.
        name: String,
    },
    /// A node that cannot be padded.
    Node {
        /// The node, and the part of the model that it belongs to.
        at: String,
        /// Why.
        reason: String,
    },
    /// The graph is not sound.
    Graph(graph::Error),
}

/// The graph whose sizes in `symbols` may be larger than what they are in truth.
///
/// Fails where a size shrinks by padding, a symbol is nowhere, a name is taken, or the graph is not sound.
pub fn pad(graph: &Graph, symbols: &[Symbol]) -> Result<Padded, Error> {
    graph.check()?;
    let padding = Padding(symbols.iter().cloned().collect::<BTreeSet<_>>());
    for symbol in &padding.0 {
        known(graph, symbol)?;
    }
    let arranged = arrange::arrange(graph, &padding)?;
    let chosen = neutral::choose(&arranged, &padding);
    let (graph, selects) = emit::emit(&arranged, &padding, &chosen)?;
    graph.check()?;
    Ok(Padded { graph, selects })
}

/// That an input says how large a symbol is, and that its length can be given a name.
fn known(graph: &Graph, symbol: &Symbol) -> Result<(), Error> {
    let mut sizes = graph.inputs().flat_map(|(_, id)| &graph.ty(id).shape);
    if !sizes.any(|size| size.symbols().any(|one| one == symbol)) {
        return Err(Error::Unknown { symbol: symbol.clone() });
    }
    let name = length_name(symbol);
    if graph.find_input(&name).is_some() { Err(Error::Taken { name }) } else { Ok(()) }
}

/// The error of a node.
fn refuse(graph: &Graph, id: Id, reason: String) -> Error {
    let node = graph.node(id);
    let name = graph.site(id);
    let at = if node.scope.is_empty() { name } else { format!("{name} of {:?}", node.scope) };
    Error::Node { at, reason }
}

/// Row-major elements of `element_bytes` each with zeros after them along every dimension.
///
/// # Panics
/// If there are not as many bytes as the real shape has, or a real size is larger than the padded one.
pub fn widen(bytes: &[u8], element_bytes: usize, real: &[usize], padded: &[usize]) -> Vec<u8> {
    let mut wide = vec![0; padded.iter().product::<usize>() * element_bytes];
    assert_eq!(bytes.len(), real.iter().product::<usize>() * element_bytes, "elements of shape {real:?}");
    for (from, to) in rows(element_bytes, real, padded) {
        wide[to.clone()].copy_from_slice(&bytes[from.clone()]);
    }
    wide
}

/// The leading part of each dimension: what [`widen`] was given.
///
/// # Panics
/// As [`widen`] does.
pub fn narrow(bytes: &[u8], element_bytes: usize, real: &[usize], padded: &[usize]) -> Vec<u8> {
    assert_eq!(bytes.len(), padded.iter().product::<usize>() * element_bytes, "elements of shape {padded:?}");
    rows(element_bytes, real, padded).into_iter().flat_map(|(_, from)| &bytes[from]).copied().collect()
}

/// A stretch of bytes.
type Stretch = std::ops::Range<usize>;

/// Where each real row lies among the real ones and in the padded array.
fn rows(element_bytes: usize, real: &[usize], padded: &[usize]) -> Vec<(Stretch, Stretch)> {
    assert!(
        real.len() == padded.len() && real.iter().zip(padded).all(|(real, padded)| real <= padded),
        "{real:?} is no part of {padded:?}"
    );
    let (width, step) =
        (real.last().unwrap_or(&1) * element_bytes, padded.last().unwrap_or(&1) * element_bytes);
    let lead = |shape: &[usize]| shape[..shape.len().saturating_sub(1)].to_vec();
    let mut starts = vec![0];
    for (real, padded) in lead(real).into_iter().zip(lead(padded)) {
        starts = starts.into_iter().flat_map(|start| (0..real).map(move |i| start * padded + i)).collect();
    }
    let row = |(i, start): (usize, usize)| (i * width..(i + 1) * width, start * step..start * step + width);
    starts.into_iter().enumerate().map(row).collect()
}

impl From<graph::Error> for Error {
    fn from(error: graph::Error) -> Self {
        Self::Graph(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { symbol } => write!(f, "no input has a size with {symbol} in it"),
            Self::Taken { name } => write!(f, "{name:?} is the name of an input already"),
            Self::Node { at, reason } => write!(f, "{at}: {reason}"),
            Self::Graph(error) => write!(f, "{error}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Graph(error) => Some(error),
            _ => None,
        }
    }
}
