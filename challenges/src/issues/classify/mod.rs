//! (D) `classify`: a language model that answers which class a text belongs to.
//!
//! A classifier is the model without its output layer: a head of C rows gives C numbers for the last token of a text,
//! which has seen all of it. Four things about it go wrong without an error. Padding may be on the left, on the right,
//! or a token that the text holds as well, and the number of another token is as good a number. The same numbers are
//! three different questions, each with a loss of its own. The head is trained whole, beside low-rank pairs, so an
//! adapter's file that leaves it out loads, and answers by chance. And a score that is not what the data sheet calls by
//! that name compares with nothing.
//!
//! ```text
//! ids (B, T) --layers--> hidden (B, T, H) --last token--> (B, H) --score--> z (B, C) --problem--> v (B) --mean--> loss
//! ```
//!
//! **What is given.** The model and its gradient, as graphs. **What comes out.** Where rows are answered from, the loss
//! of each row as a graph, the tensors that are trained, and what the answers are worth.
//!
//! Sources: `GenericForSequenceClassification` and `ForSequenceClassificationLoss` of the `transformers` library, 5.24;
//! `PeftModelForSequenceClassification` of `peft`, 0.21; `confusion_matrix` and `f1_score` of `scikit-learn`.

use reference::graph::Tensor;

pub use reference::issues::classify::Problem;

use linked::{Linked, counted, linked};

// ANCHOR: classify-trait
/// The steps of sequence classification, from small to large. B are rows, T tokens of a row, C outputs of the head.
pub trait Classify: Sync {
    /// D.15 - where each row of `ids` (B, T) is answered from, as an index in the row: its last token that is not
    /// `pad`, on whichever side the padding is. A row of padding alone is answered from its first token, and without a
    /// token of padding each row from its last. `length` is T, at least 1; there may be no rows.
    fn last_tokens(&self, ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize>;

    /// D.16 - what each row's answer costs, f32 (B), of `logits` (B, C) of any float, which are cast to f32 first.
    /// [`Problem::SingleLabel`]: -ln softmax(z)[y], of `targets` i32 (B), classes of 0..C.
    /// [`Problem::MultiLabel`]: the mean over the outputs of -(y ln p + (1 - y) ln(1 - p)) with p = sigmoid(z), of
    /// `targets` f32 (B, C). [`Problem::Regression`]: the mean over the outputs of (z - y)^2, of `targets` f32 (B, C).
    /// Costs and gradients are finite for every z within 1e4 of 0; gradients pass to the logits alone.
    fn losses(&self, problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor;

    /// D.17 - every tensor of the adapter of a classifier, as its file names it: of the model's `layers`, in their
    /// order, those that are trained. A layer whose name ends with one of `modules_to_save`, or with `classifier` or
    /// `score`, is trained whole: `base_model.model.NAME.weight`. Of the others a linear one that is a target has a
    /// pair, `base_model.model.NAME.lora_A.weight` (r, in) and then `.lora_B.weight` (out, r): one called as one of
    /// `target_modules`, or whose name ends in a dot and one of these; without a list, all. Fails with the first
    /// target that is the name of no linear layer: that name is the whole error.
    fn trained(&self, layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Result<Vec<Trained>, String>;

    /// D.18 - what a row's `logits` (C), finite numbers, answer: the class of the largest, of equal ones the first; the
    /// labels that are more likely than not; or the numbers themselves.
    fn answer(&self, problem: Problem, logits: &[f32]) -> Answer;

    /// D.18 - how often each class was taken for each: (C, C), a row for each class that is true, a column for each
    /// that was answered. Of both lists, which are equally long, the classes are in 0..C.
    fn confusion(&self, truth: &[usize], answers: &[usize], classes: usize) -> Vec<u64>;

    /// D.18 - the F1 score of each class of a confusion (C, C): twice the right answers of it over its answers and its
    /// truths together. Nothing of a class that is neither.
    fn f1(&self, confusion: &[u64], classes: usize) -> Vec<Option<f64>>;
}
// ANCHOR_END: classify-trait

linked!(warpbook_classify -> Linked<dyn Classify>);

counted! {
    Classify, warpbook_classify;

    fn last_tokens(&self, ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize>;
    fn losses(&self, problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor;
    fn trained(&self, layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Result<Vec<Trained>, String>;
    fn answer(&self, problem: Problem, logits: &[f32]) -> Answer;
    fn confusion(&self, truth: &[usize], answers: &[usize], classes: usize) -> Vec<u64>;
    fn f1(&self, confusion: &[u64], classes: usize) -> Vec<Option<f64>>;
}

/// A layer of a model that has a weight of two dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer<'m> {
    /// Its name in the model: `model.layers.0.self_attn.q_proj`.
    pub name: &'m str,
    /// The dimensions of its weight: (out, in) of a linear one.
    pub shape: [usize; 2],
    /// Whether it is linear; the embedding is not.
    pub is_linear: bool,
}

/// What an adapter's settings say about what is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter<'s> {
    /// r: rows of A, columns of B.
    pub rank: usize,
    /// The layers that get a pair, by their names; `None` of "all-linear".
    pub target_modules: Option<&'s [&'s str]>,
    /// The layers that are trained whole, by the ends of their names.
    pub modules_to_save: &'s [&'s str],
}

/// A tensor of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trained {
    /// Its name in the adapter's file.
    pub name: String,
    /// Its dimensions.
    pub shape: [usize; 2],
}

/// The names that `peft` adds to `modules_to_save` of every classifier, of whichever model.
pub const HEADS: [&str; 2] = ["classifier", "score"];

/// What a classifier answers of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A class, of [`Problem::SingleLabel`].
    Class(usize),
    /// Of each label whether the row has it, of [`Problem::MultiLabel`].
    Labels(Vec<bool>),
    /// Numbers, of [`Problem::Regression`].
    Numbers(Vec<f32>),
}

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_classify().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
