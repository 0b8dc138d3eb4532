//! Sizes as values: what a size is in truth, what it is with its padding, and which places are real.

use std::collections::BTreeMap;

use reference::graph::{Binary, Builder, Dim, Dtype, Op, Symbol, Tensor, Type};

use super::layout::{Axis, Padding};

/// The name of the input that says how long a symbol is in truth.
pub fn length_name(symbol: &str) -> String {
    format!("length.{symbol}")
}

/// The part of the model that all of this belongs to.
const SCOPE: &str = "padding";

/// Nodes of one graph that are made once and used often.
pub struct Sizes<'a> {
    builder: &'a Builder,
    padding: &'a Padding,
    lengths: BTreeMap<Symbol, Tensor>,
    real: BTreeMap<Dim, Tensor>,
    whole: BTreeMap<Dim, Tensor>,
    masks: BTreeMap<Vec<Vec<Dim>>, Tensor>,
    spread: BTreeMap<(Vec<Vec<Dim>>, Vec<Dim>), Tensor>,
}

impl<'a> Sizes<'a> {
    /// None is made yet; the lengths are inputs of the graph.
    pub fn new(builder: &'a Builder, padding: &'a Padding, lengths: BTreeMap<Symbol, Tensor>) -> Self {
        Self {
            builder,
            padding,
            lengths,
            real: BTreeMap::new(),
            whole: BTreeMap::new(),
            masks: BTreeMap::new(),
            spread: BTreeMap::new(),
        }
    }

    fn within(&self, part: impl FnOnce() -> Tensor) -> Tensor {
        self.builder.tape().within(SCOPE, part)
    }

    fn number(&self, value: i64) -> Tensor {
        self.builder.tape().constant(value as f64, &Type::scalar(Dtype::I32))
    }

    /// A size without its padding, i32 ().
    pub fn real(&mut self, size: &Dim) -> Tensor {
        if let Some(real) = self.real.get(size) {
            return real.clone();
        }
        let mut sum: Option<Tensor> = None;
        for (symbols, coefficient) in size.products() {
            let term = self.term(symbols, coefficient);
            sum = Some(sum.map_or(term.clone(), |sum| self.within(|| &sum + &term)));
        }
        let real = sum.unwrap_or_else(|| self.within(|| self.number(0)));
        self.real.insert(size.clone(), real.clone());
        real
    }

    fn term(&mut self, symbols: &[Symbol], coefficient: i64) -> Tensor {
        let factors: Vec<Tensor> = symbols.iter().map(|symbol| self.length(symbol)).collect();
        let number =
            (coefficient != 1 || factors.is_empty()).then(|| self.within(|| self.number(coefficient)));
        let product = factors.into_iter().chain(number).reduce(|a, b| self.within(|| &a * &b));
        product.unwrap_or_else(|| self.number(1))
    }

    fn length(&mut self, symbol: &Symbol) -> Tensor {
        match self.lengths.get(symbol) {
            Some(length) => length.clone(),
            None => self.whole(&Dim::symbol(symbol)),
        }
    }

    /// A size with its padding, i32 (): as many ones, added up.
    pub fn whole(&mut self, size: &Dim) -> Tensor {
        if let Some(whole) = self.whole.get(size) {
            return whole.clone();
        }
        let whole = self.within(|| match size.as_fixed() {
            Some(size) => self.number(size),
            None => self.builder.tape().constant(1.0, &Type::new(Dtype::I32, [size])).total(),
        });
        self.whole.insert(size.clone(), whole.clone());
        whole
    }

    /// Where the element number i of the real ones in the order of `to` stands in the order of `from`, i32 (size):
    /// the place along a dimension `to` is turned into coordinates, these into the number that it has among the real
    /// ones, and back. In the padding of `to` it is anything.
    pub fn positions(&mut self, size: &Dim, to: &[Dim], from: &[Dim]) -> Tensor {
        let [to, from] = [to, from].map(|factors| self.padding.canonical(factors));
        let place = self.within(|| self.builder.tape().iota(std::slice::from_ref(size), 0));
        let [to_whole, from_whole] = [&to, &from].map(|sizes| self.wholes(sizes));
        let [to_real, from_real] = [&to, &from].map(|sizes| self.reals(sizes));
        self.within(|| {
            let number = joined(&apart(&place, &to_whole), &to_real);
            joined(&apart(&number, &from_real), &from_whole)
        })
    }

    fn wholes(&mut self, sizes: &[Dim]) -> Vec<Tensor> {
        sizes.iter().map(|size| self.whole(size)).collect()
    }

    fn reals(&mut self, sizes: &[Dim]) -> Vec<Tensor> {
        sizes.iter().map(|size| self.real(size)).collect()
    }

    /// Whether a place along a dimension is real, u8 (size).
    pub fn along(&mut self, factors: &[Dim]) -> Tensor {
        let size = reference::graph::product(factors);
        self.smallest(&[Some(factors.to_vec())]).reshape([size])
    }

    /// Whether an element of that layout is real, u8 (shape). An axis without factors is all real.
    pub fn mask(&mut self, layout: &[Axis], shape: &[Dim]) -> Tensor {
        let small = self.smallest(layout);
        let padded = |(axis, size): (&Axis, &Dim)| if self.pads(axis) { size.clone() } else { Dim::fixed(1) };
        let thin: Vec<Dim> = layout.iter().zip(shape).map(padded).collect();
        let key = (self.key(layout), [&thin, shape].concat());
        if let Some(mask) = self.spread.get(&key) {
            return mask.clone();
        }
        let mask = self.within(|| small.reshape(&thin).spread(shape));
        self.spread.insert(key, mask.clone());
        mask
    }

    fn pads(&self, axis: &Axis) -> bool {
        axis.iter().flatten().any(|factor| self.padding.touches(factor))
    }

    /// What tells masks apart: the factors of the padded dimensions.
    fn key(&self, layout: &[Axis]) -> Vec<Vec<Dim>> {
        let pads = |axis: &&Axis| self.pads(axis);
        layout.iter().filter(pads).flatten().map(|factors| self.padding.canonical(factors)).collect()
    }

    /// The mask over the factors of the padded dimensions alone.
    fn smallest(&mut self, layout: &[Axis]) -> Tensor {
        let key = self.key(layout);
        if let Some(mask) = self.masks.get(&key) {
            return mask.clone();
        }
        let factors: Vec<Dim> = key.concat();
        let mut whole: Option<Tensor> = None;
        for (dim, factor) in factors.iter().enumerate().filter(|(_, factor)| self.padding.touches(factor)) {
            let length = self.real(factor);
            let here = self.within(|| {
                let place = self.builder.tape().iota(std::slice::from_ref(factor), 0);
                let mut thin = vec![Dim::fixed(1); factors.len()];
                thin[dim] = factor.clone();
                place.less(&length).reshape(thin).spread(&factors)
            });
            let both =
                |mask: Tensor| self.builder.tape().apply(Op::Binary(Binary::Min), &[&mask, &here], None);
            whole = Some(self.within(|| whole.map_or(here.clone(), both)));
        }
        let one = Type::new(Dtype::U8, &factors);
        let mask = whole.unwrap_or_else(|| self.within(|| self.builder.tape().constant(1.0, &one)));
        self.masks.insert(key, mask.clone());
        mask
    }
}

/// A place as coordinates of factors of these sizes.
fn apart(place: &Tensor, sizes: &[Tensor]) -> Vec<Tensor> {
    let mut rest = place.clone();
    let mut coordinates = Vec::new();
    for size in sizes.iter().skip(1).rev() {
        let size = size.max(&size.like(1.0)); // of no elements, none is divided by 0
        let above = &rest / &size;
        coordinates.push(&rest - &(&above * &size));
        rest = above;
    }
    coordinates.push(rest);
    coordinates.reverse();
    coordinates
}

/// Coordinates as a place.
fn joined(coordinates: &[Tensor], sizes: &[Tensor]) -> Tensor {
    let join = |place: Option<Tensor>, (at, size): (&Tensor, &Tensor)| match place {
        Some(place) => Some(&(&place * size) + at),
        None => Some(at.clone()),
    };
    let sized = coordinates.iter().zip(sizes);
    sized.fold(None, join).unwrap_or_else(|| coordinates[0].clone()) // without factors, there is one element
}
