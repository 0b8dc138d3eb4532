//! One step of QLoRA training as one graph: the loss, the gradients of the adapter, the bound on them, the update.
//!
//! ```text
//! (weights, tokens, labels, A, B, m, v, rates) -> (loss, grad_norm, A', B', m', v')
//! ```
//!
//! What is updated goes in and comes out under one name, so that the outputs of a step are inputs of the next.
//!
//! A step of several micro-batches is two graphs: [`accumulate_graph`] once for each, [`update_graph`] at the end.
//!
//! ```text
//! (weights, A, B, ids, labels, items, grads) -> (loss, grads + its gradients)
//! (A, B, m, v, rates, grads)                 -> (grad_norm, A', B', m', v', 0)
//! ```
//!
//! An update whose norm is not finite changes nothing but the sums, which are 0 afterwards.
//!
//! In f16 a gradient below 6e-8 is 0, and most of them are that small. A model that computes in f16 has its loss
//! multiplied by [`LOSS_SCALE`] before the gradient is taken, and the sums are divided by it before anything else is
//! done with them; whoever runs the graphs chooses it so that nothing overflows. Source: Micikevicius et al., "Mixed
//! Precision Training" (2018), section 3.2.
//!
//! Source: Dettmers et al., "QLoRA" (2023), section 3: the quantised weights are constants, and gradients pass through
//! them to the adapter.

use super::{Piece, Spec, rope};
use crate::grad;
use crate::graph::interpret::Values;
use crate::graph::{
    Array, Builder, Dim, Dtype, Error, Fault, Graph, Id, Op, Real, Tape, Tensor, Type, interpret,
};
use crate::optim::{self, AdamW, Rates};

/// The names of the moments of a parameter.
pub fn moments(parameter: &str) -> [String; 2] {
    ["exp_avg", "exp_avg_sq"].map(|moment| format!("optim.{moment}.{parameter}"))
}

/// The input that a loss is multiplied by where the model computes in f16: a number f32 () above 0.
pub const LOSS_SCALE: &str = "loss_scale";

/// Whether the gradients of a model that computes in this type are scaled.
pub fn is_scaled(compute: Dtype) -> bool {
    compute == Dtype::F16
}

/// How a step is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// The optimiser.
    pub optimizer: AdamW,
    /// The largest norm of the gradient of all adapter tensors together.
    pub max_norm: f64,
}

/// `ids` and `labels` i32 (B, T), where a label of -100 is ignored, to `loss` before the update, `grad_norm` before the
/// bound, and every A, B and moment afterwards.
///
/// Fails where the specification has no adapter, for then there is nothing to train.
pub fn step_graph(spec: &Spec, recipe: &Recipe) -> Result<Graph, Error> {
    step_of(spec.training_loss()?, recipe)
}

/// The same, from the graph of [`Spec::training_loss`] or one like it: its first output is the loss, and what is
/// trained are its inputs that belong to an adapter.
pub fn step_of(mut graph: Graph, recipe: &Recipe) -> Result<Graph, Error> {
    "llama_step".clone_into(&mut graph.name);
    let loss = graph.outputs().first().map(|(_, id)| *id);
    let loss = loss.ok_or_else(|| Fault::NotGiven { name: "loss".into() }.of(&graph.name))?;
    let parameters = trained(&graph)?;
    let ids: Vec<Id> = parameters.iter().map(|(_, id)| *id).collect();
    let gradients = grad::differentiate(&mut graph, loss, &ids)?;
    let builder = Builder::onto(graph);
    let gradients: Vec<Tensor> = gradients.iter().map(|id| builder.tensor(*id)).collect();
    builder
        .tape()
        .within("optim", || update(&builder, recipe, &parameters, &gradients, (&optim::norm, Guard::None)));
    builder.finish()
}

/// The name of what micro-batches add a parameter's gradient to.
pub fn gradient(parameter: &str) -> String {
    format!("grad.{parameter}")
}

/// A micro-batch of a step: what [`Spec::microbatch`] says, and the gradient of its `loss` added to every
/// [`gradient`]. After the last micro-batch of a step [`update_graph`] follows.
///
/// Fails where the specification has no adapter.
pub fn accumulate_graph(spec: &Spec) -> Result<Graph, Error> {
    let mut graph = spec.microbatch()?;
    let parameters = trained(&graph)?;
    let loss = graph.outputs()[0].1;
    let ids: Vec<Id> = parameters.iter().map(|(_, id)| *id).collect();
    let gradients = if is_scaled(spec.compute) {
        let ty = graph.ty(loss).clone();
        let scale = graph.push_as(Op::Input { name: LOSS_SCALE.into() }, &[], ty)?;
        grad::pull_back(&mut graph, loss, scale, &ids)?
    } else {
        grad::differentiate(&mut graph, loss, &ids)?
    };
    add_up(graph, &parameters, gradients)
}

/// The same for a loss that is computed elsewhere: from tokens to `hidden` (B * T, H), what the output layer is given,
/// in the compute type; and from the gradient of the loss with respect to it, `hidden.grad` of the same type, that of
/// every parameter, added to its [`gradient`]. In f16 `hidden.grad` is scaled already.
///
/// Fails where the specification has no adapter.
pub fn accumulate_from_states(spec: &Spec) -> Result<Graph, Error> {
    let graph = spec.hidden_states()?;
    let parameters = trained(&graph)?;
    let hidden = graph.outputs()[0].1;
    let ids: Vec<Id> = parameters.iter().map(|(_, id)| *id).collect();
    let builder = Builder::onto(graph);
    let states = builder.tensor(hidden);
    let upstream = builder.id(&builder.tape().input("hidden.grad", states.ty().dtype, states.shape()))?;
    let mut graph = builder.finish()?;
    let gradients = grad::pull_back(&mut graph, hidden, upstream, &ids)?;
    add_up(graph, &parameters, gradients)
}

/// Beside [`accumulate_from_states`], where the output layer is trained: from the gradient of the loss with respect to
/// its weight, `weight.grad` f32 (V, H), that of what is trained of it, added to its [`gradient`].
///
/// Fails where nothing of it is trained.
pub fn accumulate_from_weight(spec: &Spec) -> Result<Graph, Error> {
    let (graph, gradients) = from_weight(spec)?;
    let ids = gradients.iter().map(|(_, id)| *id).collect();
    add_up(graph, &gradients, ids)
}

/// [`accumulate_from_weight`] for one micro-batch: each [`gradient`] is an output, and nothing is added up.
///
/// Fails where nothing of the output layer is trained.
pub fn gradients_from_weight(spec: &Spec) -> Result<Graph, Error> {
    let (mut graph, gradients) = from_weight(spec)?;
    for (name, id) in gradients {
        graph.output(gradient(&name), id);
    }
    Ok(graph)
}

/// The trained inputs of the output layer, each with the node of its gradient.
fn from_weight(spec: &Spec) -> Result<(Graph, Vec<(String, Id)>), Error> {
    let graph = spec.wide_output_layer()?;
    let parameters = trained(&graph)?;
    let weight = graph.outputs()[0].1;
    let ids: Vec<Id> = parameters.iter().map(|(_, id)| *id).collect();
    let builder = Builder::onto(graph);
    let upstream =
        builder.id(&builder.tape().input("weight.grad", Dtype::F32, builder.tensor(weight).shape()))?;
    let mut graph = builder.finish()?;
    let gradients = grad::pull_back(&mut graph, weight, upstream, &ids)?;
    graph.clear_outputs();
    let names = parameters.into_iter().map(|(name, _)| name);
    Ok((graph, names.zip(gradients).collect()))
}

/// The gradients of [`Spec::head_states`] for one micro-batch: from `x` and the gradient of `hidden`, `hidden.grad` of
/// the same type, to [`STREAM_GRAD`] and the [`gradient`] of everything that is trained of the last norm.
pub fn gradients_from_states(spec: &Spec) -> Result<Graph, Error> {
    let graph = spec.head_states()?;
    let hidden = graph.outputs()[0].1;
    let x = graph.find_input("x").expect("the states have an input `x`");
    let trained = parameters(&graph).into_iter().map(|(name, id)| (gradient(&name), id));
    let (names, ids): (Vec<String>, Vec<Id>) =
        std::iter::once((STREAM_GRAD.to_owned(), x)).chain(trained).unzip();
    let builder = Builder::onto(graph);
    let states = builder.tensor(hidden);
    let upstream = builder.id(&builder.tape().input("hidden.grad", states.ty().dtype, states.shape()))?;
    let mut graph = builder.finish()?;
    let gradients = grad::pull_back(&mut graph, hidden, upstream, &ids)?;
    graph.clear_outputs();
    names.into_iter().zip(gradients).for_each(|(name, id)| graph.output(name, id));
    Ok(graph)
}

/// The gradient of the residual stream: that of a piece's `y` goes in, and that of its `x` comes out, under one name.
pub const STREAM_GRAD: &str = "stream.grad";

/// A [piece](Spec::piece) of a micro-batch with its gradients, under canonical names: from [`STREAM_GRAD`] of what it
/// gives (of the [`Piece::Head`], from its loss) to that of what it is given, and to the [`gradient`] of everything that
/// is trained in it. They are the gradients of this micro-batch alone: nothing is added up. A piece in which nothing is
/// trained and that reads no `x` has no gradient.
pub fn piece_graph(spec: &Spec, piece: Piece) -> Result<Graph, Error> {
    piece_graph_of(spec.piece(piece)?, spec.compute, piece, 1.0)
}

/// The same from a graph of the piece, which may have been changed, as one of several that compute the same loss: its
/// gradient is that of `share` times the loss.
pub fn piece_graph_of(mut graph: Graph, compute: Dtype, piece: Piece, share: f64) -> Result<Graph, Error> {
    let output = graph.outputs()[0].1;
    let stream = graph.find_input("x").map(|x| (STREAM_GRAD.to_owned(), x));
    let trained = parameters(&graph).into_iter().map(|(name, id)| (gradient(&name), id));
    let (names, ids): (Vec<String>, Vec<Id>) = stream.into_iter().chain(trained).unzip();
    if ids.is_empty() {
        return Ok(graph);
    }
    let ty = graph.ty(output).clone();
    let builder = Builder::onto(graph);
    let tape = builder.tape();
    let input = |name: &str| tape.input(name, ty.dtype, &ty.shape);
    let seed = match piece {
        Piece::Head if !is_scaled(compute) => tape.constant(share, &ty),
        Piece::Head => &input(LOSS_SCALE) * share,
        Piece::Embedding | Piece::Layer(_) => input(STREAM_GRAD),
    };
    let seed = builder.id(&seed)?;
    graph = builder.finish()?;
    let gradients = grad::pull_back(&mut graph, output, seed, &ids)?;
    names.into_iter().zip(gradients).for_each(|(name, id)| graph.output(name, id));
    Ok(graph)
}

/// Adds gradients to those of the micro-batches before.
fn add_up(graph: Graph, parameters: &[(String, Id)], gradients: Vec<Id>) -> Result<Graph, Error> {
    let builder = Builder::onto(graph);
    builder.tape().within("accumulate", || {
        for ((parameter, _), id) in parameters.iter().zip(gradients) {
            let (name, new) = (gradient(parameter), builder.tensor(id));
            let sum = builder.tape().input(&name, new.ty().dtype, new.shape());
            builder.tape().output(&name, &(&sum + &new));
        }
    });
    builder.finish()
}

/// The end of a step: from the sums of its gradients to `grad_norm` before the bound, every A, B and moment afterwards,
/// and sums of 0 for the next step. `parameters` are the names and types of what is trained; a model that computes in
/// f16 also has its [`LOSS_SCALE`]. Where `grad_norm` is not finite, A, B and moments are what they were.
///
/// Fails where there is nothing to train.
pub fn update_graph(parameters: &[(String, Type)], recipe: &Recipe, compute: Dtype) -> Result<Graph, Error> {
    update_graph_with(parameters, recipe, compute, &optim::norm)
}

/// The norm of a gradient, f32 (), from its tensors.
pub type Norm<'a> = &'a dyn Fn(&Tape, &[Tensor]) -> Tensor;

/// [`update_graph`] whose norm is another one: of a gradient of which this rank has a part.
pub fn update_graph_with(
    parameters: &[(String, Type)],
    recipe: &Recipe,
    compute: Dtype,
    norm: Norm<'_>,
) -> Result<Graph, Error> {
    let builder = Builder::new("llama_update");
    let input = |name: &str, ty: &Type| builder.id(&builder.tape().input(name, ty.dtype, &ty.shape));
    let (mut ids, mut gradients) = (Vec::new(), Vec::new());
    for (name, ty) in parameters {
        ids.push((name.clone(), input(name, ty)?));
        gradients.push(input(&gradient(name), ty)?);
    }
    let tape = builder.tape();
    let of = |id: &Id| builder.tensor(*id);
    tape.within("optim", || {
        let mut gradients: Vec<Tensor> = gradients.iter().map(of).collect();
        if is_scaled(compute) {
            let scale = tape.input(LOSS_SCALE, Dtype::F32, [] as [Dim; 0]);
            gradients = gradients.iter().map(|gradient| gradient / &scale).collect();
        }
        update(&builder, recipe, &ids, &gradients, (norm, Guard::Finite));
    });
    for (name, ty) in parameters {
        builder.tape().output(&gradient(name), &builder.tape().constant(0.0, ty));
    }
    builder.finish()
}

/// The inputs of a graph that are trained, with their types.
///
/// Fails where there are none.
pub fn trained_types(graph: &Graph) -> Result<Vec<(String, Type)>, Error> {
    let typed = trained(graph)?.into_iter().map(|(name, id)| (name, graph.ty(id).clone()));
    Ok(typed.collect())
}

/// The inputs that are trained; there is one at least.
fn trained(graph: &Graph) -> Result<Vec<(String, Id)>, Error> {
    let parameters = parameters(graph);
    if parameters.is_empty() {
        let reason = "there is no adapter to train".to_owned();
        return Err(Fault::NoGradient { reason }.of(&graph.name));
    }
    Ok(parameters)
}

/// The inputs that are trained: those of an adapter.
fn parameters(graph: &Graph) -> Vec<(String, Id)> {
    let adapter = |name: &str| name.starts_with("base_model.");
    graph.inputs().filter(|(name, _)| adapter(name)).map(|(name, id)| (name.to_owned(), id)).collect()
}

/// What keeps an update from being made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// Nothing.
    None,
    /// A norm that is not finite.
    Finite,
}

/// Writes the bound and the update, and names the outputs.
fn update(
    builder: &Builder,
    recipe: &Recipe,
    parameters: &[(String, Id)],
    gradients: &[Tensor],
    (norm, guard): (Norm<'_>, Guard),
) {
    let tape = builder.tape();
    let norm = norm(tape, gradients);
    tape.output("grad_norm", &norm);
    let is_finite = norm.less(&norm.like(f64::INFINITY)); // 0 where it is NaN
    let kept = |new: &Tensor, old: &Tensor| match guard {
        Guard::None => new.clone(),
        Guard::Finite => is_finite.spread(new.shape()).select(new, old),
    };
    let rates = Rates::new(tape);
    let bounded = optim::clip(gradients, &norm, recipe.max_norm);
    for ((name, id), gradient) in parameters.iter().zip(&bounded) {
        let parameter = builder.tensor(*id);
        let names = moments(name);
        let [m, v] = names.each_ref().map(|name| tape.input(name, parameter.ty().dtype, parameter.shape()));
        let new = recipe.optimizer.step(&rates, &parameter, gradient, &m, &v);
        tape.output(name, &kept(&new.parameter, &parameter));
        tape.output(&names[0], &kept(&new.first, &m));
        tape.output(&names[1], &kept(&new.second, &v));
    }
}

/// What a batch may hold.
const BATCH: [&str; 5] = ["ids", "labels", "positions", "documents", "targets"];

/// A training run by the interpreter.
pub struct Trainer<R> {
    graph: Graph,
    recipe: Recipe,
    spec: Spec,
    values: Values<R>,
    steps: u64,
}

/// What a step found before its update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The mean loss.
    pub loss: f64,
    /// The norm of the gradient.
    pub grad_norm: f64,
}

impl<R: Real> Trainer<R> {
    /// A run that starts with the given weights and adapter, and moments of 0.
    ///
    /// Fails as [`step_graph`] does.
    pub fn new(spec: Spec, recipe: Recipe, mut values: Values<R>) -> Result<Self, Error> {
        let graph = step_graph(&spec, &recipe)?;
        for (name, id) in parameters(&graph) {
            for moment in moments(&name) {
                values.insert(moment, zeros(graph.ty(id)));
            }
        }
        Ok(Self { graph, recipe, spec, values, steps: 0 })
    }

    /// A step on a batch `ids`, `labels` i32 (B, T) at a learning rate.
    ///
    /// Fails as [`interpret()`] does; the run is then where it was.
    pub fn step(&mut self, ids: Array<R>, labels: Array<R>, lr: f64) -> Result<Report, Error> {
        self.step_on([("ids".to_owned(), ids), ("labels".to_owned(), labels)].into(), lr)
    }

    /// A step on a batch by the names of its inputs: `ids`, `labels`, and what the model's rows ask for beside them
    /// (see [`Rows`](super::Rows)).
    ///
    /// Fails as [`interpret()`] does; the run is then where it was.
    pub fn step_on(&mut self, batch: Values<R>, lr: f64) -> Result<Report, Error> {
        self.values.retain(|name, _| !BATCH.contains(&name.as_str())); // of the step before
        self.values.append(&mut rope::values(&self.spec.config, self.positions(&batch)));
        self.values.extend(batch);
        self.values.append(&mut self.recipe.optimizer.rates(self.steps + 1, lr));
        let results = interpret(&self.graph, &self.values)?;
        self.steps += 1;
        let names = self.graph.outputs().iter().map(|(name, _)| name.clone());
        self.values.extend(names.zip(results));
        let number = |name: &str| self.values[name].wide()[0];
        Ok(Report { loss: number("loss"), grad_norm: number("grad_norm") })
    }

    /// Rows of the rotary tables: one for each token of a row, or all, where rows say which they take.
    fn positions(&self, batch: &Values<R>) -> usize {
        let all = self.spec.config.positions;
        let length = batch.get("ids").and_then(|ids| ids.shape.get(1)).copied().unwrap_or_default();
        if self.spec.rows.positions { all } else { length.min(all) }
    }

    /// Every value, the adapter among them.
    pub fn values(&self) -> &Values<R> {
        &self.values
    }
}

/// Zeros of a type of fixed sizes.
fn zeros<R: Real>(ty: &Type) -> Array<R> {
    let shape: Vec<usize> =
        ty.shape.iter().filter_map(crate::graph::Dim::as_fixed).map(|size| size as usize).collect();
    Array::floats(ty.dtype, &shape, std::iter::repeat_n(0.0, shape.iter().product()))
}
