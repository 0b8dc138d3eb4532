//! A device's attention: against its definition, forward and backward, on awkward shapes, with programs and without. On
//! the CPU what a mask leaves empty is not computed, and neither threads nor vector units change a bit.

use std::sync::Arc;

use half::{bf16, f16};
use kernels::cuda::text_of;
use kernels::plan::{Attention, AttentionGrad, Memory, Plan, Step, View, contiguous};
use kernels::tile::{Binary, Compare, Element, Index, Op, Program, Store, Unary};
use kernels::{Buffer, Cpu, Device, DeviceError, Memories, Vector};
use reference::graph::interpret::Values;
use reference::graph::programs::{
    ScoreEntry, alibi, and, causal, document, mask, score, sliding_window, softcap,
};
use reference::graph::{self, Array, Dtype, Graph, Real, Type, expand, interpret};
use tests::one_graph::{CPU, card, devices, floats};
use tests::plans::{execute, prepare};

/// An attention that both sides compute.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    groups: usize,
    queries: usize,
    keys: usize,
    depth: usize,
    width: usize,
    offset: usize, // of the first query
    kind: Kind,
    apart: bool,      // whether a head's rows lie apart: (batch, row, head, column)
    element: Element, // of the tensors
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Causal,
    Window(u32),
    Document,
    Rows,    // documents of each sequence its own
    Gathers, // the same documents, gathered more often than a card keeps
    Softcap,
    Alibi,        // causal
    Everything,   // softcap, ALiBi, causal, window, document
    Positive,     // a mask of the score, which no map can know
    PerHead(u32), // head h sees the window (h + 1) w
    Blind,        // no query sees anything
}

const CAP: f64 = 1.5;

/// In the order of the outputs.
const NAMES: [&str; 4] = ["output", "wrt q", "wrt k", "wrt v"];

impl Case {
    fn new(queries: usize, keys: usize, kind: Kind) -> Self {
        let (offset, apart) = (keys.saturating_sub(queries), queries % 2 == 1);
        let (element, batch) = (Element::F32, if kind == Kind::Rows { 2 } else { 1 });
        Self { batch, heads: 2, groups: 1, queries, keys, depth: 8, width: 8, offset, kind, apart, element }
    }

    fn shapes(&self) -> [[usize; 4]; 4] {
        let Self { batch, heads, groups, queries, keys, depth, width, .. } = *self;
        let of = |heads, rows, columns| [batch, heads, rows, columns];
        [
            of(heads, queries, depth),
            of(groups, keys, depth),
            of(groups, keys, width),
            of(heads, queries, width),
        ]
    }

    /// q, k, v and the gradient of the output, row-major.
    fn given(&self) -> [Vec<f32>; 4] {
        let mut seed = 1_u32;
        self.shapes().map(|shape| {
            seed += 77;
            numbers(shape.iter().product(), seed).into_iter().map(|x| self.rounded(x)).collect()
        })
    }

    /// A number as the tensors hold it.
    fn rounded(&self, x: f32) -> f32 {
        match self.element {
            Element::F16 => f16::from_f32(x).to_f32(),
            Element::Bf16 => bf16::from_f32(x).to_f32(),
            _ => x,
        }
    }

    /// Numbers in the type of the tensors.
    fn bytes_of(&self, x: &[f32]) -> Vec<u8> {
        match self.element {
            Element::F16 => x.iter().flat_map(|x| f16::from_f32(*x).to_ne_bytes()).collect(),
            Element::Bf16 => x.iter().flat_map(|x| bf16::from_f32(*x).to_ne_bytes()).collect(),
            _ => x.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        }
    }

    fn read(&self, bytes: &[u8]) -> Vec<f32> {
        let pairs = || bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        match self.element {
            Element::F16 => pairs().map(|pair| f16::from_ne_bytes(pair).to_f32()).collect(),
            Element::Bf16 => pairs().map(|pair| bf16::from_ne_bytes(pair).to_f32()).collect(),
            _ => bytes.chunks_exact(4).map(|x| f32::from_ne_bytes([x[0], x[1], x[2], x[3]])).collect(),
        }
    }

    /// The document of each place.
    fn ids(&self) -> Vec<i32> {
        let rows = if self.kind == Kind::Rows { self.batch } else { 1 };
        (0..(rows * self.row()) as i32).map(|at| at * at / 5000).collect()
    }

    /// Places of a sequence.
    fn row(&self) -> usize {
        self.keys.max(self.queries + self.offset)
    }

    fn is(&self, kinds: &[Kind]) -> bool {
        kinds.contains(&self.kind)
    }

    fn window(&self, head: usize) -> Option<u32> {
        match self.kind {
            Kind::Window(window) => Some(window),
            Kind::PerHead(window) => Some(window * (head as u32 + 1)),
            Kind::Everything => Some(90),
            _ => None,
        }
    }

    fn is_causal(&self) -> bool {
        self.window(0).is_some() || self.is(&[Kind::Causal, Kind::Alibi])
    }

    fn has_documents(&self) -> bool {
        self.is(&[Kind::Document, Kind::Rows, Kind::Gathers, Kind::Everything])
    }

    fn has_score(&self) -> bool {
        self.is(&[Kind::Softcap, Kind::Alibi, Kind::Everything])
    }

    /// Whether a query may see a key, where the score does not matter.
    fn allows(&self, head: usize, query: usize, key: usize) -> bool {
        let (at, ids) = (query + self.offset, self.ids());
        let causal = !self.is_causal() || key <= at;
        let window = self.window(head).is_none_or(|window| at < key + window as usize);
        causal && window && (!self.has_documents() || ids[at] == ids[key]) && self.kind != Kind::Blind
    }

    /// Blocks in which some query may see some key.
    fn blocks(&self) -> u64 {
        let [rows, columns] = Attention::BLOCK;
        let cut = |size: usize, by: usize| (0..size).step_by(by).map(move |from| from..size.min(from + by));
        let mut count = 0;
        for head in 0..self.heads {
            for queries in cut(self.queries, rows) {
                for mut keys in cut(self.keys, columns) {
                    let sees = |key: usize| queries.clone().any(|query| self.allows(head, query, key));
                    count += u64::from(keys.any(sees));
                }
            }
        }
        count * self.batch as u64
    }
}

/// Numbers between -2 and 2 without a pattern, with a peak now and then.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        f32::from((state >> 16) as u16) / 16384.0 - 2.0
    };
    (0..count).map(|i| if i % 97 == 96 { next() * 3.0 } else { next() }).collect()
}

// The definition.

impl Case {
    fn defined(&self) -> graph::Attention {
        let extras = self.extra_types();
        let offset = self.offset as i32;
        let capped = |at: &ScoreEntry| {
            let capped = self.is(&[Kind::Softcap, Kind::Everything]);
            if capped { softcap(&at.score, CAP) } else { at.score.clone() }
        };
        let sloped = |at: &ScoreEntry| {
            let s = capped(at);
            if self.kind == Kind::Softcap { s } else { alibi(&at.with_offset(offset), &s, self.heads as u32) }
        };
        graph::Attention {
            scale: self.scale(),
            score: self.has_score().then(|| score("score", &extras, sloped).expect("sound")),
            mask: self.defined_mask(&extras),
        }
    }

    fn scale(&self) -> f64 {
        f64::from((self.depth as f32).sqrt().recip())
    }

    fn extra_types(&self) -> Vec<Type> {
        self.has_documents().then(|| Type::new(Dtype::I32, [self.ids().len()])).into_iter().collect()
    }

    fn defined_mask(&self, extras: &[Type]) -> Option<Graph> {
        let body = |at: &ScoreEntry| {
            let at = &at.with_offset(self.offset as i32);
            let local = |window| and(&causal(at), &sliding_window(at, window));
            match self.kind {
                Kind::Window(window) => local(window),
                Kind::Document | Kind::Gathers => document(at, &at.extras[0]),
                Kind::Rows => {
                    let first = &at.batch * self.row() as f64;
                    let [query, key] = [&at.query, &at.key].map(|at| &first + at);
                    at.extras[0].gather(&query).equal(&at.extras[0].gather(&key))
                }
                Kind::Everything => and(&local(90), &document(at, &at.extras[0])),
                Kind::Positive => at.score.like(0.0).less(&at.score),
                Kind::PerHead(window) => {
                    let reach = &(&at.head + 1.0) * f64::from(window);
                    and(&causal(at), &at.query.less(&(&at.key + &reach)))
                }
                Kind::Blind => at.key.less(&at.key),
                _ => causal(at),
            }
        };
        let some = !self.is(&[Kind::Plain, Kind::Softcap]);
        some.then(|| mask("mask", extras, body).expect("sound"))
    }

    /// The output and the gradients of q, k and v, by the definition.
    fn by_definition<R: Real>(&self) -> [Vec<f64>; 4] {
        let attention = Box::new(self.defined());
        let [q, k, v, grad] = self.shapes().map(|shape| Type::new(Dtype::F32, shape));
        let inputs = [vec![q, k, v], self.extra_types()].concat();
        let with_grad = [inputs.clone(), vec![grad]].concat();
        let names = ["q", "k", "v", "grad"].into_iter().zip(self.shapes()).zip(self.given());
        let mut values: Values<R> = names
            .map(|((name, shape), x)| {
                (name.into(), Array::floats(Dtype::F32, &shape, x.iter().map(|x| f64::from(*x))))
            })
            .collect();
        values.insert("extra0".into(), Array::integers(&[self.ids().len()], self.ids()));
        let run = |op: &graph::Op, types: &[Type]| {
            let graph = expand(op, types).unwrap_or_else(|error| panic!("{self:?}: {error}"));
            interpret(&graph, &values).unwrap_or_else(|error| panic!("{self:?}: {error}"))[0].wide()
        };
        let gradient = |wrt| run(&graph::Op::AttentionGrad { attention: attention.clone(), wrt }, &with_grad);
        [run(&graph::Op::Attention(attention.clone()), &inputs), gradient(0), gradient(1), gradient(2)]
    }
}

// The same as tile programs.

/// Operations that are written one after the other.
#[derive(Default)]
struct Writer(Vec<Op>);

impl Writer {
    fn op(&mut self, op: Op) -> usize {
        self.0.push(op);
        self.0.len() - 1
    }

    fn load(&mut self, input: usize) -> usize {
        self.op(Op::Load { input, element: Element::F32, index: Index::View })
    }

    fn two(&mut self, binary: Binary, a: usize, b: usize) -> usize {
        self.op(Op::Binary(binary, a, b))
    }

    fn less(&mut self, a: usize, b: usize) -> usize {
        self.op(Op::Compare(Compare::Less, a, b))
    }

    fn query(&mut self, offset: usize) -> usize {
        let (query, offset) = (self.op(Op::Coordinate(2)), self.op(Op::Whole(offset as i32)));
        self.two(Binary::Add, query, offset)
    }

    fn finish(self, name: &str, value: usize, element: Element) -> Arc<Program> {
        let store = Store { output: 0, element, index: Index::View, per_row: false, value };
        Arc::new(Program { name: name.into(), ops: self.0, stores: vec![store] })
    }
}

impl Case {
    fn score(&self) -> Option<Arc<Program>> {
        let mut w = Writer::default();
        let mut s = w.load(0);
        if self.is(&[Kind::Softcap, Kind::Everything]) {
            let cap = w.op(Op::Float(CAP as f32));
            let part = w.two(Binary::Div, s, cap);
            let tanh = w.op(Op::Unary(Unary::Tanh, part));
            s = w.two(Binary::Mul, tanh, cap);
        }
        if self.is(&[Kind::Alibi, Kind::Everything]) {
            let (head, one) = (w.op(Op::Coordinate(1)), w.op(Op::Whole(1)));
            let number = w.two(Binary::Add, head, one);
            let number = w.op(Op::ToFloat(number));
            let steepness = w.op(Op::Float(-8.0 * std::f32::consts::LN_2 / self.heads as f32));
            let exponent = w.two(Binary::Mul, number, steepness);
            let slope = w.op(Op::Unary(Unary::Exp, exponent));
            let (key, query) = (w.op(Op::Coordinate(3)), w.query(self.offset));
            let distance = w.two(Binary::Sub, key, query);
            let distance = w.op(Op::ToFloat(distance));
            let bias = w.two(Binary::Mul, slope, distance);
            s = w.two(Binary::Add, s, bias);
        }
        self.has_score().then(|| w.finish("score", s, Element::F32))
    }

    /// Of the softcap: g (1 - tanh^2); the other scores have 1.
    fn slope(&self) -> Option<Arc<Program>> {
        let mut w = Writer::default();
        let (s, g) = (w.load(0), w.load(1));
        let (cap, one) = (w.op(Op::Float(CAP as f32)), w.op(Op::Float(1.0)));
        let part = w.two(Binary::Div, s, cap);
        let tanh = w.op(Op::Unary(Unary::Tanh, part));
        let square = w.two(Binary::Mul, tanh, tanh);
        let rest = w.two(Binary::Sub, one, square);
        let gradient = w.two(Binary::Mul, g, rest);
        let capped = self.is(&[Kind::Softcap, Kind::Everything]);
        capped.then(|| w.finish("slope", gradient, Element::F32))
    }

    fn mask(&self) -> Option<Arc<Program>> {
        let mut w = Writer::default();
        let (query, key, one) = (w.query(self.offset), w.op(Op::Coordinate(3)), w.op(Op::Whole(1)));
        let mut parts = Vec::new();
        if self.is_causal() {
            let after = w.two(Binary::Add, query, one);
            parts.push(w.less(key, after));
        }
        if let Some(window) = self.window(0) {
            let mut reach = w.op(Op::Whole(window as i32));
            if matches!(self.kind, Kind::PerHead(_)) {
                let head = w.op(Op::Coordinate(1));
                let number = w.two(Binary::Add, head, one);
                reach = w.two(Binary::Mul, number, reach);
            }
            let after = w.two(Binary::Add, key, reach);
            parts.push(w.less(query, after));
        }
        if self.has_documents() {
            let mut places = [query, key];
            if self.kind == Kind::Rows {
                let (batch, row) = (w.op(Op::Coordinate(0)), w.op(Op::Whole(self.row() as i32)));
                let first = w.two(Binary::Mul, batch, row);
                places = places.map(|at| w.two(Binary::Add, first, at));
            }
            for _ in 0..if self.kind == Kind::Gathers { 9 } else { 1 } {
                let [a, b] = places.map(|at| w.op(Op::Gather { input: 1, element: Element::I32, at }));
                parts.push(w.op(Op::Compare(Compare::Equal, a, b)));
            }
        }
        match self.kind {
            Kind::Positive => {
                let (zero, s) = (w.op(Op::Float(0.0)), w.load(0));
                parts.push(w.less(zero, s));
            }
            Kind::Blind => parts.push(w.less(key, key)),
            _ => {}
        }
        let all = parts.into_iter().reduce(|all, part| w.two(Binary::Min, all, part))?;
        let element = if self.queries % 2 == 0 { Element::U8 } else { Element::I32 };
        Some(w.finish("mask", all, element))
    }
}

// The plan.

/// What a run leaves: the output, the gradients of q, k and v, and the logarithms of the sums.
#[derive(Debug, PartialEq)]
struct Found {
    tensors: [Vec<f32>; 4],
    lse: Vec<f32>,
}

impl Case {
    /// The strides of a tensor.
    fn strides(&self, [batch, heads, rows, columns]: [usize; 4]) -> Vec<usize> {
        let [of_batch, of_row, of_head, of_column] =
            contiguous(&[batch, rows, heads, columns]).try_into().expect("four");
        if self.apart {
            vec![of_batch, of_head, of_row, of_column]
        } else {
            contiguous(&[batch, heads, rows, columns])
        }
    }

    fn view(&self, memory: Memory, shape: [usize; 4]) -> View {
        let bytes = shape.iter().product::<usize>() * self.element.bytes();
        View { memory, bytes, offset: 0, strides: self.strides(shape) }
    }

    /// Elements in the order in which they lie in memory, from row-major ones, or back.
    fn relaid(&self, shape: [usize; 4], x: &[f32], back: bool) -> Vec<f32> {
        let (strides, plain) = (self.strides(shape), contiguous(&shape));
        let mut to = vec![0.0; x.len()];
        for n in 0..x.len() {
            let there = (0..4).map(|dim| n / plain[dim] % shape[dim] * strides[dim]).sum::<usize>();
            let (at, from) = if back { (n, there) } else { (there, n) };
            to[at] = x[from];
        }
        to
    }

    fn attention(&self) -> Attention {
        let Self { batch, heads, groups, queries, keys, depth, width, .. } = *self;
        let [q, k, v, _] = self.shapes();
        let ids =
            View { memory: Memory::Input(4), bytes: self.ids().len() * 4, offset: 0, strides: vec![0; 4] };
        Attention {
            element: self.element,
            batch,
            heads,
            groups,
            queries,
            keys,
            depth,
            width,
            scale: self.scale() as f32,
            score: self.score(),
            mask: self.mask(),
            q: self.view(Memory::Input(0), q),
            k: self.view(Memory::Input(1), k),
            v: self.view(Memory::Input(2), v),
            extras: self.has_documents().then_some(ids).into_iter().collect(),
        }
    }

    /// Where the output, the gradients and L lie in the arena, in bytes, and its end.
    fn places(&self) -> [usize; 6] {
        let [q, k, v, o] = self.shapes().map(|shape| shape.iter().product::<usize>());
        let mut at = 0;
        let mut next = |floats: usize| {
            let here = at;
            at += (floats * 4).next_multiple_of(64);
            here
        };
        [next(o), next(q), next(k), next(v), next(self.batch * self.heads * self.queries), next(0)]
    }

    fn plan(&self) -> Plan {
        let [q, k, v, o] = self.shapes();
        let [to_o, to_q, to_k, to_v, to_lse, arena_bytes] = self.places();
        let to = |at, shape| self.view(Memory::Arena(at), shape);
        let lse_shape = [self.batch, self.heads, self.queries];
        let lse = View {
            memory: Memory::Arena(to_lse),
            bytes: lse_shape.iter().product::<usize>() * 4,
            offset: 0,
            strides: contiguous(&lse_shape),
        };
        let forward = Step::Attention {
            attention: Box::new(self.attention()),
            output: to(to_o, o),
            lse: Some(lse.clone()),
        };
        let backward = Step::AttentionGrad(Box::new(AttentionGrad {
            attention: self.attention(),
            slope: self.slope(),
            output: to(to_o, o),
            lse,
            grad: self.view(Memory::Input(3), o),
            wrt_q: Some(to(to_q, q)),
            wrt_k: Some(to(to_k, k)),
            wrt_v: Some(to(to_v, v)),
        }));
        let sizes = self.given().map(|x| x.len() * self.element.bytes());
        let given = sizes.into_iter().chain([self.ids().len() * 4]).collect();
        Plan {
            name: "trial".into(),
            arena_bytes,
            inputs: given,
            donated: Vec::new(),
            steps: vec![forward, backward],
        }
    }

    fn buffers(&self, device: &dyn Device) -> Vec<Buffer> {
        let floats = self.shapes().into_iter().zip(self.given());
        let floats = floats.map(|(shape, x)| self.relaid(shape, &x, false));
        let bytes = floats.map(|x| self.bytes_of(&x));
        let ids = self.ids().iter().flat_map(|id| id.to_ne_bytes()).collect();
        let upload = |bytes: Vec<u8>| {
            let mut buffer = device.alloc("given", bytes.len()).expect("room");
            device.upload(&mut buffer, &bytes).expect("equal lengths");
            buffer
        };
        bytes.chain([ids]).map(upload).collect()
    }

    /// An arena in which what is not written shows.
    fn arena(&self, device: &dyn Device) -> Result<Buffer, DeviceError> {
        let bytes = self.places()[5];
        let mut arena = device.alloc("arena", bytes)?;
        device.upload(&mut arena, &f32::NAN.to_ne_bytes().repeat(bytes / 4))?;
        Ok(arena)
    }

    fn run(&self, device: &dyn Device) -> Result<Found, DeviceError> {
        self.watched(device, |_| {})
    }

    /// The same, of which `watch` is told each step that is done.
    fn watched(
        &self,
        device: &dyn Device,
        mut watch: impl FnMut(usize) + Send,
    ) -> Result<Found, DeviceError> {
        let mut prepared = prepare(device, self.plan())?;
        let buffers = self.buffers(device);
        let mut arena = self.arena(device)?;
        let given: Vec<&Buffer> = buffers.iter().collect();
        let mut memories = Memories { arena: &mut arena, inputs: &given, donated: &mut [] };
        prepared.run(&mut memories, Some(&mut |step, _| watch(step)))?;
        device.sync()?;
        let mut bytes = vec![0; arena.bytes()];
        device.download(&arena, &mut bytes)?;
        let (floats, places) = (floats(device, &arena), self.places());
        let [q, k, v, o] = self.shapes();
        let mut tensors = [(0, o), (1, q), (2, k), (3, v)].map(|(i, shape)| {
            let count = shape.iter().product::<usize>() * self.element.bytes();
            self.relaid(shape, &self.read(&bytes[places[i]..][..count]), true)
        });
        tensors.iter_mut().flatten().for_each(|x| *x += 0.0); // -0 is 0
        let lse = floats[places[4] / 4..][..self.batch * self.heads * self.queries].to_vec();
        Ok(Found { tensors, lse })
    }

    /// The same, with the blocks that were computed forward and for the gradients.
    fn counted(&self, device: &Cpu) -> Result<(Found, [u64; 2]), DeviceError> {
        let (mut blocks, mut before) = ([0; 2], device.attention_blocks());
        let found = self.watched(device, |step| {
            blocks[step] = device.attention_blocks() - before;
            before = device.attention_blocks();
        })?;
        Ok((found, blocks))
    }
}

/// Each kind of program but the plainest mask.
const PROGRAMS: [Kind; 11] = [
    Kind::Window(1),
    Kind::Window(70),
    Kind::Document,
    Kind::Rows,
    Kind::Gathers,
    Kind::Softcap,
    Kind::Alibi,
    Kind::Everything,
    Kind::Positive,
    Kind::PerHead(40),
    Kind::Blind,
];

/// One with each kind of program, and one without.
pub(crate) fn plans() -> Vec<Plan> {
    let kinds = [Kind::Plain, Kind::Causal].into_iter().chain(PROGRAMS);
    kinds.map(|kind| Case::new(127, 200, kind).plan()).collect()
}

/// Attention of f16 and bf16, which a card computes with its tensor cores: narrow heads, wide ones, and some that fill
/// no fragment.
pub(crate) fn narrow_plans() -> Vec<Plan> {
    let kinds = [Kind::Plain, Kind::Causal, Kind::Everything, Kind::PerHead(40)].into_iter().cycle();
    let of = |((element, [depth, width]), kind): ((Element, [usize; 2]), Kind)| {
        Case { depth, width, element, ..Case::new(127, 200, kind) }.plan()
    };
    NARROW.into_iter().zip(kinds).map(of).collect()
}

/// The largest difference.
fn apart(truth: &[f64], got: impl Iterator<Item = f64>) -> f64 {
    let differences = truth.iter().zip(got).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |most, x| if x.is_nan() { f64::INFINITY } else { most.max(x) })
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most: f64, x| most.max(x.abs()))
}

/// How much further from the truth than the definition in f32 a run may be: some roundings of the largest number, and,
/// for gradients, what the rounding of L makes of P = e^(s - L).
const ROUNDINGS: f64 = 4.0;

impl Case {
    /// The largest terms of which the gradients of q and k are differences: scale |G V^T| times |k|, or |q|. A query
    /// that sees one key has a gradient of 0 as the difference of two such.
    fn terms(&self) -> [f64; 4] {
        let [q, k, v, g] = self.given().map(|x| x.into_iter().map(f64::from).collect::<Vec<_>>());
        let Self { batch, heads, groups, queries, keys, width, .. } = *self;
        let mut most = 0.0_f64;
        for row in 0..batch * heads * queries {
            let (head, g) = (row / queries, &g[row * width..][..width]);
            let group = head / heads * groups + head % heads / (heads / groups);
            for key in 0..keys {
                let v = &v[(group * keys + key) * width..][..width];
                most = most.max(g.iter().zip(v).map(|(g, v)| g * v).sum::<f64>().abs());
            }
        }
        [0.0, self.scale() * most * largest(&k), self.scale() * most * largest(&q), 0.0]
    }

    /// Whether it is large and varied enough that the numbers of lower precision would show.
    fn shows(&self) -> bool {
        self.queries.min(self.keys) > 60 && !self.is(&[Kind::Window(1), Kind::Blind])
    }
}

/// Holds a case against its definition on every device, and the blocks that the CPU computes against the mask.
fn hold(case: &Case) {
    let (truth, naive) = (case.by_definition::<f64>(), case.by_definition::<f32>());
    let sound = |error: DeviceError| -> ! { panic!("{case:?}: {error}") };
    let (found, blocks) = case.counted(&Cpu::with_threads(1)).unwrap_or_else(|error| sound(error));
    hold_found(case, &found, [&truth, &naive], "cpu");
    if case.kind != Kind::Positive {
        assert_eq!(blocks, [case.blocks(); 2], "{case:?}: blocks");
    }
    if let Some(card) = card() {
        let found = case.run(card).unwrap_or_else(|error| sound(error));
        hold_found(case, &found, [&truth, &naive], &card.name());
    }
}

fn hold_found(case: &Case, found: &Found, [truth, naive]: [&[Vec<f64>; 4]; 2], device: &str) {
    let terms = case.terms();
    // A card's e^x is two units off where the CPU's is one (CUDA C++ Programming Guide, Mathematical Functions).
    let of_device = if device == "cpu" { ROUNDINGS } else { ROUNDINGS + 2.0 };
    let finite = found.lse.iter().filter(|lse| lse.is_finite());
    let lse = finite.fold(0.0, |most: f64, lse| most.max(f64::from(lse.abs())));
    for (i, name) in NAMES.iter().enumerate() {
        let roundings = if i == 0 { of_device } else { of_device + lse / 2.0 };
        let slack = roundings * f64::from(f32::EPSILON) * (largest(&truth[i]) + terms[i]);
        let fair = apart(&truth[i], naive[i].iter().copied()) + slack;
        assert_eq!(found.tensors[i].len(), truth[i].len());
        let error = apart(&truth[i], found.tensors[i].iter().map(|x| f64::from(*x)));
        assert!(error <= fair, "{case:?}, {name} on {device}: off by {error:e}, fair is {fair:e}");
        let f16 = truth[i].iter().map(|x| f32::nearest(*x, Dtype::F16).wide());
        assert!(!case.shows() || apart(&truth[i], f16) > fair, "{case:?}, {name}: f16 would do, too");
    }
}

/// Holds a case in a narrow type against the definition of its rounded inputs: off by some roundings of the type, which
/// stand for those of the probabilities, of the output and of what is read of it.
fn hold_narrow(case: &Case, on: &[&dyn Device]) {
    let (truth, terms) = (case.by_definition::<f64>(), case.terms());
    let unit = if case.element == Element::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
    for device in on {
        let found = case.run(*device).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        for (i, name) in NAMES.iter().enumerate() {
            let error = apart(&truth[i], found.tensors[i].iter().map(|x| f64::from(*x)));
            let fair = ROUNDINGS * unit * (largest(&truth[i]) + terms[i]);
            let on = device.name();
            assert!(error <= fair, "{case:?}, {name} on {on}: off by {error:e}, fair is {fair:e}");
        }
    }
}

/// Types, depths and widths of heads.
const NARROW: [(Element, [usize; 2]); 7] = [
    (Element::Bf16, [64, 64]),
    (Element::Bf16, [128, 48]),
    (Element::Bf16, [128, 128]),
    (Element::F16, [80, 96]),
    (Element::F16, [7, 5]),
    (Element::F16, [64, 64]),
    (Element::F16, [128, 128]),
];

const NARROW_LENGTHS: [(usize, usize); 4] = [(127, 200), (65, 65), (200, 200), (1, 1)];

const NARROW_KINDS: [Kind; 9] = [
    Kind::Plain,
    Kind::Causal,
    Kind::Window(70),
    Kind::Document,
    Kind::Rows,
    Kind::Gathers,
    Kind::Everything,
    Kind::PerHead(40),
    Kind::Blind,
];

/// Compares every kind of attention over heads of a depth and a width with its definition: at all lengths on the CPU, at
/// two of them on a GPU, which compiles a text for each case. `turn` chooses which two.
///
/// A test covers one pair of depth and width, so that the harness compiles for several at once.
fn hold_all_kinds((element, [depth, width]): (Element, [usize; 2]), turn: usize) {
    for (j, kind) in NARROW_KINDS.into_iter().enumerate() {
        for (k, (queries, keys)) in NARROW_LENGTHS.into_iter().enumerate() {
            let card = card().filter(|_| (turn + j + k) % 2 == 0);
            let on: Vec<&dyn Device> = [Some(&*CPU as &dyn Device), card].into_iter().flatten().collect();
            let case = Case { depth, width, element, ..Case::new(queries, keys, kind) };
            hold_narrow(&case, &on);
        }
    }
}

#[test]
fn bf16_attention_with_heads_of_64_and_64() {
    hold_all_kinds(NARROW[0], 0);
}

#[test]
fn bf16_attention_with_heads_of_128_and_48() {
    hold_all_kinds(NARROW[1], 1);
}

#[test]
fn bf16_attention_with_heads_of_128_and_128() {
    hold_all_kinds(NARROW[2], 2);
}

#[test]
fn f16_attention_with_heads_of_80_and_96() {
    hold_all_kinds(NARROW[3], 0);
}

#[test]
fn f16_attention_with_heads_of_7_and_5() {
    hold_all_kinds(NARROW[4], 1);
}

#[test]
fn f16_attention_with_heads_of_64_and_64() {
    hold_all_kinds(NARROW[5], 2);
}

#[test]
fn f16_attention_with_heads_of_128_and_128() {
    hold_all_kinds(NARROW[6], 3);
}

#[test]
fn heads_that_share_keys_add_up_over_many_tiles() {
    for (kind, groups) in [(Kind::Document, 2), (Kind::Rows, 1), (Kind::Everything, 2)] {
        let case = Case { heads: 4, groups, depth: 128, width: 128, ..Case::new(520, 520, kind) };
        hold_narrow(&Case { element: Element::Bf16, ..case }, &devices());
    }
}

#[test]
fn a_card_gathers_documents_once_a_row_not_once_a_score() {
    let gathers = |kind| {
        let text = text_of(&Case::new(127, 200, kind).plan(), (9, 0)).expect("sound");
        let of =
            |head: &str| text.split(head).nth(1).and_then(|rest| rest.split("\n}\n").next()).map_or(0, count);
        ["MaskOfQuery mask_of_query(", "MaskOfKey mask_of_key(", "bool mask("].map(of)
    };
    assert_eq!(gathers(Kind::Document), [1, 1, 0]);
    assert_eq!(gathers(Kind::Rows), [1, 1, 0]);
    assert_eq!(gathers(Kind::Gathers), [0, 0, 18]);
}

/// Reads of memory in a function's text.
fn count(text: &str) -> usize {
    text.matches("fetch<").count()
}

const SIZES: [usize; 9] = [1, 2, 63, 64, 65, 127, 128, 129, 200];

#[test]
fn plain_attention_is_its_definition_on_awkward_shapes() {
    for queries in SIZES {
        for keys in SIZES {
            hold(&Case::new(queries, keys, Kind::Plain));
        }
    }
}

#[test]
fn causal_attention_is_its_definition_on_awkward_shapes() {
    for queries in SIZES {
        for keys in SIZES {
            hold(&Case::new(queries, keys, Kind::Causal));
        }
    }
}

#[test]
fn attention_with_programs_is_its_definition() {
    for kind in PROGRAMS {
        for (queries, keys) in [(1, 200), (65, 65), (127, 200), (200, 200)] {
            hold(&Case::new(queries, keys, kind));
        }
    }
}

#[test]
fn heads_share_keys_and_values_have_a_width_of_their_own() {
    for (heads, groups) in [(1, 1), (4, 4), (4, 2), (6, 1)] {
        for (depth, width) in [(1, 1), (2, 5), (16, 7), (7, 16)] {
            let case = Case { batch: 2, heads, groups, depth, width, ..Case::new(65, 130, Kind::Alibi) };
            hold(&case);
            hold(&Case { apart: !case.apart, ..case });
        }
    }
}

#[test]
fn queries_that_see_nothing_have_zeros_and_no_gradient() {
    let case = Case { offset: 0, ..Case::new(130, 200, Kind::Blind) };
    for device in devices() {
        let found = case.run(device).expect("fits");
        assert!(found.tensors.iter().flatten().all(|x| x.to_bits() == 0), "{}", device.name());
        assert!(found.lse.iter().all(|lse| *lse == f32::NEG_INFINITY), "{}", device.name());
    }
    let (_, blocks) = case.counted(&Cpu::with_threads(1)).expect("fits");
    assert_eq!(blocks, [0, 0]);
}

#[test]
fn a_space_without_keys_or_queries_or_depth_has_its_answer() {
    for (queries, keys, depth, width) in [(3, 0, 4, 4), (0, 3, 4, 4), (3, 5, 0, 4), (3, 5, 4, 0)] {
        let case = Case { depth, width, ..Case::new(queries, keys, Kind::Plain) };
        for device in devices() {
            let found = case.run(device).unwrap_or_else(|error| panic!("{case:?}: {error}"));
            assert!(found.tensors.iter().flatten().all(|x| x.is_finite()), "{case:?}: {found:?}");
        }
    }
}

#[test]
fn neither_threads_nor_vector_units_change_a_bit() {
    let bits = |found: &Found| -> Vec<u32> {
        found.tensors.iter().flatten().chain(&found.lse).map(|x| x.to_bits()).collect()
    };
    for (heads, groups) in [(6, 3), (4, 1), (2, 2)] {
        for kind in [Kind::Plain, Kind::Everything, Kind::PerHead(40)] {
            let case = Case { heads, groups, depth: 24, width: 20, ..Case::new(200, 333, kind) };
            let units =
                Vector::available().into_iter().filter_map(|unit| Cpu::with_threads(1).limited_to(unit));
            let threads = [1, 3, 7].map(Cpu::with_threads);
            let mut all = units.chain(threads).map(|device| bits(&case.run(&device).expect("fits")));
            let first = all.next().expect("a device");
            assert!(all.all(|bits| bits == first), "{case:?}");
        }
    }
}

#[test]
fn what_a_mask_leaves_empty_is_not_computed() {
    let blocks = |kind, queries, keys| {
        let case = Case { depth: 2, width: 2, ..Case::new(queries, keys, kind) };
        let (_, blocks) = case.counted(&Cpu::with_threads(1)).expect("fits");
        assert_eq!(blocks, [case.blocks(); 2], "{case:?}");
        blocks[0]
    };
    let [rows, columns] = Attention::BLOCK;
    let all = (2 * 1024_usize.div_ceil(rows) * 1024_usize.div_ceil(columns)) as u64;
    assert_eq!(blocks(Kind::Plain, 1024, 1024), all);
    assert!(blocks(Kind::Causal, 1024, 1024) <= all * 6 / 10);
    assert!(blocks(Kind::Window(64), 1024, 1024) <= all / 4);
    assert!(blocks(Kind::Document, 1024, 1024) < all / 2);
    assert!(blocks(Kind::PerHead(64), 1024, 1024) < all / 2);
    assert_eq!(blocks(Kind::Causal, 1, 1024), 2 * 1024_usize.div_ceil(columns) as u64);
}

#[test]
fn scratch_is_one_piece_a_thread_and_used_again() {
    let device = Cpu::with_threads(1);
    let case = Case::new(200, 200, Kind::Causal);
    let mut prepared = prepare(&device, case.plan()).expect("fits");
    let buffers = case.buffers(&device);
    let given: Vec<&Buffer> = buffers.iter().collect();
    let mut arena = device.alloc("arena", case.places()[5]).expect("room");
    let [rows, columns] = Attention::BLOCK;
    let (first, needed) = (device.counts().scratch_bytes, prepared.scratch_bytes() as u64);
    assert!(first > 0 && first < 8 * (rows * columns * 4) as u64, "{first} bytes");
    assert!(first <= needed, "{needed} bytes, with the map of the mask");
    execute(&mut *prepared, &mut arena, &given, &mut []).expect("fits");
    let _another = prepare(&device, case.plan()).expect("fits");
    assert_eq!(device.counts().scratch_bytes, first, "executables share it");
}

#[test]
fn only_the_gradients_that_are_asked_for_are_written() {
    let case = Case::new(130, 200, Kind::Everything);
    let [one, three] = [1, 3].map(Cpu::with_threads);
    let mut on: Vec<[&dyn Device; 2]> = vec![[&one, &three]];
    on.extend(card().map(|card| [card; 2]));
    for [first, second] in on {
        let whole = case.run(first).expect("fits");
        (0..8).for_each(|asked| writes_what_is_asked(&case, second, asked, &whole));
    }
}

/// That of the gradients whose bits are set, and of no other, there is what there is of all.
fn writes_what_is_asked(case: &Case, device: &dyn Device, asked: u32, whole: &Found) {
    let mut plan = case.plan();
    let Step::AttentionGrad(grad) = &mut plan.steps[1] else { panic!("the second step") };
    let keep = |n: usize, view: &mut Option<View>| {
        if asked >> n & 1 == 0 {
            *view = None;
        }
    };
    keep(0, &mut grad.wrt_q);
    keep(1, &mut grad.wrt_k);
    keep(2, &mut grad.wrt_v);
    let buffers = case.buffers(device);
    let mut arena = case.arena(device).expect("room");
    let mut prepared = prepare(device, plan).expect("fits");
    execute(&mut *prepared, &mut arena, &buffers.iter().collect::<Vec<_>>(), &mut []).expect("fits");
    let all = floats(device, &arena);
    let [q, k, v, _] = case.shapes();
    for (n, shape) in [q, k, v].into_iter().enumerate() {
        let floats = &all[case.places()[n + 1] / 4..][..shape.iter().product()];
        if asked >> n & 1 == 1 {
            let mut got = case.relaid(shape, floats, true);
            for x in &mut got {
                *x += 0.0; // -0 is 0
            }
            assert!(got == whole.tensors[n + 1], "{asked:b}: {}", NAMES[n + 1]);
        } else {
            assert!(floats.iter().all(|x| x.is_nan()), "{asked:b}: {}", NAMES[n + 1]);
        }
    }
}

#[test]
fn an_attention_that_does_not_fit_is_refused() {
    let case = Case::new(65, 65, Kind::Everything);
    let refused = |change: &dyn Fn(&mut Attention, &mut View)| {
        let mut plan = case.plan();
        let Step::Attention { attention, output, .. } = &mut plan.steps[0] else { panic!("the first step") };
        change(attention, output);
        plan.steps.truncate(1);
        let refused = devices().into_iter().map(|device| {
            prepare(device, plan.clone()).map_or_else(|error| error.to_string(), |_| String::new())
        });
        let refused: Vec<String> = refused.collect();
        assert!(refused.iter().all(|message| *message == refused[0]), "{refused:?}");
        refused[0].clone()
    };
    assert_eq!(refused(&|_, _| {}), "");
    assert!(refused(&|attention, _| attention.keys += 1).contains("inputs that lie in their memory"));
    assert!(refused(&|attention, _| attention.groups = 0).contains("every head of keys"));
    assert!(refused(&|attention, _| attention.heads = 3).contains("needs"));
    assert!(refused(&|_, output| output.memory = Memory::Input(0)).contains("outputs that lie in the arena"));
    assert!(refused(&|_, output| output.strides[2] = 1).contains("each element once"));
    let beside = |attention: &mut Attention, output: &mut View| attention.q.memory = output.memory;
    assert!(refused(&beside).contains("apart from each other and from the inputs"));
    assert!(refused(&|attention, _| attention.extras.clear()).contains("programs whose inputs lie"));
    let lane = |attention: &mut Attention, _: &mut View| {
        let mut w = Writer::default();
        let value = w.op(Op::Load { input: 0, element: Element::F32, index: Index::Lane });
        attention.score = Some(w.finish("lanes", value, Element::F32));
    };
    assert!(refused(&lane).contains("programs whose inputs lie"));
    let far = |attention: &mut Attention, _: &mut View| {
        let mut w = Writer::default();
        let value = w.op(Op::Coordinate(4));
        attention.mask = Some(w.finish("far", value, Element::I32));
    };
    assert!(refused(&far).contains("programs whose inputs lie"));
    let float = |attention: &mut Attention, _: &mut View| attention.mask = attention.score.clone();
    assert!(refused(&float).contains("a score or a condition for every lane"));
}

#[test]
fn a_place_outside_an_extra_names_the_lane_of_the_whole_space() {
    let case = Case { batch: 2, ..Case::new(130, 200, Kind::Document) };
    let mut plan = case.plan();
    let Step::Attention { attention, .. } = &mut plan.steps[0] else { panic!("the first step") };
    attention.extras[0].bytes = 199 * 4;
    attention.score = None;
    let mask = attention.mask.take();
    let mut alone = Writer::default();
    let key = alone.op(Op::Coordinate(3));
    let at = alone.op(Op::Gather { input: 1, element: Element::I32, at: key });
    attention.mask = mask.map(|_| alone.finish("far", at, Element::I32));
    plan.steps.truncate(1);
    for device in [&Cpu::with_threads(3) as &dyn Device].into_iter().chain(card()) {
        let buffers = case.buffers(device);
        let mut arena = device.alloc("arena", case.places()[5]).expect("room");
        let mut prepared = prepare(device, plan.clone()).expect("fits");
        let ran = execute(&mut *prepared, &mut arena, &buffers.iter().collect::<Vec<_>>(), &mut []);
        let error = ran.and_then(|()| device.sync()).expect_err("place 199 of 199").to_string();
        assert_eq!(error, "operation 1 of program far reads place 199 of 199 in lane 199");
    }
}

/// Times for the heads of the kernel's files:
/// `cargo test --release -p tests --test workbook attention_device -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn measured_against_products_one_by_one() {
    let case = Case { heads: 8, groups: 8, depth: 64, width: 64, ..Case::new(512, 512, Kind::Causal) };
    for device in [Cpu::with_threads(1), Cpu::with_threads(2)] {
        let buffers = case.buffers(&device);
        let given: Vec<&Buffer> = buffers.iter().collect();
        let [fused, apart] = [case.plan(), products(&case)].map(|plan| {
            let mut arena = device.alloc("arena", plan.arena_bytes).expect("room");
            let steps = plan.steps.len();
            let mut prepared = prepare(&device, plan).expect("fits");
            let mut best = vec![f64::INFINITY; steps];
            for _ in 0..30 {
                let mut last = device.clock();
                let mut watch = |step: usize, now: std::time::Duration| {
                    best[step] = best[step].min(now.saturating_sub(last).as_secs_f64() * 1e3);
                    last = now;
                };
                let mut memories = Memories { arena: &mut arena, inputs: &given, donated: &mut [] };
                prepared.run(&mut memories, Some(&mut watch)).expect("fits");
            }
            best
        });
        println!("{} threads: fused {fused:.2?} ms, op by op {apart:.2?} ms", device.threads());
    }
}

/// The products and the passes between them, over all of the scores: forward S, softmax, O; backward dV, dP, dS, dQ,
/// dK.
fn products(case: &Case) -> Plan {
    use kernels::plan::{Choice, Product};
    let plan = case.plan();
    let [_, to_q, to_k, to_v, _, end] = case.places();
    let (heads, t, d) = (case.heads, case.queries, case.depth);
    let scores_bytes = heads * t * t * 4;
    let square =
        |at| View { memory: Memory::Arena(at), bytes: scores_bytes, offset: 0, strides: vec![t * t, t, 1] };
    let transposed =
        |view: View| View { strides: vec![view.strides[0], view.strides[2], view.strides[1]], ..view };
    let tensor = |memory| View { memory, bytes: heads * t * d * 4, offset: 0, strides: vec![t * d, d, 1] };
    let (s, p) = (square(end), square(end + scores_bytes));
    let [q, k, v, g] = [0, 1, 2, 3].map(|n| tensor(Memory::Input(n)));
    let [o, dq, dk, dv] = [0, to_q, to_k, to_v].map(|at| tensor(Memory::Arena(at)));
    let product = |[m, n, k]: [usize; 3], a: View, b: View, to: View| {
        Step::Product(Product {
            batch: vec![heads],
            m,
            n,
            k,
            a,
            b,
            to,
            add: false,
            scale: 1.0,
            elements: [Element::F32; 3],
            choice: Choice::Batch,
        })
    };
    let mut w = Writer::default();
    let (s_in, query, key) = (w.load(0), w.op(Op::Coordinate(1)), w.op(Op::Coordinate(2)));
    let scale = w.op(Op::Float(case.scale() as f32));
    let scaled = w.two(Binary::Mul, s_in, scale);
    let hidden = w.less(query, key);
    let never = w.op(Op::Float(f32::NEG_INFINITY));
    let masked = w.op(Op::Select(hidden, never, scaled));
    let max = w.op(Op::RowMax(masked));
    let centred = w.two(Binary::Sub, masked, max);
    let e = w.op(Op::Unary(Unary::Exp, centred));
    let sum = w.op(Op::RowSum(e));
    let softmax = w.two(Binary::Div, e, sum);
    let softmax = w.finish("softmax", softmax, Element::F32);
    let mut w = Writer::default();
    let (dp, p_in) = (w.load(0), w.load(1));
    let both = w.two(Binary::Mul, dp, p_in);
    let delta = w.op(Op::RowSum(both));
    let rest = w.two(Binary::Sub, dp, delta);
    let scale = w.op(Op::Float(case.scale() as f32));
    let slope = w.two(Binary::Mul, rest, p_in);
    let slope = w.two(Binary::Mul, slope, scale);
    let slope = w.finish("softmax_grad", slope, Element::F32);
    let pass = |program: &Arc<Program>, inputs: Vec<View>, to: View| Step::Pass {
        program: program.clone(),
        space: vec![heads, t, t],
        inputs,
        outputs: vec![to],
    };
    let steps = vec![
        product([t, t, d], q.clone(), transposed(k.clone()), s.clone()),
        pass(&softmax, vec![s.clone()], p.clone()),
        product([t, d, t], p.clone(), v.clone(), o),
        product([t, d, t], transposed(p.clone()), g.clone(), dv),
        product([t, t, d], g, transposed(v), s.clone()),
        pass(&slope, vec![s.clone(), p], s.clone()),
        product([t, d, t], s.clone(), k, dq),
        product([t, d, t], transposed(s), q, dk),
    ];
    Plan { arena_bytes: end + 2 * scores_bytes, steps, ..plan }
}
