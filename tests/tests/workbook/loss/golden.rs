//! Every golden loss with its gradients: by the oracle, and by the graph in f64 and in f32.
//!
//! In f32 the graph may be no further from the golden numbers than [`FAIR`] times what rounding alone does: the oracle
//! on weights, hidden states, logits and a gradient of logits that are rounded to f32, and otherwise computed in f64.
//! The same rule refuses what the oracle makes of numbers that are rounded to bf16.

use std::cell::Cell;

use half::bf16;
use reference::grad::differentiate;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Graph, Id, Real, Tape, Tensor, interpret};
use reference::loss::{
    Clip, Compared, CrossEntropy, Divergence, Dpo, Error, Exact, Head, IGNORED, Linear, LogProbabilities,
    Orpo, Policy, Pool, Reduction, Tokens, Value, kept,
};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::Deserialize;
use tests::golden;

/// How many times further from the truth than rounded numbers an f32 run may be, and what is free: some ten roundings.
const FAIR: (f64, f64) = (4.0, 1e-6);

/// How far two f64 computations of one formula may be apart, relative to the norm.
const CLOSE: f64 = 1e-12;

/// One loss that the original library computed.
#[derive(Clone, Deserialize)]
pub struct Case {
    /// Its name in the file.
    #[serde(rename = "case")]
    pub name: String,
    /// Which loss.
    pub loss: String,
    /// `mean`, `sum`.
    pub reduction: Option<String>,
    label_smoothing: Option<f64>,
    /// What a logit's absolute value stays below.
    pub softcap: Option<f64>,
    /// What logits are multiplied with.
    pub scale: Option<f64>,
    /// What logits are divided by.
    pub temperature: Option<f64>,
    /// What the square of the normaliser counts.
    pub z_loss: Option<f64>,
    beta: Option<f64>,
    eps_low: Option<f64>,
    eps_high: Option<f64>,
    max_completion_length: Option<f64>,
    /// Whether log-probabilities of sampling are given.
    pub old: Option<bool>,
}

/// What a case computes with.
pub struct Stored<'a> {
    name: &'a str,
    tensors: &'a SafeTensors<'a>,
}

/// What is done to numbers that would lie in memory.
pub type Round = fn(f64) -> f64;

fn rounded(numbers: &[f64], round: Round) -> Vec<f64> {
    numbers.iter().map(|number| round(*number)).collect()
}

/// A loss and its gradients: loss, hidden, weight, bias (nothing if there is none).
pub type Found = [Vec<f64>; 4];

const GRADIENTS: [&str; 3] = ["hidden", "weight", "bias"];

/// Runs `check` on every golden loss.
pub fn each_case(check: impl Fn(&Case, &Stored)) {
    golden::each_case("open-losses.safetensors", |case: &Case, tensors| {
        check(case, &Stored { name: &case.name, tensors });
    });
}

#[test]
fn the_oracle_is_every_golden_loss_with_its_gradients() {
    each_case(|case, stored| {
        let found = case.exact(stored, |x| x).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        case.near(&found, &stored.wanted());
    });
}

#[test]
fn the_graph_of_every_golden_loss_is_the_golden_one_in_f64() {
    each_case(|case, stored| case.near(&case.run::<f64>(stored), &stored.wanted()));
}

#[test]
fn the_graph_of_every_golden_loss_is_as_near_in_f32_as_rounding_allows() {
    let [cases, refused] = [Cell::new(0), Cell::new(0)];
    each_case(|case, stored| {
        let wanted = stored.wanted();
        let short = case.exact(stored, |x| bf16::from_f64(x).to_f64()).expect("sound");
        let bound = bound(case, stored, &wanted);
        let [found, short] = [&case.run::<f32>(stored), &short].map(|got| far(got, &wanted));
        for i in 0..4 {
            assert!(found[i] <= bound[i], "{}: {i} is off by {:e}, not {:e}", case.name, found[i], bound[i]);
        }
        let matters = wanted[1].iter().any(|g| *g != 0.0);
        cases.set(cases.get() + usize::from(matters));
        refused.set(refused.get() + usize::from(matters && (1..3).all(|i| short[i] > bound[i])));
    });
    assert_eq!(refused, cases, "bf16 would pass as f32");
}

#[test]
fn golden_log_probabilities_are_those_of_the_oracle() {
    each_case(|case, stored| {
        if let Some(want) = stored.floats("logps") {
            let parts = stored.linear("", |x| x);
            let (_, logits, vocab) = case.logits(&parts.linear(), |x| x).expect("sound");
            let found = LogProbabilities::default().exact(&logits, vocab, &stored.labels()).expect("sound");
            assert!(apart(&found.values, &want) < CLOSE, "{}", case.name);
        }
    });
}

/// How far a loss and its gradients are from the golden ones: the loss relative to itself, or to 1 if that is more.
pub fn far(got: &Found, wanted: &Found) -> [f64; 4] {
    let loss = (got[0][0] - wanted[0][0]).abs() / wanted[0][0].abs().max(1.0);
    [0, 1, 2, 3].map(|i| if i == 0 { loss } else { apart(&got[i], &wanted[i]) })
}

/// How far an f32 run may be from the golden numbers.
pub fn bound(case: &Case, stored: &Stored, wanted: &Found) -> [f64; 4] {
    let rounded = case.exact(stored, |x| f64::from(x as f32)).expect("sound");
    far(&rounded, wanted).map(|far| FAIR.0 * far + FAIR.1)
}

/// The distance relative to the norm of the second.
fn apart(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let distance = norm(&mut got.iter().zip(want).map(|(a, b)| a - b));
    if distance == 0.0 { 0.0 } else { distance / norm(&mut want.iter().copied()) }
}

impl Stored<'_> {
    fn view(&self, part: &str) -> Option<TensorView<'_>> {
        self.tensors.tensor(&format!("{}.{part}", self.name)).ok()
    }

    /// Numbers; nothing, if there are none.
    pub fn floats(&self, part: &str) -> Option<Vec<f64>> {
        let view = self.view(part)?;
        assert_eq!(view.dtype(), safetensors::Dtype::F64);
        Some(view.data().as_chunks().0.iter().map(|eight| f64::from_le_bytes(*eight)).collect())
    }

    pub fn need(&self, part: &str) -> Vec<f64> {
        self.floats(part).unwrap_or_else(|| panic!("{}.{part} is missing", self.name))
    }

    /// `labels`, or `ids`.
    pub fn labels(&self) -> Vec<i32> {
        let view = self.view("labels").or_else(|| self.view("ids")).expect("labels or ids");
        view.data().as_chunks().0.iter().map(|eight| i64::from_le_bytes(*eight) as i32).collect()
    }

    pub fn shape(&self, part: &str) -> Vec<usize> {
        self.view(part).map_or(Vec::new(), |view| view.shape().to_vec())
    }

    /// Sequences and their length; 1 and all rows, if there are none.
    pub fn sequences(&self) -> [usize; 2] {
        match self.shape("hidden")[..] {
            [rows, length, _] => [rows, length],
            [rows, _] => [1, rows],
            _ => panic!("{}: hidden states have two or three dimensions", self.name),
        }
    }

    fn kept(&self) -> Vec<f64> {
        self.labels().iter().map(|label| if *label == IGNORED { 0.0 } else { 1.0 }).collect()
    }

    pub fn wanted(&self) -> Found {
        let [hidden, weight, bias] = GRADIENTS.map(|part| self.floats(&format!("grad_{part}")));
        [self.need("loss"), hidden.expect("stored"), weight.expect("stored"), bias.unwrap_or_default()]
    }

    /// Hidden states, weights and bias, of the student or of the teacher.
    fn linear(&self, whose: &str, round: Round) -> Parts {
        let [hidden, weight, bias] = GRADIENTS
            .map(|part| self.floats(&format!("{whose}{part}")).map(|numbers| rounded(&numbers, round)));
        let width = *self.shape(&format!("{whose}weight")).last().expect("dimensions");
        Parts { hidden: hidden.expect("stored"), weight: weight.expect("stored"), bias, width }
    }
}

/// What a product is made of.
struct Parts {
    hidden: Vec<f64>,
    weight: Vec<f64>,
    bias: Option<Vec<f64>>,
    width: usize,
}

impl Parts {
    fn linear(&self) -> Linear<'_> {
        let Parts { hidden, weight, bias, width } = self;
        Linear { hidden, weight, bias: bias.as_deref(), width: *width }
    }
}

impl Case {
    fn near(&self, found: &Found, want: &Found) {
        for i in 0..4 {
            let far = apart(&found[i], &want[i]);
            assert!(far < CLOSE, "{}: {i} is off by {far:e}", self.name);
        }
    }

    pub fn head(&self) -> Head {
        let scale = self.scale.unwrap_or(1.0) / self.temperature.unwrap_or(1.0);
        Head { scale, softcap: self.softcap }
    }

    pub fn cross_entropy(&self) -> CrossEntropy {
        let [label_smoothing, z_loss] = [self.label_smoothing, self.z_loss].map(Option::unwrap_or_default);
        CrossEntropy { label_smoothing, z_loss, ..CrossEntropy::default() }
    }

    pub fn reduction(&self) -> Reduction {
        match self.reduction.as_deref() {
            None | Some("mean") => Reduction::Mean,
            Some("sum") => Reduction::Sum,
            Some(other) => panic!("{}: reduction {other}", self.name),
        }
    }

    pub fn divergence(&self) -> Divergence {
        match self.loss.as_str() {
            "forward_kl" => Divergence::ForwardKl,
            _ => Divergence::JensenShannon { beta: self.beta() },
        }
    }

    pub fn beta(&self) -> f64 {
        self.beta.expect("a beta")
    }

    pub fn policy(&self) -> Policy {
        let bound = |eps: Option<f64>| eps.expect("bounds of the ratio");
        let clip = Clip { low: bound(self.eps_low), high: bound(self.eps_high), delta: None };
        match self.loss.as_str() {
            "grpo" => Policy::grpo(self.beta(), clip),
            "bnpo" | "dapo" => Policy::bnpo(self.beta(), clip),
            "gspo" => Policy::gspo(self.beta(), clip),
            "dr_grpo" => Policy::dr_grpo(self.beta(), clip, self.max_completion_length.expect("a length")),
            other => panic!("{}: no loss {other} is known", self.name),
        }
    }

    /// The product, the logits, and their vocabulary; `round` is done to what would lie in memory.
    fn logits(&self, linear: &Linear, round: Round) -> Result<(Vec<f64>, Vec<f64>, usize), Error> {
        let (z, vocab) = linear.exact()?;
        let z = rounded(&z, round);
        let logits = rounded(&self.head().exact(&z)?, round);
        Ok((z, logits, vocab))
    }

    /// The loss and its gradients by the oracle.
    pub fn exact(&self, stored: &Stored, round: Round) -> Result<Found, Error> {
        let parts = stored.linear("", round);
        let linear = parts.linear();
        let (z, logits, vocab) = self.logits(&linear, round)?;
        let value = match self.loss.as_str() {
            "cross_entropy" => self.exact_cross_entropy(stored, &logits, vocab)?,
            "forward_kl" | "jsd" => {
                let teacher = self.logits(&stored.linear("teacher_", round).linear(), round)?.1;
                self.divergence().exact(&logits, &teacher, vocab, &stored.kept())?.reduce(Reduction::Mean)?
            }
            _ => {
                let tokens = LogProbabilities::default().exact(&logits, vocab, &stored.labels())?;
                let value = self.exact_of_tokens(stored, &tokens.values)?;
                Value { gradient: tokens.pull_back(&value.gradient), ..value }
            }
        };
        let of = linear.pull_back(&self.head().pull_back(&z, &rounded(&value.gradient, round)));
        let bias = if linear.bias.is_some() { of.bias } else { Vec::new() };
        Ok([value.loss, of.hidden, of.weight, bias])
    }

    /// The mean of the z-loss is taken over the rows that count, however the other part is reduced.
    fn exact_cross_entropy(&self, stored: &Stored, logits: &[f64], vocab: usize) -> Result<Value, Error> {
        let (loss, labels) = (self.cross_entropy(), stored.labels());
        let class_weight = stored.floats("class_weight");
        let value = loss.exact(logits, vocab, &labels, class_weight.as_deref())?.reduce(self.reduction())?;
        let z = loss.exact_z(logits, vocab, &labels)?.reduce(Reduction::Mean)?;
        Ok(sum(&value, &z))
    }

    /// A loss of log-probabilities, with its gradient with respect to them.
    fn exact_of_tokens(&self, stored: &Stored, tokens: &[f64]) -> Result<Value, Error> {
        let length = stored.sequences()[1];
        let kept = stored.kept();
        match self.loss.as_str() {
            "dpo" => {
                let answers = Pool::Sum.exact(tokens, length, &kept)?;
                let reference = stored.need("ref_logps");
                let reference = Compared::halves(&reference)?;
                let loss = Dpo { beta: self.beta(), label_smoothing: 0.0 };
                let value =
                    loss.exact(Compared::halves(&answers.values)?, reference)?.reduce(Reduction::Mean)?;
                Ok(Value { gradient: answers.pull_back(&Exact::as_halves(&value.gradient)), ..value })
            }
            "orpo" => {
                let answers = Pool::Mean.exact(tokens, length, &kept)?;
                let loss = Orpo { beta: self.beta() };
                let odds = loss.exact(Compared::halves(&answers.values)?)?.reduce(Reduction::Mean)?;
                let odds = Value { gradient: answers.pull_back(&Exact::as_halves(&odds.gradient)), ..odds };
                let half = tokens.len() / 2;
                let mut plain = loss.exact_tokens(&tokens[..half], &kept[..half])?.reduce(Reduction::Mean)?;
                plain.gradient.resize(tokens.len(), 0.0);
                Ok(sum(&odds, &plain))
            }
            _ => {
                let [old, reference] = ["old_logps", "ref_logps"].map(|part| stored.floats(part));
                let given = Tokens {
                    log_p: tokens,
                    old: old.as_deref().filter(|_| self.old != Some(false)),
                    reference: reference.as_deref(),
                    advantages: &stored.need("advantages"),
                    mask: &stored.need("mask"),
                };
                self.policy().exact(&given, length)?.reduce(Reduction::Mean)
            }
        }
    }

    /// The loss and its gradients by the graph.
    fn run<R: Real>(&self, stored: &Stored) -> Found {
        let fail = |error| -> ! { panic!("{}: {error}", self.name) };
        let mut values = Values::new();
        let graph = self.graph(stored, &mut values).unwrap_or_else(|error| fail(error));
        let results = interpret::<R>(&graph, &values).unwrap_or_else(|error| fail(error));
        let mut found: Vec<Vec<f64>> = results.iter().map(Array::wide).collect();
        found.resize(4, Vec::new());
        found.try_into().expect("four parts")
    }

    fn graph<R: Real>(
        &self,
        stored: &Stored,
        values: &mut Values<R>,
    ) -> Result<Graph, reference::graph::Error> {
        let builder = Builder::new(&self.name);
        let mut given = Inputs { tape: builder.tape(), stored, values };
        let linear = GRADIENTS.map(|part| given.tensor(part));
        let logits = self.logits_graph(&linear);
        let loss = self.loss_graph(&mut given, &logits);
        builder.tape().output("loss", &loss);
        let ids = linear.iter().flatten().map(|tensor| builder.id(tensor));
        let (wrt, loss) = (ids.collect::<Result<Vec<Id>, _>>()?, builder.id(&loss)?);
        let mut graph = builder.finish()?;
        let gradients = differentiate(&mut graph, loss, &wrt)?;
        gradients.into_iter().zip(GRADIENTS).for_each(|(id, part)| graph.output(format!("grad_{part}"), id));
        graph.check()?;
        Ok(graph)
    }

    fn logits_graph(&self, [hidden, weight, bias]: &[Option<Tensor>; 3]) -> Tensor {
        let (hidden, weight) = (hidden.as_ref().expect("stored"), weight.as_ref().expect("stored"));
        let flat = hidden.reshape([rows(hidden), hidden.dim(hidden.ty().rank() - 1)]);
        self.head().graph(&Linear::graph(&flat, weight, bias.as_ref()))
    }

    fn loss_graph<R: Real>(&self, given: &mut Inputs<R>, logits: &Tensor) -> Tensor {
        let labels = given.labels();
        match self.loss.as_str() {
            "cross_entropy" => {
                let loss = self.cross_entropy();
                let class_weight = given.tensor("class_weight");
                let value = loss.rows(logits, &labels, class_weight.as_ref()).reduce(self.reduction());
                &value + &loss.z_rows(logits, &labels).reduce(Reduction::Mean)
            }
            "forward_kl" | "jsd" => {
                let teacher = GRADIENTS.map(|part| given.tensor(&format!("teacher_{part}")));
                let teacher = self.logits_graph(&teacher);
                let mask = kept(&labels, IGNORED);
                self.divergence().rows(logits, &teacher, &mask).reduce(Reduction::Mean)
            }
            _ => {
                let shape = given.stored.sequences();
                let tokens = LogProbabilities::default().rows(logits, &labels);
                self.of_tokens(given, &tokens.values.reshape(shape), &tokens.weights.reshape(shape))
            }
        }
    }

    fn of_tokens<R: Real>(&self, given: &mut Inputs<R>, tokens: &Tensor, kept: &Tensor) -> Tensor {
        let pairs = given.stored.sequences()[0] / 2;
        let halves = |answers: &Tensor| Compared::halves_of(answers, pairs);
        match self.loss.as_str() {
            "dpo" => {
                let reference = given.tensor("ref_logps").expect("stored");
                let loss = Dpo { beta: self.beta(), label_smoothing: 0.0 };
                let answers = Pool::Sum.graph(tokens, kept);
                loss.rows(&halves(&answers), &halves(&reference)).reduce(Reduction::Mean)
            }
            "orpo" => {
                let loss = Orpo { beta: self.beta() };
                let odds = loss.rows(&halves(&Pool::Mean.graph(tokens, kept))).reduce(Reduction::Mean);
                let plain = loss.token_rows(&halves(tokens).chosen, &halves(kept).chosen);
                &odds + &plain.reduce(Reduction::Mean)
            }
            _ => {
                let tokens = Tokens {
                    log_p: tokens.clone(),
                    old: given.tensor("old_logps").filter(|_| self.old != Some(false)),
                    reference: given.tensor("ref_logps"),
                    advantages: given.tensor("advantages").expect("stored"),
                    mask: given.tensor("mask").expect("stored"),
                };
                self.policy().rows(&tokens).reduce(Reduction::Mean)
            }
        }
    }
}

/// The number of rows of hidden states with any number of leading dimensions.
fn rows(hidden: &Tensor) -> reference::graph::Dim {
    let shape = hidden.shape();
    reference::graph::product(&shape[..shape.len() - 1])
}

/// Two losses added up.
fn sum(a: &Value, b: &Value) -> Value {
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect();
    Value { loss: sum(&a.loss, &b.loss), gradient: sum(&a.gradient, &b.gradient) }
}

/// Inputs of a graph with the stored values.
struct Inputs<'a, R> {
    tape: &'a Tape,
    stored: &'a Stored<'a>,
    values: &'a mut Values<R>,
}

impl<R: Real> Inputs<'_, R> {
    /// A stored tensor, f32; nothing, if there is none.
    fn tensor(&mut self, part: &str) -> Option<Tensor> {
        let (values, shape) = (self.stored.floats(part)?, self.stored.shape(part));
        self.values.insert(part.into(), Array::floats(Dtype::F32, &shape, values));
        Some(self.tape.input(part, Dtype::F32, shape))
    }

    fn labels(&mut self) -> Tensor {
        let labels = self.stored.labels();
        let tensor = self.tape.input("labels", Dtype::I32, [labels.len()]);
        self.values.insert("labels".into(), Array::integers(&[labels.len()], labels));
        tensor
    }
}
