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
mod flight;
mod touched;
mod traffic;
mod waits;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use attention::{Attention, AttentionGrad};
pub use flight::Start;
pub(crate) use flight::prepare_together;

use crate::callee::Dequantize;
use crate::error::DeviceError;
use crate::tile::{Element, Index, Op, Program, Store};

/// What a plan writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// Bytes of the arena from this one on, a multiple of 64.
    Arena(usize),
    /// One of the inputs, by its number: only read.
    Input(usize),
    /// One of the donated buffers, by its number: read and written.
    InOut(usize),
}

impl Memory {
    /// Whether a step may write it.
    pub(crate) fn is_written(self) -> bool {
        !matches!(self, Memory::Input(_))
    }
}

/// Elements somewhere in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Where.
    pub memory: Memory,
    /// Bytes that belong to it.
    pub bytes: usize,
    /// Elements before the first one.
    pub offset: usize,
    /// Elements between neighbours along each dimension of the step's space.
    pub strides: Vec<usize>,
}

/// A product of matrices, `to = scale a b`, or `to += scale a b`: sums in f32, rounded once to the type of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Leading dimensions, each of which all three views have a stride for.
    pub batch: Vec<usize>,
    /// Rows of `a` and of the result.
    pub m: usize,
    /// Columns of `b` and of the result.
    pub n: usize,
    /// Columns of `a`, rows of `b`.
    pub k: usize,
    /// (batch.., m, k)
    pub a: View,
    /// (batch.., k, n)
    pub b: View,
    /// What `a`, `b` and the result are made of: f32, f16 or bf16.
    pub elements: [Element; 3],
    /// (batch.., m, n)
    pub to: View,
    /// Whether the result is added to what is there.
    pub add: bool,
    /// What the product is multiplied with.
    pub scale: f32,
    /// How it is computed.
    pub choice: Choice,
}

/// How a product is computed: the candidates of tuning. On a CPU, how it is cut among threads; on a card, by which of
/// its library's kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// As the library does by itself.
    #[default]
    Library,
    /// Each thread its own rows of the result.
    Rows,
    /// Each thread its own columns of the result.
    Columns,
    /// Each thread its own matrices of the batch.
    Batch,
    /// Not at all.
    Single,
    /// Each thread its own blocks of the result, with the factors copied stretch by stretch into memory of its own that
    /// its cache holds. A product with a factor or a result that is not f32 is always computed so.
    Packed,
    /// On a card: one of the algorithms that cuBLASLt's heuristic proposes, by number, the one that it thinks fastest
    /// first.
    Algorithm(u8),
}

impl Choice {
    /// Every one on a CPU.
    pub const ALL: [Choice; 6] =
        [Choice::Library, Choice::Rows, Choice::Columns, Choice::Batch, Choice::Single, Choice::Packed];

    /// The choice for a product that was never tried, by the rows, columns and terms of each matrix.
    ///
    /// Where a factor is large and is read few times, copying it is much of the work, and the library copies it slowly.
    /// Two cores of an Intel Xeon with AVX-512, GFLOP/s of the library's fastest choice and packed, of rows that meet
    /// a weight of 32000 by 512: their logits, the logits' product with the weight, the weight's gradient.
    ///
    /// | rows | library | packed |
    /// |---:|---|---|
    /// | 64 | 118, 121, 127 | 161, 125, 143 |
    /// | 192 | 180, 197, 179 | 187, 211, 198 |
    /// | 2048 | 241, 199, 159 | 199, 182, 183 |
    ///
    /// With many rows the library is as fast or faster, but it copies the whole weight into memory that it takes for
    /// each call, 65 MB here, which no plan would know of. Packed products take memory of the threads, which
    /// [`scratch_bytes`](crate::Executable::scratch_bytes) counts, and nothing else but a few bytes that the library
    /// takes for each call. Tuning may choose otherwise.
    pub fn by_shape(m: usize, n: usize, k: usize) -> Self {
        let least = m.min(n).min(k);
        let is_flat = least >= 32 && m.max(n).max(k) >= 16 * least;
        if is_flat { Choice::Packed } else { Choice::Library }
    }
}

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
        /// The weight's parts, in the order of [`Dequantize::input_bytes`]: each from its memory's first byte on.
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

impl View {
    /// The elements that it touches over a space, from the first to the one after the last; an empty space touches
    /// none. `None` if a dimension has no stride of its own, or a number does not fit.
    pub fn span(&self, space: &[usize]) -> Option<Range<usize>> {
        let fits = |stride: &usize| isize::try_from(*stride).is_ok();
        if self.strides.len() != space.len() || !self.strides.iter().all(fits) {
            return None;
        }
        if space.contains(&0) {
            return Some(self.offset..self.offset);
        }
        let mut last = self.offset;
        for (size, stride) in space.iter().zip(&self.strides) {
            last = last.checked_add((size - 1).checked_mul(*stride)?)?;
        }
        Some(self.offset..last.checked_add(1)?)
    }

    /// All bytes that belong to it, as a view of bytes with its space.
    fn all(&self) -> (View, [usize; 1]) {
        (View { offset: 0, strides: vec![1], ..self.clone() }, [self.bytes])
    }

    /// The bytes of its span, counted in its memory.
    fn range(&self, space: &[usize], element: usize) -> Option<Range<usize>> {
        let base = if let Memory::Arena(at) = self.memory { at } else { 0 };
        let byte = |number: usize| number.checked_mul(element)?.checked_add(base);
        let span = self.span(space)?;
        Some(byte(span.start)?..byte(span.end)?)
    }

    /// Whether bytes that belong to both may be one's.
    pub(crate) fn may_meet(&self, other: &View) -> bool {
        let ((mine, my_space), (theirs, their_space)) = (self.all(), other.all());
        mine.meets(&my_space, 1, &theirs, &their_space, 1)
    }

    /// Whether two views are in one memory, and their ranges meet. A range that cannot be counted meets every other.
    fn meets(
        &self,
        space: &[usize],
        element: usize,
        other: &View,
        other_space: &[usize],
        other_element: usize,
    ) -> bool {
        let one_memory = match (self.memory, other.memory) {
            (Memory::Arena(_), Memory::Arena(_)) => true,
            (a, b) => a == b,
        };
        let ranges = (self.range(space, element), other.range(other_space, other_element));
        let (Some(a), Some(b)) = ranges else { return one_memory };
        one_memory && !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
    }

    /// Whether no two lanes of a space have one element: each stride passes over everything that the smaller ones
    /// reach.
    fn is_injective(&self, space: &[usize]) -> bool {
        if space.contains(&0) {
            return true;
        }
        let mut dims: Vec<(usize, usize)> =
            self.strides.iter().copied().zip(space.iter().copied()).filter(|(_, size)| *size > 1).collect();
        dims.sort_unstable();
        let mut reach: usize = 0; // the largest distance between two elements so far
        for (stride, size) in dims {
            if stride <= reach {
                return false;
            }
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
        }
        true
    }

    /// Whether two injective views with the same strides have no element in common although their ranges meet: their
    /// distance is no sum of steps. A dimension along which only one of them moves has that one's stride. What takes
    /// too long to tell counts as common.
    fn interleaves(&self, space: &[usize], other: &View, other_space: &[usize], element: usize) -> bool {
        let ranges = (self.range(space, element), other.range(other_space, element));
        let (Some(mine), Some(theirs)) = ranges else { return false };
        let distance = mine.start as i128 - theirs.start as i128;
        let mut dims = Vec::new();
        for dim in 0..space.len().min(other_space.len()) {
            let (mine, theirs) = (space[dim] > 1, other_space[dim] > 1);
            if mine && theirs && self.strides[dim] != other.strides[dim] {
                return false;
            }
            let stride = if mine { self.strides[dim] } else { other.strides[dim] } as i128;
            dims.push(Steps { stride, least: 1 - space[dim] as i128, most: other_space[dim] as i128 - 1 });
        }
        dims.sort_unstable_by_key(|steps| std::cmp::Reverse(steps.stride));
        let (one_rank, element) = (space.len() == other_space.len(), element as i128);
        one_rank && distance % element == 0 && !may_be_sum_of_steps(distance / element, &dims, &mut { TRIES })
    }
}

/// How often a stride may be taken.
struct Steps {
    stride: i128,
    least: i128,
    most: i128,
}

/// Sums of steps that are tried: one a dimension, or two, for views whose strides are apart.
const TRIES: u32 = 1 << 16;

/// Whether `distance` is a sum of steps, as far as so many tries tell. Strides are falling.
fn may_be_sum_of_steps(distance: i128, dims: &[Steps], tries: &mut u32) -> bool {
    let Some((Steps { stride, least, most }, rest)) = dims.split_first() else { return distance == 0 };
    if *stride == 0 {
        return may_be_sum_of_steps(distance, rest, tries);
    }
    let low: i128 = rest.iter().map(|steps| steps.stride * steps.least).sum();
    let high: i128 = rest.iter().map(|steps| steps.stride * steps.most).sum();
    let first = (distance - high).div_euclid(*stride).max(*least);
    let last = (distance - low).div_euclid(*stride).min(*most);
    (first..=last).any(|steps| {
        *tries = tries.saturating_sub(1);
        *tries == 0 || may_be_sum_of_steps(distance - steps * stride, rest, tries)
    })
}

impl Product {
    /// Puts its matrices into an arena of their own, one after the other, and returns the bytes of it.
    pub(crate) fn move_to_arena(&mut self) -> usize {
        let mut bytes: usize = 0;
        for view in [&mut self.a, &mut self.b, &mut self.to] {
            view.memory = Memory::Arena(bytes);
            bytes = bytes.saturating_add(view.bytes.max(1)).saturating_add(63) / 64 * 64;
        }
        bytes
    }
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

    /// Whether it can run: see the module's head.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.check_memories()?;
        for (number, step) in self.steps.iter().enumerate() {
            let fault = match step {
                Step::Pass { program, space, inputs, outputs } => {
                    self.check_pass(program, space, inputs, outputs)?
                }
                Step::Product(product) => self.check_product(product),
                Step::Attention { attention, output, lse } => {
                    self.check_attention(attention, output, lse.as_ref())?
                }
                Step::AttentionGrad(grad) => self.check_attention_grad(grad)?,
                Step::Call { what, inputs, output, .. } => self.check_call(what, inputs, output),
                Step::Scatter { rows, index, to, count, width, table } => {
                    self.check_scatter([rows, index, to], [*count, *width, *table])
                }
                Step::Start(start) => self.check_start(start),
                Step::Wait { .. } => None,
            };
            if let Some(needed) = fault {
                return Err(self.refused(number, needed));
            }
        }
        self.check_flights()
    }

    /// That a step lacks something.
    pub(crate) fn refused(&self, step: usize, needed: &'static str) -> DeviceError {
        DeviceError::Step { plan: self.name.clone(), step, name: self.steps[step].name(), needed }
    }

    /// Whether every memory is one that there may be: no allocation has more than `isize::MAX` bytes.
    fn check_memories(&self) -> Result<(), DeviceError> {
        let arena = ("arena", &self.arena_bytes);
        let inputs = self.inputs.iter().map(|bytes| ("input", bytes));
        let donated = self.donated.iter().map(|bytes| ("donated", bytes));
        let too_large = |(_, bytes): &(_, &usize)| isize::try_from(**bytes).is_err();
        match [arena].into_iter().chain(inputs).chain(donated).find(too_large) {
            Some((tag, bytes)) => Err(DeviceError::Memory { tag, bytes: *bytes }),
            None => Ok(()),
        }
    }

    /// Whether all elements of a view lie in its memory. An empty space has none; its offset lies there all the same.
    fn inside(&self, view: &View, space: &[usize], element: usize) -> bool {
        let end = view.span(space).and_then(|span| span.end.checked_mul(element));
        self.holds(view) && end.is_some_and(|end| end <= view.bytes)
    }

    /// What a pass lacks.
    fn check_pass(
        &self,
        program: &Program,
        space: &[usize],
        inputs: &[View],
        outputs: &[View],
    ) -> Result<Option<&'static str>, DeviceError> {
        program.check()?;
        if space.is_empty() || space.contains(&0) {
            return Ok(Some("a space with at least one lane"));
        }
        let Some(lanes) = lanes_of(space) else { return Ok(Some("a space whose lanes can be counted")) };
        let counted = |op: &Op| if let Op::Coordinate(dim) = *op { Some(dim) } else { None };
        if program.ops.iter().filter_map(counted).any(|dim| dim >= space.len()) {
            return Ok(Some("a space with every dimension that its program asks for"));
        }
        if program.ops.iter().filter_map(counted).any(|dim| i32::try_from(space[dim]).is_err()) {
            return Ok(Some("dimensions of less than 2^31 where its program asks for them"));
        }
        if inputs.len() < program.inputs() || outputs.len() != program.outputs() {
            return Ok(Some("a view for every input and output"));
        }
        if inputs.iter().chain(outputs).any(|view| view.strides.len() != space.len()) {
            return Ok(Some("a stride for each dimension of its space"));
        }
        if inputs.iter().chain(outputs).any(|view| !self.holds(view) || view.span(space).is_none()) {
            return Ok(Some("views that lie in their memory"));
        }
        let (read, written) = program.traffic(lanes);
        let mut flat = inputs.iter().zip(&read).chain(outputs.iter().zip(&written));
        if flat.any(|(view, bytes)| view.bytes < *bytes) {
            return Ok(Some("memory for every lane"));
        }
        for op in &program.ops {
            let Op::Load { input, element, index: Index::View } = *op else { continue };
            if !self.inside(&inputs[input], space, element.bytes()) {
                return Ok(Some("inputs that lie in their memory"));
            }
        }
        Ok(self.check_outputs(program, space, inputs, outputs))
    }

    /// Whether the bytes that a view claims are there.
    fn holds(&self, view: &View) -> bool {
        match view.memory {
            Memory::Arena(at) => {
                let end = at.checked_add(view.bytes);
                at % 64 == 0 && end.is_some_and(|end| end <= self.arena_bytes)
            }
            Memory::Input(number) => self.inputs.get(number).is_some_and(|bytes| view.bytes <= *bytes),
            Memory::InOut(number) => self.donated.get(number).is_some_and(|bytes| view.bytes <= *bytes),
        }
    }

    /// That what a pass writes is its own.
    fn check_outputs(
        &self,
        program: &Program,
        space: &[usize],
        inputs: &[View],
        outputs: &[View],
    ) -> Option<&'static str> {
        let mut row_space = space.to_vec();
        if let Some(last) = row_space.last_mut() {
            *last = 1;
        }
        let mut written: Vec<Written> = Vec::new();
        for store in &program.stores {
            let space = if store.per_row { &row_space[..] } else { space };
            let mut view = outputs[store.output].clone();
            if store.index == Index::Lane {
                (view.offset, view.strides) = (0, contiguous(space));
            }
            if !view.memory.is_written() {
                return Some("outputs in the arena: an input is only read");
            }
            if !self.inside(&view, space, store.element.bytes()) || !view.is_injective(space) {
                return Some("outputs that lie in the arena, each element once");
            }
            written.push(Written { view, space, store });
        }
        if (0..written.len()).any(|i| written[..i].iter().any(|other| !written[i].is_apart(other))) {
            return Some("outputs that have no element in common");
        }
        let clean = program.ops.iter().all(|op| reads_apart(op, inputs, &written));
        if clean { None } else { Some("inputs that the step does not write") }
    }

    /// What a product lacks.
    fn check_product(&self, product: &Product) -> Option<&'static str> {
        let space = |last: [usize; 2]| product.batch.iter().copied().chain(last).collect::<Vec<_>>();
        let (a, b) = (space([product.m, product.k]), space([product.k, product.n]));
        let to = space([product.m, product.n]);
        if product
            .elements
            .iter()
            .any(|element| !matches!(element, Element::F32 | Element::F16 | Element::Bf16))
        {
            return Some("factors and a result of floats");
        }
        let [of_a, of_b, of_to] = product.elements.map(Element::bytes);
        if !self.inside(&product.a, &a, of_a) || !self.inside(&product.b, &b, of_b) {
            return Some("factors that lie in their memory");
        }
        if !product.to.memory.is_written() || !self.inside(&product.to, &to, of_to) {
            return Some("a result that lies in the arena");
        }
        if !product.to.is_injective(&to) {
            return Some("a result whose elements are apart");
        }
        let meets = |view, space, bytes| product.to.meets(&to, of_to, view, space, bytes);
        (meets(&product.a, &a, of_a) || meets(&product.b, &b, of_b))
            .then_some("a result apart from its factors")
    }

    /// What a scatter lacks, given (rows, index, table) and how many rows, how wide, and rows of the table.
    fn check_scatter(&self, views: [&View; 3], [count, width, table]: [usize; 3]) -> Option<&'static str> {
        let needed = [lanes_of(&[count, width, 4]), lanes_of(&[count, 4]), lanes_of(&[table, width, 4])];
        let fits = |(view, needed): (&View, Option<usize>)| needed.is_some_and(|bytes| bytes <= view.bytes);
        if !views.into_iter().zip(needed).all(fits) {
            return Some("memory for every row");
        }
        let [rows, index, to] = views;
        self.check_apart(&[rows.clone(), index.clone()], to)
    }

    /// What a call lacks.
    fn check_call(&self, what: &Dequantize, inputs: &[View], output: &View) -> Option<&'static str> {
        if let Some(needed) = what.check() {
            return Some(needed);
        }
        let fits = |(number, view): (usize, &View)| what.input_bytes(number) <= view.bytes;
        if inputs.len() != what.inputs() || !inputs.iter().enumerate().all(fits) {
            return Some("memory for every part of the weight");
        }
        if what.output_bytes() > output.bytes {
            return Some("memory for every element that is wanted");
        }
        self.check_apart(inputs, output)
    }

    /// What whole memories lack, of which one is written.
    fn check_apart(&self, inputs: &[View], output: &View) -> Option<&'static str> {
        if !output.memory.is_written() || !self.holds(output) {
            return Some("an output that lies in the arena");
        }
        if !inputs.iter().all(|input| self.holds(input)) {
            return Some("inputs that lie in their memory");
        }
        if inputs.iter().chain([output]).any(|view| view.offset != 0) {
            return Some("views that begin with their memory");
        }
        let (out, out_space) = output.all();
        let meets = |input: &View| {
            let (input, space) = input.all();
            out.meets(&out_space, 1, &input, &space, 1)
        };
        inputs.iter().any(meets).then_some("an output apart from the inputs")
    }
}

/// What a store of a pass writes.
struct Written<'a> {
    view: View,
    space: &'a [usize],
    store: &'a Store,
}

impl Written<'_> {
    /// Whether two stores have no element in common.
    fn is_apart(&self, other: &Written) -> bool {
        let [mine, theirs] = [self, other].map(|written| written.store.element);
        let meet = self.view.meets(self.space, mine.bytes(), &other.view, other.space, theirs.bytes());
        !meet || (mine == theirs && self.view.interleaves(self.space, &other.view, other.space, mine.bytes()))
    }

    /// Whether each lane stores where an operation loads its element from: to every lane its own.
    fn is_in_place(&self, op: &Op, inputs: &[View]) -> bool {
        let Op::Load { input, element, index } = *op else { return false };
        let (from, to) = (&inputs[input], &self.view);
        let by_view = index == Index::View && from.offset == to.offset && from.strides == to.strides;
        from.memory == to.memory
            && element == self.store.element
            && index == self.store.index
            && (by_view || index == Index::Lane)
            && !self.store.per_row
    }
}

/// Whether nothing of the memory that an operation reads is written, or it is in place.
fn reads_apart(op: &Op, inputs: &[View], written: &[Written]) -> bool {
    let Some((input, _)) = Program::reads(op) else { return true };
    let (bytes, all) = inputs[input].all();
    let meets = |to: &Written| bytes.meets(&all, 1, &to.view, to.space, to.store.element.bytes());
    written.iter().all(|to| !meets(to) || to.is_in_place(op, inputs))
}

/// The lanes of a space; `None` if there are more than `isize::MAX`.
fn lanes_of(space: &[usize]) -> Option<usize> {
    let lanes = space.iter().try_fold(1_usize, |lanes, size| lanes.checked_mul(*size));
    lanes.filter(|lanes| isize::try_from(*lanes).is_ok()).or(space.contains(&0).then_some(0))
}

/// The strides of a row-major shape. One that does not fit is `usize::MAX`, which no memory has.
pub fn contiguous(shape: &[usize]) -> Vec<usize> {
    let mut strides: Vec<usize> = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim]);
    }
    strides
}

impl Step {
    /// What it is, for reports.
    pub fn name(&self) -> String {
        match self {
            Step::Pass { program, .. } => program.name.clone(),
            Step::Product(product) => format!("product {}x{}x{}", product.m, product.n, product.k),
            Step::Attention { .. } => "attention".into(),
            Step::AttentionGrad(_) => "attention_grad".into(),
            Step::Scatter { .. } => "scatter".into(),
            Step::Call { name, .. } => name.clone(),
            Step::Start(start) => start.what.to_string(),
            Step::Wait { ticket } => format!("wait {ticket}"),
        }
    }
}

impl fmt::Display for Plan {
    /// One step a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan {} ({} steps, arena of {} bytes)", self.name, self.steps.len(), self.arena_bytes)?;
        self.steps.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "  {number}: {step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |views: &[View]| views.iter().map(View::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Step::Pass { program, space, inputs, outputs } => {
                write!(f, "{} over {space:?}: {} -> {}", program.name, list(inputs), list(outputs))
            }
            Step::Product(product) => {
                let Product { batch, a, b, to, add, scale, choice, .. } = product;
                let into = if *add { "+=" } else { "=" };
                write!(f, "{} of {batch:?}, by {choice:?}: {to} {into} {scale} * {a} * {b}", self.name())
            }
            Step::Attention { attention, output, lse } => {
                write!(f, "attention {attention} -> {output}")?;
                lse.iter().try_for_each(|lse| write!(f, ", {lse}"))
            }
            Step::AttentionGrad(grad) => {
                let AttentionGrad { attention, output, lse, grad, wrt_q, wrt_k, wrt_v, .. } = &**grad;
                let wrt: Vec<View> = [wrt_q, wrt_k, wrt_v].into_iter().flatten().cloned().collect();
                write!(f, "attention_grad {attention}, {output}, {lse}, {grad} -> {}", list(&wrt))
            }
            Step::Scatter { rows, index, to, count, width, table } => {
                write!(f, "scatter {count} rows of {width} to {table}: {rows}, {index} -> {to}")
            }
            Step::Call { name, inputs, output, .. } => write!(f, "{name}: {} -> {output}", list(inputs)),
            Step::Start(start) => start.fmt(f),
            Step::Wait { .. } => f.write_str(&self.name()),
        }
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory {
            Memory::Arena(at) => write!(f, "@{at}")?,
            Memory::Input(number) => write!(f, "input {number}")?,
            Memory::InOut(number) => write!(f, "inout {number}")?,
        }
        if self.offset > 0 {
            write!(f, "+{}", self.offset)?;
        }
        write!(f, "{:?}", self.strides)
    }
}
