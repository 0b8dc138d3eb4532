//! What a loss says of what it cannot be computed of.

use reference::grad::differentiate;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, interpret};
use reference::loss::{
    Average, Clip, Compared, CrossEntropy, Divergence, Dpo, Error, Head, Judged, Kto, Linear,
    LogProbabilities, Mse, Nll, Orpo, Policy, Pool, Reduction, SimPo, Targets, Tokens, kto_baseline,
};

const LOGITS: [f64; 6] = [0.5, -1.0, 2.0, 0.0, 1.0, -0.5]; // (2, 3)

fn says<T>(result: Result<T, Error>, text: &str) {
    match result {
        Ok(_) => panic!("no error; expected was: {text}"),
        Err(error) => assert_eq!(error.to_string(), text),
    }
}

#[test]
fn a_label_outside_the_vocabulary_names_its_row() {
    let loss = CrossEntropy::default();
    says(loss.exact(&LOGITS, 3, &[0, 3], None), "`labels`[1]: expected 0 to 2 or -100, found 3");
    says(loss.exact_z(&LOGITS, 3, &[-1, 3]), "`labels`[0]: expected 0 to 2 or -100, found -1");
    let other = CrossEntropy { ignore_index: -1, ..loss };
    says(other.exact(&LOGITS, 3, &[-1, -100], None), "`labels`[1]: expected 0 to 2 or -1, found -100");
    says(Nll::default().exact(&LOGITS, 3, &[7, 0], None), "`labels`[0]: expected 0 to 2 or -100, found 7");
    let tokens = LogProbabilities::default();
    says(tokens.exact(&LOGITS, 3, &[0, -2]), "`labels`[1]: expected 0 to 2 or -100, found -2");
}

#[test]
fn a_label_outside_the_vocabulary_of_a_graph_names_its_row() {
    let builder = Builder::new("labels");
    let logits = builder.tape().input("logits", Dtype::F32, [2_usize, 3]);
    let labels = builder.tape().input("labels", Dtype::I32, [2_usize]);
    let loss = CrossEntropy { label_smoothing: 0.1, z_loss: 0.1, ..CrossEntropy::default() };
    let loss = loss.loss(&logits, &labels, None, Reduction::Mean);
    let ids = [&loss, &logits].map(|tensor| builder.id(tensor).expect("no mistake"));
    let mut graph = builder.finish().expect("a graph");
    let gradient = differentiate(&mut graph, ids[0], &[ids[1]]).expect("a gradient")[0];
    graph.output("gradient", gradient);
    let values: Values<f64> = [
        ("logits".into(), Array::floats(Dtype::F32, &[2, 3], LOGITS)),
        ("labels".into(), Array::integers(&[2], vec![-100, 3])),
    ]
    .into();
    let error = interpret(&graph, &values).expect_err("no such label").to_string();
    assert!(error.contains("index[1]: expected 0 to 2, found 3"), "{error}");
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let loss = CrossEntropy::default();
    says(loss.exact(&LOGITS, 4, &[0, 1], None), "`logits` has 6 elements, which make no whole rows of 4");
    says(loss.exact(&LOGITS, 3, &[0], None), "length of `labels`: expected 2, found 1");
    says(loss.exact(&LOGITS, 3, &[0, 1], Some(&[1.0])), "length of `class_weight`: expected 3, found 1");
    says(loss.exact(&[], 3, &[], None), "`logits` has no elements");
    says(loss.exact(&LOGITS, 0, &[0, 1], None), "`logits` has no elements");
    says(Targets::default().exact(&LOGITS, 3, &[1.0], None), "length of `targets`: expected 6, found 1");
    says(Mse.exact(&LOGITS, &[1.0], 3), "length of `targets`: expected 6, found 1");
    let kl = Divergence::ForwardKl;
    says(kl.exact(&LOGITS, &LOGITS[..3], 3, &[1.0; 2]), "length of `teacher`: expected 6, found 3");
    says(kl.exact(&LOGITS, &LOGITS, 3, &[1.0]), "length of `mask`: expected 2, found 1");
    says(Pool::Sum.exact(&LOGITS, 3, &[1.0]), "length of `mask`: expected 6, found 1");
    says(kto_baseline(&[], &[]), "`policy` has no elements");
    says(Compared::halves(&LOGITS[..3]), "`answers` has 3 elements, which make no whole rows of 2");
    let uneven = Compared { chosen: &LOGITS[..2], rejected: &LOGITS[..1] };
    says(
        SimPo { beta: 1.0, gamma: 0.0, label_smoothing: 0.0 }.exact(uneven),
        "length of `rejected`: expected 2, found 1",
    );
    let linear = |weight, bias, width| Linear { hidden: &LOGITS, weight, bias, width };
    says(linear(&LOGITS, None, 4).exact(), "`hidden` has 6 elements, which make no whole rows of 4");
    says(linear(&LOGITS[..4], None, 3).exact(), "`weight` has 4 elements, which make no whole rows of 3");
    says(linear(&LOGITS, Some(&LOGITS), 3).exact(), "length of `bias`: expected 2, found 6");
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    let loss = CrossEntropy::default();
    let weight = [1.0, f64::NAN, 1.0];
    says(
        loss.exact(&LOGITS, 3, &[0, 1], Some(&weight)),
        "`class_weight`[1]: expected a finite number, found NaN",
    );
    let mask = [1.0, f64::INFINITY];
    says(
        Divergence::ForwardKl.exact(&LOGITS, &LOGITS, 3, &mask),
        "`mask`[1]: expected a finite number, found inf",
    );
    let (mask, advantages) = ([1.0; 6], [1.0, f64::NAN]);
    let given =
        Tokens { log_p: &LOGITS[..], old: None, reference: None, advantages: &advantages, mask: &mask };
    let policy = Policy::grpo(0.0, Clip::both(0.2));
    says(policy.exact(&given, 3), "`advantages`[1]: expected a finite number, found NaN");
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let smoothed = |label_smoothing| CrossEntropy { label_smoothing, ..CrossEntropy::default() };
    says(smoothed(1.5).check(), "`label_smoothing`: expected 0 to 1, found 1.5");
    says(
        smoothed(f64::NAN).exact(&LOGITS, 3, &[0, 1], None),
        "`label_smoothing`: expected 0 to 1, found NaN",
    );
    let z = CrossEntropy { z_loss: -1.0, ..CrossEntropy::default() };
    says(z.check(), "`z_loss`: expected a finite number from 0 on, found -1");
    says(Head::temperature(0.0).exact(&LOGITS), "`scale`: expected a finite number, found inf");
    says(
        Head { scale: 1.0, softcap: Some(0.0) }.exact(&LOGITS),
        "`softcap`: expected a number above 0, found 0",
    );
    let rows = CrossEntropy::default().exact(&LOGITS, 3, &[0, 1], None).expect("sound");
    says(rows.reduce(Reduction::Items(0.0)), "`items`: expected a finite number other than 0, found 0");
    says(
        Divergence::JensenShannon { beta: 1.0 }.exact(&LOGITS, &LOGITS, 3, &[1.0; 2]),
        "`beta`: expected a number above 0 and below 1, found 1",
    );
    let pairs = Compared::halves(&LOGITS).expect("pairs");
    says(
        Dpo { beta: -0.1, label_smoothing: 0.0 }.exact(pairs, pairs),
        "`beta`: expected a finite number above 0, found -0.1",
    );
    says(Orpo { beta: f64::NAN }.exact(pairs), "`beta`: expected a finite number from 0 on, found NaN");
    let kto = Kto { beta: 0.1, desirable_weight: 1.0, undesirable_weight: -1.0 };
    let given = Judged { policy: &LOGITS[..], reference: &LOGITS[..], desirable: &LOGITS[..] };
    says(kto.exact(given, 0.0), "`undesirable_weight`: expected a finite number from 0 on, found -1");
    let policy = |clip, average| Policy { average, ..Policy::grpo(0.0, clip) };
    says(policy(Clip::both(2.0), Average::Tokens).check(), "`clip low`: expected 0 to 1, found 2");
    says(
        policy(Clip::both(0.2), Average::Items(0.0)).check(),
        "`items`: expected a finite number above 0, found 0",
    );
    says(
        policy(Clip::both(0.2), Average::Length(0.0)).check(),
        "`max_completion_length`: expected a finite number above 0, found 0",
    );
}
