//! Attention as kernels: the template of `kernels/cu/attention.cuh` with an attention's programs spliced in.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::params::{KernelParams, Param};
use super::text::{self, Lanes};
use super::{Grid, NamedKernel};
use crate::plan::{Attention, AttentionGrad, Memory, View};
use crate::tile::{Element, Index, Op, Program, Value};

/// The template on tensor cores.
const MMA: &str = include_str!("../../../cu/attention_mma.cuh");

/// The template.
const TEMPLATE: &str = include_str!("../../../cu/attention.cuh");

/// Rows and columns of a tile, as the template has them.
const TILE: usize = 64;

/// Threads of a block of every kernel here.
const THREADS: u32 = 256;

/// Which program of an attention a fault is in: added to the step's id.
pub(super) const SCORE: usize = 0;
pub(super) const MASK: usize = 1;
pub(super) const SLOPE: usize = 2;

/// The kernels of a step, in order, and the bytes of scratch memory that they share.
pub(super) struct Kernels {
    /// The text; `KERNEL` stands for the attention's name.
    pub text: String,
    /// The argument of all of them.
    pub params: Vec<Param>,
    /// Each with its name and its grid.
    pub launches: Vec<NamedKernel>,
    /// Bytes.
    pub scratch: usize,
}

/// The kernels of an attention.
pub(super) fn forward(
    attention: &Attention,
    output: &View,
    lse: Option<&View>,
    step_id: usize,
    limits: Limits,
) -> Kernels {
    let uses_mma = limits.allow(attention, &[output]) && limits.shared_bytes >= shared::forward(attention);
    let mut writer = Writer::new(attention, None, uses_mma);
    writer.tensor("o", output);
    if let Some(lse) = lse {
        writer.tensor("lse", lse);
    }
    let tiles = |size: usize| size.div_ceil(TILE);
    let of_row = attention.batch * attention.heads * tiles(attention.queries);
    let blocks = of_row * tiles(attention.width).max(1);
    writer.define("FORWARD", true);
    writer.define("HAS_LSE", lse.is_some());
    if uses_mma {
        let heads = attention.batch * attention.heads;
        let blocks = heads * attention.queries.div_ceil(ROWS);
        return writer.finish(step_id, 0, vec![("attention_mma", blocks, 128, shared::forward(attention))]);
    }
    writer.finish(step_id, 0, vec![("attention", blocks, THREADS, 0)])
}

/// The kernels of an attention's gradients.
pub(super) fn backward(grad: &AttentionGrad, step_id: usize, limits: Limits) -> Kernels {
    let of = &grad.attention;
    let wrt = [&grad.wrt_q, &grad.wrt_k, &grad.wrt_v].into_iter().flatten();
    let views: Vec<&View> = [&grad.grad, &grad.output].into_iter().chain(wrt).collect();
    let own_keys = limits.own_keys(of);
    let shared = shared::of_queries(of).max(shared::of_keys(of, own_keys));
    let uses_mma = limits.allow(of, &views) && limits.shared_bytes >= shared;
    let mut writer = Writer::new(of, Some(grad), uses_mma);
    if uses_mma {
        let _ = writeln!(writer.defines, "#define OWN_KEYS {own_keys}");
    }
    let read = [("o", Some(&grad.output)), ("lse", Some(&grad.lse)), ("g", Some(&grad.grad))];
    let written = [("dq", grad.wrt_q.as_ref()), ("dk", grad.wrt_k.as_ref()), ("dv", grad.wrt_v.as_ref())];
    for (name, view) in read.into_iter().chain(written) {
        if let Some(view) = view {
            writer.tensor(name, view);
        }
    }
    for (define, view) in ["HAS_DQ", "HAS_DK", "HAS_DV"].into_iter().zip(written) {
        writer.define(define, view.1.is_some());
    }
    writer.define("FORWARD", false);
    let tiles = |size: usize| size.div_ceil(TILE);
    let queries = of.batch * of.heads * of.queries;
    let of_query = of.batch * of.heads * tiles(of.queries) * tiles(of.depth);
    let keys = of.batch * of.groups * tiles(of.keys);
    let of_key = if grad.wrt_k.is_some() { keys * tiles(of.depth) } else { 0 };
    let of_value = if grad.wrt_v.is_some() { keys * tiles(of.width) } else { 0 };
    let needs_delta = grad.wrt_q.is_some() || grad.wrt_k.is_some();
    let mut kernels = Vec::new();
    if needs_delta {
        kernels.push(("attention_delta", queries.div_ceil(8), THREADS, 0));
    }
    let of_keys = grad.wrt_k.is_some() || grad.wrt_v.is_some();
    if uses_mma {
        let (queries, keys) = (of.queries.div_ceil(ROWS), of.keys.div_ceil(own_keys));
        if grad.wrt_q.is_some() {
            let blocks = of.batch * of.heads * queries;
            kernels.push(("attention_mma_dq", blocks, 128, shared::of_queries(of)));
        }
        if of_keys {
            let (blocks, threads) = (of.batch * of.groups * keys, 2 * own_keys as u32);
            kernels.push(("attention_mma_dkv", blocks, threads, shared::of_keys(of, own_keys)));
        }
    } else {
        if grad.wrt_q.is_some() {
            kernels.push(("attention_dq", of_query, THREADS, 0));
        }
        if of_keys {
            kernels.push(("attention_dkv", of_key + of_value, THREADS, 0));
        }
    }
    writer.finish(step_id, queries * size_of::<f32>(), kernels)
}

/// Rows of a block on tensor cores.
const ROWS: usize = 128;

/// The largest depth and width on tensor cores.
const MOST_MMA: usize = 128;

/// What a card can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Its compute capability.
    pub capability: (i32, i32),
    /// Bytes of shared memory that a block may ask for.
    pub shared_bytes: usize,
    /// Multiprocessors.
    pub sms: usize,
}

impl Limits {
    /// Keys of a block of dK and dV: half as many where larger blocks would be too few to keep every multiprocessor at
    /// work to the end, since causal blocks differ in length.
    fn own_keys(self, of: &Attention) -> usize {
        let blocks = of.batch * of.groups * of.keys.div_ceil(ROWS);
        if blocks < 4 * self.sms { ROWS / 2 } else { ROWS }
    }

    /// Whether an attention that writes, or reads, some views more can be computed on tensor cores.
    fn allow(self, of: &Attention, views: &[&View]) -> bool {
        let fits = |size: usize| size > 0 && size <= MOST_MMA && size.is_multiple_of(16);
        let is_aligned = |view: &&View| {
            let base = if let Memory::Arena(at) = view.memory { at } else { 0 };
            let first = base + view.offset * of.element.bytes();
            let outer = &view.strides[..3];
            view.strides[3] == 1
                && first.is_multiple_of(16)
                && outer.iter().all(|stride| stride.is_multiple_of(8))
        };
        let own = [&of.q, &of.k, &of.v];
        self.capability >= (8, 0)
            && of.element != Element::F32
            && fits(of.depth)
            && fits(of.width)
            && own.iter().chain(views).all(is_aligned)
    }
}

/// Bytes of shared memory of the kernels on tensor cores, as `attention_mma.cuh` lays it out.
mod shared {
    use super::{Attention, ROWS};

    /// So many rows of a tensor, each with the 16 bytes behind it.
    fn rows(count: usize, length: usize) -> usize {
        count * (length + 8) * 2
    }

    /// The list of a block's tiles.
    fn list(tiles: usize) -> usize {
        tiles * size_of::<u32>()
    }

    pub fn forward(of: &Attention) -> usize {
        rows(ROWS, of.depth) + 2 * (rows(64, of.depth) + rows(64, of.width)) + list(of.keys.div_ceil(64))
    }

    pub fn of_queries(of: &Attention) -> usize {
        let keys = if of.depth.max(of.width) > 64 { 32 } else { 64 };
        let own = rows(ROWS, of.depth) + rows(ROWS, of.width);
        own + 2 * (rows(keys, of.depth) + rows(keys, of.width)) + list(of.keys.div_ceil(keys))
    }

    pub fn of_keys(of: &Attention, own_keys: usize) -> usize {
        let own = rows(own_keys, of.depth) + rows(own_keys, of.width);
        let per_query = 2 * 2 * 64 * size_of::<f32>(); // L and delta
        let tiles = of.heads / of.groups.max(1) * of.queries.div_ceil(64);
        own + 2 * (rows(64, of.depth) + rows(64, of.width)) + per_query + list(tiles)
    }
}

/// Writes an attention's text and gathers its parameters.
struct Writer<'a> {
    attention: &'a Attention,
    defines: String,
    params: KernelParams,
    programs: [Option<&'a Program>; 3],
    has_map: bool,
    uses_mma: bool,
}

impl<'a> Writer<'a> {
    fn new(attention: &'a Attention, grad: Option<&'a AttentionGrad>, uses_mma: bool) -> Self {
        let mut params = KernelParams::default();
        let Attention { batch, heads, groups, queries, keys, depth, width, .. } = *attention;
        let tiles = |size: usize| size.div_ceil(TILE);
        let sizes = [
            ("batches", batch),
            ("heads", heads),
            ("groups", groups),
            ("queries", queries),
            ("keys", keys),
            ("depth", depth),
            ("width", width),
            ("rows", tiles(queries)),
            ("columns", tiles(keys)),
            ("depths", tiles(depth)),
            ("widths", tiles(width).max(1)), // L has to be written where values have no numbers
            ("scale", attention.scale.to_bits() as usize),
        ];
        for (name, size) in sizes {
            params.number(name, size);
        }
        let slope = grad.and_then(|grad| grad.slope.as_deref());
        let programs = [attention.score.as_deref(), attention.mask.as_deref(), slope];
        let reads_score = |mask: &Program| mask.ops.iter().any(|op| matches!(op, Op::Load { input: 0, .. }));
        let has_map = programs[MASK].is_some_and(|mask| !reads_score(mask));
        let mut writer = Self { attention, defines: String::new(), params, programs, has_map, uses_mma };
        for (name, view) in [("q", &attention.q), ("k", &attention.k), ("v", &attention.v)] {
            writer.tensor(name, view);
        }
        writer.define("HAS_MASK", programs[MASK].is_some());
        writer.define("HAS_MAP", has_map);
        writer.define("USES_MMA", uses_mma);
        writer.define(
            "IS_SCALED",
            programs[SCORE].is_some() || !(attention.scale > 0.0 && attention.scale.is_finite()),
        );
        writer.define("HAS_SLOPE", programs[SLOPE].is_some());
        writer.define("IS_BF16", attention.element == Element::Bf16);
        writer
    }

    fn tensor(&mut self, name: &str, view: &View) {
        let element = if name == "lse" { Element::F32 } else { self.attention.element };
        self.params.view(name, view, element.bytes(), &view.strides);
    }

    fn define(&mut self, name: &str, is: bool) {
        let _ = writeln!(self.defines, "#define {name} {}", u8::from(is));
    }

    /// What the programs read of the extras.
    fn extras(&mut self) {
        let mut views = BTreeSet::new();
        let mut bases = BTreeSet::new();
        for (which, program) in self.programs.into_iter().enumerate() {
            let own = own_inputs(which);
            for op in program.iter().flat_map(|program| &program.ops) {
                match *op {
                    Op::Load { input, element, index: Index::View } if input >= own => {
                        views.insert((input - own, text::element(element), element.bytes()));
                    }
                    _ => bases.extend(
                        Program::reads(op).filter(|(input, _)| *input >= own).map(|(input, _)| input - own),
                    ),
                }
            }
        }
        for (extra, element, bytes) in views {
            let view = &self.attention.extras[extra];
            self.params.view(&format!("x{extra}_{element}"), view, bytes, &view.strides);
        }
        for extra in bases {
            let view = &self.attention.extras[extra];
            self.params.push(format!("x{extra}"), Param::Address(view.memory, 0));
            self.params.number(format!("x{extra}_bytes"), view.bytes);
        }
    }

    /// The kernels, the one that looks at the mask first; `scratch` bytes are theirs beside the map.
    fn finish(mut self, step_id: usize, scratch: usize, kernels: Vec<(&str, usize, u32, usize)>) -> Kernels {
        self.extras();
        self.params.fault(step_id);
        self.params.push("delta", Param::Scratch(0));
        let at_map = scratch.next_multiple_of(256);
        let tiles = |size: usize| size.div_ceil(TILE);
        let of = self.attention;
        let varies = |dim: usize| self.programs[MASK].is_some_and(|mask| varies(mask, &of.extras, dim));
        let map = [
            ("map_batches", if varies(0) { of.batch } else { 1 }),
            ("map_heads", if varies(1) { of.heads } else { 1 }),
            ("map_rows", tiles(of.queries)),
            ("map_columns", tiles(of.keys)),
        ];
        self.params.push("map", Param::Scratch(at_map as u64));
        for (name, size) in map {
            self.params.number(name, size);
        }
        let tiles: usize = map.iter().map(|(_, size)| size).product();
        let first = self.has_map.then_some(("attention_map", tiles, THREADS, 0));
        let of_kernel = |(name, blocks, threads, shared_bytes): (&str, usize, u32, usize)| NamedKernel {
            name: format!("{name}_KERNEL"),
            grid: Grid { blocks, threads, shared_bytes: shared_bytes as u32 },
        };
        let launches = first.into_iter().chain(kernels).map(of_kernel).collect();
        let scratch = if self.has_map { at_map + tiles } else { scratch };
        Kernels { text: self.text(), params: self.params.finish(), launches, scratch }
    }

    fn text(&self) -> String {
        let functions: String = (0..3).map(|which| self.function(which)).collect();
        let macros = [
            "NAME", "PARAMS", "E", "MATRIX", "HAS_MASK", "HAS_MAP", "FORWARD", "HAS_LSE", "HAS_DQ", "HAS_DK",
        ];
        let more = [
            "HAS_DV",
            "USES_MMA",
            "IS_SCALED",
            "HAS_SLOPE",
            "IS_BF16",
            "DEPTH",
            "WIDTH",
            "FACTOR",
            "OWN_KEYS",
        ];
        let undo = macros.iter().chain(&more).fold(String::new(), |mut text, name| {
            let _ = writeln!(text, "#undef {name}");
            text
        });
        let Attention { depth, width, .. } = *self.attention;
        let mma = if self.uses_mma {
            format!("#define DEPTH {depth}\n#define WIDTH {width}\n{MMA}")
        } else {
            String::new()
        };
        format!(
            "namespace KERNEL {{\n{}#define PARAMS KERNEL_params\n#define NAME(x) x##_KERNEL\n#define E {}\n{}{functions}\
             {TEMPLATE}{mma}{undo}}}\n",
            self.params.declaration("KERNEL_params"),
            text::element(self.attention.element),
            self.defines
        )
    }

    /// A program as a function of a score and its place.
    fn function(&self, which: usize) -> String {
        let (name, kind, extra) = match which {
            SCORE => ("score", "float", ""),
            MASK => ("mask", "bool", ""),
            _ => ("slope", "float", "float ds, "),
        };
        let head = format!(
            "__device__ __forceinline__ {kind} {name}(const PARAMS& p, float s, {extra}u64 batch, u64 head, u64 query, \
             u64 key) {{\n"
        );
        let Some(program) = self.programs[which] else {
            let same = ["s", "true", "ds"][which];
            return format!("{head}return {same};\n}}\n");
        };
        let (lanes, whole) = (Score { which }, program.kinds());
        let statements = (0..program.ops.len()).fold(String::new(), |mut text, number| {
            let _ = writeln!(text, "{}", text::statement(&lanes, program, &whole, number));
            text
        });
        let value = program.stores[0].value;
        let value = if which == MASK { format!("v{value} != 0") } else { format!("v{value}") };
        format!("{head}{statements}return {value};\n}}\n")
    }
}

/// How many inputs of a program are the score and its gradient.
fn own_inputs(which: usize) -> usize {
    if which == SLOPE { 2 } else { 1 }
}

/// Whether a mask's values depend on the index along a dimension.
fn varies(mask: &Program, extras: &[View], dim: usize) -> bool {
    mask.ops.iter().any(|op| match *op {
        Op::Coordinate(one) => one == dim,
        Op::Load { input, index: Index::View, .. } if input > 0 => extras[input - 1].strides[dim] != 0,
        _ => false, // one element for all, or made of other values
    })
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
        "((batch * p.heads + head) * p.queries + query) * p.keys + key".into()
    }

    fn step_id(&self) -> String {
        format!("(u32)p.step_id + {}", self.which)
    }
}
