//! An attention's programs as CUDA C++. Each is cut into what depends on the query alone, on the key alone, and on
//! both: the kernels compute the first once for a row of a tile, the second once for a column, and only the third for
//! every score. So a mask that gathers the documents of its query and its key gathers once a row and once a column.
//!
//! The operations are the same and so are their bits. An operation that fails names the first lane in which it does.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::text::{self, Lanes};
use crate::plan::{Attention, View};
use crate::tile::{Binary, Element, Index, Op, Program, Value};

/// Which program of an attention: also what is added to the step's id where it fails.
pub(super) const SCORE: usize = 0;
pub(super) const MASK: usize = 1;
pub(super) const SLOPE: usize = 2;

/// The most values of a query, or of a key, that are kept for a program; one with more computes them for every score.
const MAX_KEPT: usize = 8;

/// How many inputs of a program are the score and its gradient.
pub(super) fn own_inputs(which: usize) -> usize {
    if which == SLOPE { 2 } else { 1 }
}

/// What a value differs between, beside batches and heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Nothing else.
    Head,
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Scores.
    Pair,
}

impl Scope {
    /// Of a value that is made of two.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Head, scope) | (scope, Self::Head) => scope,
            (Self::Query, Self::Query) => Self::Query,
            (Self::Key, Self::Key) => Self::Key,
            _ => Self::Pair,
        }
    }

    fn of_view(view: &View) -> Self {
        match (view.strides[2] != 0, view.strides[3] != 0) {
            (false, false) => Self::Head,
            (true, false) => Self::Query,
            (false, true) => Self::Key,
            (true, true) => Self::Pair,
        }
    }
}

/// A side of a tile of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Its rows.
    Query,
    /// Its columns.
    Key,
}

impl Side {
    /// Whether its values are made without the other side.
    fn has(self, scope: Scope) -> bool {
        scope == Scope::Head || scope == if self == Self::Query { Scope::Query } else { Scope::Key }
    }

    /// Whether it keeps values of a scope that pairs use: what belongs to neither side is kept with the query.
    fn keeps(self, scope: Scope) -> bool {
        self.has(scope) && (self == Self::Query || scope != Scope::Head)
    }

    fn names(self) -> [&'static str; 4] {
        match self {
            Self::Query => ["Query", "query", "query", "key"],
            Self::Key => ["Key", "key", "key", "query"],
        }
    }
}

/// An attention's programs.
pub(super) struct Programs<'a>([Cut<'a>; 3]);

impl<'a> Programs<'a> {
    /// The score's program, the mask's and the slope's, cut.
    pub fn new(attention: &'a Attention, programs: [Option<&'a Program>; 3]) -> Self {
        let mut which = 0..;
        Self(programs.map(|program| Cut::new(which.next().unwrap_or(0), program, &attention.extras)))
    }

    /// Bytes that are kept of one row or column; a struct of nothing has one.
    pub fn kept_bytes(&self, side: Side) -> usize {
        let kept: usize = self.0.iter().map(|cut| cut.kept(side).len()).sum();
        (kept * size_of::<u32>()).max(1)
    }

    /// The text: for each program a struct and a function a side, and one of both.
    pub fn text(&self) -> String {
        let of = |cut: &Cut| [cut.side(Side::Query), cut.side(Side::Key), cut.pair()].concat();
        self.0.iter().map(of).collect()
    }
}

/// A program and what its values depend on.
struct Cut<'a> {
    which: usize,
    program: Option<&'a Program>,
    scopes: Vec<Scope>,
    kinds: Vec<bool>,
    free: Vec<bool>,
}

impl<'a> Cut<'a> {
    fn new(which: usize, program: Option<&'a Program>, extras: &[View]) -> Self {
        let scopes = program.map_or_else(Vec::new, |program| scopes(program, extras, own_inputs(which)));
        let [kinds, free] = [Program::kinds, free].map(|of| program.map_or_else(Vec::new, of));
        let mut cut = Self { which, program, scopes, kinds, free };
        if [Side::Query, Side::Key].iter().any(|side| cut.kept(*side).len() > MAX_KEPT) {
            cut.scopes.fill(Scope::Pair);
        }
        cut
    }

    fn ops(&self) -> &'a [Op] {
        self.program.map_or(&[], |program| &program.ops)
    }

    /// Values of a side that pairs use, in order, but for those that are as cheap to compute as to look up.
    fn kept(&self, side: Side) -> BTreeSet<Value> {
        let pairs = self.ops().iter().zip(&self.scopes).filter(|(_, scope)| **scope == Scope::Pair);
        let result = self.program.map(|program| program.stores[0].value);
        let used = pairs.flat_map(|(op, _)| Program::uses(op)).chain(result);
        used.filter(|value| side.keeps(self.scopes[*value]) && !self.free[*value]).collect()
    }

    /// The statements of some values and of all that they are made of, short of what is `known`; beside them those of a
    /// scope that may fail.
    fn statements(
        &self,
        wanted: impl Iterator<Item = Value>,
        known: &BTreeSet<Value>,
        has: impl Fn(Scope) -> bool,
    ) -> String {
        let may_fail =
            |value: &Value| has(self.scopes[*value]) && text::may_fail(&self.ops()[*value], &self.kinds);
        let mut needed: BTreeSet<Value> = wanted.chain((0..self.ops().len()).filter(may_fail)).collect();
        for value in (0..self.ops().len()).rev() {
            if needed.contains(&value) && !known.contains(&value) {
                needed.extend(Program::uses(&self.ops()[value]));
            }
        }
        let Some(program) = self.program else { return String::new() };
        let lanes = Score { which: self.which };
        needed.difference(known).fold(String::new(), |mut text, value| {
            let _ = writeln!(text, "{}", text::statement(&lanes, program, &self.kinds, *value));
            text
        })
    }

    /// What is kept of a row or a column, and the function that computes it.
    fn side(&self, side: Side) -> String {
        let ([title, name, own, other], kept) = (side.names(), self.kept(side));
        let which = ["Score", "Mask", "Slope"][self.which];
        let fields = kept.iter().fold(String::new(), |mut text, value| {
            let _ = write!(text, " {} v{value};", text::kind(self.kinds[*value]));
            text
        });
        let values: Vec<String> = kept.iter().map(|value| format!("v{value}")).collect();
        format!(
            "struct {which}Of{title} {{{fields} }};\n\
             __device__ __forceinline__ {which}Of{title} {}_of_{name}(const PARAMS& p, u32 batch, u32 head, \
             u32 {own}) {{\nconst u32 {other} = 0;\n{}return {{{}}};\n}}\n",
            which.to_lowercase(),
            self.statements(kept.iter().copied(), &BTreeSet::new(), |scope| side.has(scope)),
            values.join(", ")
        )
    }

    /// The program as a function of a score, its place, and what is known of its row and its column.
    fn pair(&self) -> String {
        let (name, kind, extra) = match self.which {
            SCORE => ("score", "float", ""),
            MASK => ("mask", "bool", ""),
            _ => ("slope", "float", "float ds, "),
        };
        let which = ["Score", "Mask", "Slope"][self.which];
        let head = format!(
            "__device__ __forceinline__ {kind} {name}(const PARAMS& p, float s, {extra}const {which}OfQuery& of_query, \
             const {which}OfKey& of_key, u32 batch, u32 head, u32 query, u32 key) {{\n"
        );
        let Some(program) = self.program else {
            let same = ["s", "true", "ds"][self.which];
            return format!("{head}return {same};\n}}\n");
        };
        let [of_query, of_key] = [Side::Query, Side::Key].map(|side| self.kept(side));
        let known = [("of_query", &of_query), ("of_key", &of_key)];
        let known = known.iter().flat_map(|(of, kept)| kept.iter().map(move |value| (of, *value)));
        let known = known.fold(String::new(), |mut text, (of, value)| {
            let _ = writeln!(text, "const {} v{value} = {of}.v{value};", text::kind(self.kinds[value]));
            text
        });
        let result = program.stores[0].value;
        let kept = of_query.union(&of_key).copied().collect();
        let statements = self.statements([result].into_iter(), &kept, |scope| scope == Scope::Pair);
        let value = if self.which == MASK { format!("v{result} != 0") } else { format!("v{result}") };
        format!("{head}{known}{statements}return {value};\n}}\n")
    }
}

/// What each value of a program depends on.
fn scopes(program: &Program, extras: &[View], own: usize) -> Vec<Scope> {
    let mut scopes: Vec<Scope> = Vec::new();
    for op in &program.ops {
        let leaf = match *op {
            Op::Load { input, .. } if input < own => Scope::Pair,
            Op::Load { input, index: Index::View, .. } => Scope::of_view(&extras[input - own]),
            Op::Coordinate(2) => Scope::Query,
            Op::Coordinate(3) => Scope::Key,
            _ => Scope::Head,
        };
        scopes.push(Program::uses(op).fold(leaf, |scope, value| scope.and(scopes[value])));
    }
    scopes
}

/// Whether each value is made of coordinates and constants by some instructions of one cycle, which the compiler shares
/// among scores by itself: kept in shared memory, the end of a window made its kernels slower.
fn free(program: &Program) -> Vec<bool> {
    let mut free: Vec<bool> = Vec::new();
    for op in &program.ops {
        let is_cheap = match *op {
            Op::Float(_)
            | Op::Whole(_)
            | Op::Coordinate(_)
            | Op::Compare(..)
            | Op::Select(..)
            | Op::ToFloat(_) => true,
            Op::Binary(binary, ..) => binary != Binary::Div,
            _ => false,
        };
        free.push(is_cheap && Program::uses(op).all(|value| free[value]));
    }
    free
}

/// A place among the scores.
struct Score {
    which: usize,
}

impl Score {
    fn extra(&self, input: usize) -> usize {
        input - own_inputs(self.which)
    }
}

impl Lanes for Score {
    fn leaf(&self, _: Value, op: &Op) -> String {
        match *op {
            Op::Load { input: 0, .. } => "s".into(),
            Op::Load { input: 1, .. } if self.which == SLOPE => "ds".into(),
            Op::Load { input, element, index: Index::View } => {
                let (extra, element) = (self.extra(input), text::element(element));
                let x = format!("p.x{extra}_{element}");
                format!(
                    "fetch<{element}>({x}, batch * {x}_s0 + head * {x}_s1 + query * {x}_s2 + key * {x}_s3)"
                )
            }
            Op::Load { input, element, .. } => {
                format!("fetch<{}>({}, 0)", text::element(element), self.base(input))
            }
            Op::Coordinate(dim) => format!("(int){}", ["batch", "head", "query", "key"][dim]),
            _ => unreachable!("the plan's check lets no other operation read memory here"),
        }
    }

    fn base(&self, input: usize) -> String {
        format!("p.x{}", self.extra(input))
    }

    fn limit(&self, input: usize, element: Element) -> String {
        format!("p.x{}_bytes / {}", self.extra(input), element.bytes())
    }

    fn lane(&self) -> String {
        "((batch * p.heads + head) * p.queries + query) * p.keys + key".into() // 64 bits, as sizes have
    }

    fn step_id(&self) -> String {
        format!("(u32)p.step_id + {}", self.which)
    }
}
