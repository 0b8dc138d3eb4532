//! D.10: a back end for the features that are wanted, and a verdict on each of the others.

use challenges::issues::attention::backends::ON_A_CARD;
use challenges::issues::attention::{Attend, BACK_ENDS, BackEnd, Feature, Verdict, Way};

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("the-first-that-can", |steps, _| right(steps, &[Feature::Causal], &BACK_ENDS)),
    ("documents-are-packed", |steps, _| {
        right(steps, &[Feature::Causal, Feature::Documents], &BACK_ENDS)?;
        right(steps, &[Feature::RightPadding, Feature::Gradients], &BACK_ENDS)
    }),
    ("a-feature-is-not-dropped", |steps, _| {
        right(steps, &[Feature::Documents, Feature::ScoreProgram, Feature::Gradients], &BACK_ENDS)?;
        right(steps, &[Feature::Decoding, Feature::Dropout], &BACK_ENDS)
    }),
    ("none-can", |steps, _| {
        let few = &BACK_ENDS[..3];
        right(steps, &[Feature::Causal, Feature::Dropout], few)?;
        right(steps, &[], &[])
    }),
    ("nothing-wanted", |steps, _| right(steps, &[], &BACK_ENDS)),
    ("on-a-card", |steps, _| right(steps, &[Feature::Decoding, Feature::Lse], &ON_A_CARD)),
    ("meant-for-others-that-lack-it", |steps, _| right(steps, &[Feature::Dropout], &BACK_ENDS)),
    ("lacks-the-first-that-is-wanted", |steps, _| {
        right(steps, &[Feature::Dropout, Feature::Gradients], &BACK_ENDS[1..3])?;
        right(steps, &[Feature::Gradients, Feature::Dropout], &BACK_ENDS[1..3])
    }),
    ("drawn-back-ends", |steps, random| {
        (0..64).try_for_each(|_| {
            let back_ends: Vec<BackEnd> = (0..random.below(6)).map(|_| drawn(random)).collect();
            right(steps, &some(random, 3), &back_ends)
        })
    }),
];

/// Up to `most` features, each once, in their order.
fn some(random: &mut Random, most: usize) -> Vec<Feature> {
    let count = random.below(most + 1);
    let mut features = Feature::ALL.to_vec();
    while features.len() > count {
        features.remove(random.below(features.len()));
    }
    features
}

/// A back end that claims most features, and is sometimes meant for some.
pub(super) fn drawn(random: &mut Random) -> BackEnd {
    let lacks = some(random, 6);
    let has: Vec<Feature> = Feature::ALL.into_iter().filter(|feature| !lacks.contains(feature)).collect();
    BackEnd { name: "drawn", way: Way::Tiled, has: has.leak(), of: some(random, 2).leak() }
}

pub(super) fn right(steps: &dyn Attend, wanted: &[Feature], back_ends: &[BackEnd]) -> Result<(), String> {
    let what = || format!("{wanted:?} of {:?}", back_ends.iter().map(|one| one.name).collect::<Vec<_>>());
    same(&what(), &steps.choose(wanted, back_ends), &verdicts(wanted, back_ends))
}

/// One after the other, by the words of the step.
fn verdicts(wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for back_end in back_ends {
        let is_meant = back_end.of.is_empty() || wanted.iter().any(|feature| back_end.of.contains(feature));
        let lacking = wanted.iter().copied().find(|feature| !back_end.has.contains(feature));
        verdicts.push(match (is_meant, lacking) {
            (false, _) => Verdict::MeantFor(back_end.of),
            (true, Some(feature)) => Verdict::Lacks(feature),
            (true, None) if verdicts.contains(&Verdict::Taken) => Verdict::Slower,
            (true, None) => Verdict::Taken,
        });
    }
    verdicts
}
