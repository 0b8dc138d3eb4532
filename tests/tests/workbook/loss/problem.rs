//! A loss of one tensor, by the oracle and as a graph, on drawn numbers.

use std::cell::RefCell;

use reference::grad::differentiate;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Real, Tape, Tensor, interpret};
use reference::loss::{
    Average, Clip, Compared, CrossEntropy, Divergence, Dpo, Error, Exact, Head, Judged, Kto, Level, Linear,
    LogProbabilities, Mse, Nll, Orpo, PairKind, PairLoss, Policy, Pool, Reduction, SimPo, Targets, Tokens,
    Value, kept, kto_baseline,
};

/// A loss of x.
pub struct Problem {
    /// What it is.
    pub name: String,
    /// x
    pub x: Vec<f64>,
    /// Whether the loss reads x as a constant too, so that its differences are not its derivative.
    pub also_constant: bool,
    shape: [usize; 2],
    exact: Box<Oracle>,
    graph: Box<Writer>,
}

type Oracle = dyn Fn(&[f64]) -> Result<Value, Error>;
type Writer = dyn Fn(&Inputs, &Tensor) -> Tensor;

impl Problem {
    /// The loss (a number) and its gradient by the oracle.
    pub fn exact(&self, x: &[f64]) -> (f64, Vec<f64>) {
        let value = (self.exact)(x).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        (value.loss.iter().sum(), value.gradient)
    }

    /// The same by the graph.
    pub fn run<R: Real>(&self, x: &[f64]) -> (f64, Vec<f64>) {
        let builder = Builder::new(&self.name);
        let inputs = Inputs { tape: builder.tape().clone(), values: RefCell::new(Values::new()) };
        let input = inputs.floats("x", &self.shape, x);
        let loss = (self.graph)(&inputs, &input);
        let loss = if loss.ty().rank() == 0 { loss } else { loss.total() };
        let ids = [&loss, &input].map(|tensor| builder.id(tensor));
        let mut graph = builder.finish().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let [loss, wrt] = ids.map(|id| id.expect("no mistake"));
        let gradient = differentiate(&mut graph, loss, &[wrt]).expect("a gradient")[0];
        graph.output("loss", loss);
        graph.output("gradient", gradient);
        graph.check().expect("a sound graph");
        let values: Values<R> = inputs.values::<R>();
        let found = interpret(&graph, &values).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        (found[0].wide()[0], found[1].wide())
    }
}

/// The inputs of a graph with their values.
pub struct Inputs {
    tape: Tape,
    values: RefCell<Values<f64>>,
}

impl Inputs {
    /// An input of f32.
    pub fn floats(&self, name: &str, shape: &[usize], values: &[f64]) -> Tensor {
        let array = Array::floats(Dtype::F32, shape, values.iter().copied());
        self.values.borrow_mut().insert(name.into(), array);
        self.tape.input(name, Dtype::F32, shape.iter().copied())
    }

    /// An input of i32 (N).
    pub fn labels(&self, values: &[i32]) -> Tensor {
        let shape = [values.len()];
        self.values.borrow_mut().insert("labels".into(), Array::integers(&shape, values.to_vec()));
        self.tape.input("labels", Dtype::I32, shape)
    }

    fn values<R: Real>(&self) -> Values<R> {
        let values = self.values.borrow();
        values.iter().map(|(name, value)| (name.clone(), tests::graphs::narrow(value))).collect()
    }
}

/// Random numbers: `SplitMix64`.
pub struct Random(pub u64);

impl Random {
    /// The next one, below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as usize % bound
    }

    /// Between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(1 << 40) as f64 / (1_u64 << 40) as f64
    }

    /// As many of them.
    pub fn all(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count).map(|_| self.between(low, high)).collect()
    }

    /// One of several.
    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Labels, some of them ignored.
    pub fn labels(&mut self, rows: usize, vocab: usize, ignored: i32) -> Vec<i32> {
        let label = |_| if self.below(4) == 0 { ignored } else { self.below(vocab) as i32 };
        (0..rows).map(label).collect()
    }

    /// 0 and 1.
    pub fn mask(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| if self.below(3) == 0 { 0.0 } else { 1.0 }).collect()
    }

    fn reduction(&mut self) -> Reduction {
        self.one(&[Reduction::None, Reduction::Sum, Reduction::Mean, Reduction::Items(7.5)])
    }
}

/// One of every kind, with settings drawn: x (`rows`, `width`).
pub fn problems(seed: u64, rows: usize, width: usize) -> Vec<Problem> {
    let shape = [rows, width];
    let mut all = Vec::new();
    let mut random = Random(seed);
    for make in [head, cross_entropy, targets, divergence, mse, nll] {
        all.push(make(&mut random, shape));
    }
    for loss in [dpo, orpo, kto, simpo, policy, policy, pair] {
        all.push(of_tokens(&mut random, [2 * rows, width], loss));
    }
    all
}

/// The mean of x after a product, a bias, a scale and a cap, each element weighed.
fn head(random: &mut Random, [rows, width]: [usize; 2]) -> Problem {
    let vocab = 1 + random.below(5);
    let [weight, bias] = [vocab * width, vocab].map(|count| random.all(count, -1.0, 1.0));
    let seed = random.all(rows * vocab, -1.0, 1.0);
    let head = Head { scale: random.between(-2.0, 2.0), softcap: random.one(&[None, Some(1.5), Some(30.0)]) };
    let bias = if random.below(2) == 0 { Some(bias) } else { None };
    let (w, b, s) = (weight.clone(), bias.clone(), seed.clone());
    let exact = move |x: &[f64]| {
        let linear = Linear { hidden: x, weight: &w, bias: b.as_deref(), width };
        let (z, _) = linear.exact()?;
        let loss = head.exact(&z)?.iter().zip(&s).map(|(y, s)| y * s).sum();
        Ok(Value { loss: vec![loss], gradient: linear.pull_back(&head.pull_back(&z, &s)).hidden })
    };
    let graph = move |inputs: &Inputs, x: &Tensor| {
        let weight = inputs.floats("weight", &[vocab, width], &weight);
        let bias = bias.as_ref().map(|bias| inputs.floats("bias", &[vocab], bias));
        let y = head.graph(&Linear::graph(x, &weight, bias.as_ref()));
        (&y * &inputs.floats("seed", &[rows, vocab], &seed)).total()
    };
    let x = random.all(rows * width, -2.0, 2.0);
    Problem {
        name: format!("{head:?}"),
        also_constant: false,
        x,
        shape: [rows, width],
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

fn cross_entropy(random: &mut Random, [rows, vocab]: [usize; 2]) -> Problem {
    let loss = CrossEntropy {
        ignore_index: random.one(&[-100, 0, -1]),
        label_smoothing: random.one(&[0.0, 0.1, 1.0]),
        z_loss: random.one(&[0.0, 0.01]),
    };
    let reduction = random.reduction();
    let labels = random.labels(rows, vocab, loss.ignore_index);
    let weight = random.all(vocab, 0.2, 2.0);
    let weight = if random.below(2) == 0 { Some(weight) } else { None };
    let (l, w) = (labels.clone(), weight.clone());
    let exact = move |x: &[f64]| loss.exact_loss(x, vocab, &l, w.as_deref(), reduction);
    let graph = move |inputs: &Inputs, x: &Tensor| {
        let weight = weight.as_ref().map(|weight| inputs.floats("weight", &[vocab], weight));
        loss.loss(x, &inputs.labels(&labels), weight.as_ref(), reduction)
    };
    let (x, name) = (random.all(rows * vocab, -4.0, 4.0), format!("{loss:?} {reduction:?}"));
    Problem {
        name,
        also_constant: false,
        x,
        shape: [rows, vocab],
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

fn targets(random: &mut Random, [rows, vocab]: [usize; 2]) -> Problem {
    let loss = Targets { label_smoothing: random.one(&[0.0, 0.3, 1.0]) };
    let reduction = random.reduction();
    let wanted = random.all(rows * vocab, 0.0, 1.0);
    let weight = random.all(vocab, 0.2, 2.0);
    let weight = if random.below(2) == 0 { Some(weight) } else { None };
    let (q, w) = (wanted.clone(), weight.clone());
    let exact = move |x: &[f64]| loss.exact(x, vocab, &q, w.as_deref())?.reduce(reduction);
    let graph = move |inputs: &Inputs, x: &Tensor| {
        let weight = weight.as_ref().map(|weight| inputs.floats("weight", &[vocab], weight));
        loss.rows(x, &inputs.floats("targets", &[rows, vocab], &wanted), weight.as_ref()).reduce(reduction)
    };
    let (x, name) = (random.all(rows * vocab, -4.0, 4.0), format!("{loss:?} {reduction:?}"));
    Problem {
        name,
        also_constant: false,
        x,
        shape: [rows, vocab],
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

fn divergence(random: &mut Random, [rows, vocab]: [usize; 2]) -> Problem {
    let skewed = Divergence::JensenShannon { beta: random.between(0.05, 0.95) };
    let loss = random.one(&[Divergence::ForwardKl, skewed]);
    let reduction = random.reduction();
    let (teacher, mask) = (random.all(rows * vocab, -4.0, 4.0), random.mask(rows));
    let (t, m) = (teacher.clone(), mask.clone());
    let exact = move |x: &[f64]| loss.exact(x, &t, vocab, &m)?.reduce(reduction);
    let graph = move |inputs: &Inputs, x: &Tensor| {
        let teacher = inputs.floats("teacher", &[rows, vocab], &teacher);
        loss.rows(x, &teacher, &inputs.floats("mask", &[rows], &mask)).reduce(reduction)
    };
    let (x, name) = (random.all(rows * vocab, -4.0, 4.0), format!("{loss:?} {reduction:?}"));
    Problem {
        name,
        also_constant: false,
        x,
        shape: [rows, vocab],
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

fn mse(random: &mut Random, [rows, width]: [usize; 2]) -> Problem {
    let reduction = random.reduction();
    let wanted = random.all(rows * width, -3.0, 3.0);
    let t = wanted.clone();
    let exact = move |x: &[f64]| Mse.exact(x, &t, width)?.reduce(reduction);
    let graph = move |inputs: &Inputs, x: &Tensor| {
        Mse.rows(x, &inputs.floats("targets", &[rows, width], &wanted)).reduce(reduction)
    };
    let (x, name) = (random.all(rows * width, -3.0, 3.0), format!("squares {reduction:?}"));
    Problem {
        name,
        also_constant: false,
        x,
        shape: [rows, width],
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

fn nll(random: &mut Random, [rows, vocab]: [usize; 2]) -> Problem {
    let (loss, reduction) = (Nll { ignore_index: random.one(&[-100, 0]) }, random.reduction());
    let labels = random.labels(rows, vocab, loss.ignore_index);
    let weight = random.all(vocab, 0.2, 2.0);
    let weight = if random.below(2) == 0 { Some(weight) } else { None };
    let (l, w) = (labels.clone(), weight.clone());
    let exact = move |x: &[f64]| loss.exact(x, vocab, &l, w.as_deref())?.reduce(reduction);
    let graph = move |inputs: &Inputs, x: &Tensor| {
        let weight = weight.as_ref().map(|weight| inputs.floats("weight", &[vocab], weight));
        loss.rows(x, &inputs.labels(&labels), weight.as_ref()).reduce(reduction)
    };
    let (x, name) = (random.all(rows * vocab, -4.0, 0.0), format!("{loss:?} {reduction:?}"));
    Problem {
        name,
        also_constant: false,
        x,
        shape: [rows, vocab],
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

/// A loss of log-probabilities of tokens (S, T) under a mask, (S, T): value with gradient, and graph.
struct OfTokens {
    name: String,
    also_constant: bool,
    exact: Box<TokenOracle>,
    graph: Box<TokenWriter>,
}

type TokenOracle = dyn Fn(&[f64], &[f64]) -> Result<Value, Error>;
type TokenWriter = dyn Fn(&Inputs, &Tensor, &Tensor) -> Tensor;
type Maker = fn(&mut Random, [usize; 2]) -> OfTokens;

/// Logits (S * T, V) to log-probabilities of ids, of which some are ignored, to a loss of them.
fn of_tokens(random: &mut Random, shape: [usize; 2], loss: Maker) -> Problem {
    let (rows, vocab) = (shape[0] * shape[1], 2 + random.below(4));
    let OfTokens { name, also_constant, exact: of_exact, graph: of_graph } = loss(random, shape);
    let ids = random.labels(rows, vocab, -100);
    let labels = ids.clone();
    let exact = move |x: &[f64]| {
        let tokens = LogProbabilities::default().exact(x, vocab, &labels)?;
        let value = of_exact(&tokens.values, &tokens.weights)?;
        Ok(Value { gradient: tokens.pull_back(&value.gradient), ..value })
    };
    let graph = move |inputs: &Inputs, x: &Tensor| {
        let labels = inputs.labels(&ids);
        let tokens = LogProbabilities::default().rows(x, &labels);
        of_graph(inputs, &tokens.values.reshape(shape), &kept(&labels, -100).reshape(shape))
    };
    let x = random.all(rows * vocab, -1.0, 1.0);
    Problem { name, also_constant, x, shape: [rows, vocab], exact: Box::new(exact), graph: Box::new(graph) }
}

/// A loss of pairs, pooled from tokens.
fn of_pairs(
    name: String,
    [answers, length]: [usize; 2],
    pool: Pool,
    exact: impl Fn(Compared<&[f64]>) -> Result<Value, Error> + 'static,
    graph: impl Fn(&Inputs, &Compared<Tensor>) -> Tensor + 'static,
) -> OfTokens {
    let exact = move |tokens: &[f64], mask: &[f64]| {
        let pooled = pool.exact(tokens, length, mask)?;
        let value = exact(Compared::halves(&pooled.values)?)?;
        Ok(Value { gradient: pooled.pull_back(&Exact::as_halves(&value.gradient)), ..value })
    };
    let graph = move |inputs: &Inputs, tokens: &Tensor, mask: &Tensor| {
        graph(inputs, &Compared::halves_of(&pool.graph(tokens, mask), answers / 2))
    };
    OfTokens { name, also_constant: false, exact: Box::new(exact), graph: Box::new(graph) }
}

fn dpo(random: &mut Random, shape: [usize; 2]) -> OfTokens {
    let loss = Dpo { beta: random.between(0.05, 2.0), label_smoothing: random.one(&[0.0, 0.1, 1.0]) };
    let reduction = random.reduction();
    let answers = shape[0];
    let reference = random.all(answers, -8.0, 0.0);
    let r = reference.clone();
    let exact = move |pairs: Compared<&[f64]>| loss.exact(pairs, Compared::halves(&r)?)?.reduce(reduction);
    let graph = move |inputs: &Inputs, pairs: &Compared<Tensor>| {
        let reference = inputs.floats("reference", &[answers], &reference);
        loss.rows(pairs, &Compared::halves_of(&reference, answers / 2)).reduce(reduction)
    };
    of_pairs(format!("{loss:?} {reduction:?}"), shape, Pool::Sum, exact, graph)
}

fn pair(random: &mut Random, shape: [usize; 2]) -> OfTokens {
    let kinds = [PairKind::Sigmoid, PairKind::Robust(0.2), PairKind::Hinge, PairKind::Ipo];
    let loss = PairLoss { kind: random.one(&kinds), beta: random.between(0.05, 2.0) };
    let reduction = random.reduction();
    let exact = move |pairs: Compared<&[f64]>| {
        let apart = pairs.chosen.iter().zip(pairs.rejected).map(|(chosen, rejected)| chosen - rejected);
        let each = loss.exact(&apart.collect::<Vec<f64>>())?;
        let gradient = each.gradient.iter().flat_map(|slope| [*slope, -slope]).collect();
        Exact { gradient, ..each }.reduce(reduction)
    };
    let graph = move |_: &Inputs, pairs: &Compared<Tensor>| {
        loss.rows(&(&pairs.chosen - &pairs.rejected)).reduce(reduction)
    };
    of_pairs(format!("{loss:?} {reduction:?}"), shape, Pool::Sum, exact, graph)
}

fn simpo(random: &mut Random, shape: [usize; 2]) -> OfTokens {
    let [beta, gamma] = [random.between(0.5, 4.0), random.between(-0.5, 2.0)];
    let loss = SimPo { beta, gamma, label_smoothing: random.one(&[0.0, 0.2]) };
    let reduction = random.reduction();
    let exact = move |pairs: Compared<&[f64]>| loss.exact(pairs)?.reduce(reduction);
    let graph = move |_: &Inputs, pairs: &Compared<Tensor>| loss.rows(pairs).reduce(reduction);
    of_pairs(format!("{loss:?} {reduction:?}"), shape, Pool::Mean, exact, graph)
}

/// Sequences without a token have no odds, so the means are shifted below 0.
fn orpo(random: &mut Random, [answers, length]: [usize; 2]) -> OfTokens {
    let (loss, reduction) = (Orpo { beta: random.between(0.0, 2.0) }, random.reduction());
    let exact = move |tokens: &[f64], mask: &[f64]| {
        let pooled = Pool::Mean.exact(tokens, length, mask)?;
        let shifted: Vec<f64> = pooled.values.iter().map(|mean| mean - 0.01).collect();
        let odds = loss.exact(Compared::halves(&shifted)?)?.reduce(reduction)?;
        let plain = loss.exact_tokens(tokens, mask)?.reduce(Reduction::Mean)?;
        let of_odds = pooled.pull_back(&Exact::as_halves(&odds.gradient));
        let gradient = of_odds.iter().zip(&plain.gradient).map(|(a, b)| a + b).collect();
        Ok(Value { loss: odds.loss.into_iter().chain(plain.loss).collect(), gradient })
    };
    let graph = move |_: &Inputs, tokens: &Tensor, mask: &Tensor| {
        let means = &Pool::Mean.graph(tokens, mask) - 0.01;
        let odds = loss.rows(&Compared::halves_of(&means, answers / 2)).reduce(reduction);
        &odds.total() + &loss.token_rows(tokens, mask).reduce(Reduction::Mean)
    };
    OfTokens {
        name: format!("{loss:?} {reduction:?}"),
        also_constant: false,
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

fn kto(random: &mut Random, [answers, length]: [usize; 2]) -> OfTokens {
    let [beta, good, bad] = [random.between(0.05, 2.0), random.between(0.5, 2.0), random.between(0.5, 2.0)];
    let loss = Kto { beta, desirable_weight: good, undesirable_weight: bad };
    let reduction = random.reduction();
    let (reference, desirable) = (random.all(answers, -8.0, 0.0), random.mask(answers));
    let z = kto_baseline(&random.all(3, -2.0, 2.0), &random.all(3, -2.0, 2.0)).expect("as many of both");
    let (r, d) = (reference.clone(), desirable.clone());
    let exact = move |tokens: &[f64], mask: &[f64]| {
        let pooled = Pool::Sum.exact(tokens, length, mask)?;
        let given = Judged { policy: pooled.values.as_slice(), reference: &r, desirable: &d };
        let value = loss.exact(given, z)?.reduce(reduction)?;
        Ok(Value { gradient: pooled.pull_back(&value.gradient), ..value })
    };
    let graph = move |inputs: &Inputs, tokens: &Tensor, mask: &Tensor| {
        let given = Judged {
            policy: Pool::Sum.graph(tokens, mask),
            reference: inputs.floats("reference", &[answers], &reference),
            desirable: inputs.floats("desirable", &[answers], &desirable),
        };
        loss.rows(&given, &inputs.floats("z", &[], &[z])).reduce(reduction)
    };
    OfTokens {
        name: format!("{loss:?} {reduction:?}"),
        also_constant: false,
        exact: Box::new(exact),
        graph: Box::new(graph),
    }
}

fn policy(random: &mut Random, [rows, length]: [usize; 2]) -> OfTokens {
    let (low, high) = (random.between(0.0, 0.9), random.between(0.0, 0.9));
    let clip = Clip { low, high, delta: random.one(&[None, Some(high + 1.5)]) };
    let loss = Policy {
        beta: random.one(&[0.0, 0.04, 1.0]),
        clip,
        level: random.one(&[Level::Token, Level::Sequence]),
        average: random.one(&[
            Average::Sequences,
            Average::Tokens,
            Average::Items(7.0),
            Average::Length(9.0),
        ]),
    };
    let reduction = random.reduction();
    let count = rows * length;
    let advantages = random.all(rows, -2.0, 2.0);
    let [old, reference] = [0, 1].map(|_| random.all(count, -3.0, 0.0));
    let old = if random.below(4) == 0 { None } else { Some(old) };
    let reference = if random.below(3) == 0 { None } else { Some(reference) };
    let (a, o, r) = (advantages.clone(), old.clone(), reference.clone());
    let exact = move |tokens: &[f64], mask: &[f64]| {
        let (old, reference) = (o.as_deref(), r.as_deref());
        let given = Tokens { log_p: tokens, old, reference, advantages: a.as_slice(), mask };
        loss.exact(&given, length)?.reduce(reduction)
    };
    let also_constant = old.is_none();
    let name = format!("{loss:?} {reduction:?}, old {}, reference {}", old.is_some(), reference.is_some());
    let graph = move |inputs: &Inputs, tokens: &Tensor, mask: &Tensor| {
        let given =
            |name: &str, x: &Option<Vec<f64>>| x.as_ref().map(|x| inputs.floats(name, &[rows, length], x));
        let given = Tokens {
            log_p: tokens.clone(),
            old: given("old", &old),
            reference: given("reference", &reference),
            advantages: inputs.floats("advantages", &[rows], &advantages),
            mask: mask.clone(),
        };
        loss.rows(&given).reduce(reduction)
    };
    OfTokens { name, also_constant, exact: Box::new(exact), graph: Box::new(graph) }
}
