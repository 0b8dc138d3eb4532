//! Attention as kernels: the template of `kernels/cu/attention.cuh` with an attention's programs spliced in.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::params::{KernelParams, Param};
use super::score::{MASK, Programs, SCORE, SLOPE, Side, own_inputs};
use super::{Grid, NamedKernel, text};
use crate::plan::{Attention, AttentionGrad, Memory, View};
use crate::tile::{Element, Index, Op, Program};

/// The template on tensor cores, with what comes before it.
const COPY: &str = include_str!("../../../cu/attention_copy.cuh");
const MMA: &str = include_str!("../../../cu/attention_mma.cuh");
const WGMMA: &str = include_str!("../../../cu/attention_wgmma.cuh");
const TILES: &str = include_str!("../../../cu/attention_tiles.cuh");

/// The template.
const TEMPLATE: &str = include_str!("../../../cu/attention.cuh");

/// Rows and columns of a tile, as the template has them.
const TILE: usize = 64;

/// Threads of a block of every kernel here.
const THREADS: u32 = 256;

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
    let programs = programs(attention, None);
    let tiles = limits.tiles(attention, &Programs::new(attention, programs), &[output], false);
    let mut writer = Writer::new(attention, programs, tiles);
    writer.tensor("o", output);
    if let Some(lse) = lse {
        writer.tensor("lse", lse);
    }
    let plain = |size: usize| size.div_ceil(TILE);
    let of_row = attention.batch * attention.heads * plain(attention.queries);
    let blocks = of_row * plain(attention.width).max(1);
    writer.define("FORWARD", true);
    writer.define("HAS_LSE", lse.is_some());
    if let Some(tiles) = tiles {
        let blocks = attention.batch * attention.heads * attention.queries.div_ceil(tiles.queries);
        let shared = tiles.shared_of_forward(attention);
        return writer.finish(step_id, 0, vec![("attention_tiles", blocks, tiles.threads(), shared)]);
    }
    writer.finish(step_id, 0, vec![("attention", blocks, THREADS, 0)])
}

/// The kernels of an attention's gradients.
pub(super) fn backward(grad: &AttentionGrad, step_id: usize, limits: Limits) -> Kernels {
    let of = &grad.attention;
    let wrt = [&grad.wrt_q, &grad.wrt_k, &grad.wrt_v].into_iter().flatten();
    let views: Vec<&View> = [&grad.grad, &grad.output].into_iter().chain(wrt).collect();
    let programs = programs(of, Some(grad));
    let tiles = limits.tiles(of, &Programs::new(of, programs), &views, true);
    let mut writer = Writer::new(of, programs, tiles);
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
    let plain = |size: usize| size.div_ceil(TILE);
    let queries = of.batch * of.heads * of.queries;
    let of_query = of.batch * of.heads * plain(of.queries) * plain(of.depth);
    let keys = of.batch * of.groups * plain(of.keys);
    let of_key = if grad.wrt_k.is_some() { keys * plain(of.depth) } else { 0 };
    let of_value = if grad.wrt_v.is_some() { keys * plain(of.width) } else { 0 };
    let needs_delta = grad.wrt_q.is_some() || grad.wrt_k.is_some();
    let mut kernels = Vec::new();
    if needs_delta {
        kernels.push(("attention_delta", queries.div_ceil(8), THREADS, 0));
    }
    let of_keys = grad.wrt_k.is_some() || grad.wrt_v.is_some();
    if let Some(tiles) = tiles {
        if grad.wrt_q.is_some() {
            let blocks = of.batch * of.heads * of.queries.div_ceil(tiles.queries);
            kernels.push(("attention_tiles_dq", blocks, tiles.threads(), tiles.shared_of_queries(of)));
        }
        if of_keys {
            let blocks = of.batch * of.groups * of.keys.div_ceil(tiles.own_keys);
            let threads = (2 * tiles.own_keys * tiles.split) as u32;
            kernels.push(("attention_tiles_dkv", blocks, threads, tiles.shared_of_keys(of)));
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

/// The programs of the score, the mask and the slope.
fn programs<'a>(attention: &'a Attention, grad: Option<&'a AttentionGrad>) -> [Option<&'a Program>; 3] {
    let slope = grad.and_then(|grad| grad.slope.as_deref());
    [attention.score.as_deref(), attention.mask.as_deref(), slope]
}

/// The largest depth and width on tensor cores.
const MOST_MMA: usize = 128;

/// Queries of a tile that a block of keys meets.
const OF_QUERIES: usize = 64;

/// The instructions that compute products of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TensorCores {
    /// `attention_mma.cuh`.
    Mma,
    /// `attention_wgmma.cuh`.
    Wgmma,
}

impl TensorCores {
    fn text(self) -> &'static str {
        match self {
            Self::Mma => MMA,
            Self::Wgmma => WGMMA,
        }
    }
}

/// What is left to `wgmma`: heads whose rows fill lines of 128 bytes.
fn is_for_wgmma(of: &Attention) -> bool {
    let is_narrow = matches!(of.element, Element::F16 | Element::Bf16);
    is_narrow && of.depth == of.width && matches!(of.depth, 64 | 128)
}

/// How an attention is cut on tensor cores, as `attention_tiles.cuh` reads it.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    cores: TensorCores,
    /// Queries of a block.
    queries: usize,
    /// Keys of a tile that a block of queries meets.
    keys: usize,
    /// Keys of a block of dK and dV.
    own_keys: usize,
    /// Teams of threads that share the tiles of such a block.
    split: usize,
    /// Bytes that programs keep of a query, and of a key.
    kept: [usize; 2],
}

impl Tiles {
    /// Threads of a block of queries: a warp has 32 of them, or 16.
    fn threads(self) -> u32 {
        match self.cores {
            TensorCores::Mma => self.queries as u32,
            TensorCores::Wgmma => 2 * self.queries as u32,
        }
    }

    /// Bytes of shared memory of the forward kernel.
    fn shared_of_forward(self, of: &Attention) -> usize {
        let own = self.before() + self.rows(self.queries, of.depth);
        own + 2 * (self.pair(of, self.keys) + self.keys * self.kept[1]) + list(of.keys.div_ceil(self.keys))
    }

    /// Bytes of shared memory of the kernel of dQ.
    fn shared_of_queries(self, of: &Attention) -> usize {
        let own = self.before() + self.pair(of, self.queries);
        own + 2 * (self.pair(of, self.keys) + self.keys * self.kept[1]) + list(of.keys.div_ceil(self.keys))
    }

    /// Bytes of shared memory of the kernel of dK and dV.
    fn shared_of_keys(self, of: &Attention) -> usize {
        let per_query = 2 * size_of::<f32>() + self.kept[0]; // L and delta
        let tiles = of.heads / of.groups.max(1) * of.queries.div_ceil(OF_QUERIES);
        let own = self.before() + self.pair(of, self.own_keys);
        own + 2 * self.split * (self.pair(of, OF_QUERIES) + OF_QUERIES * per_query) + list(tiles)
    }

    /// A tile of queries, or of keys, and the like of their gradients or values.
    fn pair(self, of: &Attention, count: usize) -> usize {
        self.rows(count, of.depth) + self.rows(count, of.width)
    }

    /// Bytes of a tile of so many rows.
    fn rows(self, count: usize, length: usize) -> usize {
        match self.cores {
            TensorCores::Mma => count * (length + 8) * 2,
            TensorCores::Wgmma => count * length * 2,
        }
    }

    /// Bytes before the first tile.
    fn before(self) -> usize {
        match self.cores {
            TensorCores::Mma => 0,
            TensorCores::Wgmma => 1008, // the memory begins at a multiple of 16, the tile at one of 1024
        }
    }
}

/// Bytes of the list of a block's tiles.
fn list(tiles: usize) -> usize {
    tiles * size_of::<u32>()
}

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
    /// How an attention that writes, or reads, some views more is cut on tensor cores, if it can be: by the best
    /// instructions whose shared memory there is.
    fn tiles(self, of: &Attention, programs: &Programs<'_>, views: &[&View], is_grad: bool) -> Option<Tiles> {
        let is_hopper = self.capability == (9, 0) && is_for_wgmma(of);
        let cores = [is_hopper.then_some(TensorCores::Wgmma), Some(TensorCores::Mma)].into_iter().flatten();
        let bytes = |tiles: Tiles| {
            if is_grad {
                tiles.shared_of_queries(of).max(tiles.shared_of_keys(of))
            } else {
                tiles.shared_of_forward(of)
            }
        };
        let kept = [Side::Query, Side::Key].map(|side| programs.kept_bytes(side));
        let mut cuts = cores.flat_map(|cores| {
            let cut = Tiles { kept, ..self.cut(of, cores, is_grad) };
            [cut, Tiles { split: 1, ..cut }]
        });
        cuts.find(|tiles| self.allow(of, views) && self.shared_bytes >= bytes(*tiles))
    }

    /// The cut for some instructions. By `mma.sync`, blocks of dK and dV have half as many keys where larger ones would
    /// be too few to keep every multiprocessor at work to the end, since causal blocks differ in length; by `wgmma`,
    /// small ones are as fast where there are many (8192 tokens, 32 heads of 128, causal, on an H200). With long rows
    /// a multiprocessor has registers for 8 of its warps: those of one block, not of two.
    fn cut(self, of: &Attention, cores: TensorCores, is_grad: bool) -> Tiles {
        let is_long = of.depth.max(of.width) > 64;
        let keys = match (cores, is_grad) {
            (TensorCores::Mma, true) if is_long => 32,
            (TensorCores::Wgmma, false) if is_long => 128,
            _ => 64,
        };
        let blocks = of.batch * of.groups * of.keys.div_ceil(128);
        let own_keys = if cores == TensorCores::Wgmma || blocks < 4 * self.sms { 64 } else { 128 };
        let split = if cores == TensorCores::Wgmma && is_long { 2 } else { 1 };
        Tiles { cores, queries: 128, keys, own_keys, split, kept: [0; 2] }
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

/// Writes an attention's text and gathers its parameters.
struct Writer<'a> {
    attention: &'a Attention,
    defines: String,
    params: KernelParams,
    programs: [Option<&'a Program>; 3],
    has_map: bool,
    tiles: Option<Tiles>,
}

impl<'a> Writer<'a> {
    fn new(attention: &'a Attention, programs: [Option<&'a Program>; 3], tiles: Option<Tiles>) -> Self {
        let mut params = KernelParams::default();
        let Attention { batch, heads, groups, queries, keys, depth, width, .. } = *attention;
        let plain = |size: usize| size.div_ceil(TILE);
        let sizes = [
            ("batches", batch),
            ("heads", heads),
            ("groups", groups),
            ("queries", queries),
            ("keys", keys),
            ("depth", depth),
            ("width", width),
            ("rows", plain(queries)),
            ("columns", plain(keys)),
            ("depths", plain(depth)),
            ("widths", plain(width).max(1)), // L has to be written where values have no numbers
            ("scale", attention.scale.to_bits() as usize),
        ];
        for (name, size) in sizes {
            params.number(name, size);
        }
        let reads_score = |mask: &Program| mask.ops.iter().any(|op| matches!(op, Op::Load { input: 0, .. }));
        let has_map = programs[MASK].is_some_and(|mask| !reads_score(mask));
        let mut writer = Self { attention, defines: String::new(), params, programs, has_map, tiles };
        for (name, view) in [("q", &attention.q), ("k", &attention.k), ("v", &attention.v)] {
            writer.tensor(name, view);
        }
        writer.define("HAS_MASK", programs[MASK].is_some());
        writer.define("HAS_MAP", has_map);
        writer.define("USES_TENSOR_CORES", tiles.is_some());
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
        let [lines, columns] = [map[..3].iter().map(|(_, size)| size).product::<usize>(), map[3].1];
        let first = self.has_map.then_some(("attention_map", lines * columns.div_ceil(8), THREADS, 0));
        let of_kernel = |(name, blocks, threads, shared_bytes): (&str, usize, u32, usize)| NamedKernel {
            name: format!("{name}_KERNEL"),
            grid: Grid { blocks, threads, shared_bytes: shared_bytes as u32 },
        };
        let launches = first.into_iter().chain(kernels).map(of_kernel).collect();
        let scratch = if self.has_map { at_map + tiles } else { scratch };
        Kernels { text: self.text(), params: self.params.finish(), launches, scratch }
    }

    fn text(&self) -> String {
        let functions = Programs::new(self.attention, self.programs).text();
        let macros = [
            "NAME", "PARAMS", "E", "MATRIX", "HAS_MASK", "HAS_MAP", "FORWARD", "HAS_LSE", "HAS_DQ", "HAS_DK",
        ];
        let more = [
            "HAS_DV",
            "USES_TENSOR_CORES",
            "IS_SCALED",
            "HAS_SLOPE",
            "IS_BF16",
            "DEPTH",
            "WIDTH",
            "FACTOR",
            "QUERIES",
            "KEYS",
            "OWN_KEYS",
            "SPLIT",
        ];
        let undo = macros.iter().chain(&more).fold(String::new(), |mut text, name| {
            let _ = writeln!(text, "#undef {name}");
            text
        });
        let Attention { depth, width, .. } = *self.attention;
        let tiles = self.tiles.map_or_else(String::new, |tiles| {
            let Tiles { cores, queries, keys, own_keys, split, .. } = tiles;
            let sizes = [
                ("DEPTH", depth),
                ("WIDTH", width),
                ("QUERIES", queries),
                ("KEYS", keys),
                ("OWN_KEYS", own_keys),
                ("SPLIT", split),
            ];
            let defines = sizes.map(|(name, size)| format!("#define {name} {size}\n")).concat();
            format!("{defines}{COPY}{}{TILES}", cores.text())
        });
        format!(
            "namespace KERNEL {{\n{}#define PARAMS KERNEL_params\n#define NAME(x) x##_KERNEL\n#define E {}\n{}{functions}\
             {TEMPLATE}{tiles}{undo}}}\n",
            self.params.declaration("KERNEL_params"),
            text::element(self.attention.element),
            self.defines
        )
    }
}

/// Whether a mask's values depend on the index along a dimension.
fn varies(mask: &Program, extras: &[View], dim: usize) -> bool {
    mask.ops.iter().any(|op| match *op {
        Op::Coordinate(one) => one == dim,
        Op::Load { input, index: Index::View, .. } if input > 0 => extras[input - 1].strides[dim] != 0,
        _ => false, // one element for all, or made of other values
    })
}
