//! Passes: a tile program's schedule as CUDA C++.
//!
//! Two shapes. *Flat*: a thread has one chunk of lanes, up to 16 bytes of its widest element, and goes through the
//! whole list once. *Row*: a group of threads has a row - up to a warp where rows are short, so that a block has
//! several of them, else a block of up to 1024 threads - and goes through it once for each phase; between the phases
//! the group joins its sums. What a later phase needs stays in registers where a row is short enough for that, so it is
//! read once; of a longer row it is computed again, and what it loads comes from the L2.
//!
//! The order of a row's sum follows from the length of the row alone: how many lanes a thread takes at once, and how
//! many threads have the row. What else a pass loads, and how that is aligned, changes only how wide the accesses are.
//! So a sum keeps its bits where the passes of a plan are cut differently, as with activations that are computed again.
//!
//! Dimensions along which every view goes on evenly are merged first; most passes become one-dimensional by that, and
//! divide nothing. Strides and sizes are arguments ([`KernelParams`]), so equal layers, and other lengths of the same
//! pass, share code. Written into the text is what decides its shape: how many elements a thread moves at once, which
//! views go by ones, how many threads have a row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::params::{KernelParams, Param};
use super::text::{self, Lanes};
use crate::plan::{Memory, View, contiguous};
use crate::tile::{Element, Index, Op, Program, Store, Value, phases};

/// Threads of a block, but for rows that take more.
const THREADS: usize = 256;

/// The most threads of a block.
const MOST_THREADS: usize = 1024;

/// The most 32-bit registers that a thread keeps for later phases.
const MOST_KEPT: usize = 64;

/// A pass as a kernel.
pub(super) struct Kernel {
    /// The text; `KERNEL` stands for its name.
    pub text: String,
    /// Its argument.
    pub params: Vec<Param>,
    /// Blocks.
    pub blocks: usize,
    /// Threads of each.
    pub threads: usize,
}

/// The kernel of a pass that passed its plan's check; `step_id` names its step in faults.
pub(super) fn kernel(
    program: &Program,
    space: &[usize],
    inputs: &[View],
    outputs: &[View],
    step_id: usize,
) -> Kernel {
    let frame = Frame::new(program, space, inputs, outputs);
    let mut writer = Writer { frame: &frame, text: String::new(), params: KernelParams::default() };
    let (blocks, threads) = if program.needs_rows() { writer.rows(step_id) } else { writer.flat(step_id) };
    let declaration = writer.params.declaration("KERNEL_params");
    let Writer { text, params, .. } = writer;
    Kernel { text: format!("{declaration}{text}"), params: params.finish(), blocks, threads }
}

/// How an access moves along the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Along {
    /// It stays.
    Steady,
    /// One element after the other.
    Unit,
    /// By a stride that is an argument.
    Strided,
}

/// Elements of a view over the merged dimensions.
#[derive(Clone, Debug)]
struct Access {
    view: View,
    element: Element,
    strides: Vec<usize>,
    along: Along,
    per_row: bool,
}

/// A pass over merged dimensions.
struct Frame<'a> {
    program: &'a Program,
    inputs: &'a [View],
    whole: Vec<bool>,
    per_row: Vec<bool>,
    sizes: Vec<usize>,               // merged; the last one is a row's
    coordinates: Vec<Option<usize>>, // where each dimension of the space is among them; none if its size is 1
    loads: Vec<Access>,              // different ones
    load_of: BTreeMap<Value, usize>, // by operation
    stores: Vec<Access>,             // of each store
    pack: usize,                     // lanes that a thread takes at once
    width: usize,                    // lanes of an access to memory: all of a pack, or a part of it
    wide: bool,                      // whether 32 bits are too few to count elements
}

impl<'a> Frame<'a> {
    fn new(program: &'a Program, space: &[usize], inputs: &'a [View], outputs: &[View]) -> Self {
        let in_rows = program.needs_rows();
        let steady: Vec<bool> = inputs.iter().map(|view| view.strides.last() == Some(&0)).collect();
        let per_row = program.per_row(if in_rows { &steady } else { &[] });
        let mut accesses: Vec<Access> = Vec::new();
        let mut load_of = BTreeMap::new();
        for (value, op) in program.ops.iter().enumerate() {
            let Op::Load { input, element, index: Index::Lane | Index::View } = *op else { continue };
            let access = access(&inputs[input], element, is_lane(op), space, per_row[value]);
            let known = accesses.iter().position(|other| {
                (&other.view, other.element, other.per_row) == (&access.view, element, access.per_row)
            });
            let number = known.unwrap_or_else(|| {
                accesses.push(access);
                accesses.len() - 1
            });
            load_of.insert(value, number);
        }
        let loads = accesses.len();
        accesses.extend(program.stores.iter().map(|store| {
            access(&outputs[store.output], store.element, store.index == Index::Lane, space, store.per_row)
        }));
        let mut fixed = vec![false; space.len()];
        for op in &program.ops {
            if let Op::Coordinate(dim) = *op {
                fixed[dim] = true;
            }
        }
        if let Some(last) = fixed.last_mut().filter(|_| in_rows) {
            *last = true;
        }
        let (sizes, coordinates) = merge(space, &fixed, in_rows, &mut accesses);
        for access in &mut accesses {
            access.along = match access.strides.last() {
                _ if access.per_row => Along::Steady,
                Some(1) => Along::Unit,
                Some(0) => Along::Steady,
                _ => Along::Strided,
            };
        }
        let width = width(&sizes, &accesses);
        let pack = if in_rows { run(&sizes) } else { width };
        let width = width.min(pack);
        let lanes = sizes.iter().product::<usize>();
        let reach = |access: &Access| {
            sizes.iter().zip(&access.strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>()
        };
        let most = accesses.iter().map(reach).max().unwrap_or(0).max(lanes + MOST_THREADS * pack);
        let stores = accesses.split_off(loads);
        let whole = program.kinds();
        let wide = most >= 1 << 31;
        Self {
            program,
            inputs,
            whole,
            per_row,
            sizes,
            coordinates,
            loads: accesses,
            load_of,
            stores,
            pack,
            width,
            wide,
        }
    }

    fn cols(&self) -> usize {
        self.sizes.last().copied().unwrap_or(1)
    }

    fn is_constant(&self, value: Value) -> bool {
        self.program.ops[value].is_constant()
    }

    /// Whether a value is one a lane.
    fn is_lane(&self, value: Value) -> bool {
        !self.per_row[value] && !self.is_constant(value)
    }

    /// The lane values that a set of them needs, itself among them; what is in `there` needs nothing.
    fn closure(&self, roots: impl IntoIterator<Item = Value>, there: &BTreeSet<Value>) -> BTreeSet<Value> {
        let mut needed: BTreeSet<Value> = BTreeSet::new();
        let mut open: Vec<Value> = roots.into_iter().filter(|value| self.is_lane(*value)).collect();
        while let Some(value) = open.pop() {
            if there.contains(&value) || !needed.insert(value) {
                continue;
            }
            open.extend(Program::uses(&self.program.ops[value]).filter(|value| self.is_lane(*value)));
        }
        needed
    }
}

fn is_lane(op: &Op) -> bool {
    matches!(op, Op::Load { index: Index::Lane, .. })
}

/// The elements that a load or a store has; those that go lane by lane lie side by side from the first byte on.
fn access(view: &View, element: Element, is_lane: bool, space: &[usize], per_row: bool) -> Access {
    let view =
        if is_lane { View { offset: 0, strides: contiguous(space), ..view.clone() } } else { view.clone() };
    Access { strides: view.strides.clone(), view, element, along: Along::Strided, per_row }
}

/// Merges neighbours among dimensions that every access goes along evenly, and leaves those of size 1 out. The last one
/// of rows stays.
fn merge(
    space: &[usize],
    fixed: &[bool],
    in_rows: bool,
    accesses: &mut [Access],
) -> (Vec<usize>, Vec<Option<usize>>) {
    let last = space.len() - 1;
    let mut sizes: Vec<usize> = Vec::new();
    let mut merged: Vec<Vec<usize>> = vec![Vec::new(); accesses.len()];
    let mut coordinates = vec![None; space.len()];
    let mut before_is_fixed = true;
    for (dim, size) in space.iter().copied().enumerate() {
        let stays = dim == last && (in_rows || sizes.is_empty());
        if size == 1 && !stays {
            continue;
        }
        let goes_on = |(access, merged): (&Access, &Vec<usize>)| {
            merged.last().is_none_or(|stride| *stride == access.strides[dim] * size)
        };
        let joins = !before_is_fixed && !fixed[dim] && accesses.iter().zip(&merged).all(goes_on);
        if joins {
            if let Some(all) = sizes.last_mut() {
                *all *= size;
            }
            for strides in &mut merged {
                strides.pop();
            }
        } else {
            sizes.push(size);
        }
        accesses.iter().zip(&mut merged).for_each(|(access, strides)| strides.push(access.strides[dim]));
        coordinates[dim] = Some(sizes.len() - 1);
        before_is_fixed = fixed[dim];
    }
    accesses.iter_mut().zip(merged).for_each(|(access, strides)| access.strides = strides);
    (sizes, coordinates)
}

/// Returns how many lanes of a row a thread takes at once. It depends on the length of the row only, since it decides
/// the order of the row's sums.
fn run(sizes: &[usize]) -> usize {
    let cols = sizes.last().copied().unwrap_or(1);
    [4, 2].into_iter().find(|run| cols % run == 0).unwrap_or(1)
}

/// Returns the lanes of an access to memory: 16 bytes of the widest element that lies side by side, if everything that
/// does is aligned for that.
fn width(sizes: &[usize], accesses: &[Access]) -> usize {
    let cols = sizes.last().copied().unwrap_or(1);
    let units = || accesses.iter().filter(|access| access.along == Along::Unit);
    let widest = units().map(|access| access.element.bytes()).max().unwrap_or(4);
    let fits = |pack: &usize| {
        let aligned = |access: &Access| {
            let bytes = access.element.bytes();
            let outer = &access.strides[..access.strides.len() - 1];
            let base = if let Memory::Arena(at) = access.view.memory { at } else { 0 };
            (base + access.view.offset * bytes) % (pack * bytes).min(16) == 0
                && outer.iter().all(|stride| stride % pack == 0)
        };
        cols % pack == 0 && units().all(aligned)
    };
    [16 / widest, 8 / widest.min(8), 4 / widest.min(4), 1].into_iter().find(fits).unwrap_or(1).max(1)
}

/// Writes a kernel's text and gathers its params.
struct Writer<'a> {
    frame: &'a Frame<'a>,
    text: String,
    params: KernelParams,
}

/// What stands in the loop over the lanes of a chunk: `v7` is value 7.
struct Chunk<'a> {
    frame: &'a Frame<'a>,
    is_row: bool, // before the lanes: values of the whole row
}

impl Lanes for Chunk<'_> {
    fn leaf(&self, number: Value, op: &Op) -> String {
        match *op {
            Op::Load { input, element, index } => match index {
                Index::Lane | Index::View => {
                    let access = self.frame.load_of[&number];
                    let of = &self.frame.loads[access];
                    let element = text::element(element);
                    match of.along {
                        Along::Steady => format!("r{access}"),
                        Along::Unit if self.frame.pack > 1 => format!("{element}::read(r{access}.bits[j])"),
                        Along::Unit => format!("{element}::read(r{access}.bits[0])"),
                        Along::Strided => {
                            let last = of.strides.len() - 1;
                            format!(
                                "fetch<{element}>(p.a{access}, at{access} + j * (Int)p.a{access}_s{last})"
                            )
                        }
                    }
                }
                Index::Block(shift) => {
                    format!(
                        "fetch<{}>({}, ({}) >> {shift})",
                        text::element(element),
                        self.base(input),
                        self.lane()
                    )
                }
                Index::First => format!("fetch<{}>({}, 0)", text::element(element), self.base(input)),
            },
            Op::Nibble { input } => {
                format!(
                    "(int)(fetch<U8>({}, ({1}) >> 1) >> (({1}) & 1 ? 0 : 4) & 15)",
                    self.base(input),
                    self.lane()
                )
            }
            Op::Coordinate(dim) => match self.frame.coordinates[dim] {
                None => "0".into(),
                Some(dim) if dim + 1 < self.frame.sizes.len() => format!("(int)c{dim}"),
                Some(_) => "(int)(col + j)".into(),
            },
            _ => unreachable!("other operations read no memory and ask for no place"),
        }
    }

    fn base(&self, input: usize) -> String {
        format!("p.b{input}")
    }

    fn limit(&self, input: usize, element: Element) -> String {
        format!("p.b{input}_bytes / {}", element.bytes())
    }

    fn lane(&self) -> String {
        if self.is_row { "first".into() } else { "lane + j".into() }
    }
}

impl Writer<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    /// Parameters that every kernel has, after those of its own shape.
    fn common_params(&mut self, step_id: usize) {
        let frame = self.frame;
        for (number, access) in frame.loads.iter().enumerate() {
            self.params.view(&format!("a{number}"), &access.view, access.element.bytes(), &access.strides);
        }
        for (number, access) in frame.stores.iter().enumerate() {
            self.params.view(&format!("o{number}"), &access.view, access.element.bytes(), &access.strides);
        }
        let mut bases = BTreeSet::new();
        let mut fails = false;
        for op in &frame.program.ops {
            fails |= text::may_fail(op, &frame.whole);
            let flat = !matches!(op, Op::Load { index: Index::Lane | Index::View, .. });
            if let Some((input, _)) = Program::reads(op).filter(|_| flat) {
                bases.insert(input);
            }
        }
        for input in bases {
            self.params.push(format!("b{input}"), Param::Address(frame.inputs[input].memory, 0));
            self.params.number(format!("b{input}_bytes"), frame.inputs[input].bytes);
        }
        if fails {
            self.params.fault(step_id);
        }
    }

    fn head(&mut self, threads: usize) {
        let int = if self.frame.wide { "u64" } else { "u32" };
        self.line(format!(
            "extern \"C\" __global__ void __launch_bounds__({threads}) KERNEL(const __grid_constant__ KERNEL_params p) \
             {{\ntypedef {int} Int;"
        ));
        for (value, op) in self.frame.program.ops.iter().enumerate() {
            if op.is_constant() {
                let chunk = Chunk { frame: self.frame, is_row: true };
                let statement = text::statement(&chunk, self.frame.program, &self.frame.whole, value);
                self.line(statement);
            }
        }
    }

    /// Where an access begins, at the outer coordinates; `outer` of them, and the column if it moves.
    fn start(name: &str, access: &Access, with_column: bool) -> String {
        let outer = access.strides.len() - 1;
        let mut terms: Vec<String> = (0..outer)
            .filter(|dim| access.strides[*dim] != 0)
            .map(|dim| format!("c{dim} * (Int)p.{name}_s{dim}"))
            .collect();
        if with_column {
            match access.along {
                Along::Steady => {}
                Along::Unit => terms.push("col".into()),
                Along::Strided => terms.push(format!("col * (Int)p.{name}_s{outer}")),
            }
        }
        if terms.is_empty() { "0".into() } else { terms.join(" + ") }
    }

    /// Loads of a chunk that some values need.
    fn loads(&mut self, needed: &BTreeSet<Value>) {
        let frame = self.frame;
        let accesses: BTreeSet<usize> =
            needed.iter().filter_map(|value| frame.load_of.get(value).copied()).collect();
        for number in accesses {
            let access = &frame.loads[number];
            let (name, element) = (format!("a{number}"), text::element(access.element));
            let start = Self::start(&name, access, true);
            self.line(format!("const Int at{number} = {start};"));
            match access.along {
                Along::Steady => {
                    self.line(format!("const auto r{number} = fetch<{element}>(p.{name}, at{number});"));
                }
                Along::Unit => {
                    let load = transfer("load", element, frame);
                    self.line(format!("const auto r{number} = {load}(p.{name}, at{number});"));
                }
                Along::Strided => {}
            }
        }
    }

    /// The statements of some values, in order.
    fn statements(&mut self, needed: &BTreeSet<Value>) {
        let chunk = Chunk { frame: self.frame, is_row: false };
        for value in needed {
            let statement = text::statement(&chunk, self.frame.program, &self.frame.whole, *value);
            self.line(statement);
        }
    }

    /// The stores of a lane, within the loop over a chunk's lanes.
    fn put(&mut self, number: usize, store: &Store) {
        let access = &self.frame.stores[number];
        let (element, value) = (text::element(access.element), format!("v{}", store.value));
        if access.along == Along::Unit {
            self.line(format!("w{number}.bits[j] = {element}::write({value});"));
            return;
        }
        let start = Self::start(&format!("o{number}"), access, true);
        let last = access.strides.len() - 1;
        let along = format!("j * (Int)p.o{number}_s{last}");
        self.line(format!("(({element}::Bits*)p.o{number})[{start} + {along}] = {element}::write({value});"));
    }

    /// A chunk: its loads, its lanes, its stores. `within` is said for each lane.
    fn chunk(&mut self, needed: &BTreeSet<Value>, stores: &[(usize, Store)], within: &str) {
        let (frame, pack) = (self.frame, self.frame.pack);
        self.loads(needed);
        for (number, _) in stores.iter().filter(|(number, _)| frame.stores[*number].along == Along::Unit) {
            let element = text::element(frame.stores[*number].element);
            self.line(format!("Pack<{element}, {pack}> w{number};"));
        }
        self.line(format!("#pragma unroll\nfor (int j = 0; j < {pack}; ++j) {{"));
        self.text.push_str(BEFORE_STATEMENTS);
        self.statements(needed);
        self.text.push_str(within);
        for (number, store) in stores {
            self.put(*number, store);
        }
        self.line("}");
        for (number, _) in stores.iter().filter(|(number, _)| frame.stores[*number].along == Along::Unit) {
            let access = &frame.stores[*number];
            let (element, start) =
                (text::element(access.element), Self::start(&format!("o{number}"), access, true));
            let store = transfer("store", element, frame);
            self.line(format!("{store}(p.o{number}, {start}, w{number});"));
        }
    }

    /// One thread a chunk; blocks and threads.
    fn flat(&mut self, step_id: usize) -> (usize, usize) {
        let frame = self.frame;
        let outer = frame.sizes.len() - 1;
        let chunks = frame.sizes.iter().product::<usize>() / frame.pack;
        self.params.number("chunks", chunks);
        self.params.number("cols", frame.cols() / frame.pack);
        (0..outer).for_each(|dim| self.params.number(format!("size{dim}"), frame.sizes[dim]));
        self.common_params(step_id);
        self.head(THREADS);
        self.line(format!("Int rest = (Int)blockIdx.x * {THREADS} + threadIdx.x;"));
        self.line("if (rest >= (Int)p.chunks) return;");
        self.line(format!("const u64 lane = (u64)rest * {};", frame.pack));
        if outer == 0 {
            self.line(format!("const Int col = rest * {};", frame.pack));
        } else {
            self.line(format!("const Int col = rest % (Int)p.cols * {};\nrest /= (Int)p.cols;", frame.pack));
            for dim in (0..outer).rev() {
                if dim == 0 {
                    self.line("const Int c0 = rest;");
                } else {
                    self.line(format!(
                        "const Int c{dim} = rest % (Int)p.size{dim};\nrest /= (Int)p.size{dim};"
                    ));
                }
            }
        }
        let stores: Vec<(usize, Store)> = frame.program.stores.iter().copied().enumerate().collect();
        let fails =
            (0..frame.program.ops.len()).filter(|v| text::may_fail(&frame.program.ops[*v], &frame.whole));
        let roots = stores.iter().map(|(_, store)| store.value).chain(fails);
        let needed = frame.closure(roots, &BTreeSet::new());
        self.chunk(&needed, &stores, "");
        self.line("}");
        (chunks.div_ceil(THREADS), THREADS)
    }

    /// A group of threads a row; blocks and threads.
    fn rows(&mut self, step_id: usize) -> (usize, usize) {
        let frame = self.frame;
        let plan = RowPlan::of(frame);
        let outer = frame.sizes.len() - 1;
        let rows: usize = frame.sizes[..outer].iter().product();
        let RowPlan { group, items, .. } = plan;
        let threads = group.max(THREADS);
        self.params.number("rows", rows);
        self.params.number("cols", frame.cols());
        (0..outer).for_each(|dim| self.params.number(format!("size{dim}"), frame.sizes[dim]));
        self.common_params(step_id);
        self.head(threads);
        self.line("__shared__ u32 shared[32];");
        self.line(format!("const Int row = (Int)blockIdx.x * {} + threadIdx.x / {group};", threads / group));
        self.line("const bool is_row = row < (Int)p.rows;\nInt rest = is_row ? row : 0;");
        self.line("const u64 first = (u64)rest * p.cols;");
        for dim in (0..outer).rev() {
            if dim == 0 {
                self.line("const Int c0 = rest;");
            } else {
                self.line(format!("const Int c{dim} = rest % (Int)p.size{dim};\nrest /= (Int)p.size{dim};"));
            }
        }
        for value in &plan.kept {
            let kind = text::kind(frame.whole[*value]);
            self.line(format!("{kind} k{value}[{}];", items.unwrap_or(1) * frame.pack));
        }
        for phase in 0..=plan.last {
            self.phase(&plan, phase);
        }
        self.once_a_row(group);
        self.line("}");
        (rows.div_ceil(threads / group), threads)
    }

    fn phase(&mut self, plan: &RowPlan, phase: usize) {
        let frame = self.frame;
        let ops = &frame.program.ops;
        for value in (0..ops.len()).filter(|value| plan.phase[*value] == phase && frame.per_row[*value]) {
            if matches!(ops[value], Op::RowSum(_) | Op::RowMax(_)) {
                continue;
            }
            if let Some(access) = frame.load_of.get(&value) {
                let of = &frame.loads[*access];
                let (element, start) =
                    (text::element(of.element), Self::start(&format!("a{access}"), of, false));
                self.line(format!("const auto v{value} = fetch<{element}>(p.a{access}, {start});"));
                continue;
            }
            let chunk = Chunk { frame, is_row: true };
            let statement = text::statement(&chunk, frame.program, &frame.whole, value);
            self.line(statement);
        }
        let reductions: Vec<Value> = plan.reductions(frame, phase);
        for value in &reductions {
            let kind = text::kind(frame.whole[*value]);
            let none = match ops[*value] {
                Op::RowMax(_) => text::float(f32::NEG_INFINITY),
                _ => "0".into(),
            };
            self.line(format!("{kind} s{value} = {none};"));
        }
        let is_last = phase == plan.last;
        let stores: Vec<(usize, Store)> = frame
            .program
            .stores
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, store)| is_last && !store.per_row)
            .collect();
        let firsts: Vec<(usize, Store)> = (frame.program.stores.iter().copied().enumerate())
            .filter(|(_, store)| is_last && store.per_row && frame.is_lane(store.value))
            .collect();
        let (needed, there) = plan.needed(frame, phase);
        if needed.is_empty() && there.is_empty() && reductions.is_empty() && stores.is_empty() {
            return;
        }
        self.lanes(plan, &needed, &there, &reductions, &stores, &firsts);
        for value in reductions {
            let join = if matches!(ops[value], Op::RowMax(_)) { "Max" } else { "Sum" };
            let group = plan.group;
            self.line(format!("const auto v{value} = together<{join}, {group}>(s{value}, shared);"));
        }
    }

    /// The loop over a row's chunks in a phase.
    fn lanes(
        &mut self,
        plan: &RowPlan,
        needed: &BTreeSet<Value>,
        there: &BTreeSet<Value>,
        reductions: &[Value],
        stores: &[(usize, Store)],
        firsts: &[(usize, Store)],
    ) {
        let (frame, pack, group) = (self.frame, self.frame.pack, plan.group);
        let head = match plan.items {
            Some(items) => format!(
                "#pragma unroll\nfor (int i = 0; i < {items}; ++i) {{\n\
                 const Int col = ((Int)i * {group} + threadIdx.x % {group}) * {pack};\n\
                 if (is_row && col < (Int)p.cols) {{"
            ),
            None => format!(
                "for (Int col = threadIdx.x % {group} * {pack}; is_row && col < (Int)p.cols; col += {}) {{\n{{",
                group * pack
            ),
        };
        self.line(head);
        self.line("const u64 lane = first + col;");
        let mut within = String::new();
        for value in needed.iter().filter(|value| plan.kept.contains(value)) {
            let _ = writeln!(within, "k{value}[i * {pack} + j] = v{value};");
        }
        for value in reductions {
            if let Op::RowSum(a) | Op::RowMax(a) = frame.program.ops[*value] {
                let join = if matches!(frame.program.ops[*value], Op::RowMax(_)) { "Max" } else { "Sum" };
                let _ = writeln!(within, "s{value} = {join}::of(s{value}, v{a});");
            }
        }
        for (number, store) in firsts {
            let access = &frame.stores[*number];
            let (element, start) =
                (text::element(access.element), Self::start(&format!("o{number}"), access, false));
            let _ = writeln!(
                within,
                "if (col + j == 0) (({element}::Bits*)p.o{number})[{start}] = {element}::write(v{});",
                store.value
            );
        }
        let kept = there.iter().fold(String::new(), |mut text, value| {
            let _ = writeln!(text, "const auto v{value} = k{value}[i * {pack} + j];");
            text
        });
        let begin = self.text.len();
        self.chunk(needed, stores, &within);
        let loop_head = self.text[begin..].replacen(BEFORE_STATEMENTS, &kept, 1);
        self.text.truncate(begin);
        self.line(loop_head);
        self.line("}\n}");
    }

    /// What is stored once a row, and is one number for the row.
    fn once_a_row(&mut self, group: usize) {
        let frame = self.frame;
        for (number, store) in frame.program.stores.iter().enumerate() {
            if !store.per_row || frame.is_lane(store.value) {
                continue;
            }
            let access = &frame.stores[number];
            let (element, start) =
                (text::element(access.element), Self::start(&format!("o{number}"), access, false));
            self.line(format!(
                "if (is_row && threadIdx.x % {group} == 0) \
                 (({element}::Bits*)p.o{number})[{start}] = {element}::write(v{});",
                store.value
            ));
        }
    }
}

/// Returns the name of the function that loads or stores a pack.
fn transfer(what: &str, element: &str, frame: &Frame<'_>) -> String {
    let Frame { pack, width, .. } = frame;
    if width == pack {
        format!("{what}<{element}, {pack}>")
    } else {
        format!("{what}_in_pieces<{element}, {pack}, {width}>")
    }
}

/// Where the loop over a chunk's lanes takes what an earlier phase kept.
const BEFORE_STATEMENTS: &str = "/* kept */\n";

/// In which phases a row's values are computed, and by how many threads.
struct RowPlan {
    phase: Vec<usize>,
    last: usize,
    kept: BTreeSet<Value>, // in registers, for later phases
    group: usize,          // threads of a row
    items: Option<usize>,  // chunks of a thread; none if nothing is kept and their number is an argument's
}

impl RowPlan {
    fn of(frame: &Frame<'_>) -> Self {
        let ops = &frame.program.ops;
        let phase = phases(frame.program);
        let is_reduction = |value: Value| matches!(ops[value], Op::RowSum(_) | Op::RowMax(_));
        let there = |value: Value| phase[value] + usize::from(is_reduction(value));
        let stored = frame.program.stores.iter().filter(|store| !store.per_row || frame.is_lane(store.value));
        let last = phase.iter().copied().chain(stored.map(|store| there(store.value))).max().unwrap_or(0);
        let mut plan = Self { phase, last, kept: BTreeSet::new(), group: 1, items: None };
        let kept = plan.reused(frame);
        let chunks = frame.cols() / frame.pack;
        let few = (16 / frame.pack).max(1); // chunks of a thread
        plan.group = chunks.div_ceil(few).next_power_of_two().clamp(1, MOST_THREADS);
        let items = chunks.div_ceil(plan.group).next_power_of_two();
        if items * frame.pack * kept.len() <= MOST_KEPT && last > 0 {
            (plan.kept, plan.items) = (kept, Some(items));
        } else if items * frame.pack <= 32 {
            plan.items = Some(items);
        }
        plan
    }

    /// The lane values that a later phase than their own needs and that are not free.
    fn reused(&self, frame: &Frame<'_>) -> BTreeSet<Value> {
        let mut reused = BTreeSet::new();
        for phase in 1..=self.last {
            let (needed, _) = self.needed(frame, phase);
            let is_free = |value: &Value| matches!(frame.program.ops[*value], Op::Coordinate(_));
            reused.extend(needed.into_iter().filter(|value| self.phase[*value] < phase && !is_free(value)));
        }
        // What is only needed for something that is kept itself need not be kept.
        let mut useful = BTreeSet::new();
        for phase in 1..=self.last {
            let earlier: BTreeSet<Value> =
                reused.iter().copied().filter(|value| self.phase[*value] < phase).collect();
            let mut open: Vec<Value> = self.roots(frame, phase);
            let mut seen = BTreeSet::new();
            while let Some(value) = open.pop() {
                if !frame.is_lane(value) || !seen.insert(value) {
                    continue;
                }
                if earlier.contains(&value) {
                    useful.insert(value);
                    continue;
                }
                open.extend(Program::uses(&frame.program.ops[value]));
            }
        }
        useful
    }

    /// The reductions of a phase.
    fn reductions(&self, frame: &Frame<'_>, phase: usize) -> Vec<Value> {
        let ops = &frame.program.ops;
        let reduces = |value: &Value| matches!(ops[*value], Op::RowSum(_) | Op::RowMax(_));
        (0..ops.len()).filter(|value| self.phase[*value] == phase).filter(reduces).collect()
    }

    /// What has to be computed in a phase, whatever for.
    fn roots(&self, frame: &Frame<'_>, phase: usize) -> Vec<Value> {
        let ops = &frame.program.ops;
        let summed = self.reductions(frame, phase).into_iter().flat_map(|value| Program::uses(&ops[value]));
        let mut roots: Vec<Value> = summed.collect();
        if phase == self.last {
            roots.extend(frame.program.stores.iter().map(|store| store.value));
        }
        let own = |value: &Value| self.phase[*value] == phase;
        roots.extend((0..ops.len()).filter(own).filter(|value| text::may_fail(&ops[*value], &frame.whole)));
        roots.extend(self.kept.iter().copied().filter(own));
        roots
    }

    /// The lane values that a phase computes, and those that it takes from an earlier one.
    fn needed(&self, frame: &Frame<'_>, phase: usize) -> (BTreeSet<Value>, BTreeSet<Value>) {
        let earlier: BTreeSet<Value> =
            self.kept.iter().copied().filter(|value| self.phase[*value] < phase).collect();
        let needed = frame.closure(self.roots(frame, phase), &earlier);
        let direct = needed.iter().flat_map(|value| Program::uses(&frame.program.ops[*value]));
        let roots = self.roots(frame, phase);
        let there = direct.chain(roots).filter(|value| earlier.contains(value)).collect();
        (needed, there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lanes that a thread takes at once, the threads of a row, and the lanes of an access, where a pass adds
    /// up rows of its first input. Each input has a type, an offset, and a stride between rows.
    fn order(cols: usize, inputs: &[(Element, usize, usize)]) -> [usize; 3] {
        let loads = inputs.iter().enumerate();
        let mut ops: Vec<Op> = loads
            .map(|(input, (element, ..))| Op::Load { input, element: *element, index: Index::View })
            .collect();
        ops.push(Op::RowSum(0));
        let mut program = Program::flat("sums", ops, inputs.len(), Element::F32);
        for store in &mut program.stores {
            (store.per_row, store.index) = (true, Index::View);
        }
        let view = |offset, strides| View { memory: Memory::Arena(0), bytes: 1 << 20, offset, strides };
        let views: Vec<View> = inputs.iter().map(|(_, offset, row)| view(*offset, vec![*row, 1])).collect();
        let frame = Frame::new(&program, &[6, cols], &views, &[view(0, vec![1, 0])]);
        [frame.pack, RowPlan::of(&frame).group, frame.width]
    }

    #[test]
    fn sums_of_equal_rows_have_one_order() {
        let (f16, f32) = (Element::F16, Element::F32);
        for cols in [1, 2, 3, 6, 16, 48, 50, 64, 384, 4096, 1 << 17] {
            let [pack, group, _] = order(cols, &[(f32, 0, cols)]);
            let others: [&[(Element, usize, usize)]; 6] = [
                &[(f16, 0, cols)],
                &[(f16, 0, cols), (f32, 0, cols)],
                &[(f16, 0, cols), (Element::U8, 0, cols)],
                &[(f16, 1, cols)],
                &[(f32, 0, cols + 1)],
                &[(f32, 2, 2 * cols), (f16, 0, cols)],
            ];
            for inputs in others {
                let [other, threads, _] = order(cols, inputs);
                assert_eq!((other, threads), (pack, group), "{cols} columns of {inputs:?}");
            }
        }
    }

    #[test]
    fn narrow_alignment_narrows_accesses_only() {
        let f16 = Element::F16;
        for (offset, row, width) in [(0, 48, 4), (4, 48, 4), (2, 48, 2), (1, 48, 1), (0, 50, 2), (0, 49, 1)] {
            assert_eq!(order(48, &[(f16, offset, row)]), [4, 4, width], "{offset}, {row}");
        }
    }
}
