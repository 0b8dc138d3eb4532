//! Attention as one step: softmax over the keys of `score(scale q . k)`, where the mask allows, times v.
//!
//! ```text
//! s[b,h,q,k] = score(scale * sum_d Q[b,h,q,d] K[b,h/g,k,d])     g = heads / groups
//! p[b,h,q,k] = mask ? e^(s - max_k s) / sum_k e^(s - max_k s) : 0
//! O[b,h,q,d] = sum_k p[b,h,q,k] V[b,h/g,k,d]
//! L[b,h,q]   = ln sum_k e^s, where the mask allows
//! ```
//!
//! A query that may see no key has an output of zeros, and L = -inf. What no query of a block may see is not read.
//!
//! The programs run over blocks of the space (batch, head, query, key). Their coordinates are those of the whole space,
//! and so are the strides of their inputs, which they read by view, by gather, by table, or as the first element.
//! They store one value, by view.

use std::fmt;
use std::sync::Arc;

use super::check::lanes_of;
use super::{Plan, View};
use crate::error::DeviceError;
use crate::tile::{Element, Index, Op, Program};

/// What is attended to, and how. Q, K, V, the output and all gradients have one type; scores, their sums and L are f32
/// in each of them, and what is written is rounded once.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values; each serves `heads / groups` heads of the queries that follow each other.
    pub groups: usize,
    /// Queries of a sequence.
    pub queries: usize,
    /// Keys of a sequence.
    pub keys: usize,
    /// Numbers of a query and of a key.
    pub depth: usize,
    /// Numbers of a value.
    pub width: usize,
    /// The type of Q, K, V, the output and the gradients: f32, f16 or bf16.
    pub element: Element,
    /// What the product of a query and a key is multiplied with.
    pub scale: f32,
    /// From a score, input 0, to a score, f32; as it is, if absent. Input 1 is the first extra.
    pub score: Option<Arc<Program>>,
    /// Whether the query may see the key: a whole number, not 0; always, if absent. Input 0 is the new score, input 1
    /// the first extra. A mask that does not read the score is looked at first, and what it leaves empty costs nothing.
    pub mask: Option<Arc<Program>>,
    /// (batch, heads, queries, depth)
    pub q: View,
    /// (batch, groups, keys, depth)
    pub k: View,
    /// (batch, groups, keys, width)
    pub v: View,
    /// What else the programs read; each has a stride for every dimension of (batch, head, query, key).
    pub extras: Vec<View>,
}

/// The gradients of an attention: those that are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGrad {
    /// What it differentiates.
    pub attention: Attention,
    /// From a score before its program, input 0, and the gradient of the one after it, input 1, to the gradient of the
    /// one before it; as it is, if absent. Input 2 is the first extra.
    pub slope: Option<Arc<Program>>,
    /// O: (batch, heads, queries, width)
    pub output: View,
    /// L: (batch, heads, queries)
    pub lse: View,
    /// The gradient of O, in its shape.
    pub grad: View,
    /// The gradient of q, in its shape.
    pub wrt_q: Option<View>,
    /// The gradient of k, in its shape: summed over the heads of the queries that it serves.
    pub wrt_k: Option<View>,
    /// The gradient of v, in its shape: summed as that of k.
    pub wrt_v: Option<View>,
}

/// A view with the space that it is over, and the bytes of its elements.
struct Over<'a> {
    view: &'a View,
    space: Vec<usize>,
    bytes: usize,
}

impl<'a> Over<'a> {
    fn new(view: &'a View, space: &[usize], element: Element) -> Self {
        Self { view, space: space.to_vec(), bytes: element.bytes() }
    }
}

impl Attention {
    /// Queries and keys of a block: what is computed, or left out, at once. A tenth to a third faster than 64 x 64,
    /// 64 x 128 and 64 x 256 (see `cpu/attention/forward.rs` for the case and the machine).
    pub const BLOCK: [usize; 2] = [128, 128];

    /// The most blocks of an attention: an hour and more on most machines, and 2 GiB for what its mask leaves of them.
    pub const MOST_BLOCKS: usize = 1 << 26;

    /// The most numbers of a query, a key or a value: a thread keeps a block of them.
    pub const MOST_NUMBERS: usize = 1 << 16;

    /// (batch, head, query, key)
    pub fn space(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.keys]
    }

    /// The shape of q.
    pub fn q_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.depth]
    }

    /// The shape of k.
    pub fn k_shape(&self) -> [usize; 4] {
        [self.batch, self.groups, self.keys, self.depth]
    }

    /// The shape of v.
    pub fn v_shape(&self) -> [usize; 4] {
        [self.batch, self.groups, self.keys, self.width]
    }

    /// The shape of the output.
    pub fn output_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.width]
    }

    /// What its sizes lack.
    fn check_sizes(&self) -> Option<&'static str> {
        if self.groups == 0 || self.heads % self.groups != 0 {
            return Some("as many heads of queries for every head of keys");
        }
        let [queries, keys] = Self::BLOCK;
        let blocks = [
            self.batch,
            self.heads.max(self.groups),
            self.queries.div_ceil(queries),
            self.keys.div_ceil(keys),
        ];
        if lanes_of(&blocks.map(|count| count.max(1))).is_none_or(|blocks| blocks > Self::MOST_BLOCKS) {
            return Some("at most 2^26 blocks of queries and keys");
        }
        if self.space().iter().any(|size| i32::try_from(*size).is_err()) {
            return Some("dimensions of less than 2^31");
        }
        if !matches!(self.element, Element::F32 | Element::F16 | Element::Bf16) {
            return Some("queries, keys and values of floats");
        }
        let narrow = self.depth.max(self.width) <= Self::MOST_NUMBERS;
        (!narrow).then_some("at most 65536 numbers of a query, a key or a value")
    }

    fn inputs(&self) -> [Over<'_>; 3] {
        [(&self.q, self.q_shape()), (&self.k, self.k_shape()), (&self.v, self.v_shape())]
            .map(|(view, shape)| Over::new(view, &shape, self.element))
    }
}

impl fmt::Display for Attention {
    /// Its space, its programs, what it reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "over {:?}", self.space())?;
        for (what, program) in [("score", &self.score), ("mask", &self.mask)] {
            program.iter().try_for_each(|program| write!(f, ", {what} {}", program.name))?;
        }
        write!(f, ": {}, {}, {}", self.q, self.k, self.v)?;
        self.extras.iter().try_for_each(|extra| write!(f, ", {extra}"))
    }
}

impl Plan {
    /// What an attention lacks.
    pub(super) fn check_attention(
        &self,
        attention: &Attention,
        output: &View,
        lse: Option<&View>,
    ) -> Result<Option<&'static str>, DeviceError> {
        let shape = attention.output_shape();
        let lse = lse.map(|lse| Over::new(lse, &shape[..3], Element::F32));
        let written = [Over::new(output, &shape, attention.element)].into_iter().chain(lse);
        let fault = self.check_programs(attention)?;
        Ok(fault.or_else(|| self.check_tensors(attention, &attention.inputs(), &written.collect::<Vec<_>>())))
    }

    /// What the gradients of an attention lack.
    pub(super) fn check_attention_grad(
        &self,
        grad: &AttentionGrad,
    ) -> Result<Option<&'static str>, DeviceError> {
        let attention = &grad.attention;
        let (shape, element) = (attention.output_shape(), attention.element);
        let [q, k, v] = attention.inputs();
        let shapes = [attention.q_shape(), attention.k_shape(), attention.v_shape()];
        let written = [&grad.wrt_q, &grad.wrt_k, &grad.wrt_v].into_iter().zip(&shapes);
        let written = written.filter_map(|(view, shape)| Some(Over::new(view.as_ref()?, shape, element)));
        let written: Vec<Over> = written.collect();
        let like_output = [&grad.output, &grad.grad].map(|view| Over::new(view, &shape, element));
        let [output, of_output] = like_output;
        let read = [q, k, v, output, of_output, Over::new(&grad.lse, &shape[..3], Element::F32)];
        let slope = grad.slope.as_deref().map(|slope| self.check_program(attention, slope, 2, false));
        let fault = self.check_programs(attention)?.or(slope.transpose()?.flatten());
        Ok(fault.or_else(|| self.check_tensors(attention, &read, &written)))
    }

    fn check_programs(&self, attention: &Attention) -> Result<Option<&'static str>, DeviceError> {
        let fault = attention.check_sizes().or_else(|| self.check_extras(attention));
        if fault.is_some() {
            return Ok(fault);
        }
        let programs = [(&attention.score, false), (&attention.mask, true)];
        for (program, whole) in programs {
            let fault = program.as_deref().map(|program| self.check_program(attention, program, 1, whole));
            if let Some(fault) = fault.transpose()?.flatten() {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    /// What the extras lack, whether a program reads them or not.
    fn check_extras(&self, attention: &Attention) -> Option<&'static str> {
        let fits = |view: &View| self.holds(view) && view.span(&attention.space()).is_some();
        (!attention.extras.iter().all(fits)).then_some("inputs that lie in their memory")
    }

    /// What a program lacks whose first `own` inputs are blocks.
    fn check_program(
        &self,
        attention: &Attention,
        program: &Program,
        own: usize,
        whole: bool,
    ) -> Result<Option<&'static str>, DeviceError> {
        program.check()?;
        let [store] = &program.stores[..] else { return Ok(Some("programs that store one value")) };
        let one = store.index == Index::View && !program.needs_rows();
        if !one || if whole { !store.element.is_whole() } else { store.element != Element::F32 } {
            return Ok(Some("programs that store a score or a condition for every lane, by view"));
        }
        let fits = |op: &Op| match Program::reads(op) {
            Some((input, element)) if input < own => {
                matches!(op, Op::Load { index: Index::View, .. }) && element == Element::F32
            }
            Some((input, _)) => {
                attention.extras.get(input - own).is_some_and(|view| self.reaches(attention, op, view))
            }
            None => !matches!(op, Op::Coordinate(dim) if *dim >= 4),
        };
        Ok((!program.ops.iter().all(fits)).then_some("programs whose inputs lie in their memory"))
    }

    /// Whether all that an operation reads of an extra is there. A gather is checked when it runs.
    fn reaches(&self, attention: &Attention, op: &Op, view: &View) -> bool {
        match *op {
            Op::Load { index: Index::View, element, .. } => {
                self.inside(view, &attention.space(), element.bytes())
            }
            Op::Load { index: Index::First, element, .. } => view.bytes >= element.bytes(),
            Op::Table { entries, .. } => entries.checked_mul(4).is_some_and(|bytes| view.bytes >= bytes),
            Op::Gather { .. } => true,
            _ => false, // lane by lane: a block's lanes are not the space's
        }
    }

    /// That everything lies in its memory, and what is written is the step's own.
    fn check_tensors(&self, attention: &Attention, read: &[Over], written: &[Over]) -> Option<&'static str> {
        if !read.iter().all(|over| self.inside(over.view, &over.space, over.bytes)) {
            return Some("inputs that lie in their memory");
        }
        let own = |Over { view, space, bytes }: &Over| {
            let arena = view.memory.is_written();
            arena && self.inside(view, space, *bytes) && view.is_injective(space)
        };
        if !written.iter().all(own) {
            return Some("outputs that lie in the arena, each element once");
        }
        let extras: Vec<View> = attention.extras.iter().map(|view| view.all().0).collect();
        let extras = extras.iter().map(|view| Over { view, space: vec![view.bytes], bytes: 1 });
        let extras: Vec<Over> = extras.collect();
        for (i, to) in written.iter().enumerate() {
            if !written[..i].iter().chain(read).chain(&extras).all(|other| apart(to, other)) {
                return Some("outputs apart from each other and from the inputs");
            }
        }
        None
    }
}

/// Whether two views have no element in common.
fn apart(a: &Over, b: &Over) -> bool {
    let meet = a.view.meets(&a.space, a.bytes, b.view, &b.space, b.bytes);
    !meet || (a.bytes == b.bytes && a.view.interleaves(&a.space, b.view, &b.space, a.bytes))
}
