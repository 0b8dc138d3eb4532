//! Sums of products: each product adds to one buffer, and nobody adds them up.
//!
//! `x W^T + s (x A^T) B^T`, a projection with its adapter, is two products into one buffer; so is the gradient of what
//! several projections read. What may stand between a product and the sum: reshapes, transposes, signs, constant
//! factors. The order of the additions is another one than the graph's, as in any sum that a product library takes.
//!
//! A product that is rounded to f16 or bf16 is a sum of one: it is written as it is rounded, with nothing in f32
//! between. A sum in such a type has the type's rounding after each product, as the graph has it; what the graph rounds
//! before it adds - a product, and its multiple - is not rounded by itself, so the sum is nearer the truth.
//!
//! A sum may begin with a tensor that it updates and that nobody else reads ([`donate`](crate::memory::donate)): every
//! product then adds to what is there. So the gradient of a weight grows from chunk to chunk.

use std::collections::BTreeMap;

use kernels::plan::contiguous;
use reference::graph::{Binary, Dtype, Id, Op, Unary};

use crate::ir::sized::Sized;

/// What becomes of a product that is part of a sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The node that is the sum.
    pub sum: Id,
    /// What the product is multiplied with.
    pub scale: f32,
    /// Whether it is the first one, which begins the sum.
    pub first: bool,
    /// Elements of the sum between neighbours along each dimension of the product.
    pub strides: Vec<usize>,
}

/// The sums of a graph.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// The products that are part of a sum of products, by their node.
    pub terms: BTreeMap<Id, Term>,
    /// The sums that begin with a donated input, each with that input: it is where they lie.
    pub onto: BTreeMap<Id, Id>,
}

/// The sums of products, given the donated inputs and what each becomes.
pub fn find(sized: &Sized, donated: &[(Id, Id)]) -> Sums {
    let mut sums = Sums::default();
    let mut inside: Vec<Id> = Vec::new(); // sums that are part of a larger one
    for id in sized.graph.ids().rev().filter(|id| may_be(sized, *id)) {
        if inside.contains(&id) {
            continue;
        }
        let old = donated.iter().find(|(_, new)| *new == id).map(|(old, _)| *old);
        let Some(mut found) = Found::of(sized, id, old) else { continue };
        found.products.sort_unstable_by_key(|(id, ..)| *id);
        inside.append(&mut found.sums);
        for (i, (product, scale, strides)) in found.products.into_iter().enumerate() {
            let first = i == 0 && !found.begins;
            sums.terms.insert(product, Term { sum: id, scale, first, strides });
        }
        sums.onto.extend(old.filter(|_| found.begins).map(|old| (id, old)));
    }
    sums
}

/// Whether a node may be a sum of products: an addition of floats, or what is rounded.
fn may_be(sized: &Sized, id: Id) -> bool {
    let node = sized.graph.node(id);
    let adds = matches!(node.op, Op::Binary(Binary::Add | Binary::Sub)) && node.ty.dtype.is_float();
    adds || rounds(sized, id)
}

/// Whether a node is another one of f32, rounded to f16 or bf16.
pub fn rounds(sized: &Sized, id: Id) -> bool {
    let node = sized.graph.node(id);
    let narrow = matches!(node.ty.dtype, Dtype::F16 | Dtype::Bf16);
    narrow && node.op == Op::Cast && sized.graph.ty(node.inputs[0]).dtype == Dtype::F32
}

/// What a sum is made of.
#[derive(Default)]
struct Found {
    products: Vec<(Id, f32, Vec<usize>)>,
    sums: Vec<Id>,
    old: Option<Id>,       // what the sum may begin with
    begins: bool,          // whether it does
    wider: bool,           // whether something in it is not rounded that the graph rounds
    narrow: Option<Dtype>, // the type of the additions, if it is not f32
}

impl Found {
    /// What a node is made of, if it is a sum of products: what is rounded, of one product.
    ///
    /// Where products are added to a carried sum of f32, a rounding between is left out: the sum is nearer the truth
    /// for it.
    fn of(sized: &Sized, id: Id, old: Option<Id>) -> Option<Self> {
        let dtype = sized.graph.ty(id).dtype;
        let adds_narrow = dtype != Dtype::F32 && !rounds(sized, id);
        let narrow = Some(dtype).filter(|_| adds_narrow);
        let mut found = Self { old: old.filter(|_| !adds_narrow), narrow, ..Self::default() };
        let strides = contiguous(sized.shape(id));
        let is_sum = if rounds(sized, id) {
            let sum = sized.graph.node(id).inputs[0];
            found.collect(sized, sum, 1.0, strides, false) && found.products.len() == 1
        } else {
            found.collect(sized, id, 1.0, strides, true) && !found.products.is_empty()
        };
        (is_sum && (found.begins || !found.wider)).then_some(found)
    }

    /// Whether a node, times a factor, is a sum of products that nobody else reads. `strides` are those of its elements
    /// in the whole sum.
    fn collect(&mut self, sized: &Sized, id: Id, scale: f32, strides: Vec<usize>, is_root: bool) -> bool {
        let node = sized.graph.node(id);
        let own = |id: Id| sized.users(id).len() == 1 && !sized.is_output(id);
        if !is_root && !own(id) {
            return false;
        }
        let input = |i: usize| node.inputs[i];
        let flat = strides == contiguous(sized.shape(id));
        if self.old == Some(id) {
            self.begins = flat && scale.to_bits() == 1.0_f32.to_bits();
            return self.begins;
        }
        match &node.op {
            Op::Matmul if !is_root => {
                self.products.push((id, scale, strides));
                return true;
            }
            Op::Cast if self.old == Some(input(0)) && own(input(0)) => {
                self.begins = flat && scale.to_bits() == 1.0_f32.to_bits();
                return self.begins;
            }
            Op::Cast if self.narrow == Some(node.ty.dtype) && rounds(sized, id) => {
                self.sums.push(id);
                return self.product(sized, input(0), scale, strides);
            }
            Op::Cast if self.old.is_some() => {
                self.sums.push(id);
                self.wider |= rounds(sized, id);
                return self.collect(sized, input(0), scale, strides, false);
            }
            Op::Detach => return self.collect(sized, input(0), scale, strides, false),
            Op::Reshape => {
                return flat
                    && self.collect(sized, input(0), scale, contiguous(sized.shape(input(0))), false);
            }
            Op::Transpose { order } => {
                let mut before = vec![0; order.len()];
                order.iter().zip(strides).for_each(|(dim, stride)| before[*dim] = stride);
                return self.collect(sized, input(0), scale, before, false);
            }
            Op::Binary(binary @ (Binary::Add | Binary::Sub))
                if node.ty.dtype == self.narrow.unwrap_or(Dtype::F32) =>
            {
                self.sums.push(id);
                let second = if *binary == Binary::Sub { -scale } else { scale };
                return self.collect(sized, input(0), scale, strides.clone(), false)
                    && self.collect(sized, input(1), second, strides, false);
            }
            Op::Unary(_) | Op::Binary(_) => {} // a multiple of something, perhaps
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => return false,
            Op::Cast | Op::Compare(_) | Op::Select | Op::Reduce(..) | Op::Matmul => return false,
            Op::Gather | Op::ScatterAdd | Op::Concat { .. } | Op::Broadcast | Op::Slice { .. } => {
                return false;
            }
            Op::Attention(_) | Op::AttentionGrad { .. } => return false,
            Op::AttentionLse(_) | Op::AttentionLseGrad { .. } => return false,
            Op::RandomMask { .. } | Op::Collective { .. } => return false,
        }
        let multiple = multiple(sized, id);
        multiple.is_some_and(|(inner, factor)| self.collect(sized, inner, scale * factor, strides, false))
    }

    /// Whether a node of f32, rounded by its one user, is a product; or a product's multiple, or its transpose.
    fn product(&mut self, sized: &Sized, id: Id, scale: f32, strides: Vec<usize>) -> bool {
        let mut inner = Self::default();
        let is_one = inner.collect(sized, id, scale, strides, false) && inner.products.len() == 1;
        if is_one {
            self.products.append(&mut inner.products);
        }
        is_one && inner.sums.is_empty()
    }
}

/// The node that a node is a multiple of, and the factor, where no type rounds between the two: in f16 and bf16 a power
/// of two, which moves nothing but the exponent. What would leave the type's range there does not, before it is summed.
pub fn scaled(sized: &Sized, id: Id) -> Option<(Id, f32)> {
    let is_wide = sized.graph.ty(id).dtype == Dtype::F32;
    let is_power =
        |factor: f32| factor.is_normal() && factor.to_bits().trailing_zeros() >= f32::MANTISSA_DIGITS - 1;
    multiple(sized, id).filter(|(_, factor)| is_wide || is_power(*factor))
}

/// The node of the same type that a node is a multiple of, and the factor; rounded, if its type is not f32.
fn multiple(sized: &Sized, id: Id) -> Option<(Id, f32)> {
    let node = sized.graph.node(id);
    let input = |i: usize| node.inputs[i];
    if !node.ty.dtype.is_float() {
        None
    } else if node.op == Op::Unary(Unary::Neg) {
        Some((input(0), -1.0))
    } else if node.op == Op::Binary(Binary::Mul) {
        match (constant(sized, input(0)), constant(sized, input(1))) {
            (None, Some(factor)) => Some((input(0), factor)),
            (Some(factor), None) => Some((input(1), factor)),
            (None, None) | (Some(_), Some(_)) => None,
        }
    } else {
        None
    }
}

/// The number that a node is everywhere, if it is one that a product may be scaled by.
fn constant(sized: &Sized, id: Id) -> Option<f32> {
    let node = sized.graph.node(id);
    if let Op::Constant { value } = node.op {
        return Some(value as f32).filter(|value| value.is_normal());
    }
    let repeats = matches!(node.op, Op::Reshape | Op::Broadcast);
    if repeats { constant(sized, node.inputs[0]) } else { None }
}
