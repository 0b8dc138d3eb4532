//! A plan: what a compiled computation does, step by step, as data.
//!
//! What a plan works out lies in one *arena*, at places that were fixed beforehand; what it only reads - weights, token
//! ids - are its *inputs*; what it updates - sums of gradients - is *donated*: a buffer of the caller's, read and
//! written. A step names its memory by views: where the first element lies, and how far apart the neighbours are along
//! each dimension. So a plan can be printed, drawn, counted and checked before it runs, and it runs without allocating.
//!
//! A plan is checked once, when a device takes it, whoever made it: every view lies inside its memory, read or not; no
//! number overflows; no two lanes of a step write one element; and nothing is read that the same step writes. The one
//! exception is a pass *in place*: a lane may read the element that it writes itself, if every read of that memory is
//! such a one. Operations between ranks are two steps each, a start and a wait, and have their memory in between:
//! [`Start`].

mod attention;
mod check;
mod dequantize;
mod flight;
mod print;
mod product;
mod touched;
mod traffic;
mod view;
mod waits;

use std::sync::Arc;

pub use attention::{Attention, AttentionGrad};
pub(crate) use dequantize::MOST_INPUTS;
pub use dequantize::{Dequantize, WeightPart};
pub use flight::Start;
pub(crate) use flight::prepare_together;
pub use product::{Choice, Product};
pub use view::{Memory, View, contiguous};

use crate::tile::Program;

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A tile program over a space.
    Pass {
        /// What it does.
        program: Arc<Program>,
        /// Over which shape.
        space: Vec<usize>,
        /// Its inputs.
        inputs: Vec<View>,
        /// Its outputs.
        outputs: Vec<View>,
    },
    /// A product of matrices.
    Product(Product),
    /// Attention, without its matrix of probabilities in memory.
    Attention {
        /// What is attended to, and how.
        attention: Box<Attention>,
        /// O: (batch, heads, queries, width)
        output: View,
        /// L: (batch, heads, queries), if a gradient needs it.
        lse: Option<View>,
    },
    /// The gradients of an attention; its probabilities are computed again.
    AttentionGrad(Box<AttentionGrad>),
    /// Rows of f32 added up in a table: zeros, and every row added where its index points, in order.
    Scatter {
        /// Rows, side by side.
        rows: View,
        /// A whole number for each row, side by side. One outside the table fails the run.
        index: View,
        /// The table, its rows side by side.
        to: View,
        /// How many rows.
        count: usize,
        /// Elements of a row.
        width: usize,
        /// Rows of the table.
        table: usize,
    },
    /// A dequantisation by a callee, one of those that are linked when the plan is prepared.
    Call {
        /// The callee's number.
        callee: usize,
        /// What it is, for reports.
        name: String,
        /// What is wanted.
        what: Dequantize,
        /// The weight's parts, in the order of [`Dequantize::inputs`]: each from its memory's first byte on.
        inputs: Vec<View>,
        /// The elements that are wanted, side by side from its memory's first byte on.
        output: View,
    },
    /// An operation between ranks begins.
    Start(Box<Start>),
    /// What was started under a ticket is done after this step.
    Wait {
        /// The ticket.
        ticket: usize,
    },
}

/// Steps over an arena.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What it computes.
    pub name: String,
    /// Size of the arena in bytes.
    pub arena_bytes: usize,
    /// Bytes of each input.
    pub inputs: Vec<usize>,
    /// Bytes of each donated buffer.
    pub donated: Vec<usize>,
    /// In order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// A program over `len` lanes of one row: it reads the inputs, of so many bytes each, and writes what is donated.
    pub fn of_program(program: Arc<Program>, len: usize, inputs: &[usize], output: usize) -> Self {
        let view = |memory, bytes| View { memory, bytes, offset: 0, strides: vec![1] };
        let views = inputs.iter().enumerate().map(|(i, bytes)| view(Memory::Input(i), *bytes)).collect();
        let (name, outputs) = (program.name.clone(), vec![view(Memory::InOut(0), output)]);
        let steps = vec![Step::Pass { program, space: vec![len], inputs: views, outputs }];
        Self { name, arena_bytes: 0, inputs: inputs.to_vec(), donated: vec![output], steps }
    }

    /// One product in an arena.
    pub(crate) fn of_product(product: Product, arena_bytes: usize) -> Self {
        let steps = vec![Step::Product(product)];
        Self { name: "trial".into(), arena_bytes, steps, ..Self::default() }
    }
}
