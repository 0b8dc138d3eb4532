//! The optimiser's graph against a plain loop, the bound on gradients, the schedules against tables.

use std::f64::consts::FRAC_1_SQRT_2;

use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Graph, Tensor, interpret};
use reference::optim::{AdamW, Rates, Schedule, Shape, clip, norm};

#[test]
fn adamw_is_the_plain_loop() {
    for optimizer in [AdamW::default(), AdamW { beta1: 0.5, beta2: 0.9, eps: 1e-3, weight_decay: 0.3 }] {
        let graph = adamw_graph(&optimizer);
        let mut p = [0.5, -2.0, 0.0, 1e-9, 3.0];
        let (mut m, mut v) = ([0.0; 5], [0.0; 5]);
        let mut values: Values<f64> =
            [("p", p), ("m", m), ("v", v)].map(|(name, x)| (name.into(), array(&x))).into();
        for step in 1..=7 {
            let (t, lr) = (f64::from(step as u32), 0.01 / step as f64);
            let g = [1.0, -0.5, 0.0, 1e-8, t];
            values.insert("g".into(), array(&g));
            values.append(&mut optimizer.rates(step, lr));
            let results = interpret(&graph, &values).expect("a step");
            values.extend(graph.outputs().iter().map(|(name, _)| name.clone()).zip(results));
            for i in 0..5 {
                let AdamW { beta1, beta2, eps, weight_decay } = optimizer;
                p[i] -= lr * weight_decay * p[i];
                m[i] = beta1 * m[i] + (1.0 - beta1) * g[i];
                v[i] = beta2 * v[i] + (1.0 - beta2) * g[i] * g[i];
                let (first, second) = (m[i] / (1.0 - beta1.powf(t)), v[i] / (1.0 - beta2.powf(t)));
                p[i] -= lr * first / (second.sqrt() + eps);
                let got = values["p"].wide()[i];
                assert!((got - p[i]).abs() <= 1e-13, "step {step}, element {i}: {got}, not {}", p[i]);
            }
        }
    }
}

#[test]
fn the_step_number_is_no_part_of_the_graph() {
    let rates: Vec<Values<f64>> = [1, 1000].map(|step| AdamW::default().rates(step, 0.5)).into();
    let corrections = |rates: &Values<f64>| rates.values().map(|value| value.wide()[0]).collect::<Vec<_>>();
    assert_eq!(corrections(&rates[0]), [1.0 - 0.9, 1.0 - 0.999, 0.5]);
    assert!((corrections(&rates[1])[1] - (1.0 - 0.999_f64.powi(1000))).abs() < 1e-12);
}

#[test]
fn gradients_are_shortened_together_and_only_if_they_are_too_long() {
    let run = |max: f64| {
        let builder = Builder::new("clip");
        let a = builder.tape().input("a", Dtype::F32, [2_usize]);
        let b = builder.tape().input("b", Dtype::F32, [1_usize, 1]);
        let length = norm(builder.tape(), &[a.clone(), b.clone()]);
        builder.tape().output("norm", &length);
        for (name, clipped) in ["a", "b"].iter().zip(clip(&[a, b], &length, max)) {
            builder.tape().output(name, &clipped);
        }
        let b = Array::floats(Dtype::F32, &[1, 1], [12.0]);
        let values: Values<f64> = [("a".into(), array(&[3.0, -4.0])), ("b".into(), b)].into();
        interpret(&builder.finish().expect("a graph"), &values)
            .expect("a result")
            .iter()
            .flat_map(Array::wide)
            .collect()
    };
    let near = |got: Vec<f64>, want: [f64; 4]| {
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12), "{got:?}, not {want:?}");
    };
    near(run(13.1), [13.0, 3.0, -4.0, 12.0]);
    let factor = 1.0 / (13.0 + 1e-6);
    near(run(1.0), [13.0, 3.0 * factor, -4.0 * factor, 12.0 * factor]);
}

const HIGH: f64 = 0.5 + 0.5 * FRAC_1_SQRT_2; // (1 + cos 45 degrees) / 2
const LOW: f64 = 0.5 - 0.5 * FRAC_1_SQRT_2;

/// Steps and shares of the peak.
type Points = &'static [(u64, f64)];

#[test]
fn schedules_follow_their_formulas() {
    let linear = Shape::Linear { steps: 10 };
    let cosine = Shape::Cosine { steps: 10, cycles: 0.5 };
    let waves = Shape::Cosine { steps: 8, cycles: 1.0 };
    let table: [(u64, Shape, Points); 6] = [
        (0, Shape::Constant, &[(0, 1.0), (1, 1.0), (1_000_000, 1.0)]),
        (4, Shape::Constant, &[(0, 0.0), (1, 0.25), (3, 0.75), (4, 1.0), (99, 1.0)]),
        (2, linear, &[(0, 0.0), (1, 0.5), (2, 1.0), (3, 0.875), (6, 0.5), (10, 0.0), (11, 0.0)]),
        (2, cosine, &[(1, 0.5), (2, 1.0), (4, HIGH), (6, 0.5), (8, LOW), (10, 0.0)]),
        (0, waves, &[(0, 1.0), (2, 0.5), (4, 0.0), (6, 0.5), (8, 1.0)]),
        (10, linear, &[(5, 0.5), (9, 0.9), (10, 0.0), (12, 0.0)]), // nothing but the warm-up
    ];
    for (warmup, shape, points) in table {
        let schedule = Schedule { peak: 3e-4, warmup, shape };
        for (step, share) in points {
            let got = schedule.rate(*step);
            assert!((got - 3e-4 * share).abs() < 1e-18, "{schedule:?} at {step}: {got}");
        }
    }
    assert_eq!(Schedule::constant(0.5), Schedule { peak: 0.5, warmup: 0, shape: Shape::Constant });
}

fn array(values: &[f64]) -> Array<f64> {
    Array::floats(Dtype::F32, &[values.len()], values.iter().copied())
}

fn adamw_graph(optimizer: &AdamW) -> Graph {
    let builder = Builder::new("adamw");
    let tape = builder.tape();
    let [p, g, m, v]: [Tensor; 4] = ["p", "g", "m", "v"].map(|name| tape.input(name, Dtype::F32, [5_usize]));
    let new = optimizer.step(&Rates::new(tape), &p, &g, &m, &v);
    for (name, tensor) in [("p", &new.parameter), ("m", &new.first), ("v", &new.second)] {
        tape.output(name, tensor);
    }
    builder.finish().expect("a graph")
}
