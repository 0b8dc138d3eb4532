//! Every golden loss with its gradients, chunked in f32: one row at a time, three, and all at once.
//!
//! The rule is that of [`crate::loss::golden`]: no further off than rounding alone is.

use challenges::loss::losses::{self, Answers};
use challenges::loss::problem::row_dim;
use challenges::loss::{Chunked, Loss, Problem, Sampled, Solution, Trains};
use kernels::Device;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Error, Tensor};
use reference::loss::{Dpo, Head, IGNORED, Orpo, Reduction, Rows, kept};
use tests::one_graph::{CPU, card};

use super::case::Case;
use crate::loss::golden::{self, Found, Stored, bound, each_case, far};

#[test]
fn every_golden_loss_is_as_near_in_chunks_as_rounding_allows() {
    each_case(|golden, stored| near(golden, stored, &stored.wanted()));
}

#[test]
fn settings_that_no_golden_loss_combines_are_as_near_the_oracle() {
    each_case(|golden, stored| {
        let [mut capped, mut summed] = [golden.clone(), golden.clone()];
        (capped.softcap, capped.scale) = (Some(7.0), Some(0.5));
        (summed.z_loss, summed.reduction) = (Some(0.01), Some("sum".into()));
        for golden in [capped, summed] {
            near(&golden, stored, &golden.exact(stored, |x| x).expect("sound"));
        }
    });
}

/// That a loss in chunks is no further off than rounding alone is.
fn near(golden: &golden::Case, stored: &Stored, wanted: &Found) {
    let bound = bound(golden, stored, wanted);
    let case = case(golden, stored);
    let on_cpu = [1, 3, case.counts.len()].map(|size| (&*CPU as &dyn Device, size));
    for (device, size) in on_cpu.into_iter().chain(card().map(|card| (card, 3))) {
        let found = far(&found(device, &case, size), wanted);
        let fine = (0..4).all(|i| found[i] <= bound[i]);
        let (name, on) = (&golden.name, device.name());
        assert!(fine, "{name}, {size} rows at a time on {on}: off by {found:?}, not {bound:?}");
    }
}

fn found(device: &dyn Device, case: &Case, size: usize) -> Found {
    let got = case.run(device, size);
    let names = ["loss", "hidden.grad", "weight.grad", "bias.grad"];
    names.map(|name| got.get(name).map(Array::wide).unwrap_or_default())
}

/// The stored problem.
fn case(golden: &golden::Case, stored: &Stored) -> Case {
    let [vocab, width] = stored.shape("weight")[..] else { panic!("{}: a weight is (V, H)", golden.name) };
    let written = write(golden, stored, [vocab, width]);
    let labels = labels(stored);
    let problem = Problem {
        loss: written.unwrap_or_else(|error| panic!("{}: {error}", golden.name)),
        width,
        vocab,
        dtype: Dtype::F32,
        accumulate_dtype: Dtype::F32,
        bias: stored.floats("bias").is_some(),
        trains: Trains { hidden: true, weight: true, bias: true },
    };
    let counts: Vec<bool> = labels.iter().map(|label| *label != IGNORED).collect();
    Case { values: values(stored, labels), problem, counts, upstream: None }
}

/// A label that does not count where a mask says so.
fn labels(stored: &Stored) -> Vec<i32> {
    let labels = stored.labels();
    let mask = stored.floats("mask").unwrap_or_else(|| vec![1.0; labels.len()]);
    labels.into_iter().zip(mask).map(|(label, mask)| if mask == 0.0 { IGNORED } else { label }).collect()
}

fn values(stored: &Stored, labels: Vec<i32>) -> Values<f64> {
    let rows = labels.len();
    let mut values = Values::new();
    let mut floats = |name: &str, shape: Vec<usize>, numbers: Option<Vec<f64>>| {
        numbers.map(|numbers| values.insert(name.into(), Array::floats(Dtype::F32, &shape, numbers)));
    };
    for part in ["hidden", "weight", "bias", "class_weight", "teacher_hidden", "teacher_weight"] {
        let flat = |numbers: &Vec<f64>, shape: Vec<usize>| match shape[..] {
            [.., width] if shape.len() == 3 => vec![numbers.len() / width, width],
            _ => shape,
        };
        let numbers = stored.floats(part);
        let shape = numbers.as_ref().map(|numbers| flat(numbers, stored.shape(part)));
        floats(part, shape.unwrap_or_default(), numbers);
    }
    let [_, length] = stored.sequences();
    let repeated = |of: Vec<f64>| of.into_iter().flat_map(|x| vec![x; length]).collect();
    floats("advantages", vec![rows], stored.floats("advantages").map(repeated));
    floats("old", vec![rows], stored.floats("old_logps"));
    let reference = stored.floats("ref_logps");
    floats("reference", vec![reference.as_ref().map_or(0, Vec::len)], reference);
    floats(
        "mask",
        vec![rows],
        Some(labels.iter().map(|label| f64::from(u8::from(*label != IGNORED))).collect()),
    );
    values.insert("labels".into(), Array::integers(&[rows], labels));
    values
}

fn write(golden: &golden::Case, stored: &Stored, [vocab, width]: [usize; 2]) -> Result<Loss, Error> {
    let [count, length] = stored.sequences();
    let (head, answers) = (golden.head(), Answers { count, length, vocab });
    match golden.loss.as_str() {
        "cross_entropy" => cross_entropy(golden, stored, vocab),
        "forward_kl" | "jsd" => distillation(golden, vocab, width),
        "dpo" => {
            let dpo = Dpo { beta: golden.beta(), label_smoothing: 0.0 };
            answers.dpo(dpo, Reduction::Mean).and_then(|loss| through_head(head, loss, vocab))
        }
        "orpo" => {
            let loss = answers.orpo(Orpo { beta: golden.beta() }, Reduction::Mean);
            loss.and_then(|loss| through_head(head, loss, vocab))
        }
        _ => policy(golden, stored, vocab),
    }
}

/// The mean of the z-loss is taken over the rows that count, however the other part is reduced.
fn cross_entropy(golden: &golden::Case, stored: &Stored, vocab: usize) -> Result<Loss, Error> {
    let (settings, reduction) = (golden.cross_entropy(), golden.reduction());
    let weighted = stored.floats("class_weight").is_some();
    let write =
        |settings, reduction| losses::cross_entropy(settings, golden.head(), vocab, weighted, reduction);
    let loss = write(settings, reduction)?;
    if settings.z_loss == 0.0 || reduction == Reduction::Mean {
        return Ok(loss);
    }
    let mut plain = settings;
    plain.z_loss = 0.0;
    let plain = write(plain, reduction)?.whole;
    let builder = Builder::new("cross_entropy");
    let tape = builder.tape();
    let rows = row_dim(tape);
    let given: Vec<Tensor> =
        plain.inputs().map(|(name, id)| tape.input(name, plain.ty(id).dtype, &plain.ty(id).shape)).collect();
    let labels = plain.inputs().zip(&given).find(|((name, _), _)| *name == "labels").expect("labels").1;
    let z =
        Rows { values: tape.input("z", Dtype::F32, [rows]), weights: kept(labels, settings.ignore_index) };
    tape.output("loss", &(&tape.inline(&plain, &given)[0] + &z.reduce(Reduction::Mean)));
    Ok(Loss { whole: builder.finish()?, ..loss })
}

/// The teacher's logits go through the head too.
fn distillation(golden: &golden::Case, vocab: usize, width: usize) -> Result<Loss, Error> {
    let plain = losses::distillation(golden.divergence(), vocab, width, Reduction::Mean)?;
    let head = golden.head();
    if head == Head::default() {
        return Ok(plain);
    }
    let builder = Builder::new("distillation");
    let tape = builder.tape();
    let (rows, f32) = (row_dim(tape), Dtype::F32);
    let logits = tape.input("logits", f32, [rows.clone(), vocab.into()]);
    let hidden = tape.input("teacher_hidden", f32, [rows.clone(), width.into()]);
    let weight = tape.input("teacher_weight", f32, [vocab, width]);
    let (logits, teacher) = (head.graph(&logits), head.graph(&hidden.matmul(&weight.t())));
    let mask = tape.input("mask", f32, [rows]);
    tape.output("divergence", &golden.divergence().rows(&logits, &teacher, &mask).values);
    Ok(Loss { rows: builder.finish()?, ..plain })
}

/// Logits are divided by the temperature; what else a head does comes before.
fn policy(golden: &golden::Case, stored: &Stored, vocab: usize) -> Result<Loss, Error> {
    let [sequences, length] = stored.sequences();
    let is_plain = golden.head() == Head::temperature(golden.temperature.unwrap_or(1.0));
    let sampled = Sampled {
        sequences,
        length,
        vocab,
        temperature: if is_plain { golden.temperature.unwrap_or(1.0) } else { 1.0 },
        old: golden.old != Some(false) && stored.floats("old_logps").is_some(),
        reference: stored.floats("ref_logps").is_some(),
    };
    let loss = Solution.policy(&golden.policy(), &sampled)?;
    if is_plain { Ok(loss) } else { through_head(golden.head(), loss, vocab) }
}

/// A loss of what a head makes of the logits.
fn through_head(head: Head, loss: Loss, vocab: usize) -> Result<Loss, Error> {
    if head == Head::default() {
        return Ok(loss);
    }
    let builder = Builder::new("behind_a_head");
    let tape = builder.tape();
    let logits = tape.input("logits", Dtype::F32, [row_dim(tape), vocab.into()]);
    let given = loss.rows.inputs().map(|(name, id)| match name {
        "logits" => head.graph(&logits),
        name => tape.input(name, loss.rows.ty(id).dtype, &loss.rows.ty(id).shape),
    });
    let given: Vec<Tensor> = given.collect();
    let values = tape.inline(&loss.rows, &given);
    loss.rows.outputs().iter().zip(values).for_each(|((name, _), values)| tape.output(name, &values));
    Ok(Loss { rows: builder.finish()?, ..loss })
}
