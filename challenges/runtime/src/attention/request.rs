//! What is wanted of an attention, and the features that a back end needs for it.

use std::sync::Arc;

use reference::graph::Tensor;
use reference::graph::programs::ScoreEntry;

use super::Rules;
use super::back_end::BackEnd;
use super::contract::{Attend, Verdict};
use super::feature::Feature;

/// A program of a reader's own, as a function of one score.
pub type Body = Arc<dyn Fn(&ScoreEntry) -> Tensor + Send + Sync>;

/// What is wanted. In the order of what becomes of a score: scale, soft cap, slopes, the score program, the mask.
#[derive(Clone, Default)]
pub struct Request {
    /// What the product of a query and a key is multiplied with.
    pub scale: f64,
    /// The place of the first query among the keys.
    pub offset: usize,
    /// Which keys a query sees, by their places. Padding is a document's number, too.
    pub rules: Rules,
    /// cap tanh(score / cap), as Gemma 2 has it.
    pub softcap: Option<f64>,
    /// score + 2^(-8 (head + 1) / heads) (key - query).
    pub alibi: bool,
    /// From a score to a score.
    pub score: Option<Body>,
    /// Whether the query may see the key, beside the rules, u8.
    pub mask: Option<Body>,
    /// Whether each head has a logit that takes its share of the softmax.
    pub sinks: bool,
    /// The probability that a weight is kept, not dropped.
    pub keep: Option<f64>,
    /// What the tensors are like: padding, documents, grouped heads, short queries, decoding, dynamic lengths; and
    /// whether L and gradients are wanted.
    pub more: Vec<Feature>,
}

impl Request {
    /// Its features, in the order of [`Feature::ALL`].
    pub fn features(&self) -> Vec<Feature> {
        let own = |feature: &Feature| match feature {
            Feature::Causal => self.rules.causal,
            Feature::Window => self.rules.window.is_some(),
            Feature::Prefix => self.rules.prefix.is_some(),
            Feature::SoftCap => self.softcap.is_some(),
            Feature::Alibi => self.alibi,
            Feature::ScoreProgram => self.score.is_some(),
            Feature::MaskProgram => self.mask.is_some(),
            Feature::Dropout => self.keep.is_some(),
            Feature::Sinks => self.sinks,
            Feature::Documents
            | Feature::LeftPadding
            | Feature::RightPadding
            | Feature::GroupedHeads
            | Feature::ShortQueries
            | Feature::Decoding
            | Feature::Lse
            | Feature::Gradients
            | Feature::DynamicLengths => self.more.contains(feature),
        };
        Feature::ALL.into_iter().filter(own).collect()
    }

    /// The back end for it, and what became of each: a line a back end.
    ///
    /// # Errors
    /// If no back end has all of its features; the lines say which lacks what.
    pub fn choose(
        &self,
        steps: &dyn Attend,
        back_ends: &'static [BackEnd],
    ) -> Result<(&'static BackEnd, String), String> {
        let verdicts = steps.choose(&self.features(), back_ends);
        let lines = explain(back_ends, &verdicts);
        let taken = back_ends.iter().zip(&verdicts).find(|(_, verdict)| **verdict == Verdict::Taken);
        match taken {
            Some((back_end, _)) => Ok((back_end, lines)),
            None => {
                Err(format!("expected a back end with {}, found none:\n{lines}", listed(&self.features())))
            }
        }
    }
}

fn listed(features: &[Feature]) -> String {
    features.iter().map(Feature::to_string).collect::<Vec<_>>().join(", ")
}

/// A line for each back end: taken, or why not.
pub fn explain(back_ends: &[BackEnd], verdicts: &[Verdict]) -> String {
    let line = |(back_end, verdict): (&BackEnd, &Verdict)| {
        let why = match verdict {
            Verdict::Taken => "taken".to_owned(),
            Verdict::Slower => "could, an earlier one is taken".to_owned(),
            Verdict::MeantFor(of) => format!("is meant for {}", listed(of)),
            Verdict::Lacks(feature) => format!("refused: lacks {feature}"),
        };
        format!("{:10} {why}\n", back_end.name)
    };
    back_ends.iter().zip(verdicts).map(line).collect()
}
