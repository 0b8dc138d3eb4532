//! (E) `loss`: chunked backprop that never holds the logits.

use challenges::loss::problem::row_dim;
use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled};
use reference::grad;
use reference::graph::{Builder, Dim, Dtype, Error, Graph, Id, Tape, Tensor, Type};
use reference::loss::{Average, Head, IGNORED, Level, LogProbabilities, Policy, kept};

/// The attempt.
pub struct Solution;

impl Chunked for Solution {
    // ANCHOR: loss-step-1
    // why: of the entries seen so far two numbers say everything: their largest m, and s, the sum of e^(z - m). Another
    // stretch with m' and s' changes the largest, and the old sum is worth e^(m - largest) of the new one. Where all are
    // minus infinity so far, the shift is 0, or it would be infinity minus infinity.
    // step E.1: keep the largest logit and the sum of exponentials, stretch by stretch
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        let vocab = weight.dim(0).as_fixed().unwrap_or(0);
        let starts = (0..vocab).step_by(stretch.max(1));
        let logits = |start: i64| {
            let end = (start + stretch.max(1) as i64).min(vocab);
            hidden.matmul(&weight.slice(0, start, end).t()).cast(Dtype::F32) // (N, end - start)
        };
        let running = starts.map(logits).fold(None, |so_far: Option<Running>, z| {
            let largest = z.reduce_max(1);
            let largest = so_far.as_ref().map_or(largest.clone(), |so_far| so_far.largest.max(&largest));
            let shift = finite(&largest);
            let sum = (&z - &shift).exp().sum(1);
            let before = so_far.map(|so_far| &so_far.sum * &(&so_far.largest - &shift).exp());
            Some(Running { sum: before.map_or(sum.clone(), |before| &before + &sum), largest })
        });
        let none = || {
            hidden.tape().constant(f64::NEG_INFINITY, &Type::new(Dtype::F32, [hidden.dim(0), Dim::fixed(1)]))
        };
        running.map_or_else(none, |all| &all.sum.log() + &finite(&all.largest))
    }
    // ANCHOR_END: loss-step-1

    // ANCHOR: loss-step-2
    // why: a row that does not count adds nothing to any sum, so it is not even read: with half of the tokens ignored, half
    // of the products are gone.
    // step E.2: cut the rows that count into chunks
    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        let rows: Vec<usize> = (0..counts.len()).filter(|row| counts[*row]).collect();
        rows.chunks(size.max(1)).map(<[usize]>::to_vec).collect()
    }

    // why: the chunk's logits are a node of this graph and nothing else ever sees them. The product may be rounded to the
    // problem's type, as a layer of the model would; what is made of it may not: e^z of a bf16 has one right bit less
    // with every doubling of z.
    // step E.2: write the values of a chunk's rows: the product, the upcast, the loss
    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        let builder = Builder::new("forward");
        for (name, values) in values(builder.tape(), problem).rows {
            builder.tape().output(&name, &values);
        }
        builder.finish()
    }
    // ANCHOR_END: loss-step-2

    // ANCHOR: loss-step-3
    // why: the gradient of a sum is the sum of gradients, so each chunk can be differentiated by itself, and what it gives
    // for the weight is added to what there is. Nobody writes a derivative down: the rules know that of every operation.
    // What no output needs, the gradient of a frozen weight, is never computed.
    // step E.3: differentiate the values of a chunk, each times its seed; add up what all chunks share
    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        let builder = Builder::new("backward");
        let tape = builder.tape();
        let written = values(tape, problem);
        let mut total: Option<Tensor> = None;
        for (name, values) in &written.rows {
            let seed = tape.input(&format!("seed.{name}"), Dtype::F32, [row_dim(tape)]);
            let part = (values * &seed).total();
            total = Some(total.map_or(part.clone(), |total| &total + &part));
            tape.output(name, values);
        }
        let wanted = written.trained(problem);
        let Some(total) = total else { return builder.finish() }; // no values, no gradient
        let total = builder.id(&total)?;
        let wrt = wanted.iter().map(|(_, of)| builder.id(of)).collect::<Result<Vec<Id>, _>>()?;
        let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
        let mut graph = builder.finish()?;
        let gradients = grad::differentiate(&mut graph, total, &wrt)?;
        let builder = Builder::onto(graph);
        for (name, gradient) in names.into_iter().zip(gradients) {
            let gradient = builder.tensor(gradient);
            let is_sum = name != "hidden.grad";
            let result = if is_sum { add_up(problem, name, &gradient) } else { gradient };
            builder.tape().output(name, &result);
        }
        builder.finish()
    }
    // ANCHOR_END: loss-step-3

    // ANCHOR: loss-step-4
    // why: what all rows make together is a graph as well, over a number or two for each row. Its gradient says how
    // much each row's value counts: 1 / N for a mean, whatever chunk the row is in. The mean of the chunks' means
    // would be another number as soon as one chunk has fewer rows that count than the others. What the loss does not
    // ask for is an input that nobody reads, with a gradient of zeros. Seeds are the only outputs: whatever else is
    // one may ask for values, and then this machine computes every chunk twice.
    // step E.4: differentiate the loss with respect to each row's values, given what is upstream
    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        let whole = &problem.loss.whole;
        let Some((_, loss)) = whole.outputs().first().cloned() else { return Ok(whole.clone()) };
        let builder = Builder::onto(whole.clone());
        let tape = builder.tape();
        let upstream = tape.input("upstream", Dtype::F32, builder.tensor(loss).shape());
        let unread = |name: &str| tape.input(name, Dtype::F32, [row_dim(tape)]);
        let value = |name| whole.find_input(name).map_or_else(|| builder.id(&unread(name)), Ok);
        let ids = problem.loss.values().map(value).collect::<Result<Vec<Id>, _>>()?;
        let upstream = builder.id(&upstream)?;
        let mut graph = builder.finish()?;
        let gradients = grad::pull_back(&mut graph, loss, upstream, &ids)?;
        graph.clear_outputs();
        for (name, gradient) in problem.loss.values().zip(gradients) {
            graph.output(format!("seed.{name}"), gradient);
        }
        Ok(graph)
    }

    // why: rows are cut anywhere, also between two tokens of one sequence; after the cut the neighbour is in another chunk.
    // step E.4: give each position the label of the next one
    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        let next = |sequence: &[i32]| sequence.iter().skip(1).copied().chain([IGNORED]).collect::<Vec<_>>();
        labels.chunks(length.max(1)).flat_map(next).collect()
    }
    // ANCHOR_END: loss-step-4

    // ANCHOR: loss-step-5
    // why: a token's loss is made of that token's logits and numbers, so it can be computed in the chunk, and what all
    // rows make together is a weighed sum: one pass. A ratio of the sequence needs the log-probability of each of its
    // tokens before the first gradient, and a chunk may have some of them only: so a chunk gives log-probabilities and
    // `whole` does the rest. Where the head is trained and a chunk splits a sequence, that takes a second pass.
    // step E.5: write the policy's loss: what each token gives, and what all tokens make
    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        let by_token = policy.level == Level::Token;
        let rows = |tape: &Tape, logits: &Tensor| {
            let inputs = Inputs::new(tape, row_dim(tape), sampled);
            let logits = Head::temperature(sampled.temperature).graph(logits);
            let log_p = LogProbabilities::default().rows(&logits, &inputs.labels).values;
            if by_token { vec![("losses", inputs.losses(policy, &log_p))] } else { vec![("log_p", log_p)] }
        };
        let whole = |tape: &Tape| {
            let inputs = Inputs::new(tape, Dim::from(sampled.sequences * sampled.length), sampled);
            let mask = kept(&inputs.labels, IGNORED).reshape([sampled.sequences, sampled.length]);
            let losses = if by_token {
                inputs.floats("losses")
            } else {
                inputs.losses_of_sequences(policy, &inputs.floats("log_p"), &mask)
            };
            let each = losses.reshape([sampled.sequences, sampled.length]);
            (&each * &shares(policy.average, &mask)).total()
        };
        Loss::new("policy", sampled.vocab, rows, whole)
    }
    // ANCHOR_END: loss-step-5

    // ANCHOR: loss-step-6
    // why: each part of the work takes `fixed + row n` bytes, so each allows (budget - fixed) / row rows, and the least of
    // these is what fits. With as many chunks as that takes, equal ones are the smallest: a last chunk of a few rows would
    // read the whole weight for next to nothing.
    // step E.6: find how many rows fit, and spread them evenly
    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        let fits = |cost: &Cost| {
            budget.checked_sub(cost.fixed).map(|rest| rest.checked_div(cost.row).unwrap_or(rows))
        };
        let most = costs.iter().map(fits).try_fold(rows, |least, n| Some(least.min(n?)))?;
        let chunks = rows.checked_div(most).map(|_| rows.div_ceil(most))?;
        Some(rows.div_ceil(chunks.max(1)).max(1))
    }
    // ANCHOR_END: loss-step-6
}

/// What is known of the logits seen so far: f32 (N, 1) each.
struct Running {
    largest: Tensor,
    sum: Tensor, // of e^(z - largest)
}

// step E.1: the number itself, but 0 for minus infinity
fn finite(largest: &Tensor) -> Tensor {
    let none = largest.equal(&largest.like(f64::NEG_INFINITY));
    none.select(&largest.like(0.0), largest)
}

/// The values of a chunk's rows, and what they are computed from.
struct Written {
    rows: Vec<(String, Tensor)>,
    hidden: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
}

// step E.2: the product in the problem's type, the upcast, and the rows of the loss
fn values(tape: &Tape, problem: &Problem) -> Written {
    let inputs = problem.operands(tape);
    let z = inputs.hidden.matmul(&inputs.weight.t()).cast(Dtype::F32);
    let logits = inputs.bias.as_ref().map_or(z.clone(), |bias| &z + &bias.cast(Dtype::F32));
    let rows = problem.rows(tape, &logits);
    Written { rows, hidden: inputs.hidden, weight: inputs.weight, bias: inputs.bias }
}

impl Written {
    // step E.3: what is trained, by the names of the gradients
    fn trained(&self, problem: &Problem) -> Vec<(&'static str, Tensor)> {
        let trains = problem.trains;
        let hidden = trains.hidden.then(|| ("hidden.grad", self.hidden.clone()));
        let weight = trains.weight.then(|| ("weight.grad", self.weight.clone()));
        let bias = self.bias.clone().filter(|_| trains.bias).map(|bias| ("bias.grad", bias));
        hidden.into_iter().chain(weight).chain(bias).collect()
    }
}

// step E.3: an input of that name in the type of the sums, and what is added to it in f32
fn add_up(problem: &Problem, name: &str, gradient: &Tensor) -> Tensor {
    let so_far = gradient.tape().input(name, problem.accumulate_dtype, gradient.shape());
    (&so_far.cast(Dtype::F32) + &gradient.cast(Dtype::F32)).cast(problem.accumulate_dtype)
}

/// The inputs of a policy's loss, of a chunk or of all rows.
struct Inputs<'a> {
    tape: &'a Tape,
    size: Dim,
    sampled: &'a Sampled,
    labels: Tensor,
    ignored: Tensor,
}

impl<'a> Inputs<'a> {
    fn new(tape: &'a Tape, size: Dim, sampled: &'a Sampled) -> Self {
        let labels = tape.input("labels", Dtype::I32, [size.clone()]);
        let ignored = labels.equal(&labels.like(f64::from(IGNORED)));
        Self { tape, size, sampled, labels, ignored }
    }

    /// A number for each row; 0 where there is no token of a completion.
    fn floats(&self, name: &str) -> Tensor {
        let given = self.tape.input(name, Dtype::F32, [self.size.clone()]);
        self.ignored.select(&given.like(0.0), &given)
    }

    fn given(&self, name: &str, is_given: bool) -> Option<Tensor> {
        is_given.then(|| self.floats(name))
    }

    // step E.5: of each token: how much likelier it is than when it was sampled, and what that gives
    fn losses(&self, policy: &Policy, log_p: &Tensor) -> Tensor {
        let old = self.given("old", self.sampled.old).unwrap_or_else(|| log_p.detach());
        let gain = gain(policy, &(log_p - &old), &self.floats("advantages"));
        &gain + &self.distance(policy, log_p)
    }

    // step E.5: the same with one ratio for a sequence: the mean over its tokens, of logarithms
    fn losses_of_sequences(&self, policy: &Policy, log_p: &Tensor, mask: &Tensor) -> Tensor {
        let shape = mask.shape();
        let old = self.given("old", self.sampled.old).unwrap_or_else(|| log_p.detach());
        let apart = (log_p - &old).reshape(shape);
        let mean = (&apart * &shares_of_row(mask)).sum(1).spread(shape);
        let gain = gain(policy, &mean, &self.floats("advantages").reshape(shape));
        &gain.reshape([self.size.clone()]) + &self.distance(policy, log_p)
    }

    // step E.5: how far each token is from the reference: beta (e^d - d - 1) with d = reference - log_p
    fn distance(&self, policy: &Policy, log_p: &Tensor) -> Tensor {
        let Some(reference) = self.given("reference", self.sampled.reference) else { return log_p.like(0.0) };
        let d = &reference - log_p;
        &(&(&d.exp() - &d) - 1.0) * policy.beta
    }
}

// step E.5: -min(ratio A, clipped ratio A) with ratio = e^apart
fn gain(policy: &Policy, apart: &Tensor, advantages: &Tensor) -> Tensor {
    let ratio = apart.exp();
    let [low, high] = [1.0 - policy.clip.low, 1.0 + policy.clip.high];
    let clipped = ratio.max(&ratio.like(low)).min(&ratio.like(high));
    let held = policy.clip.delta.map_or(ratio.clone(), |delta| ratio.min(&ratio.like(delta)));
    -&(&held * advantages).min(&(&clipped * advantages))
}

// step E.5: what each token counts in the loss: `mask` f32 (R, T), 1 for tokens that count
fn shares(average: Average, mask: &Tensor) -> Tensor {
    let sequences = mask.dim(0).as_fixed().unwrap_or(1) as f64;
    match average {
        Average::Sequences => &shares_of_row(mask) * (1.0 / sequences),
        Average::Tokens => mask / &at_least_one(&mask.total()).spread(mask.shape()),
        Average::Items(items) => mask * (1.0 / items),
        Average::Length(length) => mask * (1.0 / (sequences * length)),
    }
}

// step E.5: what each token counts in its sequence's mean; 0 where there is none
fn shares_of_row(mask: &Tensor) -> Tensor {
    mask / &at_least_one(&mask.sum(1)).spread(mask.shape())
}

// step E.5: a count to divide by
fn at_least_one(count: &Tensor) -> Tensor {
    count.max(&count.like(1.0))
}
