//! Where the element of a tensor lies that belongs to a lane.
//!
//! A kernel runs over a space; a [`Map`] gives each coordinate of a tensor as a sum of multiples of the space's
//! coordinates. Reshapes, transposes, slices and broadcasts are maps as well, so they are composed and vanish: what is
//! loaded in the end is an element of some buffer, found by an offset and a stride for each dimension of the space.
//!
//! Not every reshape is such a sum. To merge (4, 6) into 24 the other way round takes a division of a coordinate by 6,
//! which is a sum only if the space has a dimension of its own for the remainder: then the caller is told to cut one.

use reference::graph::{Id, Op};

use crate::ir::sized::Sized;

/// `offset + sum of multiple * space coordinate`
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Affine {
    /// The constant part.
    pub offset: usize,
    /// (dimension of the space, multiple), by dimension, no multiple 0.
    pub terms: Vec<(usize, usize)>,
}

/// One [`Affine`] for each coordinate of a tensor.
pub type Map = Vec<Affine>;

/// A dimension of the space has to be cut in two, the inner one of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The dimension.
    pub dim: usize,
    /// Size of its inner part.
    pub inner: usize,
}

impl Affine {
    /// A coordinate of the space itself; nothing moves along a dimension of size 1.
    pub fn lane(dim: usize, size: usize) -> Self {
        Self { offset: 0, terms: if size > 1 { vec![(dim, 1)] } else { Vec::new() } }
    }

    /// The multiple of a dimension.
    pub fn multiple(&self, dim: usize) -> usize {
        self.terms.iter().find(|(one, _)| *one == dim).map_or(0, |(_, multiple)| *multiple)
    }

    /// It times a number, added to another.
    fn add_scaled(&self, factor: usize, to: &mut Affine) {
        to.offset += self.offset * factor;
        for (dim, multiple) in &self.terms {
            match to.terms.iter_mut().find(|(one, _)| one == dim) {
                Some((_, sum)) => *sum += multiple * factor,
                None => to.terms.push((*dim, multiple * factor)),
            }
        }
        to.terms.sort_unstable();
    }

    /// The largest value over a space.
    pub fn max(&self, space: &[usize]) -> usize {
        self.terms
            .iter()
            .fold(self.offset, |max, (dim, multiple)| max + multiple * space[*dim].saturating_sub(1))
    }

    /// Quotient and remainder by `size`, if both are sums over this space.
    fn divide(&self, size: usize, space: &[usize]) -> Result<(Affine, Affine), Option<Cut>> {
        let (mut quotient, mut remainder) = (Affine::default(), Affine::default());
        (quotient.offset, remainder.offset) = (self.offset / size, self.offset % size);
        for (dim, multiple) in &self.terms {
            if multiple % size == 0 {
                quotient.terms.push((*dim, multiple / size));
            } else {
                remainder.terms.push((*dim, *multiple));
            }
        }
        if remainder.max(space) < size {
            return Ok((quotient, remainder));
        }
        let splits = |(dim, multiple): &&(usize, usize)| {
            let inner = size / multiple;
            size % multiple == 0 && inner > 1 && space[*dim] % inner == 0 && space[*dim] > inner
        };
        let cut = remainder.terms.iter().find(splits);
        Err(cut.map(|(dim, multiple)| Cut { dim: *dim, inner: size / multiple }))
    }
}

/// The map of a tensor whose own shape is the space.
pub fn identity(shape: &[usize]) -> Map {
    shape.iter().enumerate().map(|(dim, size)| Affine::lane(dim, *size)).collect()
}

/// The one affine function that a map makes of a layout: offset and strides over the space.
pub fn place(map: &Map, strides: &[usize], offset: usize, space: &[usize]) -> (usize, Vec<usize>) {
    let mut flat = Affine { offset, terms: Vec::new() };
    map.iter().zip(strides).for_each(|(coordinate, stride)| coordinate.add_scaled(*stride, &mut flat));
    (flat.offset, (0..space.len()).map(|dim| flat.multiple(dim)).collect())
}

/// Through a view: from the map of its output to the map of its input. Nothing if the node is no view.
///
/// Fails where the input's coordinates are no sums over this space; with a cut that may help, or without.
pub fn through(sized: &Sized, id: Id, map: &Map, space: &[usize]) -> Option<Result<Map, Option<Cut>>> {
    let node = sized.graph.node(id);
    let from = node.inputs.first().map(|input| sized.shape(*input)).unwrap_or_default();
    Some(match &node.op {
        Op::Detach => Ok(map.clone()),
        Op::Transpose { order } => {
            let mut input = vec![Affine::default(); order.len()];
            order.iter().zip(map).for_each(|(dim, coordinate)| input[*dim] = coordinate.clone());
            Ok(input)
        }
        Op::Broadcast => {
            let one = |(size, coordinate): (&usize, &Affine)| {
                if *size == 1 { Affine::default() } else { coordinate.clone() }
            };
            Ok(from.iter().zip(map).map(one).collect())
        }
        Op::Slice { dim, .. } => {
            let mut input = map.clone();
            input[*dim].offset += sized.start(id);
            Ok(input)
        }
        Op::Reshape => reshape(from, sized.shape(id), map, space),
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => return None,
        Op::Cast | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => return None,
        Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Concat { .. } => return None,
        Op::Attention(_) | Op::AttentionGrad { .. } => return None,
        Op::AttentionLse(_) | Op::AttentionLseGrad { .. } | Op::RandomMask { .. } | Op::Collective { .. } => {
            return None;
        }
    })
}

/// From the map of a shape to that of another one with the same elements.
fn reshape(from: &[usize], to: &[usize], map: &Map, space: &[usize]) -> Result<Map, Option<Cut>> {
    if from.contains(&0) {
        return Ok(vec![Affine::default(); from.len()]); // no element at all
    }
    let mut flat = Affine::default();
    let strides = kernels::plan::contiguous(to);
    map.iter().zip(&strides).for_each(|(coordinate, stride)| coordinate.add_scaled(*stride, &mut flat));
    let mut coordinates = Vec::new();
    for size in from.iter().rev() {
        let (quotient, remainder) = flat.divide(*size, space)?;
        coordinates.push(remainder);
        flat = quotient;
    }
    coordinates.reverse();
    Ok(coordinates)
}

/// The map over a space one of whose dimensions was cut.
pub fn after_cut(map: &Map, cut: Cut) -> Map {
    let coordinate = |affine: &Affine| {
        let terms = affine.terms.iter().flat_map(|(dim, multiple)| {
            let later = *dim + usize::from(*dim > cut.dim);
            let outer = (later, if *dim == cut.dim { multiple * cut.inner } else { *multiple });
            let inner = (*dim == cut.dim).then_some((cut.dim + 1, *multiple));
            std::iter::once(outer).chain(inner)
        });
        Affine { offset: affine.offset, terms: terms.collect() }
    };
    map.iter().map(coordinate).collect()
}
