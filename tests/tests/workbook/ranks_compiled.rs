//! Graphs of several ranks, compiled: each rank compiles its graph, runs it in a session of its own on its own values,
//! and has what [`interpret_ranks`] says that they mean together.
//!
//! To the bit where every rounding is defined; where sums of products stand between, as near the truth as the fair rule
//! asks. And whatever does not fit together - graphs, groups, lengths, ranks that fail - is an error on every rank.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use challenges::graph::Solution;
use challenges::nf4;
use compiler::Compile;
use compiler::compile::{Compiled, Level, Options, compile, compile_with_policy};
use compiler::groups::Groups;
use compiler::rewrite::collective::kept;
use compiler::rewrite::remat::RematPolicy;
use compiler::session::{DeviceTensor, Io, Session, Settings};
use grader::fair::{difference, other_bits, rounding};
use kernels::comm::Comm;
use kernels::plan::Step;
use kernels::threads::{self, Threads};
use proptest::collection::vec;
use proptest::prelude::*;
use reference::grad::differentiate;
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Array, Builder, Dim, Dtype, Facts, Graph, Group, Id, Tensor, interpret};
use tests::one_graph::{CPU, upload};

const AXIS: &str = "fsdp";

/// Longer than a busy machine keeps a thread waiting: no test here is about its end.
const GENEROUS: Duration = Duration::from_mins(5);

/// For ranks that are stuck for certain: how long the others wait decides nothing but how long the test takes.
const SHORT: Duration = Duration::from_millis(100);

/// What ranks are to do: one graph for all, or one each, and each rank's own values.
#[derive(Clone)]
struct World {
    mesh: Mesh,
    graphs: Vec<Graph>,
    values: Vec<Values<f32>>,
    settings: Settings,
    computes_again: bool, // every layer
}

/// A rank's outputs in their order, or the error it gets.
type Outcome = Result<Vec<Array<f32>>, String>;

fn line(ranks: usize) -> Mesh {
    Mesh::line(AXIS, ranks).expect("ranks")
}

fn group(ranks: usize) -> Group {
    Group::new(AXIS, ranks)
}

fn at(level: Level) -> Settings {
    Settings { level, poison: true, ..Settings::default() }
}

/// Each rank's work on a thread, as much of it as ends by itself; that it does is part of what is tested.
fn launch<T: Send + 'static>(
    ranks: usize,
    limit: Duration,
    work: impl Fn(Arc<Threads>) -> Result<T, String> + Send + Sync + 'static,
) -> Vec<Result<T, String>> {
    let (tell, message) = mpsc::channel();
    std::thread::spawn(move || _ = tell.send(threads::launch(ranks, limit, work)));
    let outcomes = message.recv_timeout(2 * GENEROUS).expect("no rank hangs");
    outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.to_string())?).collect()
}

impl World {
    /// One graph on ranks of a line, at a level.
    fn new(graph: &Graph, values: &[Values<f32>], level: Level) -> Self {
        let (mesh, graphs) = (line(values.len()), vec![graph.clone()]);
        Self { mesh, graphs, values: values.to_vec(), settings: at(level), computes_again: false }
    }

    fn graph(&self, rank: usize) -> &Graph {
        &self.graphs[if self.graphs.len() == 1 { 0 } else { rank }]
    }

    /// Every rank's outputs, of two runs with the same bits.
    fn run(&self) -> Vec<Outcome> {
        let world = self.clone();
        launch(self.mesh.ranks(), GENEROUS, move |comm| {
            let rank = comm.rank();
            let groups = Groups::mesh(&world.mesh, comm).map_err(|error| error.to_string())?;
            let again = world.computes_again.then(|| world.mesh.ranks() as i64);
            rank_of(world.graph(rank), &world.values[rank], &world.settings, groups, again)
        })
    }

    /// What the ranks' graphs mean.
    fn meaning(&self) -> Result<Vec<Vec<Array<f32>>>, String> {
        let graphs: Vec<&Graph> = self.graphs.iter().collect();
        interpret_ranks(&graphs, &self.mesh, &self.values).map_err(|error| error.to_string())
    }

    /// That every rank has what it means, to the bit.
    fn is_what_it_means(&self) -> Result<(), String> {
        let want = self.meaning()?;
        for (rank, (got, want)) in self.run().into_iter().zip(&want).enumerate() {
            let got = got.map_err(|error| format!("rank {rank}: {error}"))?;
            for (((name, _), got), want) in self.graph(rank).outputs().iter().zip(&got).zip(want) {
                if let Some(difference) = other_bits(want, got) {
                    return Err(format!("rank {rank}, {name:?}: {difference}"));
                }
            }
        }
        Ok(())
    }
}

/// One rank's outputs, in the order of its graph's. Every layer is computed again where a number of ranks is given.
fn rank_of(
    graph: &Graph,
    values: &Values<f32>,
    settings: &Settings,
    groups: Groups,
    again: Option<i64>,
) -> Outcome {
    let describe = |error: compiler::session::Error| error.to_string();
    let mut session = Session::new(&Solution, &*CPU, &nf4::DEQUANTIZER, settings.clone()).with_groups(groups);
    let program = match again {
        None => session.load(graph).map_err(describe)?,
        Some(ranks) => {
            let sizes = graph.known().keys().map(|symbol| (symbol.clone(), ranks)).collect();
            let choice = RematPolicy { cheap: true, ..RematPolicy::layers(0..3) };
            let compiled = compile_with_policy(&Solution, graph, &sizes, settings.level.options(), &choice);
            session.load_compiled(compiled.map_err(|error| error.to_string())?).map_err(describe)?
        }
    };
    let mut inputs = upload(session.device(), values);
    let mut all = Vec::new();
    for _ in 0..if settings.donate { 1 } else { 2 } {
        let names: Vec<String> = graph.outputs().iter().map(|(name, _)| name.clone()).collect();
        let mut io = Io::default();
        for (name, tensor) in &mut inputs {
            let is_donated = settings.donate && names.contains(name);
            if is_donated { _ = io.donated.insert(name, tensor) } else { _ = io.inputs.insert(name, tensor) }
        }
        let outputs = session.run(program, io).map_err(describe)?;
        let arrays = names.iter().map(|name| outputs.array(name).map_err(describe));
        all.push(arrays.collect::<Result<Vec<_>, _>>()?);
    }
    let last = all.pop().unwrap_or_default();
    match all.first().into_iter().flatten().zip(&last).find_map(|(a, b)| other_bits(a, b)) {
        Some(difference) => Err(format!("the second run: {difference}")),
        None => Ok(last),
    }
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

/// A graph from one input `x` of a shape to one output `y`.
fn simple(dtype: Dtype, shape: &[usize], body: impl Fn(&Tensor) -> Tensor) -> Graph {
    let builder = Builder::new("ranks");
    let x = builder.tape().input("x", dtype, shape.iter().copied());
    builder.tape().output("y", &body(&x));
    builder.finish().expect("a sound graph")
}

/// Each rank's own `x`.
fn xs(dtype: Dtype, shape: &[usize], ranks: usize) -> Vec<Values<f32>> {
    (0..ranks).map(|rank| Values::from([("x".to_owned(), drawn(dtype, shape, rank))])).collect()
}

/// What a graph of ranks is drawn from.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    ranks: usize,
    symbolic: [bool; 2], // the world's size, a length
    length: usize,
    steps: Vec<[usize; 4]>,
    outputs: usize,
    smooth: bool,
}

const KINDS: usize = 19;

pub(crate) fn recipe(smooth: bool, steps: usize) -> impl Strategy<Value = Recipe> {
    let step = [0..KINDS, 0..40_usize, 0..40_usize, 0..40_usize];
    (1..=4_usize, [any::<bool>(), any::<bool>()], 1..=5_usize, vec(step, 1..steps), 0..40_usize).prop_map(
        move |(ranks, symbolic, length, steps, outputs)| Recipe {
            ranks,
            symbolic: if smooth { [symbolic[0], false] } else { symbolic },
            length,
            steps,
            outputs,
            smooth,
        },
    )
}

/// A graph of ranks in the making.
struct Maker {
    builder: Builder,
    group: Group,
    bound: BTreeMap<String, i64>,
    inputs: Vec<(String, Tensor)>,
    pool: Vec<Tensor>,
    messages: Vec<(Tensor, Tensor)>, // a token and what is received
    smooth: bool,
}

impl Maker {
    fn new(recipe: &Recipe) -> Self {
        let builder = Builder::new("drawn");
        let mut bound = BTreeMap::new();
        let mut size = |name: &str, value: usize, is_symbol: bool, most: i64| {
            bound.insert(name.to_owned(), value as i64);
            let symbol = || builder.tape().symbol(name, Facts::range(1, most));
            if is_symbol { symbol() } else { Dim::from(value) }
        };
        let (world, length) =
            (size("W", recipe.ranks, recipe.symbolic[0], 4), size("T", recipe.length, recipe.symbolic[1], 9));
        let mut maker = Self {
            group: Group::new(AXIS, &world),
            builder,
            bound,
            inputs: vec![],
            pool: vec![],
            messages: vec![],
            smooth: recipe.smooth,
        };
        let (two, three) = (Dim::fixed(2), Dim::fixed(3));
        let wide = &world * &two;
        maker.input(Dtype::F32, &[wide.clone(), length.clone()]);
        maker.input(Dtype::F32, &[length.clone(), wide.clone()]);
        maker.input(Dtype::F32, &[two.clone(), three.clone()]);
        maker.pool.push(maker.pool[2].all_reduce(&maker.group)); // which says how many ranks there are
        if !recipe.smooth {
            maker.input(Dtype::F16, &[world.clone(), two.clone(), world.clone()]);
            maker.input(Dtype::Bf16, std::slice::from_ref(&wide));
            maker.input(Dtype::I32, &[&world * &length]);
            maker.input(Dtype::U8, &[two, length]);
            maker.input(Dtype::F32, &[Dim::fixed(0), wide]);
            maker.input(Dtype::F32, &[]);
        }
        maker
    }

    fn input(&mut self, dtype: Dtype, shape: &[Dim]) {
        let name = format!("x{}", self.inputs.len());
        let input = self.builder.tape().input(&name, dtype, shape);
        self.inputs.push((name, input.clone()));
        self.pool.push(input);
    }

    fn number(&self, dim: &Dim) -> usize {
        let bound = self.bound.iter().map(|(name, size)| (name.as_str().into(), *size)).collect();
        dim.value(&bound).expect("every symbol is bound") as usize
    }

    fn numbers(&self, shape: &[Dim]) -> Vec<usize> {
        shape.iter().map(|dim| self.number(dim)).collect()
    }

    fn pick(&self, choice: usize, fits: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
        let found: Vec<&Tensor> = self.pool.iter().filter(|tensor| fits(tensor)).collect();
        found.get(choice % found.len().max(1)).map(|tensor| (*tensor).clone())
    }

    fn ranked(&self, choice: usize) -> Option<(Tensor, usize)> {
        let x = self.pick(choice, |x| x.ty().rank() > 0)?;
        let dim = choice / 3 % x.ty().rank();
        Some((x, dim))
    }

    fn adds(&self, choice: usize) -> Option<Tensor> {
        self.pick(choice, |x| x.ty().dtype != Dtype::U8)
    }

    fn step(&mut self, [kind, a, b, c]: [usize; 4]) -> Option<Tensor> {
        let group = self.group.clone();
        Some(match kind {
            0..=2 => {
                let x = self.adds(a)?;
                let y = self.pick(b, |y| y.ty() == x.ty())?;
                match (kind, c % 2) {
                    (0, _) => &x + &y,
                    (1, _) => &x * &y,
                    (_, 0) if !self.smooth => x.max(&y),
                    _ => &x - &y,
                }
            }
            3 if self.smooth => self.pick(a, |_| true)?.tanh(),
            3 => -&self.adds(a)?,
            4 => {
                let x = self.pick(a, |x| x.ty().rank() > 1)?;
                let mut order: Vec<usize> = (0..x.ty().rank()).collect();
                order.rotate_left(1 + b % (x.ty().rank() - 1));
                x.transpose(&order)
            }
            5 => {
                let x = self.pick(a, |_| true)?;
                x.reshape([reference::graph::product(x.shape())])
            }
            6 => {
                let (x, dim) = self.ranked(a)?;
                let size = x.dim(dim).as_fixed().filter(|size| *size > 1)?;
                x.slice(dim, b as i64 % 2, size - c as i64 % 2 * (size - 2).min(1))
            }
            7 => {
                let (x, dim) = self.ranked(a)?;
                self.builder.tape().concat(&[&x, &x], dim)
            }
            8 if self.smooth => {
                let x = self.pick(a, |x| x.ty().rank() == 2)?;
                let y = self.pick(b, |y| y.ty().rank() == 2 && y.dim(0) == x.dim(1))?;
                x.matmul(&y)
            }
            8 => {
                self.pick(a, |x| x.ty().dtype.is_float())?.cast([Dtype::F16, Dtype::Bf16, Dtype::F32][b % 3])
            }
            9..=11 => {
                let (x, dim) = self.ranked(a)?;
                x.all_gather(dim, &group)
            }
            12..=14 => {
                let x = self.pick(a, |x| x.ty().rank() > 0 && x.ty().dtype != Dtype::U8)?;
                let divides = |dim: &usize| x.dim(*dim).divided_by(&group.size).is_some();
                let dims: Vec<usize> = (0..x.ty().rank()).filter(divides).collect();
                x.reduce_scatter(*dims.get(b % dims.len().max(1))?, &group)
            }
            15 => self.adds(a)?.all_reduce(&group),
            16 => {
                let by = b as i64 % 5 - 2;
                self.pick(a, |_| true)?.send(by, &group).receive(-by, &group)
            }
            17 if !self.smooth => {
                // What is sent and given out as a token, and received into something else of its type.
                let x = self.pick(a, |_| true)?;
                let other = self.pick(b, |y| y.ty() == x.ty())?;
                let (token, got) = (x.send(1, &group), other.receive(-1, &group));
                self.messages.push((token, got.clone()));
                got
            }
            17 => {
                let (x, dim) = self.ranked(a)?;
                x.sum(dim)
            }
            _ => {
                let x = self.pick(a, |x| x.ty().rank() < 3)?;
                let one = [Dim::fixed(1)].into_iter().chain(x.shape().iter().cloned());
                let two: Vec<Dim> = [Dim::fixed(2)].into_iter().chain(x.shape().iter().cloned()).collect();
                x.reshape(one.collect::<Vec<_>>()).spread(&two)
            }
        })
    }

    /// Each rank's values for all inputs.
    fn values(&self, ranks: usize) -> Vec<Values<f32>> {
        let value = |rank: usize, (i, (name, input)): (usize, &(String, Tensor))| {
            (name.clone(), drawn(input.ty().dtype, &self.numbers(input.shape()), 10 * rank + i))
        };
        (0..ranks).map(|rank| self.inputs.iter().enumerate().map(|one| value(rank, one)).collect()).collect()
    }
}

impl Recipe {
    fn made(&self) -> Maker {
        let mut maker = Maker::new(self);
        for step in &self.steps {
            let scope = format!("layers.{}", step[3] % 3);
            let tape = maker.builder.tape().clone();
            let made =
                if step[3] % 4 == 0 { maker.step(*step) } else { tape.within(&scope, || maker.step(*step)) };
            let made = made.filter(|made| maker.numbers(made.shape()).iter().product::<usize>() <= 600);
            maker.pool.extend(made);
        }
        maker
    }

    /// A graph and its values. What is an output has a name of its own, or that of an input of its type.
    pub(crate) fn follow(&self) -> (Graph, Vec<Values<f32>>) {
        let maker = self.made();
        let values = maker.values(self.ranks);
        let tape = maker.builder.tape();
        let mut free: Vec<&(String, Tensor)> = maker.inputs.iter().collect();
        let chosen = maker.pool.iter().enumerate().filter(|(i, _)| (i + self.outputs) % 3 > 0);
        for (i, tensor) in chosen {
            let named = free.iter().position(|(_, input)| i % 2 == 0 && input.ty() == tensor.ty());
            match named.map(|at| free.remove(at)) {
                Some((name, _)) => tape.output(name, tensor),
                None => tape.output(&format!("y{i}"), tensor),
            }
        }
        for (i, (token, got)) in maker.messages.iter().enumerate() {
            tape.output(&format!("token{i}"), token);
            tape.output(&format!("received{i}"), got);
        }
        (maker.builder.finish().expect("steps that fit"), values)
    }

    /// A graph of the gradients of what all ranks' losses come to together.
    fn differentiated(&self) -> (Graph, Vec<Values<f32>>) {
        let maker = self.made();
        let values = maker.values(self.ranks);
        let parts = maker.pool.iter().rev().take(3).map(|x| (&x.sin() * &x.tanh()).total());
        let loss = parts.reduce(|a, b| &a + &b).expect("inputs are there");
        let id = |tensor: &Tensor| maker.builder.id(tensor).expect("a node");
        let (loss, wrt): (Id, Vec<Id>) = (id(&loss), maker.inputs.iter().map(|(_, x)| id(x)).collect());
        let mut graph = maker.builder.finish().expect("steps that fit");
        let gradients = differentiate(&mut graph, loss, &wrt).expect("rules");
        graph.output("loss", loss);
        gradients.iter().enumerate().for_each(|(i, id)| graph.output(format!("gradient{i}"), *id));
        (graph, values)
    }
}

const LEVELS: [Level; 3] = [Level::O0, Level::O1, Level::O2];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Collectives among operations on single elements and views, with lengths as they are.
    #[test]
    fn ranks_equal_their_meaning_to_the_bit(recipe in recipe(false, 14)) {
        let (graph, values) = recipe.follow();
        for level in LEVELS {
            let mut world = World::new(&graph, &values, level);
            world.settings.exact = true;
            world.is_what_it_means().map_err(|error| TestCaseError::fail(format!("{level:?}: {error}\n{graph}")))?;
        }
    }

    /// The same, with so many operations in flight while others compute.
    #[test]
    fn ranks_that_compute_while_they_wait_have_the_same_bits(recipe in recipe(false, 14), in_flight in 1..4_usize) {
        let (graph, values) = recipe.follow();
        for donate in [false, true] {
            let mut world = World::new(&graph, &values, Level::O2);
            world.settings.options = Some(Options { in_flight, ..Level::O2.options() });
            (world.settings.exact, world.settings.donate) = (true, donate);
            world.is_what_it_means().map_err(|error| TestCaseError::fail(format!("{error}\n{graph}")))?;
        }
    }

    /// The same, padded to buckets: no padding of any rank is seen on any other.
    #[test]
    fn padded_ranks_equal_their_meaning_to_the_bit(mut recipe in recipe(false, 12)) {
        recipe.symbolic[1] = true;
        let (graph, values) = recipe.follow();
        World::new(&graph, &values, Level::O2).is_what_it_means()
            .map_err(|error| TestCaseError::fail(format!("{error}\n{graph}")))?;
    }

    /// The same, where outputs end in the inputs of their names.
    #[test]
    fn donated_ranks_equal_their_meaning_to_the_bit(recipe in recipe(false, 14)) {
        let (graph, values) = recipe.follow();
        for level in LEVELS {
            let mut world = World::new(&graph, &values, level);
            (world.settings.exact, world.settings.donate) = (true, true);
            world.is_what_it_means().map_err(|error| TestCaseError::fail(format!("{level:?}: {error}\n{graph}")))?;
        }
    }

    /// Gradients through collectives, products among them, also where every layer is computed again.
    #[test]
    fn gradients_of_ranks_are_as_near_the_truth_as_rounding_allows(recipe in recipe(true, 10), again: bool) {
        let (graph, values) = recipe.differentiated();
        let wide: Vec<Values<f64>> = values.iter()
            .map(|values| values.iter().map(|(name, value)| (name.clone(), value.widened())).collect())
            .collect();
        let naive = interpret_ranks(&[&graph], &line(recipe.ranks), &values).expect("runs");
        let truth = interpret_ranks(&[&graph], &line(recipe.ranks), &wide).expect("runs");
        for level in LEVELS {
            let mut world = World::new(&graph, &values, level);
            world.computes_again = again && level == Level::O2;
            for (rank, got) in world.run().into_iter().enumerate() {
                let fail = |error| TestCaseError::fail(format!("{level:?}, rank {rank}: {error}\n{graph}"));
                let got = got.map_err(fail)?;
                for (i, (name, id)) in graph.outputs().iter().enumerate() {
                    let difference =
                        difference(&got[i], &naive[rank][i], &truth[rank][i], rounding(&graph, *id));
                    prop_assert!(difference.is_none(), "{level:?}, rank {rank}, {name}: {difference:?}\n{graph}");
                }
            }
        }
    }
}

/// Graphs that were drawn once and went wrong: a pass that stored a size beside a row was cut in the middle of the row.
#[test]
fn a_row_beside_which_one_number_is_stored_stays_whole() {
    let steps = [[15, 6, 0, 0], [9, 9, 0, 0], [0, 0, 0, 0], [0, 21, 0, 0], [7, 13, 0, 0], [12, 37, 0, 0]];
    let symbolic = [true, true];
    let recipe = Recipe { ranks: 2, symbolic, length: 2, steps: steps.to_vec(), outputs: 29, smooth: false };
    let (graph, values) = recipe.follow();
    World::new(&graph, &values, Level::O2).is_what_it_means().expect("means it");
}

/// A plan for some ranks.
fn planned(graph: &Graph) -> Compiled {
    compile(&Solution, graph, &BTreeMap::new(), Level::O2.options()).expect("compiles")
}

#[test]
fn a_collective_is_two_steps_of_a_plan() {
    let gather = simple(Dtype::F32, &[2, 3], |x| &x.all_gather(0, &group(2)) * 2.0);
    let text = "plan ranks (3 steps, arena of 64 bytes)
  0: start 0: all-gather of 6 f32 in group 1, f32[2, 3] along dimension 0 over \"fsdp\": input 0[1] -> @0[1]
  1: wait 0
  2: pass over [4, 3]: @0[3, 1] -> @0[3, 1]\n";
    let compiled = planned(&gather);
    assert_eq!(compiled.plan().to_string(), text);
    let [axis] = compiled.axes() else { panic!("one axis: {:?}", compiled.axes()) };
    assert_eq!((axis.name.as_str(), axis.size), (AXIS, 2));
    // Along another dimension than the first the shard is written transposed, and the result is read so.
    let along = simple(Dtype::F32, &[2, 3], |x| &x.all_gather(1, &group(2)) * 2.0);
    let text = "plan ranks (4 steps, arena of 128 bytes)
  0: pass over [3, 2]: input 0[1, 3] -> @64[2, 1]
  1: start 0: all-gather of 6 f32 in group 1, f32[2, 3] along dimension 1 over \"fsdp\": @64[1] -> @0[1]
  2: wait 0
  3: pass over [2, 6]: @0[1, 2] -> @64[6, 1]\n";
    assert_eq!(planned(&along).plan().to_string(), text);
}

#[test]
fn a_message_is_waited_for_when_all_else_is_done() {
    let ring = simple(Dtype::F32, &[4], |x| &(x * 3.0).send(1, &group(3)).receive(-1, &group(3)) + x);
    let steps: Vec<String> = planned(&ring).plan().steps.iter().map(Step::name).collect();
    let text =
        ["pass", "send of 4 f32 to rank 1", "receive of 4 f32 from rank 2", "wait 1", "pass", "wait 0"];
    assert_eq!(steps, text);
}

/// What a graph computes.
type Body<'a> = Box<dyn Fn(&Tensor) -> Tensor + 'a>;

/// What ranks do in ways that a pass may get wrong: the same twice, both orders, views, outputs, nothing at all.
#[test]
fn collectives_twice_exchanged_viewed_empty_and_handed_out_are_what_they_mean() {
    let g = &group(3);
    let bodies: Vec<(&str, Body)> = vec![
        ("twice", Box::new(|x| &x.all_reduce(g) * &x.all_reduce(g))),
        ("of views", Box::new(|x| x.t().reshape([12]).slice(0, 3, 9).all_gather(0, g))),
        (
            "of a broadcast",
            Box::new(|x| x.slice(0, 0, 1).spread(&[4, 3].map(Dim::fixed)).reduce_scatter(1, g)),
        ),
        ("of a constant", Box::new(|x| &x.like(2.0).all_reduce(g) * x)),
        ("of itself", Box::new(|x| x.all_reduce(g).all_reduce(g).all_gather(1, g).reduce_scatter(1, g))),
        ("empty", Box::new(|x| x.slice(0, 2, 2).all_gather(0, g).all_gather(1, g).reduce_scatter(0, g))),
        ("read late", Box::new(|x| &(&x.all_reduce(g).max(x) * &x.all_gather(0, g).slice(0, 4, 8)) + x)),
        ("a number", Box::new(|x| x.slice(0, 0, 1).slice(1, 0, 1).reshape([0_i64; 0]).all_reduce(g))),
        ("rounds", Box::new(|x| x.cast(Dtype::Bf16).all_reduce(g).cast(Dtype::F16).all_gather(1, g))),
        (
            "two messages",
            Box::new(|x| {
                let (a, b) = (x.send(1, g), (x * 2.0).send(1, g));
                &a.receive(-1, g) - &b.receive(-1, g)
            }),
        ),
    ];
    for (name, body) in &bodies {
        let graph = simple(Dtype::F32, &[4, 3], body);
        for level in LEVELS {
            let world = World::new(&graph, &xs(Dtype::F32, &[4, 3], 3), level);
            world.is_what_it_means().unwrap_or_else(|error| panic!("{name}, {level:?}: {error}"));
        }
    }
}

/// Two messages sent, and two receives of one text: neither pair is one.
#[test]
fn receives_that_look_alike_are_two_messages() {
    let g = &group(2);
    let builder = Builder::new("alike");
    let x = builder.tape().input("x", Dtype::F32, [4]);
    let sent = [x.send(1, g), (&x * 2.0).send(1, g), x.send(1, g)];
    let got = [x.receive(1, g), x.receive(1, g), x.receive(1, g)];
    sent.iter().enumerate().for_each(|(i, token)| builder.tape().output(&format!("sent{i}"), token));
    got.iter().enumerate().for_each(|(i, y)| builder.tape().output(&format!("got{i}"), y));
    let graph = builder.finish().expect("sound");
    for level in LEVELS {
        World::new(&graph, &xs(Dtype::F32, &[4], 2), level).is_what_it_means().expect("means it");
    }
}

/// Two stages of a pipeline along one axis, each two ranks that add their gradients along the other.
#[test]
fn stages_of_a_pipeline_on_a_mesh_are_graphs_of_their_own() {
    let (pp, dp) = (Group::new("pp", 2), Group::new("dp", 2));
    let stage = |name: &str, body: &dyn Fn(&Tensor, &Tensor) -> Vec<Tensor>| {
        let builder = Builder::new(name);
        let [x, w] = ["x", "w"].map(|name| builder.tape().input(name, Dtype::F32, [4]));
        let outputs = body(&x, &w);
        outputs.iter().enumerate().for_each(|(i, y)| builder.tape().output(&format!("y{i}"), y));
        builder.finish().expect("sound")
    };
    let first = stage("first", &|x, w| {
        let token = (x * w).send(1, &pp);
        let back = x.receive(1, &pp);
        vec![token, (&back * x).all_reduce(&dp)]
    });
    let second = stage("second", &|x, w| {
        let y = x.receive(-1, &pp);
        let token = (&y * w).send(-1, &pp);
        vec![(&y * &y).all_reduce(&dp), token]
    });
    let value = |rank: usize, name: usize| drawn(Dtype::F32, &[4], 2 * rank + name);
    let values =
        (0..4).map(|rank| Values::from([("x".into(), value(rank, 0)), ("w".into(), value(rank, 1))]));
    let world = World {
        mesh: Mesh::new([("pp", 2), ("dp", 2)]).expect("a mesh"),
        graphs: vec![first.clone(), first, second.clone(), second],
        values: values.collect(),
        settings: at(Level::O2),
        computes_again: false,
    };
    world.is_what_it_means().expect("means it");
}

/// One graph for any world, in worlds that its facts allow.
#[test]
fn a_worlds_size_may_be_a_symbol() {
    let builder = Builder::new("any world");
    let size = builder.tape().symbol("W", Facts::range(1, 3));
    let g = Group::new(AXIS, &size);
    let x = builder.tape().input("x", Dtype::F32, [2, 3]);
    let y = x.all_gather(1, &g);
    builder.tape().output("whole", &y);
    builder.tape().output("y", &y.reduce_scatter(1, &g).all_gather(0, &g));
    let graph = builder.finish().expect("sound");
    for ranks in 1..=4 {
        let world = World::new(&graph, &xs(Dtype::F32, &[2, 3], ranks), Level::O2);
        if ranks < 4 {
            world.is_what_it_means().expect("means it");
        } else {
            for outcome in world.run() {
                assert_eq!(outcome, Err("W: expected 1..=3, found 4".to_owned()));
            }
        }
    }
}

/// The error that every rank gets, the same.
fn describe(outcomes: Vec<Outcome>) -> String {
    let errors: Vec<String> =
        outcomes.into_iter().map(|outcome| outcome.expect_err("no rank runs")).collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors[0].clone()
}

/// Two ranks whose graphs differ in one collective are refused when they prepare, with the ranks and the operation.
#[test]
fn ranks_whose_graphs_differ_are_refused_on_every_rank() {
    let g = &group(2);
    let of = |body: &dyn Fn(&Tensor) -> Tensor| simple(Dtype::F32, &[2, 2], body);
    let pairs: Vec<(Graph, Graph, &str)> = vec![
        (
            of(&|x| x.all_reduce(g)),
            of(&|x| x.all_gather(0, g)),
            "rank 0 has `all-reduce of 4 f32, f32[2, 2] over \"fsdp\"`, rank 1 has `all-gather of 4 f32",
        ),
        (
            of(&|x| x.all_gather(0, g)),
            of(&|x| x.all_gather(1, g)),
            "f32[2, 2] along dimension 0 over \"fsdp\"`, rank 1 has `all-gather of 4 f32, f32[2, 2] along dimension 1",
        ),
        (
            of(&|x| x.all_gather(0, g)),
            of(&|x| x.slice(0, 0, 1).all_gather(0, g)),
            "rank 1 has `all-gather of 2 f32, f32[1, 2]",
        ),
        (
            of(&|x| x.all_gather(0, g)),
            of(&|x| x.reshape([4, 1]).all_gather(0, g)),
            "rank 1 has `all-gather of 4 f32, f32[4, 1]",
        ),
        (
            of(&|x| x.all_reduce(g)),
            of(&|x| x.cast(Dtype::F16).all_reduce(g).cast(Dtype::F32)),
            "rank 1 has `all-reduce of 4 f16",
        ),
        (
            of(&|x| x.all_reduce(g).all_gather(0, g)),
            of(&|x| x.all_gather(0, g).all_reduce(g)),
            "operation 1 of [0, 1]",
        ),
        (
            of(&|x| x.all_reduce(g)),
            of(&|x| x.all_reduce(g).all_reduce(g)),
            "operation 2 of [0, 1]: rank 0 has nothing there, rank 1 has `all-reduce of 4 f32",
        ),
        (
            of(&|x| x.send(1, g).receive(1, g)),
            of(&|x| x.reshape([4]).send(1, g).receive(1, g)),
            "operation 1 of 0 -> 1 of [0, 1]: rank 0 has `4 f32, f32[2, 2] over \"fsdp\"`, rank 1 has",
        ),
    ];
    for (first, second, says) in pairs {
        for graphs in [[&first, &second], [&second, &first]] {
            let world = World::new(graphs[0], &xs(Dtype::F32, &[2, 2], 2), Level::O2);
            let world = World { graphs: graphs.map(Clone::clone).to_vec(), ..world };
            let error = describe(world.run());
            assert!(error.starts_with("ranks disagree at operation"), "{error}");
            let is_first = graphs[0] == &first;
            assert!(!is_first || error.contains(says), "{error}\n{says}");
            assert!(world.meaning().is_err(), "{error}");
        }
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_refused() {
    let g = &group(2);
    let circle = simple(Dtype::F32, &[4], |x| x.receive(1, g).send(1, g));
    let error = describe(World::new(&circle, &xs(Dtype::F32, &[4], 2), Level::O1).run());
    assert!(error.starts_with("ranks would wait for each other: rank 0 for"), "{error}");
}

/// Groups that are not there, or not as the graph says.
#[test]
fn a_group_that_is_missing_or_of_another_size_is_named() {
    let graph = simple(Dtype::F32, &[4], |x| x.all_reduce(&Group::new("tp", 3)));
    let values = xs(Dtype::F32, &[4], 1).remove(0);
    let alone = rank_of(&graph, &values, &at(Level::O2), Groups::default(), None);
    assert_eq!(
        alone,
        Err("expected a group of 3 ranks along \"tp\", found a session without groups".to_owned())
    );
    let world = |mesh: Mesh| {
        let ranks = mesh.ranks();
        World { mesh, ..World::new(&graph, &xs(Dtype::F32, &[4], ranks), Level::O2) }.run()
    };
    let missing = "expected a group of 3 ranks along \"tp\", found groups along \"dp\" (2), \"fsdp\" (1)";
    let refused = |mesh: Mesh, says: &str| {
        for outcome in world(mesh) {
            let error = outcome.expect_err("no rank runs"); // its own, or that of the rank that was first
            assert!(error.ends_with(says), "{error}");
        }
    };
    refused(Mesh::new([("dp", 2), ("fsdp", 1)]).expect("a mesh"), missing);
    refused(Mesh::line("tp", 2).expect("ranks"), "expected 3 ranks along \"tp\", found 2");
    let other = launch(2, GENEROUS, |comm| {
        let error = |error: compiler::groups::Error| Err(error.to_string());
        Groups::mesh(&line(3), comm).map(drop).or_else(error)
    });
    assert_eq!(other[0], Err("expected a world of the mesh's 3 ranks, found one of 2".to_owned()));
    let shared = launch(1, GENEROUS, |comm| {
        let comm: Arc<dyn Comm> = comm;
        let axes = ["dp", "tp"].map(|axis| (axis.to_owned(), Arc::clone(&comm)));
        Groups::new(Arc::clone(&comm), axes.into()).map(drop).map_err(|error| error.to_string())
    });
    assert_eq!(
        shared[0],
        Err("expected a group for each axis, found one for both \"dp\" and \"tp\"".to_owned())
    );
}

/// Lengths that are one bucket and not one length: what is padding on one rank is not on the other.
#[test]
fn ranks_of_other_lengths_are_refused_where_they_meet() {
    let builder = Builder::new("lengths");
    let length = builder.tape().symbol("T", Facts::range(1, 64));
    builder.tape().output("y", &builder.tape().input("x", Dtype::F32, [length]).all_reduce(&group(2)));
    let graph = builder.finish().expect("sound");
    let values = |lengths: [usize; 2]| {
        lengths.map(|len| Values::from([("x".to_owned(), drawn(Dtype::F32, &[len], len))])).to_vec()
    };
    World::new(&graph, &values([29, 29]), Level::O2).is_what_it_means().expect("one length");
    let error = describe(World::new(&graph, &values([29, 31]), Level::O2).run());
    assert_eq!(error, "ranks disagree at line 1: rank 0 has `T = 29`, rank 1 has `T = 31`");
}

/// When a rank has ended its run.
const ENDED: usize = usize::MAX;

/// Two ranks, each of which is called with its number after each step of its plan, and when it has ended.
fn failing(
    graph: &Graph,
    limit: Duration,
    at_step: impl Fn(usize, usize) + Send + Sync + 'static,
) -> Vec<Outcome> {
    let (graph, values) = (graph.clone(), xs(Dtype::F32, &[4], 2));
    launch(2, limit, move |comm| {
        let rank = comm.rank();
        let describe = |error: compiler::session::Error| error.to_string();
        let groups = Groups::line(AXIS, comm);
        let mut session =
            Session::new(&Solution, &*CPU, &nf4::DEQUANTIZER, at(Level::O2)).with_groups(groups);
        let program = session.load(&graph).map_err(describe)?;
        let inputs: BTreeMap<String, DeviceTensor> = upload(session.device(), &values[rank]);
        let mut watch = |step: usize, _: Duration| at_step(rank, step);
        let outputs = session.watched(program, &inputs, Some(&mut watch));
        let result = outputs.and_then(|outputs| Ok(vec![outputs.array("y")?])).map_err(describe);
        at_step(rank, ENDED);
        result
    })
}

#[test]
fn a_rank_that_fails_between_start_and_wait_ends_the_others() {
    let graph = simple(Dtype::F32, &[4], |x| &(x * 2.0).all_reduce(&group(2)).all_gather(0, &group(2)) * 2.0);
    let starts = planned(&graph).plan().steps.iter().position(|step| matches!(step, Step::Start(_)));
    assert_eq!(starts, Some(1));
    let panics = |rank: usize, step: usize| assert!((rank, step) != (1, 1), "a bug");
    assert_eq!(describe(failing(&graph, GENEROUS, panics)), "rank 1 panicked: a bug");
    // Rank 1 is stuck before the second operation until rank 0 has waited for it in vain.
    let (done, waits) = mpsc::channel::<()>();
    let (done, waits) = (Mutex::new(Some(done)), Mutex::new(waits));
    let stuck = move |rank: usize, step: usize| {
        if (rank, step) == (1, 2) {
            _ = waits.lock().expect("one rank").recv_timeout(GENEROUS);
        }
        if (rank, step) == (0, ENDED) {
            drop(done.lock().expect("one rank").take());
        }
    };
    let error = describe(failing(&graph, SHORT, stuck));
    assert!(error.contains("waited 100ms for ranks"), "{error}");
}

#[test]
fn a_rank_that_cannot_run_or_leaves_tells_the_others() {
    let builder = Builder::new("two inputs");
    let [x, y] = ["x", "y"].map(|name| builder.tape().input(name, Dtype::F32, [4]));
    builder.tape().output("z", &(&x + &y).all_reduce(&group(2)));
    let graph = builder.finish().expect("sound");
    let both = |rank: usize| {
        let value = |name: &str, seed| (name.to_owned(), drawn(Dtype::F32, &[4], seed));
        Values::from([value("x", rank), value("y", rank + 7)])
    };
    let mut values = vec![both(0), both(1)];
    values[1].remove("y");
    let outcomes = World::new(&graph, &values, Level::O2).run();
    assert_eq!(outcomes[0], Err("rank 1 aborted: missing input `y`".to_owned()));
    assert_eq!(outcomes[1], Err("missing input `y`".to_owned()));
    let left = launch(2, GENEROUS, move |comm| {
        let rank = comm.rank();
        let groups = Groups::line(AXIS, comm);
        if rank == 1 { Ok(vec![]) } else { rank_of(&graph, &both(rank), &at(Level::O2), groups, None) }
    });
    let error = left[0].clone().expect_err("rank 1 left");
    assert!(error.starts_with("rank 1 left without"), "{error}");
}

/// Two layers whose weights lie in shards along `fsdp`, each gathered where it is read: the model knows nothing of it.
fn mlp(rows: usize, shards: usize) -> Graph {
    let g = Group::new(AXIS, shards);
    let builder = Builder::new("mlp");
    let tape = builder.tape();
    let x = tape.input("x", Dtype::F32, [rows, 8]);
    let [up, down] = [("up", [16 / shards, 8]), ("down", [8 / shards, 16])]
        .map(|(name, shape)| tape.input(name, Dtype::F32, shape));
    let layer =
        |name: &str, x: &Tensor, shard: &Tensor| tape.within(name, || x.matmul(&shard.all_gather(0, &g).t()));
    let h = layer("layers.0", &x, &up);
    let y = layer("layers.1", &h.max(&h.like(0.0)), &down);
    let (loss, wrt) = ((&y * &y).total(), [&up, &down].map(|w| builder.id(w).expect("a node")));
    let all = loss.all_reduce(&g);
    let [loss, all] = [&loss, &all].map(|loss| builder.id(loss).expect("a node"));
    let mut graph = builder.finish().expect("sound");
    let gradients = differentiate(&mut graph, loss, &wrt).expect("rules");
    graph.output("loss", all);
    graph.output("up", gradients[0]);
    graph.output("down", gradients[1]);
    graph
}

/// The part of a rank along the first dimension.
fn shard(whole: &Array<f32>, rank: usize, ranks: usize) -> Array<f32> {
    let mut shape = whole.shape.clone();
    shape[0] /= ranks;
    let count = shape.iter().product::<usize>();
    let part = &whole.as_floats()[rank * count..][..count];
    Array::floats(Dtype::F32, &shape, part.iter().copied().map(f64::from))
}

fn whole(shape: &[usize], seed: usize, step: f64) -> Array<f32> {
    let count: usize = shape.iter().product();
    Array::floats(Dtype::F32, shape, (0..count).map(|i| f64::from((i * 7 + seed) as i32 % 9 - 4) * step))
}

/// Weights in shards, a part of the batch on each rank: the loss and the gradients are those of one rank with all of
/// both. To the bit where sums are exact, whatever their order; else as near as rounding allows.
#[test]
fn a_fully_sharded_step_is_that_of_one_rank() {
    let rows = 8;
    for (step, is_exact) in [(1.0, true), (0.137, false)] {
        let all = [
            ("x", whole(&[rows, 8], 1, step)),
            ("up", whole(&[16, 8], 2, step)),
            ("down", whole(&[8, 16], 3, step)),
        ];
        let given = |rank: usize, ranks: usize| -> Values<f32> {
            all.iter().map(|(name, value)| ((*name).to_owned(), shard(value, rank, ranks))).collect()
        };
        let one = mlp(rows, 1);
        let naive = interpret(&one, &given(0, 1)).expect("runs");
        let wide = given(0, 1).into_iter().map(|(name, value)| (name, value.widened())).collect();
        let truth = interpret::<f64>(&one, &wide).expect("runs");
        for ranks in [1, 2, 4] {
            let graph = mlp(rows / ranks, ranks);
            let values: Vec<_> = (0..ranks).map(|rank| given(rank, ranks)).collect();
            for level in LEVELS {
                let outcomes = World::new(&graph, &values, level).run();
                for (rank, outcome) in outcomes.into_iter().enumerate() {
                    let got = outcome.unwrap_or_else(|error| panic!("{ranks} ranks, {level:?}: {error}"));
                    for (i, got) in got.iter().enumerate() {
                        let part = |naive: &Array<f32>| {
                            if i == 0 { naive.clone() } else { shard(naive, rank, ranks) }
                        };
                        let (naive, truth) = (part(&naive[i]), part_of(&truth[i], i, rank, ranks));
                        let wrong = if is_exact {
                            other_bits(&naive, got)
                        } else {
                            difference(got, &naive, &truth, 0.0)
                        };
                        assert_eq!(wrong, None, "{ranks} ranks, rank {rank}, {level:?}, output {i}");
                    }
                }
            }
            let steps: Vec<String> = planned(&graph).plan().steps.iter().map(Step::name).collect();
            let count = |name: &str| steps.iter().filter(|step| step.starts_with(name)).count();
            let counted = ["all-gather", "reduce-scatter", "all-reduce", "wait"].map(count);
            assert_eq!(counted, if ranks == 1 { [0; 4] } else { [2, 2, 1, 5] }, "{steps:?}");
        }
    }
}

/// An output of the truth, or the rank's part of it.
fn part_of(truth: &Array<f64>, output: usize, rank: usize, ranks: usize) -> Array<f64> {
    if output == 0 {
        return truth.clone();
    }
    let mut shape = truth.shape.clone();
    shape[0] /= ranks;
    let (wide, count) = (truth.wide(), shape.iter().product::<usize>());
    Array::floats(truth.dtype, &shape, wide[rank * count..][..count].iter().copied())
}

/// With one operation in flight the next weight is gathered while a layer computes, with the same bits.
#[test]
fn a_weight_is_gathered_while_another_layer_computes() {
    let graph = mlp(4, 2);
    let steps = |in_flight: usize| -> Vec<String> {
        let options = Options { in_flight, ..Level::O2.options() };
        let compiled = compile(&Solution, &graph, &BTreeMap::new(), options).expect("compiles");
        compiled.plan().steps.iter().map(Step::name).collect()
    };
    let place = |steps: &[String], name: &str| steps.iter().position(|step| step == name).expect("a step");
    let (first, wait) = ("product 4x16x8", "wait 1"); // the first layer; the second weight
    let second = "all-gather of 64 f32";
    let later = |steps: &[String]| steps.iter().rposition(|step| step == second).expect("two weights");
    let apart = steps(0);
    assert!(later(&apart) > place(&apart, first), "{apart:?}");
    assert_eq!(later(&apart) + 1, place(&apart, wait), "{apart:?}");
    let ahead = steps(1);
    assert!(later(&ahead) < place(&ahead, first) && place(&ahead, first) < place(&ahead, wait), "{ahead:?}");
}

/// Two collectives that look alike are two: pruning that merges them is refused, and the solution does not.
#[test]
fn pruning_keeps_collectives_that_look_alike() {
    let g = &group(2);
    let two = simple(Dtype::F32, &[4], |x| &x.all_reduce(g) * &x.all_reduce(g));
    let one = simple(Dtype::F32, &[4], |x| {
        let sum = x.all_reduce(g);
        &sum * &sum
    });
    assert_eq!(kept(&two, &Solution.prune(&two).expect("prunes")), Ok(()));
    let sum = "all_reduce over \"fsdp\"";
    let need = "expected the collectives that outputs need to stay, in their order";
    assert_eq!(kept(&two, &one), Err(format!("{need}: [{sum}, {sum}], found [{sum}]")));
}
