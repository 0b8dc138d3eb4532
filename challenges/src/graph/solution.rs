//! (C) `graph`: compile QLoRA without a break.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use challenges::graph::Compile;
use compiler::front::capture::Capture;
use compiler::front::explain::Break;
use compiler::fuse::LONG;
use compiler::ir::arena::{Arena, Life, aligned_bytes};
use compiler::ir::code::{Code, element};
use compiler::ir::sized::Sized;
use kernels::plan::Choice;
use kernels::tile::{self, Op as Tile, Value};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{
    self, Array, Binary, Builder, Compare, Dtype, Error, Facts, Fault, Foreign, Graph, Host, Id, Known, Node,
    Op, Record, Tape, Tensor, Type, Unary, interpret,
};
use reference::philox;

/// The attempt.
pub struct Solution;

impl Compile for Solution {
    // ANCHOR: graph-step-1
    // why: the program runs once, and whoever stands behind its handles takes notes. Nothing is computed, unless the
    // program looks: so a shape may be a symbol, and a value may not be asked for.
    // step C.1: trace the program; keep the graph and the breaks
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        let recorder = Recorder { graph: Graph::new(name), values: examples.clone(), ..Recorder::default() };
        let recorder = Rc::new(RefCell::new(recorder));
        program(&Tape::new(recorder.clone()));
        let Recorder { graph, breaks, lines, error, .. } = recorder.take();
        error.map_or(Ok(()), Err)?;
        graph.check()?;
        Ok(Capture { graph, breaks, lines })
    }
    // ANCHOR_END: graph-step-1

    // ANCHOR: graph-step-2
    // why: one compilation must serve many lengths, and padding costs what it adds. With two sizes an octave at most a
    // third of the rows are padding, a seventh on average, and 4096 lengths need 20 compilations; the small sizes are
    // powers of two, because a batch of 5 should not become one of 32.
    // step C.2: choose the padded lengths (buckets) of a dynamic dimension
    fn buckets(&self, facts: Facts) -> Vec<i64> {
        let octaves = (0..62).map(|octave| 1_i64 << octave);
        let sizes = octaves.flat_map(|size| if size < 32 { vec![size] } else { vec![size, size / 2 * 3] });
        let multiple = facts.multiple.max(1);
        let up = |size: i64| (size + multiple - 1) / multiple * multiple;
        let largest = facts.max / multiple * multiple;
        let fitting = sizes.map(up).skip_while(|size| *size < facts.min).take_while(|size| *size < largest);
        let mut buckets: Vec<i64> = fitting.chain([largest]).collect();
        buckets.dedup();
        buckets
    }
    // ANCHOR_END: graph-step-2

    // ANCHOR: graph-step-3
    // why: differentiation writes a gradient for everything on its way; nobody reads those of frozen weights. What an
    // output needs is found backwards, and the graph is written anew without the rest. Because each node comes after
    // its inputs, a node that was seen before - same operation, same new inputs, same type - is found again.
    // step C.3: prune dead nodes, duplicates and no-ops
    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        let (live, mut seen) = (graph.live(), HashMap::<Vec<Id>, Vec<Id>>::new()); // inputs stay: callers give them
        let rewritten = graph.rewrite(|rewrite, id| {
            if !live.contains(&id) {
                return Ok(None);
            }
            let (node, inputs, to) = (rewrite.node(id), rewrite.inputs(id)?, rewrite.to());
            let same = |other: &&Id| to.node(**other).op.is(&node.op) && *to.ty(**other) == node.ty;
            let is_met = matches!(node.op, Op::Collective { .. }); // by another rank, as often as it is written
            let known = passes_on(to, node, &inputs);
            let known = known.or_else(|| seen.get(&inputs)?.iter().find(same).copied()).filter(|_| !is_met);
            if known.is_some() {
                return Ok(known);
            }
            let here = rewrite.copy(id)?;
            seen.entry(inputs).or_default().push(here);
            Ok(Some(here))
        })?;
        Ok(rewritten.graph)
    }
    // ANCHOR_END: graph-step-3

    // ANCHOR: graph-step-4
    // why: everything between two buffers becomes one pass, so the question is only what deserves a buffer. What is
    // used once never does: its reader computes it. What is used more often is computed as often, unless that costs
    // more than a store and a load: a few additions are free beside a load, an exponential or a second load is not.
    // step C.4: choose the nodes to materialise; the others are fused into their consumers
    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        let mut kept = BTreeSet::new();
        let mut cost: Vec<Cost> = Vec::new();
        for id in sized.graph.ids() {
            let node = sized.graph.node(id);
            let mut sum = Cost { ops: own_ops(sized, id), loads: 0 };
            let own = sum.ops > 0;
            for input in &node.inputs {
                let stored = must.contains(input) || kept.contains(input);
                let more = if stored { Cost { ops: 0, loads: 1 } } else { cost[input.0 as usize] };
                sum = Cost { ops: sum.ops + more.ops, loads: sum.loads + more.loads };
            }
            let often = || consumers(sized, id).len() > 1;
            let dear = sum.ops >= DEAR || sum.loads > 1;
            if !sized.is_view(id) && ((dear && own && often()) || sum.ops > LONG) {
                kept.insert(id);
            }
            cost.push(sum);
        }
        kept
    }
    // ANCHOR_END: graph-step-4

    // ANCHOR: graph-step-5
    // why: the largest buffers leave the fewest choices, so they are placed first; each goes to the lowest bytes that
    // are free for its whole life. That is not always the best arena, but for a training step it comes within a few
    // per cent of the bytes that are alive at once, which no arena can beat.
    // step C.5: plan the memory: an offset in one arena for each buffer, by its live range
    fn place(&self, lives: &[Option<Life>]) -> Arena {
        let numbered = lives.iter().enumerate();
        let mut order: Vec<(usize, &Life)> =
            numbered.filter_map(|(i, life)| Some((i, life.as_ref()?))).collect();
        order.sort_by_key(|(i, life)| (std::cmp::Reverse(life.bytes), *i));
        let mut arena = Arena { places: vec![None; lives.len()], bytes: 0 };
        let mut placed: Vec<(usize, &Life)> = Vec::new(); // first byte, by it
        for (buffer, life) in order {
            let at = lowest(&placed, life);
            arena.places[buffer] = Some(at);
            arena.bytes = arena.bytes.max(at + aligned_bytes(life));
            let index = placed.partition_point(|(other, _)| *other <= at);
            placed.insert(index, (at, life));
        }
        arena
    }
    // ANCHOR_END: graph-step-5

    // ANCHOR: graph-step-6
    // why: two vocabularies meet here, and every difference between them is spelt out: the machine computes in f32
    // and whole numbers only, so a result in f16 or bf16 is rounded where the graph says that it has that type, and
    // a byte is bounded.
    // step C.6: lower an element-wise operation to tile operations
    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        let input = |i: usize| inputs.get(i).copied();
        let value = match op {
            Op::Constant { value } if to.is_float() => {
                return Some(code.push(Tile::Float(constant(*value, to))));
            }
            Op::Constant { value } => return Some(code.push(Tile::Whole(*value as i32))),
            Op::Detach => return input(0),
            Op::Cast => return Some(cast(code, input(0)?, from, to)),
            Op::Select => return Some(code.push(Tile::Select(input(0)?, input(1)?, input(2)?))),
            Op::Unary(Unary::Neg) if !to.is_float() => {
                let zero = code.push(Tile::Whole(0));
                code.push(Tile::Binary(tile::Binary::Sub, zero, input(0)?))
            }
            Op::Unary(unary) => code.push(Tile::Unary(of_unary(*unary), input(0)?)),
            Op::Binary(binary) => code.push(Tile::Binary(of_binary(*binary), input(0)?, input(1)?)),
            Op::Compare(compare) => code.push(Tile::Compare(of_compare(*compare), input(0)?, input(1)?)),
            Op::RandomMask { probability, stream } => {
                let (key, index) = ([input(0)?, input(1)?], input(2)?);
                let threshold = philox::threshold(*probability);
                return Some(code.push(Tile::RandomMask { key, index, stream: *stream, threshold }));
            }
            Op::Input { .. } | Op::Iota { .. } | Op::Dequantize { .. } => return None, // no element-wise operation
            Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Concat { .. } => return None,
            Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => return None,
            Op::Attention(_) | Op::AttentionGrad { .. } | Op::AttentionLse(_) => return None,
            Op::AttentionLseGrad { .. } | Op::Collective { .. } => return None,
        };
        Some(rounded(code, value, to))
    }
    // ANCHOR_END: graph-step-6

    // ANCHOR: graph-step-7
    // why: which choice for a product is fastest depends on its shape and on the machine, and is cheaper to try than to
    // know. Candidates take turns, so that a slow moment hits all of them; the fastest of several times is what the
    // machine can do, everything above it is somebody else's noise.
    // step C.7: autotune a product: time the candidates, take the fastest
    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice {
        let mut best: Vec<Duration> = vec![Duration::MAX; candidates.len()];
        for _ in 0..ROUNDS {
            for (candidate, best) in candidates.iter().zip(&mut best) {
                *best = time(*candidate).min(*best);
            }
        }
        let fastest = candidates.iter().zip(best).min_by_key(|(_, time)| *time);
        fastest.map_or(Choice::default(), |(candidate, _)| *candidate)
    }
    // ANCHOR_END: graph-step-7

    // ANCHOR: graph-step-8
    // why: the user's program speaks of one score. Written over the whole space (batch, head, query, key) it is a
    // graph like any other, and the derivative that the backward pass needs is the rules' work, not the user's.
    // step C.8: vectorise a score or mask program over all scores, or differentiate it
    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        let builder = Builder::new(&program.name);
        for (symbol, facts) in known {
            _ = builder.tape().symbol(symbol, *facts);
        }
        let [q, k] = [&types[0].shape, &types[1].shape];
        let scores = Type::new(Dtype::F32, [&q[0], &q[1], &q[2], &k[2]]); // (B, H, Tq, Tk)
        let input = |name: &str, ty: &Type| builder.tape().input(name, ty.dtype, &ty.shape);
        let score = input("score", &scores);
        let seed = slope.then(|| input("grad", &scores));
        let extra = |(i, ty): (usize, &Type)| input(&format!("extra{i}"), ty);
        let extras: Vec<Tensor> = types[3..].iter().enumerate().map(extra).collect();
        let result = graph::apply(program, &score, &extras);
        builder.tape().output("result", &result);
        let seed = seed.map(|seed| builder.id(&seed)).transpose()?;
        let (score, result) = (builder.id(&score)?, builder.id(&result)?);
        let mut graph = builder.finish()?;
        if let Some(seed) = seed {
            let gradients = grad::pull_back(&mut graph, result, seed, &[score])?;
            graph.clear_outputs();
            graph.output("result", gradients[0]);
        }
        Ok(graph)
    }
    // ANCHOR_END: graph-step-8
}

/// A program under record.
#[derive(Default)]
struct Recorder {
    graph: Graph,
    lines: Vec<&'static Location<'static>>,
    handles: Vec<Id>, // which node the handles of a place mean: another one after a write
    scope: Vec<String>,
    values: Values<f32>, // of inputs, those of foreign calls among them
    breaks: Vec<Break>,
    error: Option<Error>,
}

impl Record for Recorder {
    // why: An operation that fits is a node. Whoever asks gets a place: the handles of a place can come to mean another node.
    // step C.1: record an operation as a node
    fn apply(
        &mut self,
        op: Op,
        inputs: &[usize],
        ty: Option<Type>,
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        let inputs: Vec<Id> = inputs.iter().map(|place| self.handles[*place]).collect();
        match self.graph.add(op, &inputs, ty, &self.scope.join(".")) {
            Ok(id) => {
                self.lines.push(at);
                self.handles.push(id);
                Some((self.handles.len() - 1, self.graph.ty(id).clone()))
            }
            Err(error) => self.fail(error, at),
        }
    }

    // why: The values decide what the program does next, so the graph holds for batches that decide alike.
    // step C.1: record a read of values as a break; answer it from the example inputs
    fn read(&mut self, place: usize, at: &'static Location<'static>) -> Option<Vec<f64>> {
        let value = self.value(place, at);
        self.breaks.push(Break::read(&self.graph, self.handles[place], value.as_ref(), at));
        value.map(|value| value.wide())
    }

    // why: There is no buffer before there is a plan.
    // step C.1: record a read of an address as a break without an answer
    fn pointer(&mut self, place: usize, at: &'static Location<'static>) -> Option<usize> {
        self.breaks.push(Break::pointer(&self.graph, self.handles[place], at));
        None
    }

    // why: The graph ends before the call and another one begins after it, with the result as an input.
    // step C.1: record a foreign call as a break; its result is a new input
    fn foreign(
        &mut self,
        call: &Foreign,
        inputs: &[usize],
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        let name = format!("break.{}", self.breaks.len());
        let values: Option<Vec<Array<f32>>> = inputs.iter().map(|place| self.value(*place, at)).collect();
        let types: Vec<&Type> = inputs.iter().map(|place| self.graph.ty(self.handles[*place])).collect();
        self.breaks.push(Break::foreign(call, &types, at));
        self.values.extend(values.map(|values| (name.clone(), (call.run)(&values))));
        self.apply(Op::Input { name }, &[], Some(call.ty.clone()), at)
    }

    // why: The host is here, so it answers; but it answers once, and not each time that the graph runs.
    // step C.1: record a call to the host as a break; answer it with the value of now
    fn host(
        &mut self,
        host: Host,
        name: &str,
        run: &dyn Fn() -> f64,
        at: &'static Location<'static>,
    ) -> Option<f64> {
        let answer = run();
        self.breaks.push(Break::host(host, name, answer, at));
        Some(answer)
    }

    // why: A node keeps its value. The handles of the place mean another node from here on.
    // step C.1: record an in-place write as a break; later uses see the new node
    fn write(&mut self, place: usize, value: usize, at: &'static Location<'static>) {
        let [old, new] = [place, value].map(|place| self.handles[place]);
        let (need, got) = (self.graph.ty(old).clone(), self.graph.ty(new).clone());
        if need != got {
            let wrong = Error { at: self.graph.site(old), fault: Fault::Type { got, need }, source: None };
            self.fail::<()>(wrong, at);
            return;
        }
        self.breaks.push(Break::write(&self.graph, old, at));
        self.handles[place] = new;
    }

    fn know(&mut self, symbol: &str, facts: Facts) {
        self.graph.know(symbol, facts);
    }

    fn output(&mut self, name: &str, place: usize) {
        self.graph.output(name, self.handles[place]);
    }

    fn enter(&mut self, part: &str) {
        self.scope.push(part.to_owned());
    }

    fn leave(&mut self) {
        self.scope.pop();
    }
}

impl Recorder {
    // step C.1: evaluate a result on the example inputs; `None` if one is missing
    fn value(&mut self, place: usize, at: &'static Location<'static>) -> Option<Array<f32>> {
        let mut prefix = self.graph.clone();
        prefix.clear_outputs();
        prefix.output("value", self.handles[place]);
        match interpret(&prefix, &self.values) {
            Ok(values) => values.into_iter().next(),
            Err(Error { fault: Fault::NotGiven { .. }, .. }) => None,
            Err(error) => self.fail(error, at),
        }
    }

    /// Keeps the first mistake, with the line that made it.
    fn fail<T>(&mut self, error: Error, at: &'static Location<'static>) -> Option<T> {
        self.error.get_or_insert(Error { source: Some(at), ..error });
        None
    }
}

// step C.3: find the input that a no-op passes on
fn passes_on(to: &Graph, node: &Node, inputs: &[Id]) -> Option<Id> {
    let same = |id: &Id| *to.ty(*id) == node.ty;
    let idle = match &node.op {
        Op::Detach => true,
        Op::Reshape | Op::Broadcast | Op::Cast | Op::Slice { .. } => same(&inputs[0]),
        Op::Transpose { order } => order.iter().copied().eq(0..order.len()),
        Op::Concat { .. } => inputs.len() == 1,
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => false,
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Reduce(..) | Op::Matmul => false,
        Op::Gather | Op::ScatterAdd | Op::Attention(_) | Op::AttentionGrad { .. } => false,
        Op::AttentionLse(_) | Op::AttentionLseGrad { .. } | Op::RandomMask { .. } | Op::Collective { .. } => {
            false
        }
    };
    idle.then(|| inputs[0])
}

/// What it takes to compute a node again.
#[derive(Clone, Copy)]
struct Cost {
    ops: usize,
    loads: usize,
}

/// Operations that are worth a pass over memory.
const DEAR: usize = 6;

// step C.4: estimate a node's cost in a pass; functions count more than arithmetic
fn own_ops(sized: &Sized<'_>, id: Id) -> usize {
    match sized.graph.node(id).op {
        Op::Unary(Unary::Neg) | Op::Cast => 1,
        Op::Unary(_) | Op::Reduce(..) => 8,
        Op::Gather => 4,
        Op::Constant { .. } | Op::Iota { .. } => 0,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } | Op::Detach => 0,
        Op::Input { .. } | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Matmul => 1,
        Op::ScatterAdd | Op::Concat { .. } | Op::Dequantize { .. } => 1,
        Op::Attention(_) | Op::AttentionGrad { .. } | Op::AttentionLse(_) => 1,
        Op::AttentionLseGrad { .. } | Op::Collective { .. } => 1,
        Op::RandomMask { .. } => 64, // ten rounds
    }
}

// step C.4: collect a node's consumers, looking through views
fn consumers(sized: &Sized<'_>, id: Id) -> BTreeSet<Id> {
    let (mut found, mut open) = (BTreeSet::new(), vec![id]);
    while let Some(id) = open.pop() {
        let (views, others) =
            sized.users(id).iter().copied().partition::<Vec<Id>, _>(|user| sized.is_view(*user));
        open.extend(views);
        found.extend(others);
    }
    found
}

// step C.5: find the lowest offset that is free for a live range; `placed` is sorted by offset
fn lowest(placed: &[(usize, &Life)], life: &Life) -> usize {
    let mut at = 0;
    for (start, other) in placed {
        let meets = life.parts.start() <= other.parts.end() && other.parts.start() <= life.parts.end();
        if !meets {
            continue;
        }
        if at + aligned_bytes(life) <= *start {
            break;
        }
        at = at.max(start + aligned_bytes(other));
    }
    at
}

// step C.6: round an f32 to its 16-bit type
fn rounded(code: &mut Code, value: Value, to: Dtype) -> Value {
    match to {
        Dtype::F16 | Dtype::Bf16 => code.push(Tile::Round(element(to), value)),
        _ => value,
    }
}

// step C.6: lower a cast
fn cast(code: &mut Code, value: Value, from: Dtype, to: Dtype) -> Value {
    match (from.is_float(), to.is_float()) {
        (true, true) => rounded(code, value, to),
        (false, true) => code.nearest(value, to),
        (true, false) => {
            let whole = code.push(Tile::ToWhole(value));
            bounded(code, whole, to)
        }
        (false, false) => bounded(code, value, to),
    }
}

// step C.6: clamp an integer to its type
fn bounded(code: &mut Code, value: Value, to: Dtype) -> Value {
    if to != Dtype::U8 {
        return value;
    }
    let (low, high) = (code.push(Tile::Whole(0)), code.push(Tile::Whole(255)));
    let raised = code.push(Tile::Binary(tile::Binary::Max, value, low));
    code.push(Tile::Binary(tile::Binary::Min, raised, high))
}

// why: the graph keeps an f64. Through f32, or by halves of the number, it would be rounded twice.
// step C.6: round a constant to its type, once
fn constant(value: f64, to: Dtype) -> f32 {
    <f32 as graph::Real>::nearest(value, to)
}

// step C.6: map a unary operation to its tile operation
fn of_unary(unary: Unary) -> tile::Unary {
    match unary {
        Unary::Neg => tile::Unary::Neg,
        Unary::Exp => tile::Unary::Exp,
        Unary::Log => tile::Unary::Log,
        Unary::Sqrt => tile::Unary::Sqrt,
        Unary::Tanh => tile::Unary::Tanh,
        Unary::Sigmoid => tile::Unary::Sigmoid,
        Unary::Sin => tile::Unary::Sin,
        Unary::Cos => tile::Unary::Cos,
    }
}

// step C.6: map a binary operation to its tile operation
fn of_binary(binary: Binary) -> tile::Binary {
    match binary {
        Binary::Add => tile::Binary::Add,
        Binary::Sub => tile::Binary::Sub,
        Binary::Mul => tile::Binary::Mul,
        Binary::Div => tile::Binary::Div,
        Binary::Min => tile::Binary::Min,
        Binary::Max => tile::Binary::Max,
    }
}

// step C.6: map a comparison to its tile operation
fn of_compare(compare: Compare) -> tile::Compare {
    match compare {
        Compare::Less => tile::Compare::Less,
        Compare::Equal => tile::Compare::Equal,
    }
}

/// How often each candidate is timed.
const ROUNDS: usize = 4;
