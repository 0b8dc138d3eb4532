//! What is asked of an attempt: shapes, a loss, and what is trained.

use reference::graph::{Builder, Dim, Dtype, Error, Facts, Graph, Tape, Tensor, Type};

/// The symbol of the rows at hand: of a chunk in `rows`, of all in `whole`.
pub const ROWS: &str = "N";

/// The most rows that a graph is built for.
pub const LARGEST: i64 = 1 << 31;

/// A loss, in two parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// `logits` f32 (N, V) and whatever else it names to outputs of f32 (N): what is computed of each row by itself. An
    /// input whose first dimension is N belongs to the rows and is cut like them; any other one is whole for every
    /// chunk.
    pub rows: Graph,
    /// These outputs, of all rows, and whatever else it names to `loss`, f32 () or (N). A row that does not count has
    /// the value 0 in each. An output of `rows` that it does not ask for is reported, and adds nothing to any gradient.
    pub whole: Graph,
}

/// Which gradients are wanted. A frozen weight gets none, and no memory for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trains {
    /// Of the hidden states.
    pub hidden: bool,
    /// Of the weight.
    pub weight: bool,
    /// Of the bias.
    pub bias: bool,
}

/// What is computed: a loss of z = hidden weight^T + bias.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The loss.
    pub loss: Loss,
    /// H, the width of a hidden state.
    pub width: usize,
    /// V, the entries of the vocabulary.
    pub vocab: usize,
    /// The type of hidden states, weight and bias.
    pub dtype: Dtype,
    /// What the gradients of weight and bias are added up in from chunk to chunk: f32, or `dtype`, which takes less
    /// memory and rounds after every chunk.
    pub accumulate_dtype: Dtype,
    /// Whether there is a bias.
    pub bias: bool,
    /// What is trained.
    pub trains: Trains,
}

/// Completions for a policy: `sequences` times `length` rows, one sequence after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// R, the sequences.
    pub sequences: usize,
    /// T, the positions of each: of its prompt and of its completion.
    pub length: usize,
    /// V, the entries of the vocabulary.
    pub vocab: usize,
    /// What logits are divided by.
    pub temperature: f64,
    /// Whether `old` is given: the log-probabilities when the tokens were sampled. They are today's otherwise.
    pub old: bool,
    /// Whether `reference` is given: the log-probabilities of another model.
    pub reference: bool,
}

impl Loss {
    /// A loss by two functions: from `logits` and a tape to named outputs, and from a tape to the loss.
    ///
    /// Fails where something does not fit, and where two inputs or two outputs of a part have one name.
    pub fn new(
        name: &str,
        vocab: usize,
        rows: impl FnOnce(&Tape, &Tensor) -> Vec<(&'static str, Tensor)>,
        whole: impl FnOnce(&Tape) -> Tensor,
    ) -> Result<Self, Error> {
        let builder = Builder::new(&format!("{name}_rows"));
        let logits = builder.tape().input("logits", Dtype::F32, [row_dim(builder.tape()), vocab.into()]);
        for (name, values) in rows(builder.tape(), &logits) {
            builder.tape().output(name, &values);
        }
        let rows = builder.finish()?;
        let builder = Builder::new(name);
        let loss = whole(builder.tape());
        builder.tape().output("loss", &loss);
        let both = Self { rows, whole: builder.finish()? };
        both.check()?;
        Ok(both)
    }

    /// Whether both parts are sound; an input that is declared twice is refused with its name.
    pub fn check(&self) -> Result<(), Error> {
        self.rows.check()?;
        self.whole.check()
    }

    /// The names of what is computed of each row.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.rows.outputs().iter().map(|(name, _)| name.as_str())
    }

    /// What `rows` asks for beside logits.
    pub fn extras(&self) -> impl Iterator<Item = (&str, &Type)> {
        let others = self.rows.inputs().filter(|(name, _)| *name != "logits");
        others.map(|(name, id)| (name, self.rows.ty(id)))
    }
}

impl Problem {
    /// The inputs of a chunk's product.
    pub fn operands(&self, tape: &Tape) -> Operands {
        let hidden = tape.input("hidden", self.dtype, [row_dim(tape), self.width.into()]);
        let weight = tape.input("weight", self.dtype, [self.vocab, self.width]);
        let bias = self.bias.then(|| tape.input("bias", self.dtype, [self.vocab]));
        Operands { hidden, weight, bias }
    }

    /// The outputs of the loss's rows, of some logits f32 (N, V) and inputs of their own.
    pub fn rows(&self, tape: &Tape, logits: &Tensor) -> Vec<(String, Tensor)> {
        let rows = &self.loss.rows;
        let given = |(name, id): (&str, reference::graph::Id)| match name {
            "logits" => logits.clone(),
            name => tape.input(name, rows.ty(id).dtype, &rows.ty(id).shape),
        };
        let given: Vec<Tensor> = rows.inputs().map(given).collect();
        let names = rows.outputs().iter().map(|(name, _)| name.clone());
        names.zip(tape.inline(rows, &given)).collect()
    }
}

/// The inputs of the last product.
pub struct Operands {
    /// (N, H)
    pub hidden: Tensor,
    /// (V, H)
    pub weight: Tensor,
    /// (V), if there is one.
    pub bias: Option<Tensor>,
}

/// The size of a chunk, or of all rows.
pub fn row_dim(tape: &Tape) -> Dim {
    tape.symbol(ROWS, Facts::range(1, LARGEST))
}

/// Whether a type's first dimension is that of the rows.
pub fn is_of_rows(ty: &Type) -> bool {
    ty.shape.first().is_some_and(|dim| *dim == Dim::symbol(ROWS))
}
