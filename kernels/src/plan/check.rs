//! The check of a plan: each step's views lie in their memory, and nothing is written twice or while it is read.

use super::{Dequantize, Memory, Plan, Product, Step, View, WeightPart, contiguous};
use crate::error::DeviceError;
use crate::tile::{Element, Index, Op, Program, Store};

impl Plan {
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
    pub(super) fn inside(&self, view: &View, space: &[usize], element: usize) -> bool {
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
    pub(super) fn holds(&self, view: &View) -> bool {
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
        let parts = what.inputs();
        let fits = |(part, view): (&WeightPart, &View)| what.input_bytes(*part) <= view.bytes;
        if inputs.len() != parts.len() || !parts.iter().zip(inputs).all(fits) {
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
pub(super) fn lanes_of(space: &[usize]) -> Option<usize> {
    let lanes = space.iter().try_fold(1_usize, |lanes, size| lanes.checked_mul(*size));
    lanes.filter(|lanes| isize::try_from(*lanes).is_ok()).or(space.contains(&0).then_some(0))
}
