//! What ranks do together, as operations: laws of their meaning, derivatives over all ranks, and what would hang a
//! world.

use proptest::prelude::*;
use reference::grad::{differentiate, pull_back};
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{
    Array, Builder, Collective, Data, Dim, Dtype, Error, Facts, Graph, Group, Id, Real, Tensor, Type,
    interpret,
};

const AXIS: &str = "world";

/// A graph from one input `x` of a shape to one output `y`.
fn graph(dtype: Dtype, shape: &[usize], body: impl Fn(&Tensor) -> Tensor) -> Graph {
    let builder = Builder::new("ranks");
    let x = builder.tape().input("x", dtype, shape.iter().copied());
    builder.tape().output("y", &body(&x));
    builder.finish().expect("a sound graph")
}

fn line(ranks: usize) -> Mesh {
    Mesh::line(AXIS, ranks).expect("ranks")
}

fn world(ranks: usize) -> Group {
    Group::new(AXIS, ranks)
}

/// Each rank's `y` for its `x`.
fn run<R: Real>(graph: &Graph, mesh: &Mesh, x: &[Array<R>]) -> Result<Vec<Array<R>>, Error> {
    let values: Vec<Values<R>> = x.iter().map(|x| Values::from([("x".to_owned(), x.clone())])).collect();
    let results = interpret_ranks(&[graph], mesh, &values)?;
    Ok(results.into_iter().map(|mut outputs| outputs.remove(0)).collect())
}

/// Numbers, all of them different, that no sum of a few is exact of.
fn drawn(dtype: Dtype, shape: &[usize], seed: usize) -> Array<f32> {
    let count = shape.iter().product();
    let number = |i: usize| ((i * 7 + seed * 131 + 5) as f64 * 0.618_034).fract() * 2.4 - 1.2;
    match dtype {
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => Array::floats(dtype, shape, (0..count).map(number)),
        Dtype::U8 => Array::bytes(shape, (0..count).map(|i| (i * 37 + seed) as u8).collect()),
        Dtype::I32 => Array::integers(
            shape,
            (0..count).map(|i| ((i + seed) as i32).wrapping_mul(0x4F1B_BCDD)).collect(),
        ),
    }
}

fn same(a: &Array<f32>, b: &Array<f32>) -> bool {
    let bits = |x: &Array<f32>| x.wide().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    (a.dtype, &a.shape, bits(a)) == (b.dtype, &b.shape, bits(b))
}

/// Everyone's shards as one array, by the graph operation that says so.
fn joined(dim: usize, parts: &[Array<f32>]) -> Array<f32> {
    let builder = Builder::new("joined");
    let mut values = Values::new();
    let inputs: Vec<Tensor> = parts
        .iter()
        .enumerate()
        .map(|(i, part)| {
            values.insert(format!("{i}"), part.clone());
            builder.tape().input(&format!("{i}"), part.dtype, part.shape.iter().copied())
        })
        .collect();
    builder.tape().output("y", &builder.tape().concat(&inputs.iter().collect::<Vec<_>>(), dim));
    interpret(&builder.finish().expect("sound"), &values).expect("runs").remove(0)
}

fn dtypes(sums: bool) -> impl Strategy<Value = Dtype> {
    let all = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I32, Dtype::U8];
    prop::sample::select(all[..if sums { 4 } else { 5 }].to_vec())
}

/// A shape of one to three dimensions, some of them 0 or 1, and one of its dimensions.
fn shapes() -> impl Strategy<Value = (Vec<usize>, usize)> {
    let shape = prop::collection::vec(prop_oneof![Just(1_usize), 0..5_usize], 1..=3);
    shape.prop_flat_map(|shape| {
        let rank = shape.len();
        (Just(shape), 0..rank)
    })
}

proptest! {
    #[test]
    fn all_gather_of_shards_is_the_whole((shape, dim) in shapes(), ranks in 1..=6_usize, dtype in dtypes(false)) {
        let shards: Vec<_> = (0..ranks).map(|rank| drawn(dtype, &shape, rank)).collect();
        let gather = graph(dtype, &shape, |x| x.all_gather(dim, &world(ranks)));
        let whole = joined(dim, &shards);
        for got in run(&gather, &line(ranks), &shards).expect("runs") {
            prop_assert!(same(&got, &whole), "{got:?} {whole:?}");
        }
    }

    #[test]
    fn reduce_scatter_and_all_gather_are_all_reduce(
        (mut shape, dim) in shapes(), ranks in 1..=6_usize, dtype in dtypes(true),
    ) {
        shape[dim] *= ranks;
        let group = world(ranks);
        let x: Vec<_> = (0..ranks).map(|rank| drawn(dtype, &shape, rank)).collect();
        let apart = graph(dtype, &shape, |x| x.reduce_scatter(dim, &group).all_gather(dim, &group));
        let whole = graph(dtype, &shape, |x| x.all_reduce(&group));
        let [apart, whole] = [apart, whole].map(|graph| run(&graph, &line(ranks), &x).expect("runs"));
        for (a, b) in apart.iter().zip(&whole) {
            prop_assert!(same(a, b) && same(a, &whole[0]), "{a:?} {b:?}");
        }
    }

    #[test]
    fn sums_are_taken_in_rank_order_and_rounded_once(ranks in 1..=8_usize, dtype in dtypes(true)) {
        let x: Vec<_> = (0..ranks).map(|rank| drawn(dtype, &[7], rank)).collect();
        let got = run(&graph(dtype, &[7], |x| x.all_reduce(&world(ranks))), &line(ranks), &x).expect("runs");
        let want = match &x[0].data {
            Data::I32(_) => Array::integers(&[7], (0..7).map(|i| {
                x.iter().fold(0_i32, |sum, x| sum.wrapping_add(x.as_integers()[i]))
            }).collect()),
            _ => Array::floats(dtype, &[7], (0..7).map(|i| {
                let first = x[0].as_floats()[i];
                f64::from(x[1..].iter().fold(first, |sum, x| sum + x.as_floats()[i])) // in f32
            })),
        };
        prop_assert!(same(&got[0], &want), "{got:?} {want:?}");
    }

    #[test]
    fn a_ring_hands_everything_on(ranks in 1..=6_usize, by in -7..=7_i64, shape in shapes()) {
        let x: Vec<_> = (0..ranks).map(|rank| drawn(Dtype::F32, &shape.0, rank)).collect();
        let ring = graph(Dtype::F32, &shape.0, |x| x.send(by, &world(ranks)).receive(-by, &world(ranks)));
        for (rank, got) in run(&ring, &line(ranks), &x).expect("runs").iter().enumerate() {
            let from = (rank as i64 - by).rem_euclid(ranks as i64) as usize;
            prop_assert!(same(got, &x[from]));
        }
    }

    /// Along one axis of a mesh ranks do together what they would do alone in a world of their own.
    #[test]
    fn groups_of_a_mesh_are_worlds_of_their_own(rows in 1..=3_usize, columns in 1..=3_usize, outer: bool) {
        let mesh = Mesh::new([("dp", rows), ("tp", columns)]).expect("a mesh");
        let (axis, size) = if outer { ("dp", rows) } else { ("tp", columns) };
        let group = Group::new(axis, size);
        let body = |x: &Tensor| x.all_reduce(&group).all_gather(0, &group).send(1, &group).receive(-1, &group);
        let one = graph(Dtype::F32, &[3], body);
        let x: Vec<_> = (0..rows * columns).map(|rank| drawn(Dtype::F32, &[3], rank)).collect();
        let got = run(&one, &mesh, &x).expect("runs");
        for (rank, got) in got.iter().enumerate() {
            let members = mesh.group(rank, axis).expect("an axis");
            let own: Vec<_> = members.iter().map(|member| x[*member].clone()).collect();
            let alone = run(&one, &Mesh::line(axis, size).expect("ranks"), &own).expect("runs");
            let place = members.iter().position(|member| *member == rank).expect("its own group");
            prop_assert!(same(got, &alone[place]));
        }
    }
}

/// A loss on each rank of everything that passes between them.
fn mixed(x: &Tensor, w: &Tensor, group: &Group) -> Tensor {
    let whole = x.all_gather(0, group).tanh(); // (W n, m)
    let sum = (&whole * &whole).reduce_scatter(0, group); // (n, m)
    let passed = (&sum * x).send(1, group).receive(-1, group);
    let reduced = (&passed.sin() * w).all_reduce(group);
    let back = (&reduced + x).send(2, group).receive(-2, group);
    (&(&back * w) * &passed).total()
}

/// The derivative of the sum of all ranks' losses with respect to each rank's values, against differences of that sum.
#[test]
fn the_gradient_of_a_world_is_what_differences_over_all_ranks_say() {
    for ranks in 1..=4 {
        let group = world(ranks);
        let builder = Builder::new("mixed");
        let input = |name: &str| builder.tape().input(name, Dtype::F32, [3, 2]);
        builder.tape().output("loss", &mixed(&input("x"), &input("w"), &group));
        let forward = builder.finish().expect("sound");
        let mut backward = forward.clone();
        let wrt: Vec<Id> = backward.inputs().map(|(_, id)| id).collect();
        let gradients = differentiate(&mut backward, forward.outputs()[0].1, &wrt).expect("rules");
        backward.clear_outputs();
        gradients.iter().enumerate().for_each(|(i, id)| backward.output(format!("{i}"), *id));
        backward.check().expect("sound");
        let values: Vec<Values<f64>> = (0..ranks)
            .map(|rank| {
                let value = |seed| drawn(Dtype::F32, &[3, 2], 2 * rank + seed).widened();
                Values::from([("x".to_owned(), value(0)), ("w".to_owned(), value(1))])
            })
            .collect();
        let got = interpret_ranks(&[&backward], &line(ranks), &values).expect("runs");
        let total = |values: &[Values<f64>]| -> f64 {
            let losses = interpret_ranks(&[&forward], &line(ranks), values).expect("runs");
            losses.iter().map(|loss| loss[0].wide()[0]).sum()
        };
        for rank in 0..ranks {
            for (number, name) in ["x", "w"].into_iter().enumerate() {
                for element in 0..6 {
                    let at = |step: f64| {
                        let mut values = values.clone();
                        let Some(Array { data: Data::Float(x), .. }) = values[rank].get_mut(name) else {
                            unreachable!("floats")
                        };
                        x[element] += step * 1e-3;
                        total(&values)
                    };
                    let want = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / 12e-3;
                    let got = got[rank][number].wide()[element];
                    assert!(
                        (got - want).abs() <= 1e-7 * (1.0 + want.abs()),
                        "{ranks} {rank} {name}: {got} {want}"
                    );
                }
            }
        }
    }
}

/// Two stages of a pipeline, each a graph of its own: the token of what is sent is an output, and so is that of the
/// gradient that is sent back.
#[test]
fn a_pipeline_of_two_graphs_has_the_gradients_of_one() {
    let group = Group::new("pp", 2);
    let ty = Type::new(Dtype::F32, [4]);
    let stage = |name: &str| {
        let builder = Builder::new(name);
        let [x, w] = ["x", "w"].map(|name| builder.tape().input(name, Dtype::F32, [4]));
        (builder, x, w)
    };
    let (builder, x, w) = stage("first");
    let token = (&x * &w).tanh().send(1, &group);
    let (token, w_id) = (builder.id(&token).expect("a node"), builder.id(&w).expect("a node"));
    let mut first = builder.finish().expect("sound");
    let seed = first.push_as(reference::graph::Op::Constant { value: 0.0 }, &[], ty.clone()).expect("a seed");
    let gradient = pull_back(&mut first, token, seed, &[w_id]).expect("rules")[0];
    first.output("sent", token);
    first.output("gradient", gradient);

    let (builder, x, w) = stage("second"); // x is where nothing is sent from: zeros
    let received = x.receive(-1, &group);
    let loss = (&received.sin() * &w).total();
    let [x, w, loss] = [&x, &w, &loss].map(|tensor| builder.id(tensor).expect("a node"));
    let mut second = builder.finish().expect("sound");
    let gradients = differentiate(&mut second, loss, &[x, w]).expect("rules");
    second.output("returned", gradients[0]);
    second.output("gradient", gradients[1]);
    second.output("loss", loss);

    let [x, w0, w1] = [0, 1, 2].map(|seed| drawn(Dtype::F32, &[4], seed).widened());
    let zeros = Array::floats(Dtype::F32, &[4], [0.0; 4]);
    let values = |x: &Array<f64>, w: &Array<f64>| {
        Values::from([("x".to_owned(), x.clone()), ("w".to_owned(), w.clone())])
    };
    let mesh = Mesh::line("pp", 2).expect("ranks");
    let got =
        interpret_ranks(&[&first, &second], &mesh, &[values(&x, &w0), values(&zeros, &w1)]).expect("runs");

    let builder = Builder::new("one");
    let [xs, ws, us] = ["x", "w", "u"].map(|name| builder.tape().input(name, Dtype::F32, [4]));
    let loss = (&(&xs * &ws).tanh().sin() * &us).total();
    let [ws, us, loss] = [&ws, &us, &loss].map(|tensor| builder.id(tensor).expect("a node"));
    let mut one = builder.finish().expect("sound");
    let gradients = differentiate(&mut one, loss, &[ws, us]).expect("rules");
    gradients.iter().enumerate().for_each(|(i, id)| one.output(format!("{i}"), *id));
    let mut given = values(&x, &w0);
    given.insert("u".into(), w1);
    let want = interpret(&one, &given).expect("runs");
    assert_eq!(got[0][1], want[0]);
    assert_eq!(got[1][1], want[1]);
}

/// A step of descent on whole numbers, whose sums are exact: W ranks of a data-parallel batch equal one rank to the
/// bit.
#[test]
fn ranks_of_a_data_parallel_step_equal_one_rank_to_the_bit() {
    let step = |rows: usize, group: Option<&Group>| {
        let builder = Builder::new("step");
        let x = builder.tape().input("x", Dtype::F32, [rows, 3]);
        let target = builder.tape().input("target", Dtype::F32, [rows, 1]);
        let w = builder.tape().input("w", Dtype::F32, [3, 1]);
        let error = &x.matmul(&w) - &target;
        let loss = (&error * &error).total();
        let [loss, id] = [&loss, &w].map(|tensor| builder.id(tensor).expect("a node"));
        let mut graph = builder.finish().expect("sound");
        let gradient = differentiate(&mut graph, loss, &[id]).expect("rules")[0];
        let builder = Builder::onto(graph);
        let [gradient, w] = [gradient, id].map(|id| builder.tensor(id));
        let sum = group.map_or(gradient.clone(), |group| gradient.all_reduce(group));
        builder.tape().output("w", &(&w - &(&sum * 0.125)));
        builder.finish().expect("sound")
    };
    let whole = |shape: &[usize], seed: usize| {
        let count: usize = shape.iter().product();
        Array::<f32>::floats(Dtype::F32, shape, (0..count).map(|i| f64::from((i * 7 + seed) as i32 % 9 - 4)))
    };
    let (x, target, w) = (whole(&[12, 3], 1), whole(&[12, 1], 2), whole(&[3, 1], 3));
    let rows = |all: &Array<f32>, from: usize, count: usize| {
        let width = all.shape[1];
        let part = &all.as_floats()[from * width..][..count * width];
        Array::<f32>::floats(Dtype::F32, &[count, width], part.iter().copied().map(f64::from))
    };
    let values = |from: usize, count: usize| {
        let part = |name: &str, all| (name.to_owned(), rows(all, from, count));
        Values::from([part("x", &x), part("target", &target), ("w".to_owned(), w.clone())])
    };
    let one = interpret(&step(12, None), &values(0, 12)).expect("runs");
    for ranks in [1, 2, 3, 4, 6] {
        let each = 12 / ranks;
        let given: Vec<_> = (0..ranks).map(|rank| values(rank * each, each)).collect();
        let graph = step(each, Some(&world(ranks)));
        for got in interpret_ranks(&[&graph], &line(ranks), &given).expect("runs") {
            assert_eq!(got, one);
        }
    }
}

/// A graph whose world's size is a symbol runs in any world that its facts allow.
#[test]
fn a_worlds_size_may_be_a_symbol_with_facts() {
    let builder = Builder::new("any world");
    let size = builder.tape().symbol("W", Facts::range(2, 4));
    let group = Group::new(AXIS, &size);
    let x = builder.tape().input("x", Dtype::F32, [2]);
    let y = x.all_gather(0, &group);
    assert_eq!(y.shape(), [&size * &Dim::fixed(2)]);
    builder.tape().output("y", &y.reduce_scatter(0, &group));
    let graph = builder.finish().expect("sound");
    assert_eq!(Graph::parse(&graph.to_string()).expect("reads back"), graph);
    for ranks in 1..=5 {
        let x: Vec<_> = (0..ranks).map(|rank| drawn(Dtype::F32, &[2], rank)).collect();
        assert_eq!(run(&graph, &line(ranks), &x).is_ok(), (2..=4).contains(&ranks), "{ranks}");
    }
}

/// What ranks may do wrong, each with the rank and the node that the error names.
#[test]
fn what_would_hang_a_world_is_an_error_with_rank_and_node() {
    let (two, x) = (world(2), |rank| drawn(Dtype::F32, &[4], rank));
    let of = |body: &dyn Fn(&Tensor) -> Tensor| graph(Dtype::F32, &[4], body);
    let wrong = |first: &Graph, second: &Graph, says: &[&str]| {
        let values = [0, 1].map(|rank| Values::from([("x".to_owned(), x(rank))]));
        let error = interpret_ranks(&[first, second], &line(2), &values).expect_err("a mismatch").to_string();
        assert!(says.iter().all(|part| error.contains(part)), "{error}");
    };
    let reduce = of(&|x| x.all_reduce(&two));
    let nothing = of(&|x| -x);
    wrong(
        &reduce,
        &of(&|x| x.all_gather(0, &two)),
        &["rank 1: %1 all_gather", "expected all_reduce of f32[4], as rank 0"],
    );
    wrong(
        &of(&|x| x.all_gather(0, &two)),
        &of(&|x| x.reshape([2, 2]).all_gather(0, &two).reshape([8])),
        &["rank 1: %2", "f32[2, 2]"],
    );
    let gather = |dim| of(&move |x: &Tensor| x.reshape([2, 2]).all_gather(dim, &world(2)));
    wrong(&gather(0), &gather(1), &["rank 1: %2", "along dimension 0", "along dimension 1"]);
    wrong(&reduce, &of(&|x| x.cast(Dtype::F16).all_reduce(&two)), &["rank 1: %2", "f16[4]"]);
    wrong(
        &reduce,
        &nothing,
        &["rank 0: %1 all_reduce", "expected rank 1 at a collective", "found rank 1 at its end"],
    );
    wrong(
        &nothing,
        &of(&|x| x.receive(1, &two)),
        &["rank 1: %1 receive", "expected a send from rank 0", "its end"],
    );
    wrong(
        &of(&|x| x.send(1, &two)),
        &nothing,
        &["rank 0: %1 send", "expected a receive on rank 1, found none"],
    );
    wrong(&reduce, &of(&|x| x.receive(1, &two)), &["rank 0: %1 all_reduce", "found rank 1 at %1 receive"]);
    wrong(
        &of(&|x| x.send(1, &two)),
        &of(&|x| x.reshape([2, 2]).receive(1, &two)),
        &["rank 1: %2 receive", "f32[2, 2]", "f32[4] from rank 0: %1 send"],
    );
    let circle = of(&|x| x.receive(1, &two).send(1, &two));
    wrong(
        &circle,
        &circle,
        &["rank 0: %1 receive", "expected a send from rank 1", "found rank 1 at %1 receive"],
    );
    let mesh = |mesh: &Mesh| {
        run(&reduce, mesh, &(0..mesh.ranks()).map(x).collect::<Vec<_>>()).expect_err("another mesh")
    };
    assert!(mesh(&line(3)).to_string().contains("expected 2 ranks along \"world\", found 3"));
    assert!(mesh(&Mesh::line("dp", 2).expect("ranks")).to_string().contains("expected an axis \"world\""));
    let alone = interpret(&reduce, &Values::from([("x".to_owned(), x(0))])).expect_err("one rank");
    assert!(alone.to_string().contains("expected the values of all 2 ranks"), "{alone}");
    assert!(Mesh::new([("dp", 0)]).is_err() && Mesh::new([("a", 1), ("a", 2)]).is_err());
    assert!(Mesh::new([("a", usize::MAX), ("b", 2)]).is_err());
}

#[test]
fn a_collective_is_typed_and_reads_back() {
    let text = r#"graph "world" (W in 1..=8) {
  %0 = input "x" : f32[4*W, 3]
  %1 = reduce_scatter %0 dim 0 over "dp" size W : f32[4, 3] @ grads
  %2 = all_gather %1 dim 1 over "tp" size 2 : f32[4, 6]
  %3 = all_reduce %2 over "dp" size W : f32[4, 6]
  %4 = send %3 by -1 over "p p" size 4 : f32[4, 6]
  %5 = receive %4 by 1 over "p p" size 4 : f32[4, 6]
  return "y" %5
}"#;
    assert_eq!(Graph::parse(text).expect("reads").to_string(), text);
    let refused = |from: &str, to: &str, says: &str| {
        let error = Graph::parse(&text.replace(from, to)).expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
    };
    refused("dim 0 over", "dim 2 over", "dimension 2 of 2");
    refused("f32[4*W, 3]", "f32[5, 3]", "a dimension 0 that W divides");
    refused("f32[4*W, 3]", "u8[4*W, 3]", "a float or i32");
    refused("in 1..=8", "in 0..=8", "1 <= W");
    refused("size 2", "size 0", "1 <= 0");
    refused(
        "%5 = receive %4 by 1 over \"p p\" size 4",
        "%5 = neg %4",
        "expected a receive to read what a send gives",
    );
    for kind in [Collective::AllReduce, Collective::Send { by: 3 }, Collective::AllGather { dim: 1 }] {
        assert_eq!(kind.derivative().derivative(), kind);
    }
}
