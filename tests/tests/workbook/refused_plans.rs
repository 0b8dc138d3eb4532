//! What no plan may do to the machine that runs it: hostile numbers are refused when the plan is prepared, and a launch
//! lane by lane is held to the same rules.

use std::sync::Arc;

use kernels::callee::Dequantize;
use kernels::plan::{Attention, AttentionGrad, Choice, Memory, Plan, Product, Step, View};
use kernels::tile::{Binary, Element, Index, Op, Program, Store, Unary};
use kernels::{Buffer, Cpu, Device, DeviceError};
use tests::one_graph::devices;
use tests::plans::{execute, prepare};

const HUGE: usize = usize::MAX / 2 + 1;

fn view(memory: Memory, bytes: usize, strides: &[usize]) -> View {
    View { memory, bytes, offset: 0, strides: strides.to_vec() }
}

fn store(value: usize, per_row: bool) -> Store {
    Store { output: 0, element: Element::F32, index: Index::View, per_row, value }
}

fn load(index: Index) -> Op {
    Op::Load { input: 0, element: Element::F32, index }
}

fn program(ops: Vec<Op>, stores: Vec<Store>) -> Arc<Program> {
    Arc::new(Program { name: "trial".into(), ops, stores })
}

/// A plan over an arena of 256 bytes and a given buffer of 256.
fn plan(step: Step) -> Plan {
    Plan { name: "trial".into(), arena_bytes: 256, inputs: vec![256], donated: vec![], steps: vec![step] }
}

/// Why every device refuses a step; empty if none does.
#[allow(clippy::needless_pass_by_value)] // each caller makes one for it
fn refusal(step: Step) -> String {
    let of = |device: &'static dyn Device| {
        prepare(device, plan(step.clone())).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let all: Vec<String> = devices().into_iter().map(of).collect();
    assert!(all.iter().all(|message| *message == all[0]), "{all:?}");
    all[0].clone()
}

fn pass(program: Arc<Program>, space: &[usize], inputs: Vec<View>, to: View) -> Step {
    Step::Pass { program, space: space.to_vec(), inputs, outputs: vec![to] }
}

fn copy(space: &[usize], from: View, to: View) -> Step {
    pass(program(vec![load(Index::View)], vec![store(0, false)]), space, vec![from], to)
}

fn scatter(sizes: [usize; 3], bytes: [usize; 3]) -> Step {
    let [count, width, table] = sizes;
    Step::Scatter {
        rows: view(Memory::Input(0), bytes[0], &[]),
        index: View { memory: Memory::Arena(128), ..view(Memory::Input(0), bytes[1], &[]) },
        to: view(Memory::Arena(0), bytes[2], &[]),
        count,
        width,
        table,
    }
}

fn product(sizes: [usize; 3], strides: [[usize; 2]; 3]) -> Product {
    let [m, n, k] = sizes;
    let [a, b, to] = strides;
    Product {
        batch: vec![],
        m,
        n,
        k,
        a: view(Memory::Input(0), 256, &a),
        b: view(Memory::Input(0), 256, &b),
        elements: [Element::F32; 3],
        to: view(Memory::Arena(0), 256, &to),
        add: false,
        scale: 1.0,
        choice: Choice::Library,
    }
}

fn attention(batch: usize, heads: usize, rows: usize, numbers: usize) -> Attention {
    let still = view(Memory::Input(0), 256, &[0; 4]);
    Attention {
        element: Element::F32,
        batch,
        heads,
        groups: 1,
        queries: rows,
        keys: rows,
        depth: numbers,
        width: numbers,
        scale: 1.0,
        score: None,
        mask: None,
        q: still.clone(),
        k: still.clone(),
        v: still,
        extras: vec![],
    }
}

fn runs(step: Step) -> Result<Vec<f32>, DeviceError> {
    let device = Cpu::with_threads(2);
    let mut prepared = prepare(&device, plan(step))?;
    let mut arena = device.alloc("arena", 256)?;
    arena.view_mut::<f32>().fill(7.0);
    let mut given = device.alloc("given", 256)?;
    given.view_mut::<f32>().iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
    execute(&mut *prepared, &mut arena, &[&given], &mut [])?;
    Ok(arena.view::<f32>().to_vec())
}

#[test]
fn a_place_that_overflows_lies_in_no_memory() {
    let far = Memory::Arena(usize::MAX - 63);
    let call = |inputs: Vec<View>, output| {
        let name = "call".into();
        let what = Dequantize::whole(2, 32, None, Element::F32);
        let inputs = if inputs.is_empty() { vec![view(Memory::Input(0), 64, &[1]); 3] } else { inputs };
        Step::Call { callee: 0, name, what, inputs, output }
    };
    let near = || view(Memory::Arena(0), 64, &[1]);
    assert!(refusal(call(vec![], view(far, 64, &[1]))).contains("an output that lies in the arena"));
    assert!(refusal(call(vec![view(far, 64, &[1]); 3], near())).contains("inputs that lie in their memory"));
    assert!(refusal(copy(&[4], view(far, 64, &[1]), near())).contains("memory"));
    assert!(refusal(copy(&[4], near(), view(far, 64, &[1]))).contains("memory"));
    assert!(refusal(copy(&[2, 2], near(), view(Memory::Arena(0), 64, &[HUGE, HUGE]))).contains("needs"));
    let last = View { offset: usize::MAX, ..near() };
    assert!(refusal(copy(&[1], last, view(Memory::Arena(64), 64, &[1]))).contains("memory"));
}

#[test]
fn every_view_of_a_pass_lies_in_its_memory_whether_it_is_read_or_not() {
    let to = || view(Memory::Arena(0), 64, &[1]);
    let from = || view(Memory::Input(0), 64, &[1]);
    for stranger in [view(Memory::Input(9), 4, &[1]), view(Memory::InOut(0), 0, &[1]), view(far(), 0, &[1])] {
        let step =
            pass(program(vec![load(Index::View)], vec![store(0, false)]), &[4], vec![from(), stranger], to());
        assert!(refusal(step).contains("memory"));
    }
}

fn far() -> Memory {
    Memory::Arena(1 << 40)
}

#[test]
fn a_space_that_cannot_be_counted_is_refused() {
    let once = program(vec![load(Index::View), Op::RowMax(0)], vec![store(1, true)]);
    let space = [HUGE, 2, 4];
    let step =
        pass(once, &space, vec![view(Memory::Input(0), 4, &[0, 0, 0])], view(Memory::Arena(0), 4, &[0; 3]));
    assert!(refusal(step).contains("a space"));
    let counted = program(vec![Op::Coordinate(0), Op::ToFloat(0), Op::RowMax(1)], vec![store(2, true)]);
    let step = pass(counted, &[(1 << 31) + 1], vec![], view(Memory::Arena(0), 4, &[0]));
    assert!(refusal(step).contains("dimensions"));
}

#[test]
fn a_row_that_no_thread_can_keep_is_refused() {
    let ops = vec![Op::Coordinate(0), Op::ToFloat(0), Op::Unary(Unary::Exp, 1), Op::RowSum(2), Op::RowSum(3)];
    let mean = [ops, vec![Op::Binary(Binary::Div, 2, 3), Op::RowMax(5)]].concat();
    let step = pass(program(mean, vec![store(6, true)]), &[1 << 30], vec![], view(Memory::Arena(0), 4, &[0]));
    let cpu = Cpu::with_threads(1); // a card keeps nothing of a row that is too long for its registers
    let refused = prepare(&cpu, plan(step)).err().expect("it would keep 4 GiB").to_string();
    assert!(refused.contains("rows"), "{refused}");
}

#[test]
fn a_table_or_a_block_of_any_size_is_counted() {
    for entries in [1 << 62, 1 << 63] {
        let ops = vec![Op::Coordinate(0), Op::Table { input: 0, at: 0, entries }];
        let step = pass(
            program(ops, vec![store(1, false)]),
            &[4],
            vec![view(Memory::Input(0), 256, &[0])],
            view(Memory::Arena(0), 64, &[1]),
        );
        assert!(refusal(step).contains("memory for every lane"), "{entries}");
    }
    for shift in [32, 63, 64, u32::MAX] {
        let message = program(vec![load(Index::Block(shift))], vec![store(0, false)]);
        assert!(message.to_string().contains("load f32 in0[lane / "));
        let step =
            pass(message, &[4], vec![view(Memory::Input(0), 256, &[0])], view(Memory::Arena(0), 64, &[1]));
        assert!(refusal(step).contains("a block of at most"), "{shift}");
    }
}

#[test]
fn a_number_of_an_input_or_an_output_is_bounded() {
    let to = || view(Memory::Arena(0), 64, &[1]);
    for input in [1 << 40, usize::MAX] {
        let ops = vec![Op::Load { input, element: Element::F32, index: Index::View }];
        assert!(refusal(pass(program(ops, vec![store(0, false)]), &[4], vec![], to())).contains("inputs"));
    }
    let stores = vec![Store { output: usize::MAX, ..store(0, false) }];
    assert!(refusal(pass(program(vec![Op::Float(1.0)], stores), &[4], vec![], to())).contains("store"));
}

#[test]
fn a_scatter_adds_exactly_its_rows() {
    assert!(refusal(scatter([1 << 62, 1, 0], [0, 0, 0])).contains("memory for every row"));
    assert!(refusal(scatter([0, 1 << 62, 1], [0, 0, 0])).contains("memory for every row"));
    assert!(refusal(scatter([2, 1, 1], [7, 8, 4])).contains("memory for every row"));
    assert_eq!(refusal(scatter([1, 1, 1], [7, 7, 7])), "", "bytes behind the last row belong to nobody");
    let moved = |step| {
        let Step::Scatter { mut rows, index, to, count, width, table } = step else { unreachable!() };
        rows.offset = 1;
        Step::Scatter { rows, index, to, count, width, table }
    };
    assert!(refusal(moved(scatter([1, 1, 1], [8, 8, 4]))).contains("begin with their memory"));
    let device = Cpu::new();
    let step = scatter([2, 3, 2], [36, 12, 60]); // room for three rows, three indices and five rows
    let mut prepared = prepare(&device, plan(step)).expect("fits");
    let (mut arena, mut given) =
        (device.alloc("arena", 256).expect("room"), device.alloc("given", 256).expect("room"));
    arena.view_mut::<f32>().fill(7.0);
    arena.view_mut::<i32>()[32..35].copy_from_slice(&[1, 1, 0]);
    given.view_mut::<f32>().fill(1.0);
    execute(&mut *prepared, &mut arena, &[&given], &mut []).expect("runs");
    let mut want = vec![7.0; 15];
    want[..6].copy_from_slice(&[0.0, 0.0, 0.0, 2.0, 2.0, 2.0]);
    assert_eq!(
        arena.view::<f32>()[..15],
        want,
        "the third row is not one of two; the rest is not the table's"
    );
    arena.view_mut::<i32>()[32..34].copy_from_slice(&[1, 2]);
    let error = execute(&mut *prepared, &mut arena, &[&given], &mut []).expect_err("two rows").to_string();
    assert!(error.contains("reads place 2 of 2 in lane 1"), "{error}");
}

#[test]
fn an_empty_space_names_no_element() {
    let wild = [HUGE - 1; 2];
    for choice in Choice::ALL {
        let empty = Product { choice, batch: vec![], ..product([0, 3, 4], [wild, [3, 1], wild]) };
        assert_eq!(runs(Step::Product(empty)).expect("does nothing"), vec![7.0; 64], "{choice:?}");
        let zeros = Product { choice, ..product([2, 3, 0], [wild, wild, [3, 1]]) };
        let got = runs(Step::Product(zeros)).expect("a sum of no terms");
        assert_eq!((&got[..6], &got[6..]), (&[0.0; 6][..], &[7.0; 58][..]), "{choice:?}");
    }
    let beyond = Product {
        a: View { offset: 65, ..view(Memory::Input(0), 256, &[4, 1]) },
        ..product([0, 3, 4], [[4, 1]; 3])
    };
    assert!(refusal(Step::Product(beyond)).contains("factors that lie in their memory"));
    let apart = Product { m: HUGE, n: HUGE, batch: vec![0, HUGE], ..product([0, 0, 0], [[0, 0]; 3]) };
    let strides = |view: View| View { strides: vec![0, 0, HUGE - 1, 1], ..view };
    let apart = Product {
        a: strides(apart.a.clone()),
        b: strides(apart.b.clone()),
        to: strides(apart.to.clone()),
        ..apart
    };
    runs(Step::Product(apart)).expect("nothing to do");
    let none = view(Memory::Arena(64), 0, &[1]);
    let inputs = [0, 64, 0].map(|bytes| view(Memory::Arena(64), bytes, &[1])).to_vec();
    let what = Dequantize::whole(0, 32, None, Element::F32);
    let call = Step::Call { callee: 0, name: "call".into(), what, inputs, output: none };
    assert_eq!(
        refusal(call),
        "step call calls callee 0; the plan is linked to 0",
        "no byte of one is a byte of the other"
    );
}

#[test]
fn the_gradient_of_no_heads_is_zero() {
    let wrt = || Some(view(Memory::Arena(0), 24, &[6, 6, 2, 1]));
    let nothing = || view(Memory::Input(0), 0, &[0; 4]);
    let grad = AttentionGrad {
        attention: attention(1, 0, 3, 2),
        slope: None,
        output: nothing(),
        lse: view(Memory::Input(0), 0, &[0; 3]),
        grad: nothing(),
        wrt_q: None,
        wrt_k: wrt(),
        wrt_v: None,
    };
    let got = runs(Step::AttentionGrad(Box::new(grad))).expect("zeros");
    assert_eq!((&got[..6], &got[6..]), (&[0.0; 6][..], &[7.0; 58][..]));
}

#[test]
fn an_attention_larger_than_any_machine_is_refused() {
    let to = |strides: [usize; 4]| view(Memory::Arena(0), 256, &strides);
    let forward = |attention: Attention| {
        refusal(Step::Attention { attention: Box::new(attention), output: to([0, 0, 1, 1]), lse: None })
    };
    assert!(forward(Attention { keys: 1 << 50, ..attention(1, 1, 1, 1) }).contains("blocks"));
    assert!(forward(Attention { batch: 1 << 62, ..attention(1, 1, 1, 0) }).contains("blocks"));
    assert!(forward(Attention { queries: 1 << 33, ..attention(1, 1, 1, 0) }).contains("dimensions"));
    assert!(forward(Attention { depth: 1 << 40, ..attention(1, 1, 1, 1) }).contains("numbers"));
    let still = || view(Memory::Input(0), 256, &[0; 4]);
    let grad = AttentionGrad {
        attention: Attention { width: 1 << 61, ..attention(1, 1, 1, 1) },
        slope: None,
        output: still(),
        lse: view(Memory::Input(0), 4, &[0; 3]),
        grad: still(),
        wrt_q: Some(to([1, 1, 1, 1])),
        wrt_k: None,
        wrt_v: None,
    };
    assert!(refusal(Step::AttentionGrad(Box::new(grad))).contains("numbers"));
    let stranger = Attention { extras: vec![view(Memory::Input(5), 4, &[0; 4])], ..attention(1, 1, 1, 1) };
    assert!(forward(stranger).contains("inputs that lie in their memory"));
}

/// Five thousand million sums of three strides, none of which is odd.
#[test]
fn views_that_interleave_in_too_many_ways_are_taken_to_meet() {
    let (heads, keys, depth) = (1 << 13, 1 << 20, 1 << 16);
    let bytes = 1 << 25;
    let at = |memory, strides: [usize; 4]| view(memory, bytes, &strides);
    let wide = Attention {
        groups: heads,
        keys,
        depth,
        k: at(Memory::Arena(0), [0, 6, 4, 2]),
        ..attention(1, heads, 1, 1)
    };
    let output = View { offset: 3001, ..at(Memory::Arena(0), [0, 6, 1, 1]) };
    let step = Step::Attention { attention: Box::new(wide), output, lse: None };
    let device = Cpu::with_threads(1);
    let error = prepare(&device, Plan { arena_bytes: bytes, ..plan(step) });
    let error = error.err().expect("too many").to_string();
    assert!(error.contains("outputs apart"), "{error}");
}

/// Comparing each value with every other one, and that with every user, would take hours.
#[test]
fn a_program_of_many_values_is_scheduled_in_time() {
    let count = 20_000;
    let before = |n| if n == 1 { 0 } else { count + n - 2 };
    let add = |n| Op::Binary(Binary::Add, n, before(n));
    let ops: Vec<Op> = (0..count).map(|_| load(Index::View)).chain((1..count).map(add)).collect();
    let last = ops.len() - 1;
    let to = view(Memory::Arena(0), 64, &[1]);
    let step = pass(program(ops, vec![store(last, false)]), &[4], vec![view(Memory::Input(0), 64, &[1])], to);
    assert_eq!(runs(step).expect("fits")[1].to_bits(), (count as f32).to_bits());
}

#[test]
fn memory_that_there_is_not_is_an_error() {
    let device = Cpu::new();
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 62] {
        let error = device.alloc("the moon", bytes).expect_err("no machine has it").to_string();
        assert!(error.contains("the moon") && error.contains(&bytes.to_string()), "{error}");
    }
    let plan = Plan { arena_bytes: usize::MAX, ..Plan::default() };
    assert!(prepare(&device, plan).is_err(), "no allocation is that large");
}

fn flat(ops: Vec<Op>, len: usize, inputs: &[&Buffer]) -> Result<(), DeviceError> {
    let device = Cpu::with_threads(1);
    let mut out = device.alloc("out", 64).expect("room");
    let last = ops.len() - 1;
    tests::plans::flat(&device, Program::flat("flat", ops, last, Element::F32), len, inputs, &mut out)
}

#[test]
fn a_launch_lane_by_lane_is_refused_what_it_has_not() {
    let device = Cpu::with_threads(1);
    let input = device.alloc("input", 64).expect("room");
    let counted = |dim| flat(vec![Op::Coordinate(dim), Op::ToFloat(0)], 16, &[]);
    assert_eq!(counted(0), Ok(()));
    assert!(matches!(counted(1), Err(DeviceError::Step { step: 0, .. })));
    assert!(matches!(counted(usize::MAX), Err(DeviceError::Step { step: 0, .. })));
    for len in [17, HUGE / 2, HUGE, usize::MAX] {
        let ops = vec![load(Index::Lane)];
        assert!(matches!(flat(ops, len, &[&input]), Err(DeviceError::Step { .. })), "{len}");
    }
    let strange = Op::Load { input: 1 << 40, element: Element::F32, index: Index::Lane };
    assert!(flat(vec![strange], 4, &[&input]).is_err());
    let table = vec![Op::Coordinate(0), Op::Table { input: 0, at: 0, entries: 1 << 62 }];
    assert!(matches!(flat(table, 4, &[&input]), Err(DeviceError::Step { .. })));
}
