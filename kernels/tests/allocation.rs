//! A run of a prepared plan takes no memory from the system.
//!
//! Every allocation of the process is counted while a run is watched, on whatever thread. The product library takes
//! memory by itself, a few bytes for each call and copies of factors for some; its allocations are told apart by the
//! functions on the stack, and counted beside ours. The counter is the process's, so this is a program of its own,
//! without a test harness: the harness's thread allocates at moments of its choice.

#![allow(unsafe_code)] // a global allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use kernels::callee::{Callee, Dequantize, HostCallee, Quantized};
use kernels::plan::{Attention, AttentionGrad, Choice, Memory, Plan, Product, Step, View, contiguous};
use kernels::tile::{Binary, Compare, Element, Index, Op, Program, Store, Unary};
use kernels::{Buffer, Cpu, Device, Links, Memories};

/// Counts allocations while it is told to.
struct Watching;

static WATCHES: AtomicBool = AtomicBool::new(false);
static OURS: AtomicU64 = AtomicU64::new(0);
static LIBRARYS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static ASKS: Cell<bool> = const { Cell::new(false) }; // whether this thread is looking at its own stack
}

fn seen() {
    if !WATCHES.load(SeqCst) || ASKS.replace(true) {
        return;
    }
    let stack = Backtrace::force_capture().to_string();
    let counter = if ["gemm_f32::", "gemm_common::"].iter().any(|library| stack.contains(library)) {
        &LIBRARYS
    } else {
        &OURS
    };
    counter.fetch_add(1, SeqCst);
    ASKS.set(false);
}

// SAFETY: every method forwards its arguments unchanged to `System`.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        seen();
        // SAFETY: the caller's promise is `System`'s requirement.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        seen();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        seen();
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Bytes of the arena and of the input; places in both are multiples of `PLACE` bytes.
const ARENA: usize = 8 << 20;
const PLACE: usize = 1 << 20;

fn view(memory: Memory, shape: &[usize]) -> View {
    View { memory, bytes: PLACE, offset: 0, strides: contiguous(shape) }
}

fn at(place: usize, shape: &[usize]) -> View {
    view(Memory::Arena(place * PLACE), shape)
}

fn input(shape: &[usize]) -> View {
    view(Memory::Input(0), shape)
}

fn load(input: usize, element: Element) -> Op {
    Op::Load { input, element, index: Index::View }
}

fn store(value: usize, element: Element, per_row: bool) -> Store {
    Store { output: 0, element, index: Index::View, per_row, value }
}

fn pass(ops: Vec<Op>, store: Store, space: &[usize], inputs: Vec<View>, to: View) -> Step {
    let program = Arc::new(Program { name: "pass".into(), ops, stores: vec![store] });
    Step::Pass { program, space: space.to_vec(), inputs, outputs: vec![to] }
}

/// A chain with coordinates; one number for all lanes; a softmax; a gather of one place; sums of rows in f16.
fn passes() -> Vec<Step> {
    let space = [37, 1031];
    let chain = vec![
        load(0, Element::F32),
        Op::Coordinate(1),
        Op::ToFloat(1),
        Op::Binary(Binary::Mul, 0, 2),
        Op::Unary(Unary::Exp, 3),
    ];
    let softmax = vec![
        load(0, Element::F32),
        Op::RowMax(0),
        Op::Binary(Binary::Sub, 0, 1),
        Op::Unary(Unary::Exp, 2),
        Op::RowSum(3),
        Op::Binary(Binary::Div, 3, 4),
    ];
    let gather = vec![Op::Whole(3), Op::Gather { input: 0, element: Element::F32, at: 0 }];
    let rows = vec![load(0, Element::F32), Op::RowSum(0)];
    vec![
        pass(chain, store(4, Element::F32, false), &space, vec![input(&space)], at(0, &space)),
        pass(vec![Op::Float(2.0)], store(0, Element::Bf16, false), &space, vec![], at(1, &space)),
        pass(softmax, store(5, Element::F32, false), &space, vec![input(&space)], at(2, &space)),
        pass(gather, store(1, Element::F32, false), &space, vec![input(&space)], at(3, &space)),
        pass(rows, store(1, Element::F16, true), &space, vec![input(&space)], at(4, &[37, 1])),
    ]
}

fn product(choice: Choice, elements: [Element; 3]) -> Step {
    let (batch, m, n, k) = (2, 100, 200, 300);
    Step::Product(Product {
        batch: vec![batch],
        m,
        n,
        k,
        a: input(&[batch, m, k]),
        b: View { strides: vec![n * k, 1, k], ..input(&[batch, k, n]) },
        elements,
        to: at(0, &[batch, m, n]),
        add: false,
        scale: 0.5,
        choice,
    })
}

/// Causal, with a program that scales the score, a table of numbers beside, and its gradients.
fn attention() -> Vec<Step> {
    let [batch, heads, rows, depth] = [1, 2, 200, 16];
    let q_shape = [batch, heads, rows, depth];
    let score = vec![load(0, Element::F32), load(1, Element::F32), Op::Binary(Binary::Add, 0, 1)];
    let mask = vec![Op::Coordinate(2), Op::Coordinate(3), Op::Compare(Compare::Less, 0, 1), Op::Whole(1)];
    let mask = [mask, vec![Op::Binary(Binary::Sub, 3, 2)]].concat();
    let program = |ops: Vec<Op>, element| {
        let value = ops.len() - 1;
        Arc::new(Program { name: "flex".into(), ops, stores: vec![store(value, element, false)] })
    };
    let attention = Attention {
        element: Element::F32,
        batch,
        heads,
        groups: heads,
        queries: rows,
        keys: rows,
        depth,
        width: depth,
        scale: 0.25,
        score: Some(program(score, Element::F32)),
        mask: Some(program(mask, Element::I32)),
        q: input(&q_shape),
        k: input(&q_shape),
        v: input(&q_shape),
        extras: vec![View { strides: vec![0, 0, 0, 1], ..input(&[1]) }],
    };
    let slope = program(vec![load(1, Element::F32)], Element::F32);
    let (output, lse) = (at(0, &q_shape), at(1, &[batch, heads, rows]));
    let grad = AttentionGrad {
        attention: attention.clone(),
        slope: Some(slope),
        output: output.clone(),
        lse: lse.clone(),
        grad: input(&q_shape),
        wrt_q: Some(at(2, &q_shape)),
        wrt_k: Some(at(3, &q_shape)),
        wrt_v: Some(at(4, &q_shape)),
    };
    let forward = Step::Attention { attention: Box::new(attention), output, lse: Some(lse) };
    vec![forward, Step::AttentionGrad(Box::new(grad))]
}

fn scatter() -> Step {
    let index = view(Memory::Input(1), &[64]);
    Step::Scatter { rows: input(&[64, 100]), index, to: at(0, &[40, 100]), count: 64, width: 100, table: 40 }
}

/// Part of a weight, so that it is handed over as two.
fn call() -> Step {
    let (len, block_size, nested) = (64 * 256 * 3, 64, Some(256));
    let what = Dequantize { len, block_size, nested, element: Element::F16, part: 64 * 7..64 * 600 };
    let inputs = what.inputs().iter().map(|_| view(Memory::Input(1), &[1])).collect();
    Step::Call { callee: 0, name: "call".into(), what, inputs, output: at(0, &[1]) }
}

/// One launch on all threads.
struct Launches;

impl Callee for Launches {
    fn name(&self) -> &'static str {
        "launches"
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        Some(self)
    }
}

impl HostCallee for Launches {
    fn check(&self, weight: &Quantized<'_>) -> Result<(), String> {
        if weight.packed.is_empty() { Err("no codes".into()) } else { Ok(()) }
    }

    fn dequantize(
        &self,
        cpu: &Cpu,
        weight: &Quantized<'_>,
        _: Element,
        out: &mut [u8],
    ) -> Result<(), String> {
        cpu.launch(out, 2, |_, piece| piece.fill(weight.packed[0]));
        Ok(())
    }
}

/// Allocations meanwhile: ours, and the library's.
fn watched(work: impl FnOnce()) -> [u64; 2] {
    for counter in [&OURS, &LIBRARYS] {
        counter.store(0, SeqCst);
    }
    WATCHES.store(true, SeqCst);
    work();
    WATCHES.store(false, SeqCst);
    [&OURS, &LIBRARYS].map(|counter| counter.load(SeqCst))
}

/// Allocations of a run after the first ones: ours, and the library's.
fn of_second_run(device: &Cpu, steps: Vec<Step>) -> [u64; 2] {
    let inputs = vec![PLACE, PLACE];
    let plan = Plan { name: "watched".into(), arena_bytes: ARENA, inputs, donated: vec![], steps };
    let buffer = |bytes: usize| device.alloc("memory", bytes).expect("room");
    let (mut arena, mut floats, zeros) = (buffer(ARENA), buffer(PLACE), buffer(PLACE));
    floats.view_mut::<f32>().iter_mut().enumerate().for_each(|(i, x)| *x = (i % 13) as f32 / 16.0);
    let links = Links { callees: &[&Launches], ..Links::default() };
    let mut executable = device.prepare(Arc::new(plan), &links).expect("is sound");
    let inputs: [&Buffer; 2] = [&floats, &zeros];
    let mut run =
        || executable.run(&mut Memories { arena: &mut arena, inputs: &inputs, donated: &mut [] }, None);
    run().expect("runs");
    run().expect("runs");
    let mut done = Ok(());
    let found = watched(|| done = run());
    done.expect("runs");
    found
}

fn main() {
    a_run_takes_no_memory_from_the_system();
    println!("a run takes no memory from the system: ok");
}

fn a_run_takes_no_memory_from_the_system() {
    assert_eq!(watched(|| drop(std::hint::black_box(vec![0_u8; 100]))), [1, 0], "the watch sees ours");
    let library = of_second_run(&Cpu::with_threads(1), vec![product(Choice::Single, [Element::F32; 3])]);
    assert!(library[1] > 0, "the watch sees the library's: {library:?}");
    for threads in [1, 3] {
        let device = Cpu::with_threads(threads);
        assert_eq!(of_second_run(&device, passes()), [0, 0], "passes, {threads} threads");
        assert_eq!(of_second_run(&device, vec![scatter()]), [0, 0], "scatter, {threads} threads");
        assert_eq!(of_second_run(&device, vec![call()]), [0, 0], "call, {threads} threads");
        for choice in Choice::ALL {
            let [ours, library] = of_second_run(&device, vec![product(choice, [Element::F32; 3])]);
            println!("{choice:?}, {threads} threads: {library} allocations of the library");
            assert_eq!(ours, 0, "{choice:?}, {threads} threads");
        }
        let narrow = product(Choice::Packed, [Element::F32, Element::Bf16, Element::F16]);
        assert_eq!(of_second_run(&device, vec![narrow])[0], 0, "narrow product, {threads} threads");
        let [ours, library] = of_second_run(&device, attention());
        println!("attention, {threads} threads: {library} allocations of the library");
        assert_eq!(ours, 0, "attention, {threads} threads");
    }
}
