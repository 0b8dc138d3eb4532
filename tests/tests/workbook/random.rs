//! Random masks: the generator's known answers, and the laws of a mask that depends on key and place alone.

use std::collections::BTreeMap;

use challenges::graph::Solution;
use compiler::compile::{Level, compile};
use compiler::rewrite::pad::{length_name, pad, widen};
use kernels::Device;
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Facts, Graph, Tensor, interpret};
use reference::philox::{happens, philox4x32_10, threshold};

use crate::plan::devices;
use tests::one_graph::{OneGraph, card};

/// The authors' own: `kat_vectors` of Random123, `philox4x32 10`.
#[test]
fn philox_gives_its_authors_known_answers() {
    let known = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, words) in known {
        assert_eq!(philox4x32_10(counter, key), words, "{counter:x?} {key:x?}");
    }
}

#[test]
fn a_threshold_is_the_probability_in_steps_of_2_to_the_minus_32() {
    assert_eq!([0.0, 0.25, 1.0].map(threshold), [0, 1 << 30, 1 << 32]);
    assert_eq!(threshold(f64::MIN_POSITIVE), 1); // what may happen does, if seldom
    for (index, probability) in [(0, 0.0), (7, 1.0)] {
        assert_eq!(happens([1, 2], index, 3, probability), probability > 0.5);
    }
}

/// A graph of a mask of a shape, whose input `key` is i32 (2).
fn masked(shape: impl Fn(&Builder) -> Vec<Dim>, probability: f64, stream: u32) -> Graph {
    let builder = Builder::new("mask");
    let shape = shape(&builder);
    let key = builder.tape().input("key", Dtype::I32, [2]);
    let x = builder.tape().input("x", Dtype::F32, &shape);
    let mask = builder.tape().random_mask(&key, x.shape(), probability, stream);
    builder.tape().output("mask", &mask);
    builder.tape().output("y", &x.dropout(&key, probability, stream));
    builder.finish().expect("sound")
}

fn values<R: reference::graph::Real>(key: [i32; 2], shape: &[usize]) -> Values<R> {
    let x = Array::floats(Dtype::F32, shape, (0..shape.iter().product()).map(|i| 1.0 + i as f64));
    Values::from([("key".to_owned(), Array::integers(&[2], key.to_vec())), ("x".to_owned(), x)])
}

fn fixed(shape: &[usize]) -> impl Fn(&Builder) -> Vec<Dim> {
    move |_| shape.iter().map(|size| Dim::from(*size)).collect()
}

proptest! {
    /// The machine's own generator is the oracle's.
    #[test]
    fn the_machine_draws_the_oracles_words(index: u32, stream: u32, key: [u32; 2]) {
        let [word, ..] = philox4x32_10([index, stream, 0, 0], key);
        prop_assert_eq!(kernels::philox::first_word(index, stream, key), word);
    }

    #[test]
    fn a_mask_depends_on_key_stream_and_place_alone(
        key: [i32; 2], stream: u32, probability in 0.0..=1.0_f64, rows in 1..5_usize, columns in 1..5_usize,
    ) {
        let shape = [rows, columns];
        let graph = masked(fixed(&shape), probability, stream);
        prop_assert!(Graph::parse(&graph.to_string()).is_ok_and(|again| again == graph));
        let got = interpret(&graph, &values::<f32>(key, &shape)).expect("runs");
        let wide = interpret(&graph, &values::<f64>(key, &shape)).expect("runs");
        let any = |builder: &Builder| vec![
            builder.tape().symbol("R", Facts::range(1, 9)), builder.tape().symbol("C", Facts::range(1, 9)),
        ];
        let symbolic = interpret(&masked(any, probability, stream), &values::<f32>(key, &shape)).expect("runs");
        let words = key.map(|word| word as u32);
        let want: Vec<u8> =
            (0..rows * columns).map(|i| u8::from(happens(words, i as u32, stream, probability))).collect();
        prop_assert_eq!(got[0].as_bytes(), &want[..]);
        prop_assert_eq!(wide[0].as_bytes(), &want[..]);
        prop_assert_eq!(symbolic[0].as_bytes(), &want[..]);
        for (i, y) in got[1].as_floats().iter().enumerate() {
            let kept = (1.0 + i as f32) / probability as f32;
            let want = if want[i] == 1 { kept } else { 0.0_f32 };
            prop_assert_eq!(y.to_bits(), want.to_bits());
        }
    }
}

/// Of 4096 draws the count lies within five standard deviations, for keys and streams alike.
#[test]
fn a_mask_has_as_many_ones_as_its_probability_says() {
    for (i, probability) in [0.1, 0.5, 0.9].into_iter().enumerate() {
        let graph = masked(fixed(&[64, 64]), probability, i as u32);
        let got = interpret(&graph, &values::<f32>([i as i32, -7], &[64, 64])).expect("runs");
        let ones: f64 = got[0].as_bytes().iter().map(|bit| f64::from(*bit)).sum();
        let off = (ones - 4096.0 * probability) / (4096.0 * probability * (1.0 - probability)).sqrt();
        assert!(off.abs() < 5.0, "{ones} of 4096 at {probability}");
    }
}

#[test]
fn a_mask_of_another_type_or_probability_is_refused() {
    let text = masked(fixed(&[2]), 0.5, 3).to_string();
    let refused =
        |from: &str, to: &str| Graph::parse(&text.replace(from, to)).expect_err("refused").to_string();
    assert!(refused("probability 0.5", "probability 1.5").contains("a number from 0 to 1"));
    assert!(refused("probability 0.5", "probability nan").contains("a number from 0 to 1"));
    assert!(refused("stream 3", "stream 4294967296").contains("a number below 2^32"));
}

/// No gradient passes the mask itself; of what it drops, none comes back.
#[test]
fn what_is_dropped_has_no_gradient() {
    let builder = Builder::new("dropout");
    let key = builder.tape().input("key", Dtype::I32, [2]);
    let x = builder.tape().input("x", Dtype::F32, [64]);
    let kept = builder.tape().random_mask(&key, x.shape(), 0.75, 1);
    let loss = x.dropout(&key, 0.75, 1).total();
    let [loss, id] = [&loss, &x].map(|tensor: &Tensor| builder.id(tensor).expect("a node"));
    builder.tape().output("mask", &kept);
    let mut graph = builder.finish().expect("sound");
    let gradient = reference::grad::differentiate(&mut graph, loss, &[id]).expect("rules")[0];
    graph.output("gradient", gradient);
    let got = interpret(&graph, &values::<f64>([3, 4], &[64])).expect("runs");
    for (bit, gradient) in got[0].as_bytes().iter().zip(got[1].wide()) {
        assert!((gradient - f64::from(*bit) / 0.75).abs() < 1e-12, "{bit} {gradient}");
    }
}

#[test]
fn a_compiled_mask_has_the_same_bits_on_every_unit_and_any_number_of_threads() {
    for shape in [[1, 1], [3, 5], [7, 513], [40, 1031]] {
        let graph = masked(fixed(&shape), 0.7, 9);
        let values = values::<f32>([5, -6], &shape);
        let want = interpret(&graph, &values).expect("runs");
        let units = devices();
        for device in units.iter().map(|unit| unit as &dyn Device).chain(card()) {
            let compiled =
                compile(&Solution, &graph, &BTreeMap::new(), Level::O2.options()).expect("compiles");
            let got = OneGraph::of(&Solution, device, compiled)
                .and_then(|mut graph| graph.arrays(&values))
                .expect("runs");
            assert_eq!(got, want, "{shape:?} on {}", device.name());
        }
    }
}

/// What is padded draws for its real elements what it draws unpadded.
#[test]
fn padding_changes_no_bit_of_a_mask() {
    let any = |builder: &Builder| {
        let [rows, columns] = ["R", "C"].map(|name| builder.tape().symbol(name, Facts::range(1, 9)));
        vec![rows, columns]
    };
    let graph = masked(any, 0.6, 4);
    let symbols = ["R".into(), "C".into()];
    let padded = pad(&graph, &symbols).expect("pads").graph;
    let (real, bucket) = ([3, 5], [4, 8]);
    let want = interpret(&graph, &values::<f32>([1, 2], &real)).expect("runs");
    let mut given = values::<f32>([1, 2], &bucket);
    let bytes = widen(&values::<f32>([1, 2], &real)["x"].to_memory(), 4, &real, &bucket);
    given.insert("x".into(), Array::from_memory(Dtype::F32, &bucket, &bytes));
    for (symbol, length) in ["R", "C"].into_iter().zip([3, 5]) {
        given.insert(length_name(symbol), Array::integers(&[], vec![length]));
    }
    let got = interpret(&padded, &given).expect("runs");
    for row in 0..3 {
        assert_eq!(got[0].as_bytes()[row * 8..][..5], want[0].as_bytes()[row * 5..][..5]);
        assert_eq!(got[1].as_floats()[row * 8..][..5], want[1].as_floats()[row * 5..][..5]);
    }
}
