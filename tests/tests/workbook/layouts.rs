//! Agreement: where values lie, and which passes they share, changes nothing that is computed.

use std::collections::BTreeMap;

use challenges::graph::{Compile as _, Solution};
use compiler::compile::{Level, Options, compile};
use compiler::ir::arena::{Arena, Life, apart, fault};
use compiler::rewrite::join::join_padded;
use kernels::plan::Step;
use proptest::prelude::*;
use reference::grad;
use reference::graph::{Array, Attention, Binary, Builder, Dtype, Graph, Id, Op, Tape, Tensor, Type};
use tests::graphs::Case;
use tests::one_graph::CPU;

use crate::compiled::{Runner, agrees_everywhere};

/// A graph with drawn values of two bits and a sign, which no type rounds.
pub(crate) fn case(write: impl FnOnce(&Tape)) -> Case {
    let builder = Builder::new("layouts");
    write(builder.tape());
    let graph = builder.finish().expect("shapes fit");
    let mut values = BTreeMap::new();
    for (salt, (name, id)) in graph.inputs().enumerate() {
        let ty = graph.ty(id);
        let shape: Vec<usize> = ty.shape.iter().map(|dim| dim.as_fixed().expect("a size") as usize).collect();
        let number = |i: usize| ((i * 7919 + salt * 104_729) % 13) as f64 / 4.0 - 1.5;
        let count = shape.iter().product();
        values.insert(name.to_owned(), Array::floats(ty.dtype, &shape, (0..count).map(number)));
    }
    Case { graph, values }
}

/// Compares a case with its meaning, and counts what a run starts on a device that attends to narrow types.
fn steps(case: &Case) -> usize {
    agrees_everywhere(case, Level::O2).unwrap_or_else(|error| panic!("{error}"));
    let options = Options { narrow_attention: true, ..Level::O2.options() };
    let compiled = compile(&Solution, &case.graph, &BTreeMap::new(), options);
    compiled.expect("it compiles").plan().steps.len()
}

const PLAIN: Attention = Attention { scale: 0.5, score: None, mask: None };

/// Heads of a batch, computed from inputs.
fn attended(tape: &Tape, dtype: Dtype) -> Tensor {
    let [q, k, v] = ["q", "k", "v"].map(|name| tape.input(name, dtype, [2, 4, 6, 8]));
    q.attend(PLAIN, &k, &v, &[])
}

/// As rows: (batch, heads, tokens, depth) to (batch * tokens, heads * depth).
fn rows(heads: &Tensor) -> Tensor {
    heads.transpose(&[0, 2, 1, 3]).reshape([12, 32])
}

#[test]
fn heads_side_by_side_are_a_factor_where_they_lie() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let alone = case(|tape| {
            let w = tape.input("w", dtype, [32, 5]);
            tape.output("y", &rows(&attended(tape, dtype)).matmul(&w));
        });
        assert_eq!(steps(&alone), 2, "an attention and a product");
        let transposed = case(|tape| {
            let w = tape.input("w", dtype, [12, 5]);
            tape.output("y", &rows(&attended(tape, dtype)).t().matmul(&w));
        });
        assert_eq!(steps(&transposed), 2, "an attention and a product");
    }
}

/// What else reads the heads may have them lie another way.
#[test]
fn heads_that_are_read_in_two_ways_are_read_right() {
    let uses: [fn(&Tape, &Tensor); 8] = [
        |tape, heads| tape.output("heads", heads),
        |tape, heads| tape.output("rows", &rows(heads)),
        |tape, heads| tape.output("sum", &heads.sum(3)),
        |tape, heads| tape.output("turned", &heads.transpose(&[0, 1, 3, 2]).sum(3)),
        |tape, heads| tape.output("square", &heads.matmul(&heads.transpose(&[0, 1, 3, 2]))),
        |tape, heads| tape.output("part", &heads.slice(2, 1, 3).transpose(&[0, 2, 1, 3]).reshape([4, 32])),
        |tape, heads| tape.output("again", &rows(heads).matmul(&tape.input("u", Dtype::F32, [32, 3]))),
        |tape, heads| {
            tape.output("half", &(&rows(heads) * 0.5).matmul(&tape.input("h", Dtype::F32, [32, 3])));
        },
    ];
    for (at, other) in uses.into_iter().enumerate() {
        for is_first in [false, true] {
            let case = case(|tape| {
                let heads = attended(tape, Dtype::F32);
                let product =
                    || tape.output("y", &rows(&heads).matmul(&tape.input("w", Dtype::F32, [32, 5])));
                if is_first {
                    product();
                }
                other(tape, &heads);
                if !is_first {
                    product();
                }
            });
            assert!(steps(&case) >= 2, "use {at}");
        }
    }
}

/// A concatenation is written the way that it is read, as a factor or by a pass.
#[test]
fn parts_of_a_concatenation_are_written_as_it_is_read() {
    for dim in 0..4 {
        let case = case(|tape| {
            let [x, y] = ["x", "y"].map(|name| tape.input(name, Dtype::F32, [2, 4, 6, 8]).exp());
            let both = tape.concat(&[&x, &y], dim);
            let turned = both.transpose(&[0, 2, 1, 3]);
            let (width, height) = (turned.dim(2).as_fixed(), turned.dim(3).as_fixed());
            let width = width.expect("a size") * height.expect("a size");
            let count = if dim == 1 || dim == 3 { 12 } else { 24 };
            let w = tape.input("w", Dtype::F32, [width, 5]);
            tape.output("y", &turned.reshape([count, width]).matmul(&w));
        });
        assert_eq!(steps(&case), 2, "a pass and a product, dimension {dim}");
    }
}

/// Zeros of a type beside something, or before it.
fn padded(x: &Tensor, zero: f64, width: i64, is_after: bool) -> Tensor {
    let zeros = x.tape().constant(zero, &Type::new(x.ty().dtype, [3, width]));
    x.tape().concat(&if is_after { [x, &zeros] } else { [&zeros, x] }, 1)
}

fn sums(graph: &Graph) -> usize {
    graph.nodes().iter().filter(|node| node.op == Op::Binary(Binary::Add)).count()
}

fn joined(case: &Case) -> usize {
    agrees_everywhere(case, Level::O2).unwrap_or_else(|error| panic!("{error}"));
    let pruned = Solution.prune(&case.graph).expect("a sound graph");
    sums(&join_padded(&pruned).expect("a sound graph"))
}

#[test]
fn the_gradient_of_what_was_sliced_is_the_gradients_of_its_slices() {
    let halves = |tape: &Tape, widths: [i64; 2]| {
        let shape = |width| [3, width];
        [("x", widths[0]), ("y", widths[1])].map(|(name, width)| tape.input(name, Dtype::F32, shape(width)))
    };
    let of = |widths: [i64; 2], make: fn(&Tensor, &Tensor) -> Tensor| {
        joined(&case(|tape| {
            let [x, y] = halves(tape, widths);
            tape.output("sum", &make(&x, &y));
        }))
    };
    assert_eq!(of([4, 2], |x, y| &padded(x, 0.0, 2, true) + &padded(y, 0.0, 4, false)), 0);
    assert_eq!(of([4, 2], |x, y| &padded(y, 0.0, 4, false) + &padded(x, 0.0, 2, true)), 0, "exchanged");
    assert_eq!(of([4, 4], |x, _| &padded(x, 0.0, 4, true) + &padded(x, 0.0, 4, false)), 0, "one twice");
    let three = |x: &Tensor, y: &Tensor| {
        let zeros = |width| x.tape().constant(0.0, &Type::new(Dtype::F32, [3, width]));
        let first = x.tape().concat(&[x, &zeros(2), &zeros(2)], 1);
        let second = x.tape().concat(&[&zeros(4), y, &zeros(2)], 1);
        let third = x.tape().concat(&[&zeros(4), &zeros(2), y], 1);
        &(&first + &second) + &third
    };
    assert_eq!(of([4, 2], three), 0, "three slices");
    assert_eq!(of([4, 2], |x, y| &padded(x, 1.0, 2, true) + &padded(y, 0.0, 4, false)), 1, "not zeros");
    assert_eq!(of([4, 3], |x, y| &padded(x, 0.0, 2, true) + &padded(y, 0.0, 3, false)), 1, "they overlap");
    assert_eq!(of([4, 4], |x, y| &padded(x, 0.0, 4, true) + &padded(y, 0.0, 4, true)), 1, "one on another");
    let kept = |x: &Tensor, y: &Tensor| {
        let first = padded(x, 0.0, 2, true);
        &(&first + &padded(y, 0.0, 4, false)) * &first
    };
    assert_eq!(of([4, 2], kept), 0, "the padded one is read, too");
}

/// Small casts beside a large product: of what is given, or of results.
fn casts(write: impl Fn(&Tape, &[Tensor])) -> Case {
    case(|tape| {
        let [x, w] = ["x", "w"].map(|name| tape.input(name, Dtype::F32, [256, 256]));
        tape.output("large", &x.matmul(&w));
        let small = ["a", "b", "c"].map(|name| tape.input(name, Dtype::F32, [4, 16]));
        write(tape, &small);
    })
}

#[test]
fn small_passes_with_nothing_in_common_share_a_launch() {
    let outputs = |tape: &Tape, small: &[Tensor]| {
        for (at, x) in small.iter().enumerate() {
            tape.output(&format!("y{at}"), &x.exp());
        }
    };
    assert_eq!(steps(&casts(outputs)), 2, "a product and a pass");
    let between = |tape: &Tape, small: &[Tensor]| {
        let narrow: Vec<Tensor> = small.iter().map(|x| x.cast(Dtype::Bf16)).collect();
        let first = narrow[0].matmul(&narrow[1].t());
        tape.output("y", &first.matmul(&narrow[2]));
    };
    assert_eq!(steps(&casts(between)), 4, "three products and a pass");
}

/// One reads what the other writes, or an output of the other; one name twice; more than a pass stores.
#[test]
fn passes_that_need_each_other_stay_in_order() {
    let chain = |tape: &Tape, small: &[Tensor]| {
        let first = small[0].exp();
        let product = first.matmul(&small[1].t());
        tape.output("first", &first);
        tape.output("second", &small[2].exp());
        tape.output("third", &product.matmul(&small[2].sin()));
        tape.output("twice", &product.matmul(&small[2].sin()).cos());
    };
    steps(&casts(chain));
    let many = |tape: &Tape, small: &[Tensor]| {
        for at in 0..20 {
            tape.output(&format!("y{at}"), &(&small[at % 3] * (at as f64)).exp());
        }
    };
    assert!(steps(&casts(many)) >= 4, "a pass stores eight results");
    let same = |tape: &Tape, small: &[Tensor]| {
        let y = small[0].exp();
        tape.output("one", &y);
        tape.output("other", &y);
        tape.output("again", &small[0].exp());
        tape.output("given", &small[1]);
    };
    steps(&casts(same));
}

fn life() -> impl Strategy<Value = Option<Life>> {
    let of = |(bytes, start, length): (usize, usize, usize)| Life { bytes, parts: start..=start + length };
    proptest::option::weighted(0.9, (0_usize..5000, 0_usize..200, 0_usize..60).prop_map(of))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Resting buffers is a valid arena, an eighth larger at most, and under the cap wherever packing is.
    #[test]
    fn memory_that_rests_is_little_more(lives in proptest::collection::vec(life(), 0..60), spare in 0_usize..4000) {
        let packed = Solution.place(&lives);
        for cap in [None, Some(packed.bytes), Some(packed.bytes + spare), Some(0)] {
            let arena = apart(&lives, cap, |lives| Solution.place(lives));
            prop_assert_eq!(fault(&lives, &arena), None);
            prop_assert!(arena.bytes <= packed.bytes + packed.bytes / 8);
            prop_assert!(arena.bytes <= packed.bytes.max(cap.unwrap_or(usize::MAX)));
        }
    }
}

/// Two buffers of which the second could have the first one's bytes: there is a spare eighth, and it has its own.
#[test]
fn bytes_are_left_alone_where_there_are_others() {
    let life = |bytes, parts| Some(Life { bytes, parts });
    let lives = [life(1 << 20, 0..=40), life(256, 0..=1), life(256, 2..=3), life(256, 40..=41)];
    let places = |arena: &Arena| [1, 2, 3].map(|at| arena.places[at].expect("it lives"));
    let [first, second, _] = places(&Solution.place(&lives));
    assert_eq!(first, second, "packed");
    let [first, second, _] = places(&apart(&lives, None, |lives| Solution.place(lives)));
    assert_ne!(first, second, "at rest");
    let capped = apart(&lives, Some(Solution.place(&lives).bytes), |lives| Solution.place(lives));
    let [first, second, _] = places(&capped);
    assert_eq!(first, second, "no byte to spare");
}

/// A plan for a device that runs steps side by side computes the same, in the bytes that it says.
#[test]
fn a_plan_whose_memory_rests_computes_the_same() {
    let case = case(|tape| {
        let [p, q, r] = ["p", "q", "r"].map(|name| tape.input(name, Dtype::F32, [256, 256]));
        let large = p.matmul(&q); // an eighth of it is to spare
        let mut x = tape.input("x", Dtype::F32, [16, 16]);
        for at in 0..12 {
            let w = tape.input(&format!("w{at}"), Dtype::F32, [16, 16]);
            x = (&x.matmul(&w) * 0.01).sin();
        }
        tape.output("y", &x);
        tape.output("z", &large.matmul(&r));
    });
    let options = Options { side_by_side: true, ..Level::O2.options() };
    let of = |options| compile(&Solution, &case.graph, &BTreeMap::new(), options).expect("it compiles");
    let (apart, packed) = (of(options), of(Level::O2.options()));
    assert_eq!(fault(&apart.lives, &apart.arena), None);
    assert_eq!(apart.plan().steps.len(), packed.plan().steps.len());
    assert_ne!(apart.arena.places, packed.arena.places);
    let run = |compiled| {
        let runner = Runner::of(&*CPU, compiled);
        runner.and_then(|mut runner| runner.run(&case.values())).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(run(apart), run(packed));
}

/// A case whose first output is a loss, with the gradients of all inputs.
fn with_gradients(case: Case) -> Case {
    with_gradients_but(case, "")
}

/// The same without the gradient of one input.
fn with_gradients_but(mut case: Case, frozen: &str) -> Case {
    let loss = case.graph.outputs()[0].1;
    let trained = case.graph.inputs().filter(|(name, _)| *name != frozen);
    let (names, ids): (Vec<String>, Vec<Id>) = trained.map(|(name, id)| (format!("grad.{name}"), id)).unzip();
    let gradients = grad::differentiate(&mut case.graph, loss, &ids).expect("a scalar");
    names.into_iter().zip(gradients).for_each(|(name, id)| case.graph.output(name, id));
    case
}

/// An MLP of 24 rows, 64 wide inside, and the gradients of its loss by all of its weights.
fn mlp(dtype: Dtype) -> Case {
    with_gradients(case(|tape| {
        let weight = |name: &str, shape: [i64; 2]| tape.input(name, dtype, shape);
        let x = weight("x", [24, 32]);
        let [gate, up] = ["gate", "up"].map(|name| x.matmul(&weight(name, [32, 64])));
        let inner = &(&gate * &gate.sigmoid()) * &up;
        let y = inner.matmul(&weight("down", [64, 32])).cast(Dtype::F32);
        tape.output("loss", &(&y * &y).sum(1).sum(0).reshape([] as [i64; 0]));
    }))
}

/// What is computed again for a gradient is computed by the pass that computes a gradient from the same, and the product
/// that reads it comes after that pass.
#[test]
fn what_is_computed_again_waits_for_the_gradient_beside_it() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let case = mlp(dtype);
        steps(&case);
        let compiled = compile(&Solution, &case.graph, &BTreeMap::new(), Level::O2.options());
        let compiled = compiled.expect("it compiles");
        assert!(compiled.rematerialised.nodes > 0, "{dtype:?}: nothing is computed again");
        let is_wide = |step: &&Step| matches!(step, Step::Pass { space, .. } if space.iter().product::<usize>() == 24 * 64);
        let wide = compiled.plan().steps.iter().filter(is_wide).count();
        assert_eq!(wide, 2, "{dtype:?}: one forward, one backward");
    }
}

/// What a norm computes again for its gradient is stored for the product that reads it, and for nothing else: the pass
/// that differentiates it reads what that is computed from.
#[test]
fn what_a_pass_can_compute_from_what_it_reads_is_not_stored_for_it() {
    let case = with_gradients(case(|tape| {
        let [x, w] = [("x", 24), ("w", 32)].map(|(name, rows)| tape.input(name, Dtype::F32, [rows, 32]));
        let h = x.exp();
        let scale = &(&h * &h).mean(1).sqrt();
        let y = (&h / scale).matmul(&w);
        tape.output("loss", &(&y * &y).sum(1).sum(0).reshape([] as [i64; 0]));
    }));
    steps(&case);
    assert_eq!(
        stored(&case),
        [2, 2, 1, 2],
        "forward a root and the rows, backward the rows again and their gradient"
    );
}

/// How many results each pass of a case stores.
fn stored(case: &Case) -> Vec<usize> {
    let compiled = compile(&Solution, &case.graph, &BTreeMap::new(), Level::O2.options());
    let compiled = compiled.expect("it compiles");
    let passes = compiled.plan().steps.iter().filter_map(|step| match step {
        Step::Pass { outputs, .. } => Some(outputs.len()),
        _ => None,
    });
    passes.collect()
}

/// The rows of a norm, before its weight, are computed again for the gradients of two products and for the norm's own.
/// Each pass that reads them reads what they are computed from, so that they have no buffer: the last pass but one
/// stores two results, and not three.
#[test]
fn what_every_pass_can_compute_has_no_buffer() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let written = case(|tape| {
            let weight = |name: &str| tape.input(name, dtype, [32, 32]);
            let h = tape.input("x", dtype, [24, 32]).exp();
            let wide = h.cast(Dtype::F32);
            let rows = (&wide / &(&(&wide * &wide).mean(1) + 1e-5).sqrt()).cast(dtype);
            let normed = &rows * &tape.input("scale", dtype, [32]).spread(rows.shape());
            let [a, b] = ["a", "b"].map(|name| normed.matmul(&weight(name)));
            let y = (&a * &b).cast(Dtype::F32);
            tape.output("loss", &(&y * &y).sum(1).sum(0).reshape([] as [i64; 0]));
        });
        let case = with_gradients_but(written, "scale");
        if dtype == Dtype::F32 {
            steps(&case); // in a narrow type squares of squares are rounded too often to be compared
        }
        assert_eq!(stored(&case), [2, 1, 1, 2, 2, 1], "{dtype:?}");
    }
}

/// In a narrow type a factor is taken into the product where nothing is rounded for it: steps of `(x * factor) w`.
#[test]
fn a_power_of_two_is_taken_into_a_product_of_any_type() {
    let of = |dtype: Dtype, factor: f64| {
        steps(&case(|tape| {
            let [x, w] = ["x", "w"].map(|name| tape.input(name, dtype, [8, 8]));
            tape.output("y", &(&x * factor).matmul(&w));
        }))
    };
    assert_eq!([0.5, -4.0, 0.3].map(|factor| of(Dtype::F32, factor)), [1, 1, 1]);
    for dtype in [Dtype::F16, Dtype::Bf16] {
        assert_eq!([0.5, -4.0, 0.3, 0.0].map(|factor| of(dtype, factor)), [1, 1, 2, 2], "{dtype:?}");
    }
}

/// Views cost no operations, so that nothing but their number bounds how many follow each other.
#[test]
fn many_views_in_a_row_are_one_pass_or_a_few() {
    let case = case(|tape| {
        let mut x = tape.input("x", Dtype::F32, [8, 32]).tanh();
        for i in 0..20_000 {
            x = if i % 2 == 0 { x.reshape([32, 8]) } else { x.reshape([8, 32]) };
        }
        tape.output("y", &x.exp());
    });
    let steps = steps(&case);
    assert!(steps < 20_000 / 500, "{steps}");
}
