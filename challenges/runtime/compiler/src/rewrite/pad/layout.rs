//! Where the real elements of a tensor are.
//!
//! A dimension is a product of factors, the slowest first, and of each factor the leading part is real: of `B*T` rows
//! that were merged from (B, T), row `b*T + t` is real where `b` and `t` are, while a dimension `T` by itself is real
//! up to its length. A factor that is all real joins the one before it: (T, 128) is real as far as 128 lengths.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use reference::graph::{Dim, Symbol, product};

/// The factors of a dimension; nothing, where no element depends on the place along it, so that any place may be real.
pub type Axis = Option<Vec<Dim>>;

/// One axis for each dimension.
pub type Layout = Vec<Axis>;

/// The symbols that are padded.
#[derive(Clone, Debug, Default)]
pub struct Padding(pub BTreeSet<Symbol>);

/// A factor, and whether its elements differ at all.
type Factor = (Dim, bool);

/// A dimension of one factor.
#[allow(clippy::unnecessary_wraps)] // it is an axis like any other
pub fn leading(size: &Dim) -> Axis {
    Some(vec![size.clone()])
}

impl Padding {
    /// Whether a size grows by padding.
    pub fn touches(&self, size: &Dim) -> bool {
        size.symbols().any(|symbol| self.0.contains(symbol))
    }

    /// The shortest list of factors with the same real elements.
    pub fn canonical(&self, factors: &[Dim]) -> Vec<Dim> {
        let mut short: Vec<Dim> = Vec::new();
        for factor in factors.iter().filter(|factor| !factor.is_one()) {
            match short.last_mut() {
                Some(last) if !self.touches(factor) => *last = &*last * factor,
                _ => short.push(factor.clone()),
            }
        }
        short
    }

    /// Whether two lists of factors have the same real elements.
    pub fn alike(&self, a: &[Dim], b: &[Dim]) -> bool {
        self.canonical(a) == self.canonical(b)
    }

    /// Whether the real elements of a dimension are its first ones, or may be taken for it.
    pub fn is_leading(&self, axis: &Axis) -> bool {
        axis.as_ref().is_none_or(|factors| self.canonical(factors).len() <= 1)
    }

    /// Whether some dimension has padding at a certain place.
    pub fn is_in(&self, layout: &[Axis]) -> bool {
        layout.iter().flatten().flatten().any(|factor| self.touches(factor))
    }

    /// The layout of another shape of as many elements in the same order; nothing, where factors are cut apart.
    pub fn regroup(&self, from: &[Dim], layout: &[Axis], to: &[Dim]) -> Option<Layout> {
        let mut rest: VecDeque<Factor> = VecDeque::new();
        for (size, axis) in from.iter().zip(layout) {
            match axis {
                None => rest.push_back((size.clone(), true)),
                Some(factors) => rest.extend(factors.iter().map(|factor| (factor.clone(), false))),
            }
        }
        rest.retain(|(factor, _)| !factor.is_one());
        let axes = (0..to.len()).map(|dim| self.take(&mut rest, &to[dim], &to[dim + 1..]));
        let axes = axes.collect::<Option<Layout>>()?;
        rest.is_empty().then_some(axes)
    }

    /// The first factors that make up a size.
    fn take(&self, rest: &mut VecDeque<Factor>, size: &Dim, after: &[Dim]) -> Option<Axis> {
        let mut product = Dim::fixed(1);
        for count in 0..=rest.len() {
            if product == *size {
                let taken: Vec<Factor> = rest.drain(..count).collect();
                let free = taken.iter().all(|(_, free)| *free);
                return Some((!free).then(|| taken.into_iter().map(|(factor, _)| factor).collect()));
            }
            product = rest.get(count).map_or(product.clone(), |(factor, _)| &product * factor);
        }
        self.split(rest, size, after)
    }

    /// The first factor cut in two, the second part of which is all real.
    fn split(&self, rest: &mut VecDeque<Factor>, size: &Dim, after: &[Dim]) -> Option<Axis> {
        let (factor, free) = rest.front()?;
        let left = quotient(factor, size, after)?;
        let (free, apart) = (*free, !self.touches(&left));
        if !apart {
            return None;
        }
        rest[0].0 = left;
        Some((!free).then(|| vec![size.clone()]))
    }
}

/// What a size is `by` times of: a number, or a product of the sizes that come next.
fn quotient(size: &Dim, by: &Dim, after: &[Dim]) -> Option<Dim> {
    let next = (0..=after.len()).map(|count| product(&after[..count]));
    let mut candidates = next.chain(ratio(size, by));
    candidates.find(|candidate| by * candidate == *size)
}

/// The number that one size is of another, if it is one, by trying sizes.
fn ratio(size: &Dim, by: &Dim) -> Option<Dim> {
    let primes = [101, 103, 107, 109, 113].into_iter().cycle();
    let bound: BTreeMap<Symbol, i64> = size.symbols().chain(by.symbols()).cloned().zip(primes).collect();
    let (size, by) = (size.value(&bound).ok()?, by.value(&bound).ok()?);
    (by != 0 && size % by == 0).then(|| Dim::fixed(size / by))
}
