//! Tile programs over views, products and plans: right on awkward shapes, whatever the threads and the vector unit, and
//! refused before they run where they do not fit.

use std::sync::Arc;

use half::{bf16, f16};
use kernels::plan::{Choice, Memory, Plan, Product, Step, View};
use kernels::tile::{Binary, Compare, Element, Index, Op, Program, Store, Unary};
use kernels::{Buffer, Cpu, Device, DeviceError, Vector};
use proptest::prelude::*;
use tests::one_graph::{self, card, floats};
use tests::plans::{self, Outcome};
use tests::plans::{execute, prepare};

/// Numbers without a pattern, between -4 and 4.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 13) % 8191) as f32 / 1024.0 - 4.0).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn given(device: &dyn Device, values: &[f32]) -> Buffer {
    let mut buffer = device.alloc("given", values.len() * 4).expect("room");
    device.upload(&mut buffer, &bytes(values)).expect("equal lengths");
    buffer
}

/// Runs steps over inputs of f32 and returns the whole arena.
fn run(
    device: &dyn Device,
    arena: usize,
    inputs: &[Vec<f32>],
    steps: Vec<Step>,
) -> Result<Vec<f32>, DeviceError> {
    let sizes = inputs.iter().map(|input| input.len() * 4).collect();
    let plan =
        Plan { name: "trial".into(), arena_bytes: arena * 4, inputs: sizes, donated: Vec::new(), steps };
    let mut prepared = prepare(device, plan)?;
    let buffers: Vec<Buffer> = inputs.iter().map(|input| given(device, input)).collect();
    let mut memory = device.alloc("arena", arena * 4)?;
    execute(&mut *prepared, &mut memory, &buffers.iter().collect::<Vec<_>>(), &mut [])?;
    device.sync()?;
    Ok(floats(device, &memory))
}

fn view(memory: Memory, elements: usize, offset: usize, strides: &[usize]) -> View {
    View { memory, bytes: elements * 4, offset, strides: strides.to_vec() }
}

fn load(input: usize) -> Op {
    Op::Load { input, element: Element::F32, index: Index::View }
}

fn store(output: usize, value: usize) -> Store {
    Store { output, element: Element::F32, index: Index::View, per_row: false, value }
}

/// Stored once a row.
fn store_once(output: usize, value: usize) -> Store {
    Store { per_row: true, ..store(output, value) }
}

/// Every device that should give the same bits.
pub(crate) fn devices() -> Vec<Cpu> {
    let units = Vector::available().into_iter().filter_map(|unit| Cpu::with_threads(2).limited_to(unit));
    units.chain([Cpu::with_threads(1), Cpu::with_threads(3)]).collect()
}

fn softmax() -> Program {
    let ops = vec![
        load(0),
        Op::RowMax(0),
        Op::Binary(Binary::Sub, 0, 1),
        Op::Unary(Unary::Exp, 2),
        Op::RowSum(3),
        Op::Binary(Binary::Div, 3, 4),
    ];
    Program { name: "softmax".into(), ops, stores: vec![store(0, 5), store_once(1, 4)] }
}

#[test]
fn a_softmax_is_one_program_and_the_same_on_every_unit_and_any_number_of_threads() {
    for (rows, cols) in [(1, 1), (3, 5), (7, 511), (2, 512), (5, 513), (40, 1031)] {
        let x = numbers(rows * cols);
        let steps = vec![Step::Pass {
            program: Arc::new(softmax()),
            space: vec![rows, cols],
            inputs: vec![view(Memory::Input(0), rows * cols, 0, &[cols, 1])],
            outputs: vec![
                view(Memory::Arena(0), rows * cols, 0, &[1, rows]), // transposed
                view(Memory::Arena((rows * cols).div_ceil(16) * 64), rows, 0, &[1, 0]),
            ],
        }];
        let arena = (rows * cols).div_ceil(16) * 16 + rows;
        let results: Vec<Vec<f32>> = devices()
            .iter()
            .map(|device| run(device, arena, std::slice::from_ref(&x), steps.clone()).expect("fits"))
            .collect();
        let on_card = card().map(|card| run(card, arena, std::slice::from_ref(&x), steps).expect("fits"));
        for (i, row) in x.chunks(cols).enumerate() {
            let max = row.iter().copied().fold(f32::MIN, f32::max);
            let e: Vec<f64> = row.iter().map(|x| f64::from(x - max).exp()).collect();
            let sum: f64 = e.iter().sum();
            for (j, e) in e.iter().enumerate() {
                for result in [&results[0]].into_iter().chain(&on_card) {
                    let (got, want) = (f64::from(result[j * rows + i]), e / sum);
                    assert!((got - want).abs() <= 4e-7 * want, "{rows}x{cols} at {i}, {j}: {got}, {want}");
                }
            }
        }
        assert!(results.iter().all(|result| *result == results[0]), "{rows}x{cols}: not the same bits");
    }
}

#[test]
fn a_rotation_writes_both_halves_where_they_belong() {
    let (tokens, half) = (19, 16);
    let x = numbers(tokens * 2 * half);
    let angles = numbers(tokens * half);
    let ops = vec![
        load(0),
        load(1),
        load(2),
        Op::Binary(Binary::Mul, 0, 2),
        Op::Binary(Binary::Mul, 1, 2),
        Op::Binary(Binary::Sub, 3, 1),
        Op::Binary(Binary::Add, 4, 0),
    ];
    let program = Program { name: "rotate".into(), ops, stores: vec![store(0, 5), store(1, 6)] };
    let elements = tokens * 2 * half;
    let part = |memory, offset| view(memory, elements, offset, &[2 * half, 1]);
    let steps = vec![Step::Pass {
        program: Arc::new(program),
        space: vec![tokens, half],
        inputs: vec![
            part(Memory::Input(0), 0),
            part(Memory::Input(0), half),
            view(Memory::Input(1), tokens * half, 0, &[half, 1]),
        ],
        outputs: vec![part(Memory::Arena(0), 0), part(Memory::Arena(0), half)],
    }];
    let units = devices();
    for device in units.iter().map(|unit| unit as &dyn Device).chain(card()) {
        let got = run(device, elements, &[x.clone(), angles.clone()], steps.clone()).expect("fits");
        for token in 0..tokens {
            for i in 0..half {
                let (a, b) = (x[token * 2 * half + i], x[token * 2 * half + half + i]);
                let c = angles[token * half + i];
                assert_eq!(got[token * 2 * half + i].to_bits(), (a * c - b).to_bits());
                assert_eq!(got[token * 2 * half + half + i].to_bits(), (b * c + a).to_bits());
            }
        }
    }
}

/// The largest error of a function over many arguments, in ulps of the result.
fn worst_ulps(unary: Unary, arguments: &[f32], truth: impl Fn(f64) -> f64) -> f64 {
    let program = Program {
        name: "function".into(),
        ops: vec![load(0), Op::Unary(unary, 0)],
        stores: vec![store(0, 1)],
    };
    let count = arguments.len();
    let step = Step::Pass {
        program: Arc::new(program),
        space: vec![count],
        inputs: vec![view(Memory::Input(0), count, 0, &[1])],
        outputs: vec![view(Memory::Arena(0), count, 0, &[1])],
    };
    let got = run(&Cpu::new(), count, &[arguments.to_vec()], vec![step]).expect("fits");
    let ulps = arguments.iter().zip(got).map(|(x, got)| {
        let want = truth(f64::from(*x));
        let near = want as f32;
        if !near.is_finite() || got.to_bits() == near.to_bits() {
            return if got.to_bits() == near.to_bits() || (got.is_nan() && near.is_nan()) {
                0.0
            } else {
                f64::INFINITY
            };
        }
        let ulp = f64::from(f32::from_bits(near.abs().max(f32::MIN_POSITIVE).to_bits() + 1))
            - f64::from(near.abs().max(f32::MIN_POSITIVE));
        (f64::from(got) - want).abs() / ulp
    });
    ulps.fold(0.0, f64::max)
}

#[test]
fn functions_are_within_the_errors_that_they_state() {
    let spread = |from: f32, to: f32| -> Vec<f32> {
        let special = [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-42];
        (0..400_000).map(|i| from + (to - from) * (i as f32 / 400_000.0)).chain(special).collect()
    };
    assert!(worst_ulps(Unary::Exp, &spread(-105.0, 90.0), f64::exp) <= 1.1);
    assert!(worst_ulps(Unary::Log, &spread(0.0, 1e6), f64::ln) <= 1.2);
    assert!(worst_ulps(Unary::Tanh, &spread(-12.0, 12.0), f64::tanh) <= 1.5);
    assert!(worst_ulps(Unary::Sigmoid, &spread(-80.0, 40.0), |x| 1.0 / (1.0 + (-x).exp())) <= 3.0);
    assert!(worst_ulps(Unary::Sin, &spread(-50.0, 50.0), f64::sin) <= 1.0);
}

#[test]
fn whole_numbers_wrap_divide_downwards_and_compare() {
    let ops = vec![
        Op::Coordinate(0),
        Op::Coordinate(1),
        Op::Whole(-3),
        Op::Binary(Binary::Add, 1, 2),
        Op::Whole(2),
        Op::Binary(Binary::Div, 3, 4),
        Op::Compare(Compare::Less, 5, 0),
        Op::ToFloat(5),
        Op::Float(100.0),
        Op::Select(6, 7, 8),
    ];
    let program = Program { name: "whole".into(), ops, stores: vec![store(0, 9)] };
    let step = Step::Pass {
        program: Arc::new(program),
        space: vec![3, 7],
        inputs: vec![],
        outputs: vec![view(Memory::Arena(0), 21, 0, &[7, 1])],
    };
    for device in one_graph::devices() {
        let got = run(device, 21, &[], vec![step.clone()]).expect("fits");
        for (i, got) in got.iter().enumerate() {
            let (row, col) = (i as i32 / 7, i as i32 % 7);
            let divided = (col - 3).div_euclid(2);
            let want = if divided < row { divided as f32 } else { 100.0 };
            assert!((got - want).abs() < 0.5, "{row}, {col}: {got}, {want} on {}", device.name());
        }
    }
}

/// Factors' elements as memory has them, and what they are after rounding.
fn stored(values: &[f32], element: Element) -> (Vec<u8>, Vec<f32>) {
    match element {
        Element::F16 => values.iter().map(|x| f16::from_f32(*x)).map(|x| (x.to_ne_bytes(), x.to_f32())).fold(
            Default::default(),
            |(mut bytes, mut rounded): (Vec<u8>, Vec<f32>), (two, x)| {
                bytes.extend(two);
                rounded.push(x);
                (bytes, rounded)
            },
        ),
        Element::Bf16 => {
            let all: Vec<bf16> = values.iter().map(|x| bf16::from_f32(*x)).collect();
            (all.iter().flat_map(|x| x.to_ne_bytes()).collect(), all.iter().map(|x| x.to_f32()).collect())
        }
        _ => (bytes(values), values.to_vec()),
    }
}

/// The strides of matrices: their elements in rows, in columns, or with gaps.
fn layouts(rows: usize, columns: usize) -> [[usize; 3]; 3] {
    let gap = rows * columns;
    [[gap, columns, 1], [gap, 1, rows], [3 * rows * columns, 3 * columns, 3]]
}

/// Products of a batch: its number, rows, columns and terms.
type Sizes = (usize, usize, usize, usize);

/// The product and the sum of its terms' sizes, at each place of the result.
fn exact(
    (batch, m, n, k): Sizes,
    a: impl Fn(usize, usize, usize) -> f32,
    b: impl Fn(usize, usize, usize) -> f32,
) -> Vec<(f64, f64)> {
    let one = |e: usize| {
        let (l, i, j) = (e / (m * n), e / n % m, e % n);
        let terms = (0..k).map(|p| f64::from(a(l, i, p)) * f64::from(b(l, p, j)));
        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
    };
    (0..batch * m * n).map(one).collect()
}

/// Runs a product and adds minus three times the same: minus twice the product is left.
fn product_is_right(sizes: Sizes, elements: [Element; 2], layout: [usize; 3], choices: &[Choice]) {
    let (batch, m, n, k) = sizes;
    let (of_a, of_b) = (layouts(m, k)[layout[0]], layouts(k, n)[layout[1]]);
    let of_to = layouts(m, n)[layout[2]];
    let count = |strides: [usize; 3], rows: usize, columns: usize| {
        strides[0] * batch.max(1) * rows.min(1) * columns.min(1)
    };
    let (raw_a, a) = stored(&numbers(count(of_a, m, k)), elements[0]);
    let (raw_b, b) = stored(&numbers(count(of_b, k, n)), elements[1]);
    let at = |s: [usize; 3], l: usize, i: usize, j: usize| l * s[0] + i * s[1] + j * s[2];
    let want = exact(sizes, |l, i, p| a[at(of_a, l, i, p)], |l, p, j| b[at(of_b, l, p, j)]);
    let arena = count(of_to, m, n);
    let narrowest = Cpu::with_threads(2).limited_to(Vector::Portable).expect("always there");
    let units = [Cpu::with_threads(1), Cpu::with_threads(3), narrowest];
    let on_cpu = choices.iter().flat_map(|choice| units.iter().map(|unit| (unit as &dyn Device, *choice)));
    for (device, choice) in on_cpu.chain(card().map(|card| (card, Choice::Algorithm(0)))) {
        let product = Product {
            batch: vec![batch],
            m,
            n,
            k,
            a: View { memory: Memory::Input(0), bytes: raw_a.len(), offset: 0, strides: of_a.to_vec() },
            b: View { memory: Memory::Input(1), bytes: raw_b.len(), offset: 0, strides: of_b.to_vec() },
            elements: [elements[0], elements[1], Element::F32],
            to: view(Memory::Arena(0), arena, 0, &of_to),
            add: false,
            scale: 1.0,
            choice,
        };
        let again = Product { add: true, scale: -3.0, ..product.clone() };
        let steps = vec![Step::Product(product), Step::Product(again)];
        let plan = Plan {
            name: "trial".into(),
            arena_bytes: arena * 4,
            inputs: vec![raw_a.len(), raw_b.len()],
            donated: vec![],
            steps,
        };
        let upload = |raw: &[u8]| {
            let mut buffer = device.alloc("factor", raw.len()).expect("room");
            device.upload(&mut buffer, raw).expect("equal lengths");
            buffer
        };
        let (a, b) = (upload(&raw_a), upload(&raw_b));
        let mut memory = device.alloc("arena", arena * 4).expect("room");
        let mut prepared = prepare(device, plan).expect("fits");
        execute(&mut *prepared, &mut memory, &[&a, &b], &mut []).expect("runs");
        let found = floats(device, &memory);
        for (e, (want, size)) in want.iter().enumerate() {
            let got = found[at(of_to, e / (m * n), e / n % m, e % n)];
            let bound = 4.0 * (k + 2) as f64 * f64::from(f32::EPSILON / 2.0) * size;
            let wrong = (f64::from(got) + 2.0 * want).abs();
            assert!(
                wrong <= bound,
                "{choice:?} {sizes:?} {elements:?} {layout:?} at {e} on {}: {got}, {}",
                device.name(),
                -2.0 * want
            );
        }
    }
}

#[test]
fn a_product_is_right_however_it_is_cut_and_laid_out() {
    let small = [(1, 1, 1, 1), (1, 5, 7, 3), (3, 17, 31, 64), (2, 33, 1, 40), (4, 1, 65, 9)];
    for sizes in small {
        for layout in 0..27 {
            let layout = [layout / 9, layout / 3 % 3, layout % 3];
            product_is_right(sizes, [Element::F32; 2], layout, &Choice::ALL);
        }
    }
}

/// Beyond a panel, a call, a stretch of the terms, a block, each by a little.
const LARGE: [Sizes; 6] = [
    (1, 70, 50, 530),
    (1, 600, 49, 17),
    (2, 20, 800, 33),
    (1, 65, 193, 48),
    (1, 33, 1000, 64),
    (1, 390, 775, 35),
];

#[test]
fn a_packed_product_is_right_at_every_seam() {
    for sizes in LARGE {
        for layout in [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1], [0, 1, 1], [2, 2, 2]] {
            product_is_right(sizes, [Element::F32; 2], layout, &[Choice::Packed]);
        }
    }
}

#[test]
fn a_factor_in_f16_or_bf16_is_widened_as_it_is_multiplied_whatever_the_cut() {
    let narrow = [Element::F32, Element::F16, Element::Bf16];
    for (i, sizes) in LARGE.into_iter().chain([(3, 17, 31, 64), (1, 5, 7, 3)]).enumerate() {
        for pair in 1..9 {
            let elements = [narrow[pair / 3], narrow[pair % 3]];
            for layout in [[0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 0], [2, 2, 0]] {
                let choice = Choice::ALL[(pair + i) % Choice::ALL.len()];
                product_is_right(sizes, elements, layout, &[choice]);
            }
        }
    }
}

/// The matrix unit takes a subnormal factor for 0, and nothing else does: so it is seen to run where it is said to.
#[test]
fn products_of_bf16_run_on_the_matrix_unit_where_there_is_one() {
    let subnormal = bf16::from_bits(0x0040);
    let raw: Vec<u8> = [subnormal; 64].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let big: Vec<u8> = [bf16::from_f32(1e30); 64].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let factor = |number: usize, strides: [usize; 2]| View {
        memory: Memory::Input(number),
        bytes: 128,
        offset: 0,
        strides: strides.to_vec(),
    };
    let product = Product {
        batch: vec![],
        m: 1,
        n: 1,
        k: 64,
        a: factor(0, [64, 1]),
        b: factor(1, [1, 64]),
        elements: [Element::Bf16, Element::Bf16, Element::F32],
        to: view(Memory::Arena(0), 1, 0, &[1, 1]),
        add: false,
        scale: 1.0,
        choice: Choice::Packed,
    };
    let plan = Plan {
        name: "trial".into(),
        arena_bytes: 64,
        inputs: vec![128, 128],
        donated: vec![],
        steps: vec![Step::Product(product)],
    };
    let narrowest = Cpu::with_threads(1).limited_to(Vector::Portable).expect("always there");
    assert!(!narrowest.has_matrix_unit());
    for device in [Cpu::with_threads(1), narrowest] {
        let [mut a, mut b, mut memory] =
            [128, 128, 64].map(|bytes| device.alloc("memory", bytes).expect("room"));
        device.upload(&mut a, &raw).expect("equal lengths");
        device.upload(&mut b, &big).expect("equal lengths");
        let mut prepared = prepare(&device, plan.clone()).expect("fits");
        execute(&mut *prepared, &mut memory, &[&a, &b], &mut []).expect("runs");
        let got = memory.view::<f32>()[0];
        assert_eq!(got.to_bits() == 0, device.has_matrix_unit(), "{got}");
    }
}

/// The elements that a product leaves behind, as stored, after each of some steps: `scale`, and whether it adds.
fn left_behind(sizes: Sizes, elements: [Element; 3], layout: usize, steps: &[(f32, bool)]) -> Vec<Vec<u8>> {
    let (batch, m, n, k) = sizes;
    let [of_a, of_b, of_to] = [layouts(m, k)[0], layouts(k, n)[1], layouts(m, n)[layout]];
    let count =
        |strides: [usize; 3], rows: usize, columns: usize| strides[0] * batch * rows.min(1) * columns.min(1);
    let (raw_a, _) = stored(&numbers(count(of_a, m, k)), elements[0]);
    let (raw_b, _) = stored(&numbers(count(of_b, k, n)), elements[1]);
    let arena = count(of_to, m, n) * elements[2].bytes();
    let step = |(scale, add): &(f32, bool)| {
        Step::Product(Product {
            batch: vec![batch],
            m,
            n,
            k,
            a: View { memory: Memory::Input(0), bytes: raw_a.len(), offset: 0, strides: of_a.to_vec() },
            b: View { memory: Memory::Input(1), bytes: raw_b.len(), offset: 0, strides: of_b.to_vec() },
            elements,
            to: View { memory: Memory::Arena(0), bytes: arena, offset: 0, strides: of_to.to_vec() },
            add: *add,
            scale: *scale,
            choice: Choice::Packed,
        })
    };
    let device = Cpu::with_threads(2);
    let [mut a, mut b, mut memory] =
        [raw_a.len(), raw_b.len(), arena].map(|bytes| device.alloc("memory", bytes).expect("room"));
    device.upload(&mut a, &raw_a).expect("equal lengths");
    device.upload(&mut b, &raw_b).expect("equal lengths");
    let run = |one: &(f32, bool)| {
        let given = vec![raw_a.len(), raw_b.len()];
        let steps = vec![step(one)];
        let plan = Plan { name: "trial".into(), arena_bytes: arena, inputs: given, donated: vec![], steps };
        let mut prepared = prepare(&device, plan).expect("fits");
        execute(&mut *prepared, &mut memory, &[&a, &b], &mut []).expect("runs");
        memory.view::<u8>().to_vec()
    };
    steps.iter().map(run).collect()
}

#[test]
fn a_result_in_f16_or_bf16_is_the_sum_in_f32_rounded_once() {
    let floats =
        |raw: &[u8]| -> Vec<f32> { raw.as_chunks().0.iter().map(|x| f32::from_ne_bytes(*x)).collect() };
    for (i, sizes) in LARGE.into_iter().chain([(3, 17, 31, 64), (1, 5, 7, 3)]).enumerate() {
        for layout in 0..3 {
            for narrow in [Element::F16, Element::Bf16] {
                let factors = [[narrow, Element::F32], [Element::F32; 2], [narrow; 2]][i % 3];
                let of = |result: Element| [factors[0], factors[1], result];
                let [once, thrice] = [1.0, -3.0]
                    .map(|scale| floats(&left_behind(sizes, of(Element::F32), layout, &[(scale, false)])[0]));
                let got = left_behind(sizes, of(narrow), layout, &[(1.0, false), (-3.0, true)]);
                let (first, rounded) = stored(&once, narrow);
                assert_eq!(got[0], first, "{sizes:?} {layout} {narrow:?}");
                let sum: Vec<f32> = rounded.iter().zip(&thrice).map(|(x, y)| x + y).collect();
                assert_eq!(got[1], stored(&sum, narrow).0, "{sizes:?} {layout} {narrow:?}, added");
            }
        }
    }
}

#[test]
fn a_packed_product_needs_bounded_memory_and_takes_it_once() {
    let (m, n, k) = (64, 4096, 1024);
    let product = Product {
        batch: vec![],
        m,
        n,
        k,
        a: view(Memory::Input(0), m * k, 0, &[k, 1]),
        b: View { memory: Memory::Input(1), bytes: k * n * 2, offset: 0, strides: vec![1, k] },
        elements: [Element::F32, Element::Bf16, Element::F32],
        to: view(Memory::Arena(0), m * n, 0, &[n, 1]),
        add: false,
        scale: 1.0,
        choice: Choice::Packed,
    };
    let steps = vec![Step::Product(product)];
    let given = vec![m * k * 4, k * n * 2];
    let plan = Plan { name: "trial".into(), arena_bytes: m * n * 4, inputs: given, donated: vec![], steps };
    let device = Cpu::with_threads(2);
    let mut prepared = prepare(&device, plan).expect("fits");
    let [a, b, mut arena] =
        [m * k * 4, k * n * 2, m * n * 4].map(|bytes| device.alloc("memory", bytes).expect("room"));
    let scratch = prepared.scratch_bytes();
    assert!(scratch > 0 && scratch <= 2 * 1536 * 1024, "{scratch} bytes for two threads");
    let before = device.counts();
    assert_eq!(before.scratch_bytes, scratch as u64, "it is there before the first run");
    for _ in 0..10 {
        execute(&mut *prepared, &mut arena, &[&a, &b], &mut []).expect("runs");
    }
    let after = device.counts();
    assert_eq!((after.allocated_bytes, after.scratch_bytes), (before.allocated_bytes, before.scratch_bytes));
}

#[test]
fn a_plan_that_reaches_too_far_or_writes_twice_is_refused() {
    let copy = Arc::new(Program { name: "copy".into(), ops: vec![load(0)], stores: vec![store(0, 0)] });
    let refused = |space: &[usize], from: View, to: View| {
        let step = Step::Pass {
            program: copy.clone(),
            space: space.to_vec(),
            inputs: vec![from],
            outputs: vec![to],
        };
        match run(&Cpu::new(), 64, &[numbers(64)], vec![step]) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    let from = |offset, strides: &[usize]| view(Memory::Input(0), 64, offset, strides);
    let to = |offset, strides: &[usize]| view(Memory::Arena(0), 64, offset, strides);
    assert_eq!(refused(&[8, 8], from(0, &[8, 1]), to(0, &[1, 8])), "");
    assert!(refused(&[8, 8], from(1, &[8, 1]), to(0, &[8, 1])).contains("inputs that lie in their memory"));
    assert!(refused(&[8, 8], from(0, &[8, 1]), to(0, &[9, 1])).contains("outputs that lie in the arena"));
    assert!(refused(&[8, 8], from(0, &[8, 1]), to(0, &[7, 1])).contains("each element once"));
    assert!(refused(&[8, 8], from(0, &[8, 1]), to(0, &[0, 1])).contains("each element once"));
    let given = view(Memory::Input(0), 64, 0, &[8, 1]);
    assert!(refused(&[8, 8], from(0, &[8, 1]), given).contains("only read"));
    let arena = |offset| view(Memory::Arena(0), 64, offset, &[1]);
    assert_eq!(refused(&[64], arena(0), arena(0)), "", "in place");
    assert!(refused(&[63], arena(0), arena(1)).contains("inputs that the step does not write"));
    let far = Program {
        name: "far".into(),
        ops: vec![Op::Coordinate(1), Op::ToFloat(0)],
        stores: vec![store(0, 1)],
    };
    let step =
        Step::Pass { program: Arc::new(far), space: vec![64], inputs: vec![], outputs: vec![to(0, &[1])] };
    let error = run(&Cpu::new(), 64, &[], vec![step]).expect_err("a second dimension").to_string();
    assert!(error.contains("every dimension that its program asks for"), "{error}");
    assert!(refused(&[usize::MAX, 2], from(0, &[1, 1]), to(0, &[2, 1])).contains("needs"));
}

#[test]
fn a_place_outside_its_table_names_the_lane() {
    let ops = vec![
        Op::Coordinate(0),
        Op::Whole(7),
        Op::Binary(Binary::Mul, 0, 1),
        Op::Gather { input: 0, element: Element::F32, at: 2 },
    ];
    let program = Program { name: "pick".into(), ops, stores: vec![store(0, 3)] };
    let step = Step::Pass {
        program: Arc::new(program),
        space: vec![5],
        inputs: vec![view(Memory::Input(0), 20, 0, &[0])],
        outputs: vec![view(Memory::Arena(0), 5, 0, &[1])],
    };
    for device in one_graph::devices() {
        let error = run(device, 5, &[numbers(20)], vec![step.clone()]).expect_err("place 21 of 20");
        assert_eq!(error.to_string(), "operation 3 of program pick reads place 21 of 20 in lane 3");
    }
}

/// Whether a pass over an arena of 64 f32 is refused.
fn refused_in_place(ops: Vec<Op>, stores: Vec<Store>, inputs: Vec<View>, outputs: Vec<View>) -> bool {
    let program = Arc::new(Program { name: "in place".into(), ops, stores });
    let step = Step::Pass { program, space: vec![4, 8], inputs, outputs };
    match run(&Cpu::new(), 64, &[], vec![step]) {
        Ok(_) => false,
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("inputs that the step does not write"), "{error}");
            true
        }
    }
}

#[test]
fn a_pass_may_write_where_each_lane_reads_and_nowhere_else_of_what_it_reads() {
    let whole = |offset, strides: &[usize]| view(Memory::Arena(0), 64, offset, strides);
    let here = || whole(0, &[8, 1]);
    let double = || vec![load(0), Op::Binary(Binary::Add, 0, 0)];
    let one = |from: View, to: View| refused_in_place(double(), vec![store(0, 1)], vec![from], vec![to]);
    assert!(!one(here(), here()));
    assert!(!one(whole(3, &[1, 4]), whole(3, &[1, 4])), "any strides");
    assert!(one(whole(1, &[8, 1]), here()), "the neighbour's element");
    assert!(one(whole(0, &[1, 4]), here()), "another lane's element");
    assert!(one(whole(0, &[0, 1]), here()), "one element for all rows");
    assert!(one(here(), view(Memory::Arena(64), 48, 0, &[8, 1])), "the same memory further on");
    let again = |second: View| {
        let ops = vec![load(0), load(1), Op::Binary(Binary::Add, 0, 1)];
        refused_in_place(ops, vec![store(0, 2)], vec![here(), second], vec![here()])
    };
    assert!(!again(here()), "two inputs that are one");
    assert!(again(whole(8, &[8, 1])), "it is read by another view, too");
    let at = vec![load(0), Op::Coordinate(1), Op::Gather { input: 0, element: Element::F32, at: 1 }];
    assert!(refused_in_place(at, vec![store(0, 2)], vec![here()], vec![here()]), "gathered");
    let bits = vec![Op::Load { input: 0, element: Element::I32, index: Index::View }, Op::ToFloat(0)];
    assert!(refused_in_place(bits, vec![store(0, 1)], vec![here()], vec![here()]), "as another type");
    let rows = whole(0, &[8, 0]);
    let sum = vec![load(0), Op::RowSum(0)];
    assert!(refused_in_place(sum, vec![store_once(0, 1)], vec![rows.clone()], vec![rows]), "once a row");
    let lanes = |index| Op::Load { input: 0, element: Element::F32, index };
    let by_lane = |from, to| {
        let stores = vec![Store { index: to, ..store(0, 0) }];
        refused_in_place(vec![lanes(from)], stores, vec![here()], vec![here()])
    };
    assert!(!by_lane(Index::Lane, Index::Lane));
    assert!(by_lane(Index::First, Index::Lane), "the first element");
    assert!(by_lane(Index::Block(1), Index::Lane), "one for two lanes");
}

#[test]
fn what_is_carried_is_written_inside_its_buffer_and_only_if_it_is_there() {
    one_graph::devices().into_iter().for_each(carries);
}

fn carries(device: &dyn Device) {
    let to = |elements| view(Memory::InOut(0), elements, 0, &[1]);
    let plan = |to: View, carried: Vec<usize>| {
        let program = Program {
            name: "add one".into(),
            ops: vec![load(0), Op::Float(1.0), Op::Binary(Binary::Add, 0, 1)],
            stores: vec![store(0, 2)],
        };
        let (inputs, outputs) = (vec![to.clone()], vec![to]);
        let step = Step::Pass { program: Arc::new(program), space: vec![8], inputs, outputs };
        Plan { name: "carry".into(), donated: carried, steps: vec![step], ..Plan::default() }
    };
    assert!(prepare(device, plan(to(8), vec![])).is_err(), "no such buffer");
    assert!(prepare(device, plan(to(9), vec![32])).is_err(), "too far");
    let mut prepared = prepare(device, plan(to(8), vec![32])).expect("fits");
    let (mut arena, mut short) = (given(device, &[]), given(device, &numbers(7)));
    let mut sums = given(device, &numbers(8));
    for _ in 0..2 {
        execute(&mut *prepared, &mut arena, &[], &mut [&mut sums]).expect("fits");
    }
    assert!(floats(device, &sums).iter().zip(numbers(8)).all(|(got, old)| (got - old - 2.0).abs() < 1e-6));
    assert!(execute(&mut *prepared, &mut arena, &[], &mut []).is_err(), "none");
    assert!(execute(&mut *prepared, &mut arena, &[], &mut [&mut short]).is_err(), "too short");
}

/// A program of random operations on input 0 in a type, and on input 1 in f32.
fn random_program(choices: &[(u8, u8, u8)], element: Element) -> Program {
    let mut ops = vec![Op::Load { input: 0, element, index: Index::View }, load(1)];
    for (kind, a, b) in choices {
        let [a, b] = [a, b].map(|value| usize::from(*value) % ops.len());
        ops.push(match kind % 8 {
            0 => Op::RowSum(a),
            1 => Op::RowMax(a),
            2 => Op::Unary(Unary::Tanh, a),
            3 => Op::Binary(Binary::Mul, a, b),
            4 => Op::Binary(Binary::Max, a, b),
            5 => Op::Binary(Binary::Sub, a, 0),
            _ => Op::Binary(Binary::Add, a, b),
        });
    }
    let last = ops.len() - 1;
    ops.push(Op::RowMax(last));
    let typed = |output, value| Store { element, ..store(output, value) };
    let stores = vec![typed(0, last), typed(1, 0), store_once(2, last + 1)]; // 1 is what 0 overwrites
    Program { name: "random".into(), ops, stores }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_program_in_place_gives_the_bits_that_it_gives_apart(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 1..12),
        rows in 1_usize..40,
        cols in prop::sample::select(vec![1_usize, 5, 511, 513, 1100]),
        element in prop::sample::select(vec![Element::F32, Element::F16, Element::Bf16]),
        spread in any::<bool>(),
    ) {
        let count = rows * cols;
        let room = (2 * count).div_ceil(16) * 16; // elements: every second one, if they are spread
        let strides = if spread { [2, 2 * rows] } else { [cols, 1] };
        let at = |place: usize| view(Memory::Arena(place * room * 4), room, 0, &strides);
        let flat = |number| view(Memory::Input(number), count, 0, &[cols, 1]);
        let copy = Program { name: "copy".into(), ops: vec![load(0)], stores: vec![Store { element, ..store(0, 0) }] };
        let program = Arc::new(random_program(&choices, element));
        let pass = |program: Arc<Program>, inputs, outputs| Step::Pass { program, space: vec![rows, cols], inputs, outputs };
        let sums = View { strides: vec![1, 0], ..at(3) };
        let steps = |to| vec![
            pass(Arc::new(copy.clone()), vec![flat(0)], vec![at(0)]),
            pass(program.clone(), vec![at(0), flat(1)], vec![at(to), at(2), sums.clone()]),
        ];
        let inputs = [numbers(count), numbers(count + 7)[7..].to_vec()];
        for device in devices() {
            let [mut apart, here] = [1, 0].map(|to| run(&device, 4 * room, &inputs, steps(to)).expect("fits"));
            apart.copy_within(room..2 * room, 0);
            let bits = |arena: &[f32]| arena.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert!(bits(&apart[..room]) == bits(&here[..room]), "in place on {} threads", device.threads());
            prop_assert!(bits(&apart[2 * room..]) == bits(&here[2 * room..]), "beside it");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_drawn_plan_is_refused_or_writes_its_outputs_only(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        threads in prop::sample::select(vec![1_usize, 3]),
    ) {
        plans::hold(plans::drawn(&bytes), &Cpu::with_threads(threads), 256);
    }
}

#[test]
fn of_drawn_plans_every_kind_of_step_runs_and_is_refused() {
    let device = Cpu::with_threads(1);
    let mut random = 1_u64;
    let mut byte = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    };
    let mut seen = [[0; 2]; 7];
    for _ in 0..4000 {
        let bytes: Vec<u8> = (0..200).map(|_| byte()).collect();
        let plan = plans::drawn(&bytes);
        let flight = plan.steps.iter().find(|step| matches!(step, Step::Start(_)));
        let alone = plan.steps.first().filter(|_| plan.steps.len() == 1);
        let Some(step) = flight.or(alone) else { continue };
        let kind = match step {
            Step::Pass { .. } => 0,
            Step::Product(_) => 1,
            Step::Attention { .. } => 2,
            Step::AttentionGrad(_) => 3,
            Step::Scatter { .. } => 4,
            Step::Call { .. } => 5,
            Step::Start(_) | Step::Wait { .. } => 6,
        };
        match plans::hold(plan, &device, 0) {
            Outcome::Ran => seen[kind][0] += 1,
            Outcome::Refused => seen[kind][1] += 1,
            Outcome::Failed | Outcome::Large => {}
        }
    }
    assert!(seen.iter().flatten().all(|count| *count > 10), "{seen:?}");
}
