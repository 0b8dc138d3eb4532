//! Sizes that are not numbers yet.
//!
//! A dimension is a polynomial with integer coefficients over named symbols, kept in one normal form, so that two
//! sizes are equal exactly if they look equal: `B*T` tokens of `4*32` are `128*B*T` numbers however they are cut.
//! What is known of a symbol are its [`Facts`]: bounds, and a number that divides it. From these follow bounds of
//! every polynomial, which is all that a slice or a loop without a tail has to know.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

use super::print::Name;

/// The name of a size that is bound when the graph runs.
pub type Symbol = Arc<str>;

/// A size: a sum of products of symbols, such as `2*B*T + 1`. Arithmetic saturates.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim(Arc<Terms>); // shared, since every node of a graph has a few

/// The largest least value that a symbol is counted from: products of three of them fit.
const MOST_COUNTED: i64 = 1 << 20;

/// Product (sorted symbols) -> coefficient, never 0.
type Terms = BTreeMap<Vec<Symbol>, i64>;

/// What is known of a symbol before it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The least value.
    pub min: i64,
    /// The largest value.
    pub max: i64,
    /// A number that divides every value; 1 says nothing.
    pub multiple: i64,
}

/// The facts of every symbol of a graph.
pub type Known = BTreeMap<Symbol, Facts>;

impl Facts {
    /// Between two values, both included.
    pub fn range(min: i64, max: i64) -> Self {
        Self { min, max, multiple: 1 }
    }

    /// The same, and divisible by `multiple`.
    #[must_use]
    pub fn multiple_of(self, multiple: i64) -> Self {
        Self { multiple, ..self }
    }

    /// Whether some value can satisfy them, and none is negative.
    pub fn make_sense(self) -> bool {
        self.min >= 0 && self.multiple >= 1 && self.max / self.multiple * self.multiple >= self.min
    }

    /// Whether a value satisfies them.
    pub fn hold(self, value: i64) -> bool {
        (self.min..=self.max).contains(&value) && value.checked_rem(self.multiple) == Some(0)
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.min, self.max)?;
        if self.multiple == 1 { Ok(()) } else { write!(f, " by {}", self.multiple) }
    }
}

impl Dim {
    /// A number.
    pub fn fixed(size: i64) -> Self {
        Self::default().plus(Vec::new(), size)
    }

    /// A symbol.
    pub fn symbol(name: &str) -> Self {
        Self::default().plus(vec![name.into()], 1)
    }

    /// Adds `coefficient * product`.
    fn plus(mut self, product: Vec<Symbol>, coefficient: i64) -> Self {
        let sum = self.0.get(&product).copied().unwrap_or(0).saturating_add(coefficient);
        let terms = Arc::make_mut(&mut self.0);
        match sum {
            0 => terms.remove(&product),
            _ => terms.insert(product, sum),
        };
        self
    }

    /// The number, if it is one.
    pub fn as_fixed(&self) -> Option<i64> {
        match self.0.iter().next() {
            None => Some(0),
            Some((product, number)) => (self.0.len() == 1 && product.is_empty()).then_some(*number),
        }
    }

    /// The symbol, if it is nothing but one.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        let (product, coefficient) = self.0.iter().next()?;
        (self.0.len() == 1 && product.len() == 1 && *coefficient == 1).then(|| &product[0])
    }

    /// Whether it is the number 1.
    pub fn is_one(&self) -> bool {
        self.as_fixed() == Some(1)
    }

    /// Every symbol in it, some perhaps twice.
    pub fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.0.keys().flatten()
    }

    /// Its terms: products of symbols, each with its coefficient.
    pub fn products(&self) -> impl Iterator<Item = (&[Symbol], i64)> {
        self.0.iter().map(|(product, coefficient)| (product.as_slice(), *coefficient))
    }

    /// The number of its terms.
    pub(super) fn terms(&self) -> usize {
        self.0.len()
    }

    /// The number of factors of its longest term, a coefficient not counted.
    pub(super) fn degree(&self) -> usize {
        self.0.keys().map(Vec::len).max().unwrap_or(0)
    }

    /// Its value where every symbol is bound; the symbol that is not, otherwise.
    pub fn value(&self, bound: &BTreeMap<Symbol, i64>) -> Result<i64, Symbol> {
        self.0.iter().try_fold(0_i64, |sum, (product, coefficient)| {
            let term = product.iter().try_fold(*coefficient, |term, symbol| {
                bound.get(symbol).map(|value| term.saturating_mul(*value)).ok_or_else(|| symbol.clone())
            })?;
            Ok(sum.saturating_add(term))
        })
    }

    /// A least and a largest value that the facts allow; a symbol without facts may be anything from 0 on. Each term is
    /// taken for itself; once more with a symbol of several terms taken out, so that `B*T - B` is `B*(T - 1)`; and once
    /// more with every symbol counted from its least value, so that `B*N - 2*B - 2*N + 4` is `(B - 2)*(N - 2)`.
    pub fn bounds(&self, known: &Known) -> (i64, i64) {
        let of_terms = self.term_bounds(known);
        let divided = self.shared().into_iter().map(|symbol| self.divided_bounds(&symbol, known));
        divided
            .chain(self.counted_bounds(known))
            .fold(of_terms, |(least, largest), (low, high)| (least.max(low), largest.min(high)))
    }

    /// [`bounds`](Self::bounds) of the terms where every symbol is its least value and something from 0 on; nothing
    /// where products have one factor, which gain nothing by it, or the sum is long.
    fn counted_bounds(&self, known: &Known) -> Option<(i64, i64)> {
        let is_worth_it = self.degree() > 1 && self.is_short();
        let counted = |symbol: &Symbol| {
            let fact = fact(symbol, known);
            (0..=MOST_COUNTED).contains(&fact.min).then(|| (symbol.clone(), fact))
        };
        let facts: BTreeMap<_, _> = is_worth_it.then(|| self.symbols().map(counted).collect()).flatten()?;
        let from = |(symbol, fact): (&Symbol, &Facts)| {
            (symbol.clone(), &Dim::symbol(symbol) + &Dim::fixed(fact.min))
        };
        let sum = self.substitute(&facts.iter().map(from).collect());
        let rest = |(symbol, fact): (Symbol, Facts)| (symbol, Facts::range(0, fact.max - fact.min));
        Some(sum.term_bounds(&facts.into_iter().map(rest).collect()))
    }

    /// Whether it has few terms of few factors, so that each way of looking at it may be tried.
    fn is_short(&self) -> bool {
        self.terms() <= 8 && self.degree() <= 3
    }

    /// [`bounds`](Self::bounds) as a multiple of a symbol and a rest.
    fn divided_bounds(&self, symbol: &Symbol, known: &Known) -> (i64, i64) {
        let (of, rest) = self.divided(symbol);
        let (fact, (low, high), rest) = (fact(symbol, known), of.bounds(known), rest.bounds(known));
        let low = low.saturating_mul(if low < 0 { fact.max } else { fact.min });
        let high = high.saturating_mul(if high < 0 { fact.min } else { fact.max });
        (low.saturating_add(rest.0), high.saturating_add(rest.1))
    }

    fn term_bounds(&self, known: &Known) -> (i64, i64) {
        self.0.iter().fold((0_i64, 0_i64), |(least, largest), (product, coefficient)| {
            let low = product.iter().fold(1_i64, |low, symbol| low.saturating_mul(fact(symbol, known).min));
            let high =
                product.iter().fold(1_i64, |high, symbol| high.saturating_mul(fact(symbol, known).max));
            let (low, high) = (low.saturating_mul(*coefficient), high.saturating_mul(*coefficient));
            (least.saturating_add(low.min(high)), largest.saturating_add(low.max(high)))
        })
    }

    /// The symbols that several terms have; of a long sum only one of the most terms, since each is tried in turn.
    fn shared(&self) -> Vec<Symbol> {
        let mut terms: BTreeMap<&Symbol, usize> = BTreeMap::new();
        for product in self.0.keys() {
            let first = |i: &usize| *i == 0 || product[*i] != product[*i - 1];
            (0..product.len()).filter(first).for_each(|i| *terms.entry(&product[i]).or_default() += 1);
        }
        let mut shared: Vec<_> = terms.into_iter().filter(|(_, count)| *count > 1).collect();
        shared.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let tried = if self.is_short() { shared.len() } else { 1 };
        shared.into_iter().take(tried).map(|(symbol, _)| symbol.clone()).collect()
    }

    /// What it is a multiple of a symbol of, and what is left: it is `symbol * first + second`.
    fn divided(&self, symbol: &Symbol) -> (Dim, Dim) {
        let (mut of, mut rest) = (Dim::default(), Dim::default());
        for (product, coefficient) in &*self.0 {
            let mut product = product.clone();
            match product.iter().position(|one| one == symbol) {
                Some(place) => {
                    product.remove(place);
                    of = of.plus(product, *coefficient);
                }
                None => rest = rest.plus(product, *coefficient),
            }
        }
        (of, rest)
    }

    /// It divided by a number or a product of symbols, such as `4*W`, that divides each of its terms; `None` if that
    /// does not, or is 0 or a sum.
    pub fn divided_by(&self, by: &Dim) -> Option<Dim> {
        let (factors, number) = by.0.iter().next().filter(|_| by.terms() == 1)?;
        self.0.iter().try_fold(Dim::default(), |sum, (product, coefficient)| {
            let mut product = product.clone();
            for factor in factors {
                product.remove(product.iter().position(|one| one == factor)?);
            }
            (coefficient.checked_rem(*number)? == 0).then(|| sum.plus(product, coefficient / number))
        })
    }

    /// Whether the facts say that `number` divides it; 0 divides nothing but 0.
    pub fn is_multiple_of(&self, number: i64, known: &Known) -> bool {
        let modulus = i128::from(number);
        let fact = |symbol| known.get(symbol).map_or(1, |facts| facts.multiple);
        self.0.iter().all(|(product, coefficient)| {
            let mut factors = product.iter().map(fact).chain([*coefficient]).map(i128::from);
            factors.try_fold(1, |rest: i128, factor| (rest * factor).checked_rem(modulus)) == Some(0)
        })
    }

    /// It with every symbol replaced by what `by` gives for it.
    #[must_use]
    pub fn substitute(&self, by: &BTreeMap<Symbol, Dim>) -> Dim {
        let replaced = |symbol: &Symbol| by.get(symbol).cloned().unwrap_or_else(|| Dim::symbol(symbol));
        let term = |(product, coefficient): (&Vec<Symbol>, &i64)| {
            product.iter().fold(Dim::fixed(*coefficient), |term, symbol| &term * &replaced(symbol))
        };
        self.0.iter().map(term).fold(Dim::default(), |sum, term| &sum + &term)
    }
}

/// What is known of a symbol; without facts it may be anything from 0 on.
fn fact(symbol: &Symbol, known: &Known) -> Facts {
    known.get(symbol).copied().unwrap_or(Facts::range(0, i64::MAX))
}

impl Add for &Dim {
    type Output = Dim;
    fn add(self, other: Self) -> Dim {
        other.0.iter().fold(self.clone(), |sum, (product, number)| sum.plus(product.clone(), *number))
    }
}

impl Sub for &Dim {
    type Output = Dim;
    fn sub(self, other: Self) -> Dim {
        self + &(other * &Dim::fixed(-1))
    }
}

impl Mul for &Dim {
    type Output = Dim;
    fn mul(self, other: Self) -> Dim {
        let mut result = Dim::default();
        for (left, a) in &*self.0 {
            for (right, b) in &*other.0 {
                let mut product = [left.as_slice(), right].concat();
                product.sort();
                result = result.plus(product, a.saturating_mul(*b));
            }
        }
        result
    }
}

/// The number of elements of a shape.
pub fn product(shape: &[Dim]) -> Dim {
    shape.iter().fold(Dim::fixed(1), |product, dim| &product * dim)
}

impl From<i64> for Dim {
    fn from(size: i64) -> Self {
        Dim::fixed(size)
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Dim::fixed(i64::try_from(size).unwrap_or(i64::MAX))
    }
}

impl From<i32> for Dim {
    fn from(size: i32) -> Self {
        Dim::fixed(i64::from(size))
    }
}

impl From<&Dim> for Dim {
    fn from(dim: &Dim) -> Self {
        dim.clone()
    }
}

/// The largest products first, as one would write them: `2*B*T + T - 1`.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms: Vec<_> = self.0.iter().collect();
        terms.sort_by_key(|(product, _)| std::cmp::Reverse(product.len()));
        if terms.is_empty() {
            return write!(f, "0");
        }
        for (i, (product, coefficient)) in terms.into_iter().enumerate() {
            let sign = match (i, *coefficient < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            write!(f, "{sign}")?;
            term(f, product, coefficient.unsigned_abs())?;
        }
        Ok(())
    }
}

fn term(f: &mut fmt::Formatter<'_>, product: &[Symbol], number: u64) -> fmt::Result {
    if product.is_empty() || number != 1 {
        write!(f, "{number}{}", if product.is_empty() { "" } else { "*" })?;
    }
    for (i, symbol) in product.iter().enumerate() {
        write!(f, "{}{}", if i == 0 { "" } else { "*" }, Name(symbol))?;
    }
    Ok(())
}
