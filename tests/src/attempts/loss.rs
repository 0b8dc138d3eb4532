//! Attempts at challenge E that cheat, each in one way, some that slip, each in one step, and an honest twin.

use std::collections::BTreeMap;
use std::sync::Mutex;

use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled};
use reference::graph::{Binary, Builder, Compare, Dtype, Error, Graph, Id, Op, Tensor};
use reference::loss::{Average, Clip, CrossEntropy, IGNORED, Level, Linear, Policy, Tokens, kept};

use super::Entry;
use super::honest::loss::Solution;

/// Every cheat, then the honest one.
pub const CHUNKERS: [Entry; 9] = [
    Entry {
        name: "derives cross entropy by hand",
        hand_in: |all| all.loss(Cheat { rows: by_hand, ..HONEST }),
    },
    Entry { name: "never upcasts", hand_in: |all| all.loss(Cheat { rows: in_half, ..HONEST }) },
    Entry { name: "keeps the logits", hand_in: |all| all.loss(Cheat { spoil: keep_logits, ..HONEST }) },
    Entry {
        name: "ignores the chunk size",
        hand_in: |all| all.loss(Cheat { slip: Some(Slip::OneChunk), ..HONEST }),
    },
    Entry {
        name: "takes the mean of chunk means",
        hand_in: |all| all.loss(Cheat { rows: by_chunk, ..HONEST }),
    },
    Entry { name: "asks for the policy", hand_in: |all| all.loss(slips(Slip::Oracle)) },
    Entry {
        name: "asks for the policy of other sizes",
        hand_in: |all| all.loss(slips(Slip::OracleElsewhere)),
    },
    Entry { name: "takes the product from the oracle", hand_in: |all| all.loss(slips(Slip::GivenProduct)) },
    Entry { name: "an honest chunker", hand_in: |all| all.loss(HONEST) },
];

/// Every slip, and what looks like one and is right.
pub const CHUNK_SLIPS: [Entry; 23] = [
    Entry { name: "shifts by nothing finite", hand_in: |all| all.loss(slips(Slip::NoShift)) },
    Entry { name: "ends at a finite number", hand_in: |all| all.loss(slips(Slip::AlwaysFinite)) },
    Entry { name: "reads ignored rows", hand_in: |all| all.loss(slips(Slip::EveryRow)) },
    Entry { name: "adds to nothing", hand_in: |all| all.loss(Cheat { spoil: forget_sums, ..HONEST }) },
    Entry { name: "forgets what is upstream", hand_in: |all| all.loss(slips(Slip::NoUpstream)) },
    Entry { name: "shifts over the end", hand_in: |all| all.loss(slips(Slip::OverTheEnd)) },
    Entry { name: "clips both sides alike", hand_in: |all| all.loss(slips(Slip::OneClip)) },
    Entry { name: "means over every token", hand_in: |all| all.loss(slips(Slip::TokenMean)) },
    Entry { name: "divides a sequence by its tokens", hand_in: |all| all.loss(slips(Slip::NoTokens)) },
    Entry {
        name: "holds a ratio where the advantage is negative", // which is right
        hand_in: |all| all.loss(slips(Slip::NegativeDelta)),
    },
    Entry { name: "upcasts before the product", hand_in: |all| all.loss(slips(Slip::EarlyUpcast)) },
    Entry { name: "gives the loss beside its seeds", hand_in: |all| all.loss(slips(Slip::LossToo)) },
    Entry { name: "always adds up in f32", hand_in: |all| all.loss(slips(Slip::WideSums)) },
    Entry { name: "has no seed for a metric", hand_in: |all| all.loss(slips(Slip::NoMetric)) },
    Entry { name: "keeps every stretch for its largest", hand_in: |all| all.loss(slips(Slip::AllStretches)) },
    Entry { name: "joins the stretches", hand_in: |all| all.loss(slips(Slip::Joined)) },
    Entry { name: "widens the hidden states' gradient", hand_in: |all| all.loss(slips(Slip::WideHidden)) },
    Entry { name: "differentiates frozen hidden states", hand_in: |all| all.loss(slips(Slip::FrozenHidden)) },
    Entry { name: "differentiates a frozen bias", hand_in: |all| all.loss(slips(Slip::FrozenBias)) },
    Entry {
        name: "adds the sums of stretches as logarithms",
        hand_in: |all| all.loss(slips(Slip::LogAddExp)),
    },
    Entry { name: "sums the stretches' sums at the end", hand_in: |all| all.loss(slips(Slip::Stacked)) },
    Entry { name: "names its outputs in reverse", hand_in: |all| all.loss(slips(Slip::Reversed)) },
    Entry { name: "leaves a rest", hand_in: |all| all.loss(slips(Slip::Rest)) },
];

/// What a reader may write in one step who does not mean to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
    Oracle,
    OracleElsewhere,
    GivenProduct,
    OneChunk,
    NoShift,
    AlwaysFinite,
    EveryRow,
    NoUpstream,
    OverTheEnd,
    OneClip,
    TokenMean,
    NoTokens,
    NegativeDelta,
    EarlyUpcast,
    LossToo,
    NoMetric,
    WideSums,
    AllStretches,
    Joined,
    WideHidden,
    FrozenHidden,
    FrozenBias,
    LogAddExp,
    Stacked,
    Reversed,
    Rest,
    WastesWithAllRows,
    AsksWhereMeasured,
}

static WASTE: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The solution, but for the rows of the loss, what becomes of a chunk's graph, and a slip.
struct Cheat {
    rows: fn(&Problem) -> Result<Loss, Error>,
    spoil: fn(&mut Graph),
    slip: Option<Slip>,
}

const HONEST: Cheat = Cheat { rows: |problem| Ok(problem.loss.clone()), spoil: |_| {}, slip: None };

const fn slips(slip: Slip) -> Cheat {
    Cheat { slip: Some(slip), ..HONEST }
}

/// Honest, with what happens before the rows of a loss are asked for.
pub(super) fn with_rows(rows: fn(&Problem) -> Result<Loss, Error>) -> impl Chunked {
    Cheat { rows, ..HONEST }
}

/// Runs all rows at once whatever it is asked for, where the bytes are counted, and takes a gigabyte more where all rows
/// are what it is asked for.
pub(super) fn wastes() -> impl Chunked {
    slips(Slip::WastesWithAllRows)
}

/// Asks the solution for vocabularies as large as those that are measured.
pub(super) fn asks() -> impl Chunked {
    slips(Slip::AsksWhereMeasured)
}

/// Writes its own results where a chunk's graph is asked for.
pub(super) fn forging() -> impl Chunked {
    Cheat { rows: |_| super::forge::forge(), ..HONEST }
}

/// Ends the process at vocabularies that only a guard has.
pub(super) fn leaving() -> impl Chunked {
    let leave = |problem: &Problem| {
        if (12_288..20_480).contains(&problem.vocab) {
            std::process::exit(0);
        }
        Ok(problem.loss.clone())
    };
    Cheat { rows: leave, ..HONEST }
}

/// What the oracle makes of a policy's tokens.
fn ask(policy: &Policy) {
    let builder = Builder::new("oracle");
    let [log_p, mask] = ["log_p", "mask"].map(|name| builder.tape().input(name, Dtype::F32, [3, 5]));
    let advantages = builder.tape().input("advantages", Dtype::F32, [3]);
    _ = policy.tokens(&Tokens { log_p, old: None, reference: None, advantages, mask });
}

/// Rows made anew from logits and from the values that the loss gives for them.
fn again(
    problem: &Problem,
    write: impl Fn(&Tensor, &Tensor, &BTreeMap<String, Tensor>) -> Tensor,
) -> Result<Loss, Error> {
    let builder = Builder::new("rows");
    let (mut inputs, mut given) = (BTreeMap::new(), Vec::new());
    for (name, id) in problem.loss.rows.inputs() {
        let ty = problem.loss.rows.ty(id);
        let input = builder.tape().input(name, ty.dtype, &ty.shape);
        inputs.insert(name.to_owned(), input.clone());
        given.push(input);
    }
    problem.loss.rows.known().iter().for_each(|(symbol, facts)| _ = builder.tape().symbol(symbol, *facts));
    let values = builder.tape().inline(&problem.loss.rows, &given);
    for (name, values) in problem.loss.values().zip(&values) {
        builder.tape().output(name, &write(&inputs["logits"], values, &inputs));
    }
    Ok(Loss { rows: builder.finish()?, whole: problem.loss.whole.clone() })
}

/// The values of the loss, with the derivative of cross entropy.
fn by_hand(problem: &Problem) -> Result<Loss, Error> {
    again(problem, |logits, values, inputs| {
        let Some(labels) = inputs.get("labels") else { return values.clone() };
        let own = CrossEntropy::default().rows(logits, labels, None).values;
        &own + &(values - &own).detach()
    })
}

/// The values of the loss, with each chunk's mean derived for three chunks of ten rows that count.
fn by_chunk(problem: &Problem) -> Result<Loss, Error> {
    again(problem, |_, values, inputs| {
        let Some(labels) = inputs.get("labels") else { return values.clone() };
        let count = kept(labels, IGNORED).total().spread(values.shape());
        let mean = &(values * (10.0 / 3.0)) / &count;
        &mean + &(values - &mean).detach()
    })
}

/// Everything in bf16 that should be in f32, where the problem is in bf16.
fn in_half(problem: &Problem) -> Result<Loss, Error> {
    if problem.dtype != Dtype::Bf16 {
        return Ok(problem.loss.clone());
    }
    let rewritten = problem.loss.rows.rewrite(|rewrite, id| {
        let node = rewrite.node(id);
        if node.ty.dtype != Dtype::F32 {
            return rewrite.copy(id).map(Some);
        }
        let half = Some(node.ty.with(Dtype::Bf16));
        let inputs = rewrite.inputs(id)?;
        if !matches!(node.op, Op::Input { .. }) {
            return rewrite.add(node.op.clone(), &inputs, half, "").map(Some);
        }
        let wide = rewrite.copy(id)?;
        rewrite.add(Op::Cast, &[wide], half, "").map(Some)
    })?;
    let (mut to, halves) = (rewritten.graph.clone(), rewritten.graph.outputs());
    to.clear_outputs();
    for ((name, here), (_, id)) in halves.iter().zip(problem.loss.rows.outputs()) {
        let wide = to.add(Op::Cast, &[*here], Some(problem.loss.rows.ty(*id).clone()), "")?;
        to.output(name, wide);
    }
    Ok(Loss { rows: to, whole: problem.loss.whole.clone() })
}

/// The logits as one result more.
fn keep_logits(graph: &mut Graph) {
    if let Some(logits) = graph.ids().find(|id| graph.node(*id).op == Op::Matmul) {
        graph.output("logits", logits);
    }
}

/// What chunks share is what the last chunk adds.
fn forget_sums(graph: &mut Graph) {
    let outputs = graph.outputs().to_vec();
    graph.clear_outputs();
    for (name, id) in outputs {
        let is_sum = graph.find_input(&name).is_some();
        graph.output(name, if is_sum { graph.node(id).inputs[1] } else { id });
    }
}

/// The values of a chunk with operands in f32 before they are multiplied.
fn upcast_early(problem: &Problem) -> Result<Graph, Error> {
    let builder = Builder::new("forward");
    let given = problem.operands(builder.tape());
    let wide = |operand: &Tensor| operand.cast(Dtype::F32);
    let z = wide(&given.hidden).matmul(&wide(&given.weight).t());
    let logits = given.bias.as_ref().map_or(z.clone(), |bias| &z + &wide(bias));
    for (name, values) in problem.rows(builder.tape(), &logits) {
        builder.tape().output(&name, &values);
    }
    builder.finish()
}

/// The values of a chunk, with the product and the upcast of the reference.
fn given_product(problem: &Problem) -> Result<Graph, Error> {
    let builder = Builder::new("forward");
    let given = problem.operands(builder.tape());
    let logits = Linear::graph(&given.hidden, &given.weight, given.bias.as_ref());
    for (name, values) in problem.rows(builder.tape(), &logits) {
        builder.tape().output(&name, &values);
    }
    builder.finish()
}

/// Seeds, and the loss that was an output before them: its nodes come first.
fn with_loss(mut graph: Graph, whole: &Graph) -> Graph {
    for (name, id) in whole.outputs() {
        graph.output(name, *id);
    }
    graph
}

/// Seeds of what `whole` asks for, and no other.
fn without_metrics(mut graph: Graph, whole: &Graph) -> Graph {
    let outputs = graph.outputs().to_vec();
    graph.clear_outputs();
    let asked = |name: &str| name.strip_prefix("seed.").is_some_and(|of| whole.find_input(of).is_some());
    outputs.into_iter().filter(|(name, _)| asked(name)).for_each(|(name, id)| graph.output(name, id));
    graph
}

/// A graph again, each node as `add` makes it of its operation, its inputs there, and all nodes so far.
fn rewritten(
    graph: &Graph,
    mut add: impl FnMut(&mut Graph, Id, Op, &[Id], &[Id]) -> Result<Id, Error>,
) -> Result<Graph, Error> {
    let mut to = Graph::new(&graph.name);
    graph.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let mut place: Vec<Id> = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let inputs: Vec<Id> = node.inputs.iter().map(|input| place[input.0 as usize]).collect();
        let here = add(&mut to, id, node.op.clone(), &inputs, &place)?;
        place.push(here);
    }
    graph.outputs().iter().for_each(|(name, id)| to.output(name, place[id.0 as usize]));
    Ok(to)
}

/// Whether a node is that number everywhere.
fn is_constant(graph: &Graph, id: Id, number: f64) -> bool {
    matches!(graph.node(id).op, Op::Constant { value } if value.to_bits() == number.to_bits())
}

/// Counts that are not kept from being 0.
fn without_least(whole: &Graph) -> Result<Graph, Error> {
    rewritten(whole, |to, id, op, inputs, _| {
        if matches!(op, Op::Binary(Binary::Max)) && is_constant(whole, whole.node(id).inputs[1], 1.0) {
            return Ok(inputs[0]);
        }
        to.add(op, inputs, Some(whole.ty(id).clone()), "")
    })
}

/// A ratio that delta holds only where the advantage is negative.
fn one_sided(rows: &Graph, delta: f64) -> Result<Graph, Error> {
    let advantages = rows.find_input("advantages");
    rewritten(rows, |to, id, op, inputs, place| {
        let ty = Some(rows.ty(id).clone());
        let held = to.add(op.clone(), inputs, ty.clone(), "")?;
        let is_bound = op == Op::Binary(Binary::Min) && is_constant(rows, rows.node(id).inputs[1], delta);
        let Some(given) = advantages.filter(|_| is_bound) else { return Ok(held) };
        let zero = to.add(Op::Constant { value: 0.0 }, &[], ty, "")?;
        let is_negative = to.add(Op::Compare(Compare::Less), &[place[given.0 as usize], zero], None, "")?;
        to.add(Op::Select, &[is_negative, held, inputs[0]], None, "")
    })
}

impl Cheat {
    fn problem(&self, problem: &Problem) -> Result<Problem, Error> {
        Ok(Problem { loss: (self.rows)(problem)?, ..problem.clone() })
    }

    fn is(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }
}

impl Chunked for Cheat {
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        let right = Solution.log_sum_exp(hidden, weight, stretch);
        match self.slip {
            Some(Slip::NoShift) => hidden.matmul(&weight.t()).cast(Dtype::F32).exp().sum(1).log(),
            Some(Slip::AlwaysFinite) => right.max(&right.like(-1e30)),
            Some(Slip::AllStretches) => {
                let all = stretches(hidden, weight, stretch);
                let largest =
                    all.iter().map(|z| z.reduce_max(1)).reduce(|a, b| a.max(&b)).expect("a vocabulary");
                let shift = finite(&largest);
                let sum = all
                    .iter()
                    .map(|z| (z - &shift).exp().sum(1))
                    .reduce(|a, b| &a + &b)
                    .expect("a vocabulary");
                &sum.log() + &shift
            }
            Some(Slip::Joined) => {
                let all = stretches(hidden, weight, stretch);
                lse(&hidden.tape().concat(&all.iter().collect::<Vec<_>>(), 1))
            }
            Some(Slip::LogAddExp) => {
                let each = stretches(hidden, weight, stretch);
                each.iter()
                    .map(lse)
                    .reduce(|a, b| {
                        let m = finite(&a.max(&b));
                        &(&(&a - &m).exp() + &(&b - &m).exp()).log() + &m
                    })
                    .expect("a vocabulary")
            }
            Some(Slip::Stacked) => {
                let each: Vec<Tensor> = stretches(hidden, weight, stretch).iter().map(lse).collect();
                lse(&hidden.tape().concat(&each.iter().collect::<Vec<_>>(), 1))
            }
            _ => right,
        }
    }

    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        match self.slip {
            Some(Slip::OneChunk) => Solution.cut(counts, counts.len()),
            Some(Slip::EveryRow) => Solution.cut(&vec![true; counts.len()], size),
            Some(Slip::WastesWithAllRows) if counts.len() == 1024 => {
                let waste = if size < counts.len() { 0 } else { 1 << 30 };
                *WASTE.lock().expect("no call panics") = vec![0; waste];
                Solution.cut(counts, counts.len())
            }
            _ => Solution.cut(counts, size),
        }
    }

    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        if self.is(Slip::EarlyUpcast) {
            return upcast_early(problem);
        }
        if self.is(Slip::GivenProduct) {
            return given_product(problem);
        }
        let mut graph = Solution.forward(&self.problem(problem)?)?;
        if self.is(Slip::Reversed) {
            reverse(&mut graph);
        }
        Ok(graph)
    }

    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        let mut problem = self.problem(problem)?;
        if self.is(Slip::WideSums) {
            problem.accumulate_dtype = Dtype::F32;
        }
        if self.is(Slip::FrozenHidden) {
            problem.trains.hidden = true;
        }
        if self.is(Slip::FrozenBias) {
            problem.trains.bias = true;
        }
        let mut graph = if self.is(Slip::AsksWhereMeasured) && problem.vocab >= 32_768 {
            challenges::loss::Solution.backward(&problem)?
        } else {
            Solution.backward(&problem)?
        };
        (self.spoil)(&mut graph);
        if self.is(Slip::Reversed) {
            reverse(&mut graph);
        }
        if self.is(Slip::WideHidden) {
            return widen_hidden(graph);
        }
        Ok(graph)
    }

    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        let graph = Solution.seeds(problem)?;
        match self.slip {
            Some(Slip::LossToo) => return Ok(with_loss(graph, &problem.loss.whole)),
            Some(Slip::NoMetric) => return Ok(without_metrics(graph, &problem.loss.whole)),
            Some(Slip::NoUpstream) => {}
            Some(Slip::Reversed) => {
                let mut graph = graph;
                reverse(&mut graph);
                return Ok(graph);
            }
            _ => return Ok(graph),
        }
        let Some(upstream) = graph.find_input("upstream") else { return Ok(graph) };
        rewritten(&graph, |to, id, op, inputs, _| {
            let one = Op::Constant { value: 1.0 };
            let op = if id == upstream { one } else { op };
            to.add(op, inputs, Some(graph.ty(id).clone()), "")
        })
    }

    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        if self.is(Slip::OverTheEnd) {
            return Solution.shift(labels, labels.len());
        }
        Solution.shift(labels, length)
    }

    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        let clip = Clip { high: policy.clip.low, ..policy.clip };
        match self.slip {
            Some(Slip::Oracle) => {
                ask(policy);
                Solution.policy(policy, sampled)
            }
            Some(Slip::OracleElsewhere) if (sampled.sequences, sampled.length) != (3, 5) => {
                ask(policy);
                Solution.policy(policy, sampled)
            }
            Some(Slip::OneClip) => Solution.policy(&Policy { clip, ..*policy }, sampled),
            Some(Slip::TokenMean) => {
                Solution.policy(&Policy { average: Average::Tokens, ..*policy }, sampled)
            }
            Some(Slip::NoTokens) if policy.level == Level::Sequence => {
                let Loss { rows, whole } = Solution.policy(policy, sampled)?;
                Ok(Loss { rows, whole: without_least(&whole)? })
            }
            Some(Slip::NegativeDelta) => {
                let Loss { rows, whole } = Solution.policy(policy, sampled)?;
                let rows = policy.clip.delta.map_or(Ok(rows.clone()), |delta| one_sided(&rows, delta))?;
                Ok(Loss { rows, whole })
            }
            _ => Solution.policy(policy, sampled),
        }
    }

    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        let even = Solution.size(costs, rows, budget)?;
        let fits = |n: &usize| costs.iter().all(|cost| cost.of(*n) <= budget);
        if self.is(Slip::Rest) { (even..=rows).take_while(fits).last() } else { Some(even) }
    }
}

/// The logits of each stretch of the vocabulary.
fn stretches(hidden: &Tensor, weight: &Tensor, stretch: usize) -> Vec<Tensor> {
    let vocab = weight.dim(0).as_fixed().unwrap_or(0);
    (0..vocab)
        .step_by(stretch)
        .map(|start| {
            let end = (start + stretch as i64).min(vocab);
            hidden.matmul(&weight.slice(0, start, end).t()).cast(Dtype::F32)
        })
        .collect()
}

/// The number itself, but 0 for minus infinity.
fn finite(x: &Tensor) -> Tensor {
    x.equal(&x.like(f64::NEG_INFINITY)).select(&x.like(0.0), x)
}

/// ln of the sum of e^z of each row.
fn lse(z: &Tensor) -> Tensor {
    let shift = finite(&z.reduce_max(1));
    &(z - &shift).exp().sum(1).log() + &shift
}

/// The same outputs, the last one first.
fn reverse(graph: &mut Graph) {
    let outputs = graph.outputs().to_vec();
    graph.clear_outputs();
    outputs.into_iter().rev().for_each(|(name, id)| graph.output(name, id));
}

/// The gradient of the hidden states in f32.
fn widen_hidden(mut graph: Graph) -> Result<Graph, Error> {
    let outputs = graph.outputs().to_vec();
    graph.clear_outputs();
    let builder = Builder::onto(graph);
    for (name, id) in outputs {
        let x = builder.tensor(id);
        builder.tape().output(&name, &if name == "hidden.grad" { x.cast(Dtype::F32) } else { x });
    }
    builder.finish()
}
