//! What must hold of losses whatever the numbers are.

#![allow(clippy::float_cmp)] // where a law says the same, it is the same

use reference::grad::{differentiate, pull_back};
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Facts, Graph, Real, Tape, Tensor, interpret};
use reference::loss::{
    Average, Clip, Compared, CrossEntropy, Divergence, Dpo, Exact, Head, IGNORED, Judged, Kto, Level,
    LogProbabilities, Nll, Orpo, Policy, Pool, Reduction, SimPo, Targets, Tokens, cross_entropy, log_sigmoid,
};

use super::problem::Random;

const ROWS: usize = 6;
const VOCAB: usize = 5;

/// Logits (6, 5) and labels, of which row 1 and row 4 are ignored.
fn drawn(seed: u64) -> (Vec<f64>, Vec<i32>) {
    let mut random = Random(seed);
    let mut labels: Vec<i32> = (0..ROWS).map(|_| random.below(VOCAB) as i32).collect();
    labels[1] = IGNORED;
    labels[4] = IGNORED;
    (random.all(ROWS * VOCAB, -3.0, 3.0), labels)
}

fn near(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let fine = (got - want).abs() <= 1e-13 * (1.0 + want.abs());
        assert!(fine, "element {i}: {got}, not {want}");
    }
}

fn plain(logits: &[f64], labels: &[i32]) -> Exact {
    CrossEntropy::default().exact(logits, VOCAB, labels, None).expect("sound")
}

/// A loss of logits (6, 5) and labels as a graph: its value and its gradient.
fn run<R: Real>(
    logits: &[f64],
    labels: &[i32],
    loss: impl Fn(&Tensor, &Tensor) -> Tensor,
) -> (Vec<f64>, Vec<f64>) {
    let builder = Builder::new("law");
    let [x, y] = [("x", Dtype::F32, vec![labels.len(), VOCAB]), ("y", Dtype::I32, vec![labels.len()])]
        .map(|(name, dtype, shape)| builder.tape().input(name, dtype, shape));
    let loss = loss(&x, &y);
    let ids = [&loss, &x, &loss.total()].map(|tensor| builder.id(tensor).expect("no mistake"));
    let mut graph = builder.finish().expect("a graph");
    let gradient = differentiate(&mut graph, ids[2], &[ids[1]]).expect("a gradient")[0];
    graph.output("loss", ids[0]);
    graph.output("gradient", gradient);
    let values: Values<R> = [
        ("x".into(), Array::floats(Dtype::F32, &[labels.len(), VOCAB], logits.iter().copied())),
        ("y".into(), Array::integers(&[labels.len()], labels.to_vec())),
    ]
    .into();
    let found = interpret(&graph, &values).expect("a loss");
    (found[0].wide(), found[1].wide())
}

/// A graph of numbers (N) each, in the order in which they are given.
fn map<R: Real>(given: &[&[f64]], body: impl Fn(&Tape, &[Tensor]) -> Tensor) -> Vec<f64> {
    let builder = Builder::new("map");
    let mut values: Values<R> = Values::new();
    let inputs: Vec<Tensor> = given
        .iter()
        .enumerate()
        .map(|(i, numbers)| {
            let shape = [numbers.len()];
            values.insert(format!("{i}"), Array::floats(Dtype::F32, &shape, numbers.iter().copied()));
            builder.tape().input(&format!("{i}"), Dtype::F32, shape)
        })
        .collect();
    builder.tape().output("y", &body(builder.tape(), &inputs));
    interpret(&builder.finish().expect("a graph"), &values).expect("values")[0].wide()
}

#[test]
fn a_mean_is_a_sum_over_the_weights_and_items_are_a_given_number() {
    let (logits, labels) = drawn(1);
    let class_weight = Random(2).all(VOCAB, 0.1, 0.4);
    let rows = CrossEntropy::default().exact(&logits, VOCAB, &labels, Some(&class_weight)).expect("sound");
    let of = |reduction| rows.reduce(reduction).expect("sound");
    let weight: f64 = rows.weights.iter().sum();
    let scaled = |by: f64| of(Reduction::Sum).gradient.iter().map(|g| g / by).collect::<Vec<f64>>();
    near(&of(Reduction::Mean).loss, &[of(Reduction::Sum).loss[0] / weight]);
    near(&of(Reduction::Mean).gradient, &scaled(weight));
    near(&of(Reduction::Items(7.0)).loss, &[of(Reduction::Sum).loss[0] / 7.0]);
    near(&of(Reduction::Items(7.0)).gradient, &scaled(7.0));
    assert_eq!(of(Reduction::None).loss, rows.values);
    assert_eq!(of(Reduction::None).gradient, of(Reduction::Sum).gradient);
}

#[test]
fn chunks_of_rows_add_up_to_the_whole() {
    let (logits, labels) = drawn(3);
    let whole = plain(&logits, &labels).reduce(Reduction::Mean).expect("sound");
    for cut in 1..ROWS {
        let part = |rows: std::ops::Range<usize>| {
            plain(&logits[rows.start * VOCAB..rows.end * VOCAB], &labels[rows])
        };
        let parts = [part(0..cut), part(cut..ROWS)];
        let sum = |of: fn(&Exact) -> &Vec<f64>| parts.iter().flat_map(of).sum::<f64>();
        let weight = sum(|part| &part.weights);
        near(&[sum(|part| &part.values) / weight], &whole.loss);
        let gradient = |part: &Exact| part.reduce(Reduction::Items(weight)).expect("sound").gradient;
        near(&parts.each_ref().map(gradient).concat(), &whole.gradient);
    }
}

#[test]
fn one_graph_of_any_number_of_rows_adds_up_over_chunks() {
    let (logits, labels) = drawn(17);
    let loss = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() };
    let class_weight = Random(18).all(VOCAB, 0.1, 0.4);
    let whole = loss.exact(&logits, VOCAB, &labels, Some(&class_weight)).expect("sound");
    let weight: f64 = whole.weights.iter().sum();
    let whole = whole.reduce(Reduction::Mean).expect("sound");
    let graph = chunk_graph(&loss);
    for size in [1, 4, 5, ROWS] {
        let (mut sum, mut gradient) = (0.0, Vec::new());
        for (logits, labels) in logits.chunks(size * VOCAB).zip(labels.chunks(size)) {
            let float =
                |shape: &[usize], numbers: &[f64]| Array::floats(Dtype::F32, shape, numbers.iter().copied());
            let values: Values<f64> = [
                ("x".into(), float(&[labels.len(), VOCAB], logits)),
                ("y".into(), Array::integers(&[labels.len()], labels.to_vec())),
                ("w".into(), float(&[VOCAB], &class_weight)),
                ("seed".into(), float(&[], &[1.0 / weight])),
            ]
            .into();
            let found = interpret(&graph, &values).expect("a chunk");
            sum += found[0].wide()[0];
            gradient.extend(found[1].wide());
        }
        near(&[sum / weight], &whole.loss);
        near(&gradient, &whole.gradient);
    }
}

/// The sum of the values of N rows, and its gradient times a seed.
fn chunk_graph(loss: &CrossEntropy) -> Graph {
    let builder = Builder::new("chunk");
    let tape = builder.tape();
    let rows = tape.symbol("N", Facts::range(1, 64));
    let x = tape.input("x", Dtype::F32, [rows.clone(), VOCAB.into()]);
    let y = tape.input("y", Dtype::I32, [rows]);
    let w = tape.input("w", Dtype::F32, [VOCAB]);
    let seed = tape.input("seed", Dtype::F32, [] as [Dim; 0]);
    let sum = loss.rows(&x, &y, Some(&w)).sum();
    let [sum, x, seed] = [&sum, &x, &seed].map(|tensor| builder.id(tensor).expect("no mistake"));
    let mut graph = builder.finish().expect("a graph");
    let gradient = pull_back(&mut graph, sum, seed, &[x]).expect("a gradient")[0];
    graph.output("sum", sum);
    graph.output("gradient", gradient);
    graph.check().expect("a sound graph");
    graph
}

#[test]
fn tokens_of_a_policy_are_the_same_one_by_one() {
    let loss = Policy::grpo(0.1, Clip::both(0.2));
    let mask = [1.0, 0.0, 1.0, 1.0, 1.0, 1.0];
    let advantages = [2.0, -1.0];
    let given = |given: &[Tensor], shape: &[usize]| {
        let [log_p, old, mask] = [0, 1, 3].map(|i| given[i].reshape(shape.to_vec()));
        let reference = Some(old.clone());
        Tokens { log_p, old: Some(old), reference, advantages: given[2].clone(), mask }
    };
    let whole = map::<f64>(&[&LOG_P, &OLD, &advantages, &mask], |_, all| loss.tokens(&given(all, &[2, 3])));
    let of_tokens: Vec<f64> = advantages.iter().flat_map(|a| [*a; 3]).collect();
    let flat = map::<f64>(&[&LOG_P, &OLD, &of_tokens, &mask], |_, all| loss.tokens(&given(all, &[6])));
    assert_eq!(flat, whole);
    let exact = Tokens { reference: Some(&OLD[..]), ..tokens(&LOG_P, Some(&OLD), &mask) };
    let exact = Policy { average: Average::Tokens, ..loss }.exact(&exact, 3).expect("sound");
    let row = |row: usize| (0..3).map(|t| whole[3 * row + t] * mask[3 * row + t]).sum::<f64>();
    near(&[row(0), row(1)], &exact.values);
}

#[test]
fn an_ignored_row_gives_no_loss_and_no_gradient_whatever_its_logits() {
    let (mut logits, labels) = drawn(4);
    let before = plain(&logits, &labels);
    logits[VOCAB] = f64::NAN;
    logits[4 * VOCAB + 2] = f64::INFINITY;
    let after = plain(&logits, &labels);
    assert_eq!(before, after);
    for row in [1, 4] {
        assert!(after.gradient[row * VOCAB..][..VOCAB].iter().all(|g| *g == 0.0));
    }
    let loss = |x: &Tensor, y: &Tensor| CrossEntropy::default().loss(x, y, None, Reduction::Mean);
    let (graph, _) = run::<f64>(&logits, &labels, loss);
    near(&graph, &after.reduce(Reduction::Mean).expect("sound").loss);
}

#[test]
fn the_mean_of_nothing_is_nothing() {
    let logits = drawn(5).0;
    let labels = [IGNORED; ROWS];
    let whole = CrossEntropy { label_smoothing: 0.1, z_loss: 0.1, ..CrossEntropy::default() };
    let value = whole.exact_loss(&logits, VOCAB, &labels, None, Reduction::Mean).expect("sound");
    assert!(value.loss == [0.0] && value.gradient.iter().all(|g| *g == 0.0));
    let (loss, gradient) = run::<f32>(&logits, &labels, |x, y| whole.loss(x, y, None, Reduction::Mean));
    assert!(loss == [0.0] && gradient.iter().all(|g| *g == 0.0));
}

#[test]
fn settings_that_say_nothing_change_nothing() {
    let (logits, labels) = drawn(6);
    let ones = vec![1.0; VOCAB];
    let weighed = CrossEntropy::default().exact(&logits, VOCAB, &labels, Some(&ones)).expect("sound");
    assert_eq!(weighed, plain(&logits, &labels));
    for softcap in [None, Some(f64::INFINITY)] {
        let head = Head { scale: 1.0, softcap };
        assert_eq!(head.exact(&logits).expect("sound"), logits);
        assert_eq!(head.pull_back(&logits, &logits), logits);
    }
    let wide = Head { scale: 1.0, softcap: Some(1e9) }.exact(&logits).expect("sound");
    assert!(wide.iter().zip(&logits).all(|(a, b)| (a - b).abs() < 1e-6));
    assert_eq!(Head::temperature(1.0), Head::default());
}

#[test]
fn the_loss_in_its_simplest_form_is_that_of_the_default_settings() {
    let (logits, labels) = drawn(7);
    let simple = run::<f64>(&logits, &labels, cross_entropy);
    let settings = |x: &Tensor, y: &Tensor| CrossEntropy::default().loss(x, y, None, Reduction::Mean);
    let general = run::<f64>(&logits, &labels, settings);
    near(&general.0, &simple.0);
    near(&general.1, &simple.1);
}

#[test]
fn a_label_is_a_target_of_probability_one() {
    let (logits, mut labels) = drawn(8);
    labels[1] = 0;
    labels[4] = 3;
    let class_weight = Random(9).all(VOCAB, 0.5, 2.0);
    let hit = |row: usize, entry: usize| if labels[row] == entry as i32 { 1.0 } else { 0.0 };
    let one_hot: Vec<f64> = (0..ROWS * VOCAB).map(|i| hit(i / VOCAB, i % VOCAB)).collect();
    for label_smoothing in [0.0, 0.2, 1.0] {
        let by_label = CrossEntropy { label_smoothing, ..CrossEntropy::default() };
        let by_label = by_label.exact(&logits, VOCAB, &labels, Some(&class_weight)).expect("sound");
        let by_target = Targets { label_smoothing };
        let by_target = by_target.exact(&logits, VOCAB, &one_hot, Some(&class_weight)).expect("sound");
        near(&by_target.values, &by_label.values);
        near(&by_target.gradient, &by_label.gradient);
    }
}

#[test]
fn the_likelihood_of_a_softmax_is_the_cross_entropy() {
    let (logits, labels) = drawn(10);
    let log_p: Vec<f64> = logits
        .chunks(VOCAB)
        .flat_map(|row| {
            let sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
            row.iter().map(move |x| x - sum)
        })
        .collect();
    let likelihood = Nll::default().exact(&log_p, VOCAB, &labels, None).expect("sound");
    let loss = plain(&logits, &labels);
    near(&likelihood.values, &loss.values);
    assert_eq!(likelihood.weights, loss.weights);
    let tokens = LogProbabilities::default().exact(&logits, VOCAB, &labels).expect("sound");
    near(&tokens.values, &loss.values.iter().map(|v| -v).collect::<Vec<_>>());
    near(&tokens.gradient, &loss.gradient.iter().map(|g| -g).collect::<Vec<_>>());
}

#[test]
fn equal_distributions_are_no_distance_apart_and_others_are() {
    let (logits, other) = (drawn(11).0, drawn(12).0);
    let shifted: Vec<f64> = logits.iter().map(|x| x + 3.0).collect();
    for loss in [Divergence::ForwardKl, Divergence::JensenShannon { beta: 0.3 }] {
        let of = |teacher: &[f64]| loss.exact(&logits, teacher, VOCAB, &[1.0; ROWS]).expect("sound");
        near(&of(&shifted).values, &[0.0; ROWS]);
        near(&of(&shifted).gradient, &[0.0; ROWS * VOCAB]);
        assert!(of(&other).values.iter().all(|v| *v > 0.01));
    }
}

#[test]
fn the_jensen_shannon_divergence_is_the_same_from_both_sides_and_bounded() {
    let (a, b) = (drawn(13).0, drawn(14).0);
    let of = |beta: f64, student: &[f64], teacher: &[f64]| {
        let loss = Divergence::JensenShannon { beta };
        loss.exact(student, teacher, VOCAB, &[1.0; ROWS]).expect("sound").values
    };
    near(&of(0.3, &a, &b), &of(0.7, &b, &a));
    let apart: Vec<f64> = (0..ROWS * VOCAB).map(|i| if i % VOCAB == 0 { 900.0 } else { -900.0 }).collect();
    let beyond: Vec<f64> = apart.iter().map(|x| -x).collect();
    near(&of(0.5, &apart, &beyond), &[2.0_f64.ln(); ROWS]);
}

#[test]
fn a_policy_that_is_its_reference_loses_the_log_of_two() {
    let (answers, half) = ([-3.0, -5.0, -4.0, -1.0], -0.25);
    let pairs = Compared::halves(&answers).expect("pairs");
    let dpo = Dpo { beta: 0.5, label_smoothing: 0.2 }.exact(pairs, pairs).expect("sound");
    near(&dpo.values, &[2.0_f64.ln(); 2]);
    let even = Dpo { beta: 0.5, label_smoothing: 0.0 }.exact(pairs, pairs).expect("sound");
    near(&even.gradient, &[half, -half, half, -half]);
    let graph = map::<f32>(&[&answers], |_, given| {
        let pairs = Compared::halves_of(&given[0], 2);
        Dpo { beta: 0.5, label_smoothing: 0.0 }.rows(&pairs, &pairs).values
    });
    assert!(graph.iter().all(|v| (v - 2.0_f64.ln()).abs() < 1e-7));
    let kto = Kto { beta: 0.5, desirable_weight: 1.0, undesirable_weight: 3.0 };
    let given =
        Judged { policy: &answers[..], reference: &answers[..], desirable: &[1.0, 0.0, 1.0, 0.0][..] };
    near(&kto.exact(given, 0.0).expect("sound").values, &[0.5, 1.5, 0.5, 1.5]);
}

#[test]
fn without_a_margin_and_a_reference_two_losses_are_one() {
    let answers = Random(15).all(8, -5.0, -0.5);
    let (pairs, zero) = (Compared::halves(&answers).expect("pairs"), [0.0; 8]);
    let none = Compared::halves(&zero).expect("pairs");
    let simpo = SimPo { beta: 2.0, gamma: 0.0, label_smoothing: 0.1 }.exact(pairs).expect("sound");
    assert_eq!(simpo, Dpo { beta: 2.0, label_smoothing: 0.1 }.exact(pairs, none).expect("sound"));
}

#[test]
fn equal_odds_lose_the_log_of_two_and_better_odds_less() {
    let of = |answers: &[f64]| {
        let pairs = Compared::halves(answers).expect("pairs");
        Orpo { beta: 1.0 }.exact(pairs).expect("sound").values
    };
    near(&of(&[-1.0, -0.1, -1.0, -0.1]), &[2.0_f64.ln(); 2]);
    assert!(of(&[-0.1, -1.0])[0] < 2.0_f64.ln() && of(&[-1.0, -0.1])[0] > 2.0_f64.ln());
}

/// Tokens (2, 3) of a policy.
fn tokens<'a>(log_p: &'a [f64], old: Option<&'a [f64]>, mask: &'a [f64]) -> Tokens<&'a [f64]> {
    Tokens { log_p, old, reference: None, advantages: &[2.0, -1.0], mask }
}

const LOG_P: [f64; 6] = [-1.0, -2.0, -0.5, -0.7, -1.5, -3.0];
const OLD: [f64; 6] = [-1.3, -1.0, -0.6, -0.7, -2.5, -2.0];

#[test]
fn where_nothing_has_moved_a_policy_gradient_is_the_advantage() {
    let mask = [1.0; 6];
    let clip = Clip::both(0.2);
    for loss in [Policy::grpo(0.0, clip), Policy::bnpo(0.0, clip), Policy::gspo(0.0, clip)] {
        let given = tokens(&LOG_P, None, &mask);
        let value = loss.exact(&given, 3).expect("sound").reduce(Reduction::Mean).expect("sound");
        near(&value.loss, &[-0.5]); // minus the mean of the advantages
        near(&value.gradient, &[2.0, 2.0, 2.0, -1.0, -1.0, -1.0].map(|a| -a / 6.0));
    }
}

#[test]
fn what_was_sampled_just_now_is_the_policy_itself() {
    let mask = [1.0, 1.0, 0.0, 1.0, 1.0, 1.0];
    for level in [Level::Token, Level::Sequence] {
        let loss = Policy { level, ..Policy::grpo(0.0, Clip::both(0.2)) };
        let of = |old| loss.exact(&tokens(&LOG_P, old, &mask), 3).expect("sound");
        assert_eq!(of(None), of(Some(&LOG_P[..])));
    }
}

#[test]
fn lengths_decide_how_the_averages_differ() {
    let mask = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let of = |average| {
        let loss = Policy { average, ..Policy::grpo(0.0, Clip::both(0.2)) };
        let rows = loss.exact(&tokens(&LOG_P, None, &mask), 3).expect("sound");
        rows.reduce(Reduction::Mean).expect("sound").loss[0]
    };
    near(&[of(Average::Sequences)], &[f64::midpoint(-2.0, 1.0)]);
    near(&[of(Average::Tokens)], &[(-2.0 + 3.0) / 4.0]);
    near(&[of(Average::Items(8.0))], &[(-2.0 + 3.0) / 8.0]);
    near(&[of(Average::Length(10.0))], &[(-2.0 + 3.0) / 20.0]);
}

/// Sequences of 3, 1, 0 and 2 tokens, cut between any two of them, by the written loss and by its graph.
#[test]
fn batches_that_share_a_count_add_up_to_the_whole() {
    let (sequences, length) = (4, 3);
    let mut random = Random(20);
    let [log_p, old, reference] = [0; 3].map(|_| random.all(sequences * length, -3.0, -0.1));
    let advantages = random.all(sequences, -2.0, 2.0);
    let mask = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0];
    let tokens: f64 = mask.iter().sum();
    let part = |policy: &Policy, reduction: Reduction, rows: std::ops::Range<usize>| {
        let at = rows.start * length..rows.end * length;
        let all = [&log_p[at.clone()], &old[at.clone()], &reference[at.clone()], &mask[at]];
        let given = Tokens {
            log_p: all[0],
            old: Some(all[1]),
            reference: Some(all[2]),
            advantages: &advantages[rows.clone()],
            mask: all[3],
        };
        let exact = policy.exact(&given, length).and_then(|rows| rows.reduce(reduction)).expect("sound");
        let graph = map::<f64>(&[all[0], all[1], all[2], all[3], given.advantages], |_, inputs| {
            let [log_p, old, reference, mask] = [0, 1, 2, 3].map(|i| inputs[i].reshape([rows.len(), length]));
            let (old, reference) = (Some(old), Some(reference));
            let given = Tokens { log_p, old, reference, advantages: inputs[4].clone(), mask };
            policy.rows(&given).reduce(reduction)
        });
        near(&graph, &exact.loss);
        exact
    };
    let clip = Clip { low: 0.2, high: 0.28, delta: None };
    let of_all = [
        (Policy::grpo(0.04, clip), Reduction::Items(sequences as f64)),
        (Policy::bnpo(0.04, clip), Reduction::Items(tokens)),
        (Policy::dapo(0.04, clip, tokens), Reduction::Mean),
        (Policy::dr_grpo(0.04, clip, 5.0), Reduction::Items(5.0 * sequences as f64)),
        (Policy::gspo(0.04, clip), Reduction::Items(sequences as f64)),
    ];
    for (policy, reduction) in &of_all {
        let whole = part(policy, Reduction::Mean, 0..sequences);
        for cut in 1..sequences {
            let parts = [part(policy, *reduction, 0..cut), part(policy, *reduction, cut..sequences)];
            near(&[parts[0].loss[0] + parts[1].loss[0]], &whole.loss);
            near(&parts.each_ref().map(|part| part.gradient.clone()).concat(), &whole.gradient);
        }
    }
    let [bnpo, dapo] = [&of_all[1].0, &of_all[2].0].map(|policy| part(policy, Reduction::Mean, 0..sequences));
    near(&dapo.gradient, &bnpo.gradient); // one batch: its tokens are all tokens
    let means = [0..2, 2..sequences].map(|rows| part(&of_all[1].0, Reduction::Mean, rows).loss[0]);
    assert!(
        (f64::midpoint(means[0], means[1]) - bnpo.loss[0]).abs() > 0.01,
        "a mean of means is another loss"
    );
}

#[test]
fn the_ratio_of_a_sequence_of_one_token_is_that_of_the_token() {
    let mask = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let of = |level| {
        let loss = Policy { level, ..Policy::grpo(0.0, Clip { low: 0.1, high: 0.3, delta: None }) };
        loss.exact(&tokens(&LOG_P, Some(&OLD), &mask), 3).expect("sound")
    };
    near(&of(Level::Sequence).values, &of(Level::Token).values);
    near(&of(Level::Sequence).gradient, &of(Level::Token).gradient);
}

#[test]
fn a_ratio_is_held_on_the_side_that_the_advantage_would_leave_by() {
    let far: Vec<f64> = LOG_P.iter().map(|x| x - 1.0).collect(); // a ratio of e
    let near_by: Vec<f64> = LOG_P.iter().map(|x| x + 1.0).collect(); // of 1 / e
    let of = |old: &[f64], clip| {
        let rows = Policy::grpo(0.0, clip).exact(&tokens(&LOG_P, Some(old), &[1.0; 6]), 3).expect("sound");
        (rows.values, [rows.gradient[0], rows.gradient[3]])
    };
    let clip = Clip { low: 0.2, high: 0.3, delta: None };
    let e = 1.0_f64.exp();
    let (values, slopes) = of(&far, clip);
    near(&values, &[-2.0 * 1.3, e]);
    near(&slopes, &[0.0, e / 3.0]);
    let (values, slopes) = of(&near_by, clip);
    near(&values, &[-2.0 / e, 0.8]);
    near(&slopes, &[-2.0 / e / 3.0, 0.0]);
    let (values, slopes) = of(&far, Clip { delta: Some(2.0), ..clip });
    near(&values, &[-2.0 * 1.3, 2.0]);
    near(&slopes, &[0.0, 0.0]);
}

#[test]
fn a_token_that_is_masked_may_be_anything() {
    let mask = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0];
    let mut wild = LOG_P;
    wild[1] = f64::NAN;
    wild[3] = f64::NEG_INFINITY;
    let policy = |x: &[f64; 6]| {
        let given = Tokens { reference: Some(&OLD[..]), ..tokens(x, Some(&OLD), &mask) };
        Policy::gspo(0.1, Clip::both(0.2)).exact(&given, 3).expect("sound")
    };
    assert_eq!(policy(&wild), policy(&LOG_P));
    let pooled = |x: &[f64]| Pool::Mean.exact(x, 3, &mask).expect("sound");
    assert_eq!(pooled(&wild), pooled(&LOG_P));
    let graph = |x: &[f64; 6]| {
        map::<f64>(&[x, &OLD, &[2.0, -1.0], &mask], |_, given| {
            let [x, old, mask] = [0, 1, 3].map(|i| given[i].reshape([2_usize, 3]));
            let reference = Some(old.clone());
            let tokens =
                Tokens { log_p: x.clone(), old: Some(old), reference, advantages: given[2].clone(), mask };
            let rows = Policy::gspo(0.1, Clip::both(0.2)).rows(&tokens);
            &rows.values + &Pool::Sum.graph(&x, &tokens.mask)
        })
    };
    assert_eq!(graph(&wild), graph(&LOG_P));
}

#[test]
fn infinities_and_nan_in_logits_that_count_show() {
    let (logits, labels) = drawn(16);
    let (label, other) = (labels[0] as usize, (labels[0] as usize + 1) % VOCAB);
    let loss = |x: &Tensor, y: &Tensor| CrossEntropy::default().loss(x, y, None, Reduction::None);
    let both = |at: usize, value: f64| {
        let mut logits = logits.clone();
        logits[at] = value;
        let exact = plain(&logits, &labels);
        let (graph, gradient) = run::<f32>(&logits, &labels, loss);
        (exact.values[0], graph[0], exact.gradient[at], gradient[at])
    };
    let (exact, graph, slope, graph_slope) = both(other, f64::NEG_INFINITY);
    assert!(exact.is_finite() && (exact - graph).abs() < 1e-5);
    assert!(slope == 0.0 && graph_slope == 0.0);
    let (exact, graph, ..) = both(label, f64::NEG_INFINITY);
    assert!(exact == f64::INFINITY && graph == f64::INFINITY);
    for (at, value) in [(other, f64::NAN), (label, f64::NAN), (other, f64::INFINITY)] {
        let (exact, graph, slope, graph_slope) = both(at, value);
        assert!(exact.is_nan() && graph.is_nan() && slope.is_nan() && graph_slope.is_nan());
    }
}

#[test]
fn large_logits_do_not_overflow() {
    let logits = [88.0, 89.0, 90.0, 1e4, -1e4];
    let (loss, gradient) = run::<f32>(&logits, &[3], cross_entropy);
    assert!(loss == [0.0] && gradient.iter().all(|g| *g == 0.0));
    let exact = plain(&logits, &[0]);
    let (loss, gradient) = run::<f32>(&logits, &[0], |x, y| {
        CrossEntropy { z_loss: 0.0, ..CrossEntropy::default() }.loss(x, y, None, Reduction::Sum)
    });
    assert_eq!(loss, exact.values);
    assert_eq!(gradient, exact.gradient);
}

#[test]
fn the_log_of_a_sigmoid_is_right_on_both_sides() {
    let x = [-1e4, -100.0, -1.0, 0.0, 1.0, 20.0, 100.0, 1e4];
    let got = map::<f32>(&[&x], |_, given| log_sigmoid(&given[0]));
    for (x, got) in x.iter().zip(got) {
        let want = if *x < -30.0 { *x } else { -(-x).exp().ln_1p() };
        assert!((got - want).abs() <= 1e-7 * (1.0 + want.abs()), "{x}: {got}, not {want}");
    }
}

#[test]
fn odds_near_certainty_are_right_in_f32() {
    let answers = [-1e-4, -2e-3, -40.0, -5e-4];
    let pairs = Compared::halves(&answers).expect("pairs");
    let want = Orpo { beta: 1.0 }.exact(pairs).expect("sound").values;
    let got = map::<f32>(&[&answers], |_, given| {
        Orpo { beta: 1.0 }.rows(&Compared::halves_of(&given[0], 2)).values
    });
    assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-6), "{got:?}, not {want:?}");
}
