//! What is measured of an attempt at sequence classification: gradients of batches of every kind, and a training.

use std::collections::BTreeMap;

use challenges::issues::classify::{Answer, Classify, Problem};
use challenges::nf4::DEQUANTIZER;
use challenges::train::Trainer;
use compiler::session::Settings;
use figures::confusion::accuracy;
use kernels::{Cpu, Device as _};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Graph, interpret};
use reference::issues::classify::last_tokens;
use reference::llama::train::trained_types;
use reference::loss::IGNORED;

use super::super::part::{answer, number};
use super::costs::PROBLEMS;
use super::task::{Batch, CLASSES, PAD, Side};
use super::trial::{Found, Trial};
use crate::compare::describe;
use crate::gather::Child;
use crate::graph::model::Model;
use crate::random::Random;

/// Steps of the training.
pub(super) const STEPS: u64 = 120;

/// Steps after which texts that are held out are answered.
const LOOKS: [u64; 4] = [0, 40, 80, STEPS];

/// The last look: the accuracy is that of its answers.
pub(crate) const LAST_CONFUSION: &str = "issues.classifier.confusion.120";

/// Texts of a step, and those that are held out.
const TEXTS: usize = 16;
const HELD_OUT: usize = 240;

/// The learning rate.
const RATE: f64 = 5e-3;

/// Gradients of a batch of each problem, padded on each side.
pub(super) fn gradients(child: &mut Child, attempt: &dyn Classify) {
    let seed = child.request.effort.seed;
    let Some(apart) = answer(child, "issues.classifier.gradient", || batches(attempt, seed)) else { return };
    let largest = |of: fn(&[f64; 2]) -> f64| apart.iter().map(of).fold(0.0, f64::max);
    let relative = |value: f64| number(value, "relative", Vec::new());
    child.measured("issues.classifier.batches", number(apart.len() as f64, "count", Vec::new()));
    child.measured("issues.classifier.loss", relative(largest(|apart| apart[0])));
    child.measured("issues.classifier.gradient", relative(largest(|apart| apart[1])));
}

/// How far loss and gradients of each batch are from the truth, as a part of it.
fn batches(attempt: &dyn Classify, seed: u64) -> Result<Vec<[f64; 2]>, String> {
    let mut random = Random::named(seed, "classifier batches");
    let mut all = Vec::new();
    for problem in PROBLEMS {
        let trial = Trial::new(attempt, problem, seed)?;
        for side in [Side::Left, Side::Right] {
            let batch = Batch::drawn(5, trial.vocab(), side, &mut random);
            let (found, truth) = (trial.found(&batch)?, trial.truth(&batch)?);
            let loss = ((found.loss - truth.loss) / truth.loss).abs();
            all.push([finite(loss), gradient_apart(&found, &truth)]);
        }
    }
    Ok(all)
}

/// The largest difference of a tensor's gradient, as a part of its norm.
fn gradient_apart(found: &Found, truth: &Found) -> f64 {
    let own: BTreeMap<&String, &Vec<f64>> = found.gradients.iter().map(|(name, own)| (name, own)).collect();
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let apart = truth.gradients.iter().map(|(name, truth)| {
        let Some(own) = own.get(name).filter(|own| own.len() == truth.len()) else { return f64::MAX };
        let size = norm(&mut truth.iter().copied());
        finite(norm(&mut own.iter().zip(truth).map(|(own, truth)| own - truth)) / size)
    });
    apart.fold(0.0, f64::max)
}

/// A number that a report can hold.
fn finite(x: f64) -> f64 {
    if x.is_nan() { f64::MAX } else { x.min(f64::MAX) }
}

/// A run with the attempt's loss and one with the oracle's, on the same texts; what the first answers.
pub(super) fn training(child: &mut Child, attempt: &dyn Classify) {
    let seed = child.request.effort.seed;
    let Some(runs) = answer(child, "issues.classifier.training", || both(attempt, seed)) else { return };
    let Runs { losses, confusions } = runs;
    child.measured(
        "issues.classifier.training",
        number(crate::loss::series_apart(&[losses[1].clone(), losses[0].clone()]), "relative", Vec::new()),
    );
    for (name, losses) in ["attempt", "oracle"].into_iter().zip(losses) {
        if let Some(last) = losses.last().copied().filter(|_| losses.iter().all(|loss| loss.is_finite())) {
            child.measured(&format!("issues.classifier.losses.{name}"), number(last, "nats", losses));
        }
    }
    for (step, confusion) in &confusions {
        let counts: Vec<f64> = confusion.iter().map(|count| *count as f64).collect();
        let name = format!("issues.classifier.confusion.{step}");
        child.measured(&name, number(counts.iter().sum(), "count", counts));
    }
    if let Some((_, confusion)) = confusions.last() {
        let counts: Vec<f64> = confusion.iter().map(|count| *count as f64).collect();
        child.measured("issues.classifier.accuracy", number(accuracy(&counts), "share", Vec::new()));
    }
}

/// The losses before each update, with the attempt's steps and with the oracle's, and the confusions of the former.
struct Runs {
    losses: [Vec<f64>; 2],
    confusions: Vec<(u64, Vec<u64>)>,
}

fn both(attempt: &dyn Classify, seed: u64) -> Result<Runs, String> {
    let trial = Trial::new(attempt, Problem::SingleLabel, seed)?;
    trial.trained()?;
    let mut random = Random::named(seed, "classifier texts");
    let sides = [Side::Left, Side::Right].into_iter().cycle();
    let batches: Vec<Batch> = sides
        .take(STEPS as usize)
        .map(|side| Batch::drawn(TEXTS, trial.vocab(), side, &mut random))
        .collect();
    let held_out = Batch::drawn(HELD_OUT, trial.vocab(), Side::Right, &mut random);
    let mut confusions = Vec::new();
    let mut look = |step: u64, weights: &Values<f32>| {
        if LOOKS.contains(&step) {
            confusions.push((step, confusion(&trial, &held_out, weights)?));
        }
        Ok(())
    };
    let own = run(&trial, trial.loss()?, &batches, &|batch| trial.batch(batch), &mut look)?;
    let oracle = trial.model.spec.training_loss().map_err(describe)?;
    let batch = |batch: &Batch| Ok(labelled(&trial, batch));
    let truth = run(&trial, oracle, &batches, &batch, &mut |_, _| Ok(()))?;
    Ok(Runs { losses: [own, truth], confusions })
}

/// A batch as the model's own loss reads it: each class beside the token that is answered from.
fn labelled(trial: &Trial<'_>, batch: &Batch) -> Values<f32> {
    let [rows, length] = batch.shape;
    let mut labels = vec![IGNORED; rows * length];
    for (row, last) in last_tokens(&batch.ids, length, Some(PAD)).into_iter().enumerate() {
        labels[row * length + last] = batch.classes[row] as i32;
    }
    let mut values = trial.tokens(batch);
    values.insert("labels".into(), Array::integers(&batch.shape, labels));
    values
}

/// Sees what is trained, after so many steps.
type Look<'l> = &'l mut dyn FnMut(u64, &Values<f32>) -> Result<(), String>;

/// The loss before each update. `look` sees what is trained, before the first step and after each.
fn run(
    trial: &Trial<'_>,
    loss: Graph,
    batches: &[Batch],
    values: &dyn Fn(&Batch) -> Result<Values<f32>, String>,
    look: Look<'_>,
) -> Result<Vec<f64>, String> {
    let step = Model::step(loss)?;
    let parameters = trained_types(&step).map_err(describe)?;
    let optimizer = Model::recipe().optimizer;
    let mut start = trial.model.start(&step);
    start.retain(|name, _| !optimizer.rates::<f32>(1, RATE).contains_key(name));
    let cpu = Cpu::with_threads(1);
    let passes = &challenges::graph::Solution;
    let trainer = Trainer::new(passes, &cpu, &DEQUANTIZER, Settings::default(), &step, &start);
    let mut trainer = trainer.map_err(describe)?;
    let mut losses = Vec::new();
    let trained = |trainer: &Trainer<'_>| {
        let mut weights = trial.weights();
        for (name, ty) in &parameters {
            let kept = trainer.kept(name).ok_or_else(|| format!("{name} is not kept"))?;
            let mut bytes = vec![0; kept.buffer.bytes()];
            cpu.download(&kept.buffer, &mut bytes).map_err(describe)?;
            weights.insert(name.clone(), Array::from_memory(ty.dtype, &kept.shape, &bytes));
        }
        Ok::<_, String>(weights)
    };
    look(0, &trained(&trainer)?)?;
    for (number, batch) in (1..).zip(batches) {
        let mut batch = values(batch)?;
        batch.append(&mut optimizer.rates(number, RATE));
        losses.push(trainer.step(&batch).map_err(describe)?);
        look(number, &trained(&trainer)?)?;
    }
    Ok(losses)
}

/// Which class was answered for which, by the attempt.
fn confusion(trial: &Trial<'_>, batch: &Batch, weights: &Values<f32>) -> Result<Vec<u64>, String> {
    let graph = trial.model.spec.forward().map_err(describe)?;
    let mut values = trial.tokens(batch);
    values.extend(weights.clone());
    let logits = interpret(&graph, &values).map_err(describe)?.swap_remove(0);
    debug_assert_eq!(logits.dtype, Dtype::F32);
    let answer = |row: i32| {
        let of_row = &logits.as_floats()[row as usize * CLASSES..][..CLASSES];
        match trial.attempt.answer(Problem::SingleLabel, of_row) {
            Answer::Class(class) if class < CLASSES => Ok(class),
            other => Err(format!("D.18 answers {other:?} to {CLASSES} classes")),
        }
    };
    let answers = trial.answers(batch)?.into_iter().map(answer).collect::<Result<Vec<_>, _>>()?;
    let confusion = trial.attempt.confusion(&batch.classes, &answers, CLASSES);
    let counted: u64 = confusion.iter().sum();
    if confusion.len() != CLASSES * CLASSES || counted != batch.classes.len() as u64 {
        return Err(format!("D.18 counts {confusion:?} of {} answers", batch.classes.len()));
    }
    Ok(confusion)
}
