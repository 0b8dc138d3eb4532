//! Buffers that a pass writes where it reads.
//!
//! A pass whose lanes each read one element of a buffer and write one element of another of the same shape needs only
//! one of them, if nobody reads the first one any more. So the gradient of logits lies where the logits lay.

use std::collections::BTreeSet;

use kernels::tile::{Index, Op};

use crate::fuse::emit::{Kernel, Layout};
use crate::fuse::{Fused, Part};
use crate::ir::sized::Sized;
use crate::memory::profile;

/// Lets every pass write where it reads, as far as the memory is the compiler's own.
pub fn in_place(sized: &Sized, fused: &mut Fused) {
    let sizes = profile::sizes(sized, fused);
    let mut outputs: BTreeSet<usize> =
        sized.graph.outputs().iter().map(|(_, id)| fused.layouts[id].buffer).collect();
    let mut reuse = Reuse::of(fused);
    for part in &fused.parts {
        let Part::Kernel(kernel) = part else { continue };
        for output in &kernel.outputs {
            let from = reuse.at(output);
            let own = |to: &usize| !fused.given.contains_key(to) && !outputs.contains(to);
            let fits = |to: &usize| *to != from && own(to) && sizes[*to] == sizes[from];
            let inputs = kernel.inputs.iter().map(|input| reuse.at(input));
            let ends = |to: &usize| reuse.ends_where_begins(*to, from);
            let taken = inputs.filter(fits).filter(ends).find(|to| reuse.may_replace(fused, from, *to));
            if let Some(to) = taken.filter(|_| !fused.given.contains_key(&from)) {
                reuse.replace(from, to);
                if outputs.contains(&from) {
                    outputs.insert(to); // from here on it is read when all is done
                }
            }
        }
    }
    reuse.finish(fused);
}

/// Which buffers lie in others, and when each is touched.
pub struct Reuse {
    place: Vec<usize>,
    spans: Vec<Option<(usize, usize)>>, // the first part and the last one
}

impl Reuse {
    /// None in another.
    pub fn of(fused: &Fused) -> Self {
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; fused.bytes.len()];
        for (number, part) in fused.parts.iter().enumerate() {
            for buffer in part.reads().into_iter().chain(part.writes()) {
                let span = spans[buffer].get_or_insert((number, number));
                span.1 = number;
            }
        }
        Self { place: (0..fused.bytes.len()).collect(), spans }
    }

    /// The buffer that a layout is in by now.
    fn at(&self, layout: &Layout) -> usize {
        self.place[layout.buffer]
    }

    /// Whether the part that touches a buffer last is the first one to touch another.
    fn ends_where_begins(&self, to: usize, from: usize) -> bool {
        self.spans[to].zip(self.spans[from]).is_some_and(|(to, from)| to.1 == from.0)
    }

    /// Whether buffer `from` may lie in `to`: whatever touches it comes later, or is a pass in place.
    pub fn may_replace(&self, fused: &Fused, from: usize, to: usize) -> bool {
        let (Some(to_span), Some(from_span)) = (self.spans[to], self.spans[from]) else {
            return self.spans[from].is_some();
        };
        let in_place = || match &fused.parts[to_span.1] {
            Part::Kernel(kernel) => self.is_in_place(kernel, from, to),
            _ => false,
        };
        to_span.1 < from_span.0 || (to_span.1 == from_span.0 && in_place())
    }

    /// Whether each lane of a pass writes that element of `from` that it reads of `to`, and nothing else of both.
    fn is_in_place(&self, kernel: &Kernel, from: usize, to: usize) -> bool {
        let program = &kernel.program;
        let of = |layouts: &[Layout], buffer: usize| -> Vec<usize> {
            (0..layouts.len()).filter(|i| self.at(&layouts[*i]) == buffer).collect()
        };
        let (reads, writes) = (of(&kernel.inputs, to), of(&kernel.outputs, from));
        let ([read], [write], []) = (&reads[..], &writes[..], &of(&kernel.outputs, to)[..]) else {
            return false;
        };
        let (input, output) = (&kernel.inputs[*read], &kernel.outputs[*write]);
        let store = program.stores.iter().find(|store| store.output == *write);
        let element = store.filter(|store| !store.per_row).map(|store| store.element);
        let by_lane = |op: &Op| match *op {
            Op::Load { input, element: own, index } if input == *read => {
                index == Index::View && Some(own) == element
            }
            Op::Gather { input, .. } | Op::Nibble { input } | Op::Table { input, .. } => input != *read,
            Op::Load { .. } => true, // of another input
            Op::Float(_) | Op::Whole(_) | Op::Coordinate(_) | Op::Unary(..) | Op::Binary(..) => true,
            Op::Compare(..) | Op::Select(..) | Op::Round(..) | Op::ToFloat(_) | Op::ToWhole(_) => true,
            Op::RowSum(_) | Op::RowMax(_) | Op::RandomMask { .. } => true,
        };
        input.offset == output.offset && input.strides == output.strides && program.ops.iter().all(by_lane)
    }

    /// Lets one buffer lie in another.
    pub fn replace(&mut self, from: usize, to: usize) {
        self.place.iter_mut().filter(|place| **place == from).for_each(|place| *place = to);
        let [first, last] = [self.spans[to], self.spans[from]];
        self.spans[to] = first.or(last).map(|(first, end)| (first, last.map_or(end, |last| last.1)));
    }

    /// Writes it down.
    pub fn finish(self, fused: &mut Fused) {
        let mut settle = |layout: &mut Layout| layout.buffer = self.place[layout.buffer];
        fused.layouts.values_mut().for_each(&mut settle);
        fused.parts.iter_mut().for_each(|part| part.each_layout(&mut settle));
    }
}
