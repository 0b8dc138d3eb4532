//! The model in pieces: the embedding, each layer, the output layer, as graphs of their own.
//!
//! ```text
//! Embedding    ids              -> y
//! Layer(i)     x                -> y                 x and y (B, T, H) in the compute type: the residual stream
//! Head         x, labels, items -> loss, counted, correct, entropy
//! ```
//!
//! A run that holds no more than a piece of the model at a time - one rank's layer gathered, one stage of a pipeline -
//! runs them one after the other. Layers that are alike have one graph: it names the weights of layer 0, its *canonical*
//! names, and [`Piece::own_name`] says what stands for them in another layer.

use super::{Model, Spec, classify};
use crate::graph::{Builder, Dtype, Error, Graph, Op, Tensor, Type};
use crate::loss;

/// A part of the model that runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Piece {
    /// From tokens to the residual stream.
    Embedding,
    /// A layer, by its number.
    Layer(usize),
    /// The last norm, the output layer and the loss.
    Head,
}

/// The layer whose names are canonical.
const CANONICAL: usize = 0;

impl Spec {
    /// The pieces, in the order in which they run.
    pub fn pieces(&self) -> Vec<Piece> {
        let layers = (0..self.config.layers).map(Piece::Layer);
        [Piece::Embedding].into_iter().chain(layers).chain([Piece::Head]).collect()
    }

    /// A piece as a graph, under canonical names. Its first output is `y`, or the `loss` of the [`Piece::Head`], whose
    /// other outputs are those of [`Spec::microbatch`].
    pub fn piece(&self, piece: Piece) -> Result<Graph, Error> {
        self.piece_with(piece, false)
    }

    /// A piece as an evaluation runs it: without dropout. The [`Piece::Head`] of a classifier also gives `logits` f32
    /// (B, T, C).
    pub fn evaluation_piece(&self, piece: Piece) -> Result<Graph, Error> {
        let read_only = Spec { dropout: false, ..self.clone() };
        read_only.piece_with(piece, self.config.classifier.is_some())
    }

    /// The [`Piece::Head`] up to the output layer, for a loss that is computed elsewhere: `x` to `hidden` (B * T, H), in
    /// the compute type.
    pub fn head_states(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_head_states");
        let model = Model::new(self, builder.tape());
        let [batch, length] = model.batch();
        let x = builder.tape().input("x", self.compute, [batch, length, self.config.hidden.into()]);
        builder.tape().output("hidden", &model.last_norm(&x));
        builder.finish()
    }

    fn piece_with(&self, piece: Piece, has_logits: bool) -> Result<Graph, Error> {
        let builder = Builder::new(piece.graph_name());
        let tape = builder.tape();
        let model = Model::new(self, tape);
        let x = || {
            let [batch, length] = model.batch();
            tape.input("x", self.compute, [batch, length, self.config.hidden.into()])
        };
        match piece {
            Piece::Embedding => tape.output("y", &model.embed(&model.tokens("ids"))),
            Piece::Layer(layer) => tape.output("y", &model.layer(layer, &x())),
            Piece::Head => {
                let items = tape.input("items", Dtype::F32, &Type::scalar(Dtype::F32).shape);
                let logits = model.head(&x());
                model.write_statistics(&logits, &items);
                if has_logits {
                    tape.output("logits", &logits.cast(Dtype::F32));
                }
            }
        }
        piece.canonical(&builder.finish()?)
    }
}

impl Model<'_> {
    /// What is logged of a micro-batch, from its logits (B, T, V), or (B, T, C) of a classifier.
    pub(super) fn write_statistics(&self, logits: &Tensor, items: &Tensor) {
        let logged = self.within("loss", || match &self.spec().config.classifier {
            Some(classifier) => classify::statistics(self, classifier, logits, items),
            None => loss::causal_statistics(logits, &self.labels(), items),
        });
        self.tape().output("loss", &logged.loss);
        self.tape().output("counted", &logged.counted);
        self.tape().output("correct", &logged.correct);
        self.tape().output("entropy", &logged.entropy);
    }
}

impl Piece {
    fn graph_name(self) -> &'static str {
        match self {
            Piece::Embedding => "llama_embedding",
            Piece::Layer(_) => "llama_layer",
            Piece::Head => "llama_head",
        }
    }

    /// The name of a tensor of this piece that its graph knows by a canonical name.
    pub fn own_name(self, canonical: &str) -> String {
        renumbered(canonical, CANONICAL, self.layer().unwrap_or(CANONICAL))
    }

    /// The name by which this piece's graph knows one of its tensors.
    pub fn canonical_name(self, own: &str) -> String {
        renumbered(own, self.layer().unwrap_or(CANONICAL), CANONICAL)
    }

    fn layer(self) -> Option<usize> {
        match self {
            Piece::Layer(layer) => Some(layer),
            Piece::Embedding | Piece::Head => None,
        }
    }

    /// The same graph under canonical names.
    fn canonical(self, graph: &Graph) -> Result<Graph, Error> {
        let written = graph.rewrite(|to, id| {
            let (node, inputs) = (to.node(id), to.inputs(id)?);
            let mut op = node.op.clone();
            if let Op::Input { name } = &mut op {
                *name = self.canonical_name(name);
            }
            let scope = match self.layer() {
                Some(layer) => {
                    node.scope.replacen(&format!("layers.{layer}"), &format!("layers.{CANONICAL}"), 1)
                }
                None => node.scope.clone(),
            };
            to.add(op, &inputs, Some(node.ty.clone()), &scope).map(Some)
        })?;
        Ok(written.graph)
    }
}

/// A name with the number of its layer exchanged.
fn renumbered(name: &str, from: usize, to: usize) -> String {
    name.replacen(&format!("model.layers.{from}."), &format!("model.layers.{to}."), 1)
}
