//! Plans drawn from bytes, and what holds for each of them: it is refused when it is prepared, or it writes its outputs
//! and nothing else.
//!
//! Most drawn plans are sound; up to two of their numbers are then bent to ones that a hostile plan would have. The
//! fuzz target `plan` and the tests share this file, so it uses the machine only.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kernels::callee::{Callee, Dequantize, HostCallee, Quantized};
use kernels::comm::{Collective, Comm, Kind};
use kernels::plan::{Attention, AttentionGrad, Choice, Memory, Plan, Product, Start, Step, View, contiguous};
use kernels::threads;
use kernels::tile::{Binary, Compare, Element, Index, Op, Program, Store, Unary};
use kernels::{Buffer, Cpu, Device, DeviceError, Executable, Links, Memories};

/// What became of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was refused when it was prepared.
    Refused,
    /// It is sound, and too large to be tried.
    Large,
    /// A step failed on its data.
    Failed,
    /// It ran to its end.
    Ran,
}

/// Bytes of each memory, and of each of the four regions that the arena is cut into.
const REGION: usize = 8192;

/// A plan that would wait for what does not come is refused when it is prepared: none gets here.
const LIMIT: Duration = Duration::from_mins(5);

/// Numbers that a hostile plan would have.
const HOSTILE: [usize; 18] = [
    0,
    1,
    7,
    63,
    64,
    513,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 61,
    1 << 62,
    usize::MAX / 2,
    usize::MAX / 2 + 1,
    usize::MAX - 63,
    usize::MAX - 1,
    usize::MAX,
];

/// Choices, taken from bytes one by one; zeros after the last.
struct Draw<'a> {
    rest: std::slice::Iter<'a, u8>,
    numbers: usize,   // so far
    bent: [usize; 2], // which of them are not what they should be
}

/// The plan that some bytes stand for.
pub fn drawn(bytes: &[u8]) -> Plan {
    let mut draw = Draw { rest: bytes.iter(), numbers: 0, bent: [usize::MAX; 2] };
    draw.bent = [draw.bend(), draw.bend()];
    let count = if draw.one_in(4) { 3 } else { 1 };
    let steps = (0..count).map(|_| draw.step()).collect();
    let mut plan = Plan {
        name: "drawn".into(),
        arena_bytes: draw.number(4 * REGION),
        inputs: vec![draw.number(REGION), REGION],
        donated: vec![draw.number(REGION)],
        steps,
    };
    if draw.one_in(4) {
        draw.flight(&mut plan.steps);
    }
    plan
}

impl Draw<'_> {
    fn byte(&mut self) -> usize {
        usize::from(self.rest.next().copied().unwrap_or(0))
    }

    fn below(&mut self, count: usize) -> usize {
        self.byte() % count
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// The number of a number to be bent; often one that no plan gets to.
    fn bend(&mut self) -> usize {
        if self.one_in(2) { self.byte() } else { usize::MAX }
    }

    /// A number of the plan: as it should be, or bent.
    fn number(&mut self, right: usize) -> usize {
        self.numbers += 1;
        if !self.bent.contains(&(self.numbers - 1)) {
            return right;
        }
        match self.below(HOSTILE.len() + 3) {
            0 => right.wrapping_add(1),
            1 => right.saturating_sub(1),
            2 => right.saturating_mul(2),
            n => HOSTILE[n - 3],
        }
    }

    fn size(&mut self) -> usize {
        let size = self.of(&[1, 2, 3, 4, 5, 8, 17]);
        self.number(size)
    }

    fn space(&mut self) -> Vec<usize> {
        if self.one_in(8) {
            return vec![self.number(600)];
        }
        (0..=self.below(3)).map(|_| self.size()).collect()
    }

    /// A region, which its place in the step makes apart from the others as a rule.
    fn memory(&mut self, place: usize, written: bool) -> Memory {
        let place = if self.one_in(8) { self.below(8) } else { place };
        match place {
            0..4 => Memory::Arena(self.number(place * REGION)),
            4 => Memory::InOut(self.number(0)),
            _ if written => Memory::Arena(0),
            _ => Memory::Input(self.number(place % 2)),
        }
    }

    fn view(&mut self, memory: Memory, shape: &[usize]) -> View {
        let mut strides = contiguous(shape);
        match self.below(6) {
            0 => strides.reverse(),
            1 => strides.iter_mut().for_each(|stride| *stride = stride.saturating_mul(2)),
            2 => strides.first_mut().into_iter().for_each(|stride| *stride = 0),
            3 => strides.last_mut().into_iter().for_each(|stride| *stride = 0),
            _ => {}
        }
        let mut strides: Vec<usize> = strides.into_iter().map(|stride| self.number(stride)).collect();
        if self.one_in(64) {
            strides.pop();
        }
        let offset = if self.one_in(4) { self.below(4) } else { 0 };
        View { memory, bytes: self.number(REGION), offset: self.number(offset), strides }
    }

    /// Row-major or spread, each element once.
    fn output(&mut self, place: usize, shape: &[usize]) -> View {
        let memory = self.memory(place, true);
        let spread = 1 + self.below(2);
        let strides = contiguous(shape).into_iter().map(|stride| stride.saturating_mul(spread));
        let strides = strides.collect::<Vec<_>>().into_iter().map(|stride| self.number(stride)).collect();
        View { memory, bytes: self.number(REGION), offset: self.number(0), strides }
    }

    fn input(&mut self, place: usize, shape: &[usize]) -> View {
        let memory = self.memory(place, false);
        self.view(memory, shape)
    }

    fn step(&mut self) -> Step {
        match self.below(8) {
            0 => Step::Product(self.product()),
            1 => self.scatter(),
            2 => self.call(),
            3 => {
                let attention = Box::new(self.attention());
                let (output, lse) = (attention.output_shape(), &attention.output_shape()[..3]);
                let lse = self.one_in(2).then(|| self.output(1, lse));
                Step::Attention { output: self.output(0, &output), attention, lse }
            }
            4 => Step::AttentionGrad(Box::new(self.gradients())),
            _ => self.pass(),
        }
    }

    fn pass(&mut self) -> Step {
        let space = self.space();
        let program = self.program(space.len());
        let count = program.inputs().min(8) + usize::from(self.one_in(8));
        let mut inputs: Vec<View> = (0..count).map(|i| self.input(5 + i, &space)).collect();
        let outputs: Vec<View> = (0..program.outputs().min(8)).map(|i| self.output(i, &space)).collect();
        if let (true, Some(from), Some(to)) = (self.one_in(4), inputs.first_mut(), outputs.first()) {
            *from = to.clone(); // in place, where it is allowed
        }
        Step::Pass { program: Arc::new(program), space, inputs, outputs }
    }

    fn product(&mut self) -> Product {
        let batch: Vec<usize> = (0..self.below(2)).map(|_| self.size()).collect();
        let [m, n, k] = [0; 3].map(|_: usize| if self.one_in(6) { self.number(0) } else { self.size() });
        let shape = |last: [usize; 2]| [&batch[..], &last[..]].concat();
        Product {
            m,
            n,
            k,
            a: self.input(5, &shape([m, k])),
            b: self.input(6, &shape([k, n])),
            elements: [0; 3].map(|_: usize| self.factor()),
            to: self.output(0, &shape([m, n])),
            add: self.one_in(2),
            scale: 0.5,
            choice: self.of(&Choice::ALL),
            batch,
        }
    }

    fn factor(&mut self) -> Element {
        if self.one_in(32) { Element::U8 } else { self.of(&[Element::F32, Element::F16, Element::Bf16]) }
    }

    /// All of a memory.
    fn bytes(&mut self, place: usize, written: bool) -> View {
        let memory = self.memory(place, written);
        View { memory, bytes: self.number(REGION), offset: self.number(0), strides: vec![] }
    }

    /// An operation between ranks, from one place in the steps to another. There is one rank: it may send to itself.
    fn flight(&mut self, steps: &mut Vec<Step>) {
        let element = self.of(&[Element::U8, Element::F16, Element::Bf16, Element::F32, Element::I32]);
        let (peer, count) = (self.number(0), self.size());
        let what = self.of(&[
            Collective::all_gather(element, count),
            Collective::reduce_scatter(element, count),
            Collective::all_reduce(element, count),
            Collective::send(peer, element, count),
            Collective::receive(peer, element, count),
        ]);
        let whats = match what.kind {
            Kind::Send { .. } => vec![what, Collective::receive(peer, element, count)],
            _ => vec![what],
        };
        let (mut at, ticket) = (self.below(steps.len() + 1), self.number(0));
        for (nth, what) in whats.into_iter().enumerate() {
            let (world, group) = (self.number(1), self.number(0));
            let shape = [count];
            let input = (!matches!(what.kind, Kind::Receive { .. })).then(|| self.input(5 + nth, &shape));
            let output = (!matches!(what.kind, Kind::Send { .. })).then(|| self.output(2 + nth, &shape));
            let start = Start {
                ticket: ticket.wrapping_add(nth),
                group,
                world,
                what,
                input,
                output,
                label: String::new(),
            };
            steps.insert(at, Step::Start(Box::new(start)));
            at += 1;
        }
        for nth in 0..=usize::from(matches!(what.kind, Kind::Send { .. })) {
            at += self.below(steps.len() - at + 1);
            steps.insert(at, Step::Wait { ticket: self.number(ticket).wrapping_add(nth) });
        }
    }

    fn scatter(&mut self) -> Step {
        let [count, width, table] = [0; 3].map(|_: usize| self.size());
        Step::Scatter {
            rows: self.bytes(6, false),
            index: self.bytes(5, false),
            to: self.bytes(0, true),
            count,
            width,
            table,
        }
    }

    fn call(&mut self) -> Step {
        let [size, group, blocks, short] = [3, 4, 12, 2].map(|most| self.below(most));
        let (first, blocks) = (self.below(blocks + 1), blocks + 1);
        let block_size = self.number([32, 2, 64][size]);
        let nested = if self.one_in(2) { Some(self.number(1 + group)) } else { None };
        let len = self.number(blocks.saturating_mul(block_size).saturating_sub(short));
        let start = self.number(first.saturating_mul(block_size));
        let part = start..self.number(len);
        let element = [Element::F32, Element::F16, Element::Bf16][self.below(3)];
        let what = Dequantize { len, block_size, nested, element, part };
        let inputs = (0..what.inputs().len()).map(|i| self.bytes(5 + i, false)).collect();
        Step::Call { callee: self.number(0), name: "call".into(), what, inputs, output: self.bytes(0, true) }
    }

    fn attention(&mut self) -> Attention {
        let [batch, groups, queries, keys, depth, width] = [2, 2, 130, 130, 2, 2].map(|most| {
            let size = if self.one_in(16) { 0 } else { 1 + self.below(most) };
            self.number(size)
        });
        let share = 1 + self.below(2);
        let heads = self.number(groups.saturating_mul(share));
        let space = [batch, heads, queries, keys];
        let score = self.one_in(2).then(|| Arc::new(self.score(1, Element::F32)));
        let mask = self.one_in(2).then(|| Arc::new(self.score(1, Element::I32)));
        let extras = (0..=self.below(2)).map(|i| self.input(5 + i, &space)).collect();
        Attention {
            batch,
            heads,
            groups,
            queries,
            keys,
            depth,
            width,
            element: self.of(&[Element::F32, Element::F32, Element::Bf16, Element::F16]),
            scale: 0.5,
            score,
            mask,
            q: self.input(5, &[batch, heads, queries, depth]),
            k: self.input(6, &[batch, groups, keys, depth]),
            v: self.input(6, &[batch, groups, keys, width]),
            extras,
        }
    }

    fn gradients(&mut self) -> AttentionGrad {
        let attention = self.attention();
        let (output, lse) = (attention.output_shape(), &attention.output_shape()[..3]);
        let shapes = [attention.q_shape(), attention.k_shape(), attention.v_shape()];
        let [wrt_q, wrt_k, wrt_v] =
            [0, 1, 2].map(|i: usize| self.one_in(2).then(|| self.output(i, &shapes[i])));
        AttentionGrad {
            slope: self.one_in(2).then(|| Arc::new(self.score(2, Element::F32))),
            output: self.input(6, &output),
            lse: self.input(6, lse),
            grad: self.input(6, &output),
            wrt_q,
            wrt_k,
            wrt_v,
            attention,
        }
    }

    /// A program of an attention: its own inputs by view, then what else it reads.
    fn score(&mut self, own: usize, element: Element) -> Program {
        let load = |input, element| Op::Load { input, element, index: Index::View };
        let mut ops: Vec<Op> = (0..own).map(|input| load(input, Element::F32)).collect();
        match self.below(4) {
            0 => {
                let index = if self.one_in(16) { Index::Lane } else { self.of(&[Index::View, Index::First]) };
                ops.push(Op::Load { input: self.number(own), element: Element::F32, index });
            }
            1 => {
                let dim = self.below(4);
                ops.extend([Op::Coordinate(self.number(dim)), Op::ToFloat(own)]);
            }
            2 => {
                let dim = self.below(4);
                ops.push(Op::Coordinate(self.number(dim)));
                let input = self.number(own);
                ops.push(Op::Gather { input, element: Element::F32, at: own });
            }
            _ => {
                ops.extend([
                    Op::Coordinate(3),
                    Op::Table { input: self.number(own), at: own, entries: self.number(4) },
                ]);
            }
        }
        let last = ops.len() - 1;
        let reads = if self.one_in(3) { last } else { 0 };
        if element.is_whole() {
            ops.push(Op::Compare(Compare::Less, last, reads));
        } else {
            ops.push(Op::Binary(Binary::Add, last, reads));
        }
        let store = Store { output: 0, element, index: Index::View, per_row: false, value: ops.len() - 1 };
        Program { name: "score".into(), ops, stores: vec![store] }
    }

    fn program(&mut self, rank: usize) -> Program {
        let mut ops = vec![
            Op::Load { input: self.number(0), element: self.element(), index: Index::View },
            Op::Load { input: self.number(1), element: Element::F32, index: Index::View },
            Op::Coordinate(self.number(0)),
        ];
        for _ in 0..self.below(10) {
            let program = Program { name: String::new(), ops: ops.clone(), stores: vec![] };
            let op = self.op(&whole(&program), rank);
            ops.push(op);
        }
        let kinds = whole(&Program { name: String::new(), ops: ops.clone(), stores: vec![] });
        let stores = (0..=self.below(2)).map(|output| self.store(output, &kinds)).collect();
        Program { name: "pass".into(), ops, stores }
    }

    fn store(&mut self, output: usize, kinds: &[bool]) -> Store {
        let value = kinds.len() - 1 - self.below(kinds.len().min(3));
        let elements: &[Element] = if kinds[value] {
            &[Element::I32, Element::U8]
        } else {
            &[Element::F32, Element::F16, Element::Bf16]
        };
        let once = self.one_in(5);
        let index = if once || self.one_in(2) { Index::View } else { Index::Lane };
        Store {
            output: self.number(output),
            element: self.of(elements),
            index,
            per_row: once,
            value: self.number(value),
        }
    }

    fn element(&mut self) -> Element {
        self.of(&[Element::F32, Element::F16, Element::Bf16, Element::I32, Element::U8])
    }

    /// An earlier value of a kind, of which there is one.
    fn value(&mut self, kinds: &[bool], is_whole: bool) -> usize {
        let all: Vec<usize> = (0..kinds.len()).filter(|value| kinds[*value] == is_whole).collect();
        let value = self.of(&all);
        self.number(value)
    }

    fn op(&mut self, kinds: &[bool], rank: usize) -> Op {
        let input = self.below(3);
        let is_whole = self.one_in(3);
        let [a, b] = [0; 2].map(|_: usize| self.value(kinds, is_whole));
        match self.below(16) {
            0 => {
                let shift = self.of(&[0, 1, 6, 31]);
                let shift = self.number(shift) as u32;
                let index = self.of(&[Index::Lane, Index::First, Index::View, Index::Block(shift)]);
                Op::Load { input: self.number(input), element: self.element(), index }
            }
            1 => Op::Nibble { input: self.number(input) },
            2 => {
                let entries = self.of(&[1, 2, 16]);
                let (input, entries) = (self.number(input), self.number(entries));
                Op::Table { input, at: self.value(kinds, true), entries }
            }
            3 => {
                Op::Gather { input: self.number(input), element: self.element(), at: self.value(kinds, true) }
            }
            4 => Op::Float(self.of(&[0.0, -1.5, f32::INFINITY, f32::NAN])),
            5 => Op::Whole(self.of(&[0, 1, 3, -1, i32::MIN, i32::MAX])),
            6 => {
                let dim = self.below(rank);
                Op::Coordinate(self.number(dim))
            }
            7 => {
                let unary =
                    self.of(&[Unary::Neg, Unary::Exp, Unary::Log, Unary::Sqrt, Unary::Tanh, Unary::Sin]);
                Op::Unary(unary, self.value(kinds, false))
            }
            8..10 => {
                Op::Binary(self.of(&[Binary::Add, Binary::Mul, Binary::Div, Binary::Min, Binary::Max]), a, b)
            }
            10 => Op::Compare(self.of(&[Compare::Less, Compare::Equal]), a, b),
            11 => Op::Select(self.value(kinds, true), a, b),
            12 => Op::Round(self.of(&[Element::F16, Element::Bf16]), self.value(kinds, false)),
            13 => Op::ToFloat(self.value(kinds, true)),
            14 => Op::ToWhole(self.value(kinds, false)),
            _ if is_whole => Op::RowSum(a),
            _ => self.of(&[Op::RowSum(a), Op::RowMax(a)]),
        }
    }
}

/// Whether each value of a program, some of whose numbers are bent, is a whole number.
fn whole(program: &Program) -> Vec<bool> {
    let mut kinds: Vec<bool> = Vec::new();
    for op in &program.ops {
        let of = |value: usize| kinds.get(value).copied().unwrap_or(false);
        kinds.push(match *op {
            Op::Load { element, .. } | Op::Gather { element, .. } => element.is_whole(),
            Op::Nibble { .. } | Op::Whole(_) | Op::Coordinate(_) | Op::Compare(..) | Op::ToWhole(_) => true,
            Op::RandomMask { .. } => true,
            Op::Table { .. } | Op::Float(_) | Op::Unary(..) | Op::Round(..) | Op::ToFloat(_) => false,
            Op::Binary(_, a, _) | Op::Select(_, a, _) | Op::RowSum(a) | Op::RowMax(a) => of(a),
        });
    }
    kinds
}

/// Prepares a plan that calls nothing.
pub fn prepare(device: &dyn Device, plan: Plan) -> Result<Box<dyn Executable + '_>, DeviceError> {
    device.prepare(Arc::new(plan), &Links::default())
}

/// Runs what was prepared.
pub fn execute<'a>(
    executable: &mut dyn Executable,
    arena: &'a mut Buffer,
    inputs: &'a [&'a Buffer],
    donated: &'a mut [&'a mut Buffer],
) -> Result<(), DeviceError> {
    executable.run(&mut Memories { arena, inputs, donated }, None)
}

/// Runs a program over `len` lanes of one row, as a plan of one step.
pub fn flat(
    device: &dyn Device,
    program: Program,
    len: usize,
    inputs: &[&Buffer],
    out: &mut Buffer,
) -> Result<(), DeviceError> {
    let bytes: Vec<usize> = inputs.iter().map(|input| input.bytes()).collect();
    let plan = Plan::of_program(Arc::new(program), len, &bytes, out.bytes());
    let mut arena = device.alloc("arena", 0)?;
    execute(&mut *prepare(device, plan)?, &mut arena, inputs, &mut [out])
}

/// A callee that takes any weight, and writes a byte that depends on all of it.
struct Sum;

impl Callee for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        Some(self)
    }
}

impl HostCallee for Sum {
    fn check(&self, _: &Quantized<'_>) -> Result<(), String> {
        Ok(())
    }

    fn dequantize(&self, _: &Cpu, weight: &Quantized<'_>, _: Element, out: &mut [u8]) -> Result<(), String> {
        out.fill(weight.packed.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        Ok(())
    }
}

/// Prepares a plan, and runs it if it is sound and small: on memories that have `spare` bytes more than it asks for.
///
/// # Panics
/// If it writes anything but its outputs.
pub fn hold(plan: Plan, device: &dyn Device, spare: usize) -> Outcome {
    ran(plan, device, spare).0
}

/// The same, with what the arena and the donated buffers hold in the end, if it ran to its end.
///
/// # Panics
/// As [`hold`].
pub fn ran(plan: Plan, device: &dyn Device, spare: usize) -> (Outcome, Vec<Vec<u8>>) {
    _ = plan.to_string();
    let plan = Arc::new(plan);
    if plan.check().is_err() {
        return (Outcome::Refused, Vec::new());
    }
    if work(&plan) > 1 << 20 || memory(&plan) > 1 << 20 {
        return (Outcome::Large, Vec::new());
    }
    let alone: Vec<Arc<dyn Comm>> =
        threads::world(1, LIMIT).into_iter().map(|comm| Arc::new(comm) as Arc<dyn Comm>).collect();
    let prepared = device.prepare(plan.clone(), &Links { callees: &[&Sum], groups: &alone });
    let Ok(mut executable) = prepared else { return (Outcome::Refused, Vec::new()) };
    let plan = &*plan;
    let buffer = |bytes: &usize| filled(device, bytes + spare);
    let given: Vec<Buffer> = plan.inputs.iter().map(buffer).collect();
    let mut carried: Vec<Buffer> = plan.donated.iter().map(buffer).collect();
    let mut arena = buffer(&plan.arena_bytes);
    let ran = execute(
        &mut *executable,
        &mut arena,
        &given.iter().collect::<Vec<_>>(),
        &mut carried.iter_mut().collect::<Vec<_>>(),
    );
    let ran = ran.and_then(|()| device.sync());
    let written = written(plan);
    let contents: Vec<Vec<u8>> =
        [&arena].into_iter().chain(&carried).map(|buffer| contents(device, buffer)).collect();
    let mut is_ours: Vec<Vec<bool>> = contents.iter().map(|bytes| vec![false; bytes.len()]).collect();
    for one in &written {
        is_ours[one.memory][one.bytes()].fill(true);
    }
    for (bytes, is_ours) in contents.iter().zip(&is_ours) {
        unchanged(bytes, |at| is_ours[at], plan);
    }
    for buffer in &given {
        unchanged(&self::contents(device, buffer), |_| false, plan);
    }
    match ran {
        Ok(()) => (Outcome::Ran, contents),
        Err(DeviceError::RowIndex { .. } | DeviceError::DivisionByZero { .. }) => {
            (Outcome::Failed, Vec::new())
        }
        Err(error) => panic!("a sound plan fails on its data only: {error}\n{plan}"),
    }
}

/// What a byte is before a run: small whole numbers in one half, floats near 1 in the other.
fn before(at: usize, bytes: usize) -> u8 {
    let (word, byte) = (at / 4, at % 4);
    let number = if at < bytes / 2 { (word % 7) as u32 } else { (1.0 + (word % 61) as f32 / 64.0).to_bits() };
    number.to_le_bytes()[byte]
}

fn filled(device: &dyn Device, bytes: usize) -> Buffer {
    let mut buffer = device.alloc("drawn", bytes).expect("little");
    let all: Vec<u8> = (0..bytes).map(|at| before(at, bytes)).collect();
    device.upload(&mut buffer, &all).expect("as many bytes");
    buffer
}

fn contents(device: &dyn Device, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes()];
    device.download(buffer, &mut bytes).expect("as many bytes");
    bytes
}

fn unchanged(bytes: &[u8], ours: impl Fn(usize) -> bool, plan: &Plan) {
    let changed = |(at, byte): (usize, &u8)| (*byte != before(at, bytes.len()) && !ours(at)).then_some(at);
    let first = bytes.iter().enumerate().find_map(changed);
    assert_eq!(first, None, "a byte that no step may write, of\n{plan}{:?}", plan.steps);
}

fn memory(plan: &Plan) -> usize {
    let all = plan.inputs.iter().chain(&plan.donated).chain([&plan.arena_bytes]);
    all.fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// Operations of a run, about.
fn work(plan: &Plan) -> usize {
    let of = |sizes: &[usize]| sizes.iter().fold(1_usize, |all, size| all.saturating_mul((*size).max(1)));
    let attention =
        |a: &Attention| of(&[a.batch, a.heads.max(a.groups), a.queries, a.keys, a.depth + a.width]);
    let step = |step: &Step| match step {
        Step::Pass { program, space, .. } => of(&[of(space), program.ops.len()]),
        Step::Product(product) => of(&[of(&product.batch), product.m, product.n, product.k]),
        Step::Attention { attention: of, .. } => attention(of),
        Step::AttentionGrad(grad) => attention(&grad.attention),
        Step::Scatter { count, width, table, .. } => of(&[*width, count.saturating_add(*table)]),
        Step::Start(start) => start.what.count,
        Step::Call { .. } | Step::Wait { .. } => 1,
    };
    plan.steps.iter().map(step).fold(0, usize::saturating_add)
}

/// An element that a step may write.
#[derive(Clone, Copy)]
struct Written {
    memory: usize, // the arena, then what is donated
    first: usize,  // byte
    element: Element,
}

impl Written {
    fn bytes(&self) -> Range<usize> {
        self.first..self.first + self.element.bytes()
    }
}

/// Where two runs of a plan, as [`ran`] left them, differ by more than rounding: a float by more than 2e-5 of itself or
/// of 1, one of f16 or bf16 by more than two units in its last place, a whole number by more than one, which a rounding
/// may have decided. Bytes that no step wrote last as one element are not looked at.
pub fn difference(plan: &Plan, want: &[Vec<u8>], got: &[Vec<u8>]) -> Option<String> {
    let written = written(plan);
    let mut last: Vec<Vec<Option<usize>>> = want.iter().map(|bytes| vec![None; bytes.len()]).collect();
    for (number, one) in written.iter().enumerate() {
        last[one.memory][one.bytes()].fill(Some(number));
    }
    written.iter().enumerate().find_map(|(number, one)| {
        let Written { memory, first, element } = *one;
        if last[memory][one.bytes()].iter().any(|last| *last != Some(number)) {
            return None;
        }
        let [want, got] = [want, got].map(|all| &all[memory][one.bytes()]);
        let text = || format!("memory {memory}, byte {first}, {element:?}: expected {want:?}, found {got:?}");
        (!is_near(element, want, got)).then(text)
    })
}

fn is_near(element: Element, want: &[u8], got: &[u8]) -> bool {
    let word = |bytes: &[u8]| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match element {
        Element::F32 => {
            let [want, got] = [want, got].map(|bytes| f32::from_bits(word(bytes).cast_unsigned()));
            let is_same = want.to_bits() == got.to_bits() || (want.is_nan() && got.is_nan());
            is_same || (want - got).abs() <= 2e-5 * want.abs().max(1.0)
        }
        Element::F16 => are_near_halves(0x7c00, want, got),
        Element::Bf16 => are_near_halves(0x7f80, want, got),
        Element::I32 => word(want).abs_diff(word(got)) <= 1,
        Element::U8 => want[0].abs_diff(got[0]) <= 1,
    }
}

/// Of two bytes each, whose infinity has these bits.
fn are_near_halves(infinity: u16, want: &[u8], got: &[u8]) -> bool {
    let [want, got] = [want, got].map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let [is_nan, is_too] = [want, got].map(|bits| bits & 0x7fff > infinity);
    let place = |bits: u16| {
        let size = i32::from(bits & 0x7fff); // the numbers of one sign are in the order of their bits
        if bits >> 15 == 1 { -size } else { size }
    };
    if is_nan || is_too { is_nan && is_too } else { place(want).abs_diff(place(got)) <= 2 }
}

/// What a plan's steps may write, in their order.
fn written(plan: &Plan) -> Vec<Written> {
    plan.steps
        .iter()
        .flat_map(|step| match step {
            Step::Pass { program, space, outputs, .. } => {
                let of = |store: &Store| stored(store, space, &outputs[store.output]);
                program.stores.iter().flat_map(of).collect()
            }
            Step::Product(product) => {
                let shape = [&product.batch[..], &[product.m, product.n]].concat();
                elements(&product.to, &shape, product.elements[2])
            }
            Step::Attention { attention, output, lse } => {
                let shape = attention.output_shape();
                let lse = lse.iter().flat_map(|lse| elements(lse, &shape[..3], Element::F32));
                elements(output, &shape, attention.element).into_iter().chain(lse).collect()
            }
            Step::AttentionGrad(grad) => {
                let attention = &grad.attention;
                let shapes = [attention.q_shape(), attention.k_shape(), attention.v_shape()];
                let wrt = [&grad.wrt_q, &grad.wrt_k, &grad.wrt_v].into_iter().zip(shapes);
                wrt.flat_map(|(view, shape)| {
                    view.iter().flat_map(move |view| elements(view, &shape, attention.element))
                })
                .collect()
            }
            Step::Scatter { to, width, table, .. } => in_order(to.memory, 0, table * width, Element::F32),
            Step::Call { what, output, .. } => in_order(output.memory, 0, what.output_bytes(), Element::U8),
            Step::Start(start) => start.output.iter().flat_map(|to| landed(start, to)).collect(),
            Step::Wait { .. } => vec![],
        })
        .collect()
}

/// Elements from a place of a memory on.
fn in_order(memory: Memory, first: usize, count: usize, element: Element) -> Vec<Written> {
    let (memory, base) = match memory {
        Memory::Arena(base) => (0, base),
        Memory::InOut(number) => (1 + number, 0),
        Memory::Input(_) => panic!("no step writes an input"),
    };
    let one = |at: usize| Written { memory, first: base + (first + at) * element.bytes(), element };
    (0..count).map(one).collect()
}

/// What an operation between ranks writes.
fn landed(start: &Start, to: &View) -> Vec<Written> {
    let element = start.what.element;
    let bytes = start.what.output_bytes(start.world).expect("checked");
    in_order(to.memory, to.offset, bytes / element.bytes(), element)
}

fn stored(store: &Store, space: &[usize], to: &View) -> Vec<Written> {
    let mut space = space.to_vec();
    if store.per_row {
        *space.last_mut().expect("a dimension") = 1;
    }
    match store.index {
        Index::View => elements(to, &space, store.element),
        _ => in_order(to.memory, 0, space.iter().product(), store.element),
    }
}

/// Every element of a view, one by one.
fn elements(view: &View, space: &[usize], element: Element) -> Vec<Written> {
    let count: usize = if space.contains(&0) { 0 } else { space.iter().product() };
    let place = |lane: usize| {
        let mut rest = lane;
        let mut at = view.offset;
        for (size, stride) in space.iter().zip(&view.strides).rev() {
            at += rest % size * stride;
            rest /= size;
        }
        in_order(view.memory, at, 1, element)
    };
    (0..count).flat_map(place).collect()
}
