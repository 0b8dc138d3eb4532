//! E.5: policies that are trained on completions with rewards.

use challenges::loss::plan::{ChunkPlan, Passes};
use challenges::loss::{Chunked, Loss, Problem, Sampled};
use reference::graph::Array;
use reference::graph::Dtype;
use reference::loss::{Average, Clip, Head, IGNORED, Level, LogProbabilities, Policy, Reduction, Tokens};

use super::{Check, Rows};
use crate::compare::describe;
use crate::loss::case::{Case, Found, SMALL, Sizes, Trial};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("grpo", |on, random| of(on, Policy::grpo(0.0, CLIP), SAMPLED, random)),
    ("two-sided-clip", |on, random| {
        of(on, Policy::dapo(0.0, Clip { high: 0.28, ..CLIP }, 29.0), SAMPLED, random)
    }),
    ("bnpo", |on, random| of(on, Policy::bnpo(0.0, CLIP), SAMPLED, random)),
    ("dr-grpo", |on, random| of(on, Policy::dr_grpo(0.0, CLIP, 5.0), SAMPLED, random)),
    ("gspo", |on, random| of(on, Policy::gspo(0.1, CLIP), REFERRED, random)),
    ("reference", |on, random| of(on, Policy::grpo(0.04, CLIP), REFERRED, random)),
    ("without-old", |on, random| of(on, Policy::grpo(0.1, CLIP), Sampled { old: false, ..REFERRED }, random)),
    ("temperature", |on, random| {
        of(on, Policy::grpo(0.0, CLIP), Sampled { temperature: 0.7, ..SAMPLED }, random)
    }),
    ("delta", |on, random| {
        // above 1 + high, or it would hold the ratio where the advantage is positive as well
        of(on, Policy::grpo(0.0, Clip { delta: Some(1.4), ..CLIP }), SAMPLED, random)
    }),
    ("masks", |on, random| {
        (0..5).try_for_each(|round| {
            let prompt =
                Prompt { length: round % 3 + 1, empty: if round < 4 { 1 } else { SAMPLED.sequences } };
            let policies = [
                (Policy::grpo(0.0, CLIP), SAMPLED),
                (Policy::bnpo(0.0, CLIP), SAMPLED),
                (Policy::gspo(0.1, CLIP), REFERRED),
            ];
            policies.into_iter().try_for_each(|(policy, sampled)| right(on, policy, sampled, prompt, random))
        })
    }),
    ("one-pass-for-tokens", |on, random| one_pass(on, &Policy::grpo(0.0, CLIP), &SAMPLED, random)),
];

const CLIP: Clip = Clip { low: 0.2, high: 0.2, delta: None };

/// Completions with the numbers of the policy that wrote them.
const SAMPLED: Sampled =
    Sampled { sequences: 3, length: 6, vocab: SMALL.vocab, temperature: 1.0, old: true, reference: false };

/// The same with those of a reference model.
const REFERRED: Sampled = Sampled { reference: true, ..SAMPLED };

/// What stands before completions.
#[derive(Clone, Copy)]
struct Prompt {
    /// Tokens of it.
    length: usize,
    /// Completions without a token, the first ones.
    empty: usize,
}

/// A policy with its completions, drawn five times.
fn of(on: Trial<'_>, policy: Policy, sampled: Sampled, random: &mut Random) -> Result<(), String> {
    let prompt = Prompt { length: 2, empty: 0 };
    (0..5).try_for_each(|_| right(on, policy, sampled, prompt, random))
}

/// That a policy's results are the written ones; those of sequences also where all tokens have one average.
fn right(
    on: Trial<'_>,
    policy: Policy,
    sampled: Sampled,
    prompt: Prompt,
    random: &mut Random,
) -> Result<(), String> {
    let loss = on.attempt.policy(&policy, &sampled).map_err(describe)?;
    let case = completions(loss, &sampled, prompt, random);
    for size in [4, sampled.sequences * sampled.length] {
        let got = case.run(on, size)?;
        near_policy(&case, &policy, &sampled, &got)
            .map_err(|message| format!("{size} rows at a time: {message}"))?;
    }
    if policy.level == Level::Sequence && policy.average == Average::Sequences {
        let all = Policy { average: Average::Tokens, ..policy };
        let loss = on.attempt.policy(&all, &sampled).map_err(describe)?;
        let case = Case { problem: Problem { loss, ..case.problem.clone() }, ..case };
        near_policy(&case, &all, &sampled, &case.run(on, 5)?)?;
    }
    Ok(())
}

/// Completions after prompts, of unequal length; numbers of tokens that do not count are not even finite.
fn completions(loss: Loss, sampled: &Sampled, prompt: Prompt, random: &mut Random) -> Case {
    let Prompt { length: prompt, empty } = prompt;
    let Sampled { sequences, length, vocab, .. } = *sampled;
    let sizes = Sizes { rows: sequences * length, ..SMALL };
    let mut case = Case::drawn(loss, sizes, random);
    let mut tokens = Vec::new();
    for sequence in 0..sequences {
        let end = if sequence < empty { prompt } else { prompt + 1 + random.below(length - prompt) };
        tokens.extend(
            (0..length).map(|t| if t < prompt || t >= end { IGNORED } else { random.below(vocab) as i32 }),
        );
    }
    let labels = challenges::loss::Solution.shift(&tokens, length);
    let sign = |one: bool| if one { 1.0 } else { -1.0 };
    let advantages: Vec<f64> =
        (0..sequences).map(|i| f64::from((sign(i % 2 == 0) * (0.3 + random.unit())) as f32)).collect();
    let each = |numbers: Vec<f64>| Array::floats(Dtype::F32, &[labels.len()], numbers);
    let garbage = |row: usize, x: f64| if labels[row] == IGNORED { f64::NAN } else { f64::from(x as f32) };
    let mut near = |spread: f64| {
        let numbers = case.log_probabilities(&labels, sampled.temperature).into_iter().enumerate();
        // likelier by now or less likely, and both by more than a clip allows
        numbers
            .map(|(row, x)| garbage(row, x + spread * sign(random.below(2) == 0) * (0.2 + random.unit())))
            .collect::<Vec<f64>>()
    };
    let (old, reference) = (near(0.5), near(0.8));
    case.values.insert("old".into(), each(old));
    case.values.insert("reference".into(), each(reference));
    let of_rows = (0..labels.len()).map(|row| garbage(row, advantages[row / length]));
    case.values.insert("advantages".into(), each(of_rows.collect()));
    case.values.insert("labels".into(), Array::integers(&[labels.len()], labels.clone()));
    case.counts = labels.iter().map(|label| *label != IGNORED).collect();
    case
}

/// A policy's loss and gradients against the written ones in f64.
fn near_policy(case: &Case, policy: &Policy, sampled: &Sampled, got: &Found) -> Result<(), String> {
    let labels = case.values["labels"].as_integers();
    let floats = |name: &str| case.values[name].wide();
    let mask: Vec<f64> = labels.iter().map(|label| f64::from(u8::from(*label != IGNORED))).collect();
    let (hidden, weight) = (floats("hidden"), floats("weight"));
    let linear =
        reference::loss::Linear { hidden: &hidden, weight: &weight, bias: None, width: case.problem.width };
    let (z, vocab) = linear.exact().map_err(describe)?;
    let head = Head::temperature(sampled.temperature);
    let logits = head.exact(&z).map_err(describe)?;
    let tokens = LogProbabilities::default().exact(&logits, vocab, labels).map_err(describe)?;
    let (old, reference) = (floats("old"), floats("reference"));
    let advantages = floats("advantages");
    let of_a_token = |row: &[f64]| row.iter().copied().find(|x| !x.is_nan()).unwrap_or(0.0);
    let of_sequences: Vec<f64> = advantages.chunks(sampled.length).map(of_a_token).collect();
    let given = Tokens {
        log_p: tokens.values.as_slice(),
        old: sampled.old.then_some(old.as_slice()),
        reference: sampled.reference.then_some(reference.as_slice()),
        advantages: of_sequences.as_slice(),
        mask: &mask,
    };
    let value = policy
        .exact(&given, sampled.length)
        .and_then(|rows| rows.reduce(Reduction::Mean))
        .map_err(describe)?;
    let gradients = linear.pull_back(&head.pull_back(&z, &tokens.pull_back(&value.gradient)));
    let all =
        [("loss", value.loss.clone()), ("hidden.grad", gradients.hidden), ("weight.grad", gradients.weight)];
    for (name, want) in all {
        let got = got.get(name).ok_or_else(|| format!("there is no `{name}`"))?.wide();
        let largest = want.iter().fold(0.1_f64, |largest, x| largest.max(x.abs()));
        let far = |i: &usize| (got[*i] - want[*i]).abs() > 1e-5 * largest || got[*i].is_nan();
        if let Some(i) = (0..want.len()).find(far) {
            let cause = likely(policy, sampled, mask.iter().sum(), &got, &want);
            return Err(format!("`{name}`, element {i}: got {:e}, want {:e}{cause}", got[i], want[i]));
        }
    }
    Ok(())
}

/// What is the matter with a result, where that can be seen: every number is as many times too large as the divisor is
/// too small.
fn likely(policy: &Policy, sampled: &Sampled, tokens: f64, got: &[f64], want: &[f64]) -> String {
    let sequences = sampled.sequences as f64;
    let (times, cause) = match policy.average {
        Average::Items(items) => (
            items / tokens,
            format!("the {tokens} tokens of this batch, and not by the {items} of all batches"),
        ),
        Average::Length(length) => (
            sequences,
            format!("the length alone, {length}, and not by {sequences} sequences of that length"),
        ),
        Average::Sequences | Average::Tokens => return String::new(),
    };
    let near = |(got, want): (&f64, &f64)| (got - times * want).abs() <= 1e-4 * (times * want).abs().max(0.1);
    let is_cause = got.iter().zip(want).all(near);
    if is_cause { format!("\nlikely cause: it is divided by {cause}") } else { String::new() }
}

/// Where tokens have ratios of their own, their sum takes no second pass.
fn one_pass(on: Trial<'_>, policy: &Policy, sampled: &Sampled, random: &mut Random) -> Result<(), String> {
    let loss = on.attempt.policy(policy, sampled).map_err(describe)?;
    let case = completions(loss, sampled, Prompt { length: 2, empty: 0 }, random);
    let plan =
        ChunkPlan::new(&challenges::loss::Solution, &case.problem, &case.counts, 4).map_err(describe)?;
    match plan.graphs.passes {
        Passes::One => Ok(()),
        Passes::OneThenScale { .. } | Passes::OneByGroups(_) | Passes::Two(_) => {
            Err("each token's loss is made of its own numbers, and `whole` asks for the values of all rows \
            before there is a gradient: with a trained weight the logits are computed twice"
                .into())
        }
    }
}
