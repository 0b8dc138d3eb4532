//! D.17: which tensors of a classifier are trained, and their names.

use challenges::issues::classify::{Adapter, Classify, Layer, Trained};

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("some-projections", |steps, _| {
        let adapter = Adapter { rank: 4, target_modules: Some(&["v_proj", "q_proj"]), modules_to_save: &[] };
        compare(
            steps,
            LAYERS,
            &adapter,
            &[
                pair("model.layers.0.self_attn.q_proj", 4, [12, 8]),
                pair("model.layers.0.self_attn.v_proj", 4, [6, 8]),
                whole("score", [3, 8]),
            ],
        )
    }),
    ("all-linear", |steps, _| {
        let adapter = Adapter { rank: 2, target_modules: None, modules_to_save: &["score"] };
        compare(
            steps,
            LAYERS,
            &adapter,
            &[
                pair("model.layers.0.self_attn.q_proj", 2, [12, 8]),
                pair("model.layers.0.self_attn.v_proj", 2, [6, 8]),
                pair("model.layers.0.mlp.down_proj", 2, [8, 20]),
                whole("score", [3, 8]),
            ],
        )
    }),
    ("an-embedding-whole", |steps, _| {
        let targets: &[&str] = &["down_proj"];
        let adapter = Adapter { rank: 1, target_modules: Some(targets), modules_to_save: &["embed_tokens"] };
        compare(
            steps,
            LAYERS,
            &adapter,
            &[
                whole("model.embed_tokens", [40, 8]),
                pair("model.layers.0.mlp.down_proj", 1, [8, 20]),
                whole("score", [3, 8]),
            ],
        )
    }),
    ("whole-before-pair", |steps, _| {
        let targets: &[&str] = &["down_proj", "v_proj"];
        let adapter = Adapter { rank: 3, target_modules: Some(targets), modules_to_save: &["v_proj"] };
        compare(
            steps,
            LAYERS,
            &adapter,
            &[
                whole("model.layers.0.self_attn.v_proj", [6, 8]),
                pair("model.layers.0.mlp.down_proj", 3, [8, 20]),
                whole("score", [3, 8]),
            ],
        )
    }),
    // the end of a name is enough for what is trained whole, and not for a target
    ("ends-of-names", |steps, _| {
        let layers = &[
            linear("encoder.my_q_proj", [4, 4]),
            linear("encoder.q_proj", [4, 6]),
            linear("pre_classifier", [5, 4]),
        ];
        let adapter = Adapter { rank: 2, target_modules: Some(&["q_proj"]), modules_to_save: &[] };
        compare(
            steps,
            layers,
            &adapter,
            &[pair("encoder.q_proj", 2, [4, 6]), whole("pre_classifier", [5, 4])],
        )?;
        let adapter = Adapter { modules_to_save: &["q_proj"], ..adapter };
        compare(
            steps,
            layers,
            &adapter,
            &[
                whole("encoder.my_q_proj", [4, 4]),
                whole("encoder.q_proj", [4, 6]),
                whole("pre_classifier", [5, 4]),
            ],
        )
    }),
    ("a-full-name", |steps, _| {
        let targets: &[&str] = &["model.layers.0.mlp.down_proj", "self_attn.q_proj"];
        let adapter = Adapter { rank: 2, target_modules: Some(targets), modules_to_save: &[] };
        compare(
            steps,
            LAYERS,
            &adapter,
            &[
                pair("model.layers.0.self_attn.q_proj", 2, [12, 8]),
                pair("model.layers.0.mlp.down_proj", 2, [8, 20]),
                whole("score", [3, 8]),
            ],
        )
    }),
    ("a-target-that-is-none", |steps, _| {
        for (targets, missing) in [
            (&["q_proj", "query"][..], "query"),
            (&["proj"], "proj"),
            (&["embed_tokens"], "embed_tokens"),
            (&["gate", "up"], "gate"),
        ] {
            let adapter = Adapter { rank: 2, target_modules: Some(targets), modules_to_save: &[] };
            let got = steps.trained(LAYERS, &adapter);
            same(&format!("targets {targets:?} of {LAYERS:?}"), &got, &Err(missing.to_owned()))?;
        }
        Ok(())
    }),
    ("drawn", |steps, random| (0..100).try_for_each(|_| drawn(steps, random))),
];

/// A model of one layer.
const LAYERS: &[Layer<'static>] = &[
    Layer { name: "model.embed_tokens", shape: [40, 8], is_linear: false },
    linear("model.layers.0.self_attn.q_proj", [12, 8]),
    linear("model.layers.0.self_attn.v_proj", [6, 8]),
    linear("model.layers.0.mlp.down_proj", [8, 20]),
    linear("score", [3, 8]),
];

const fn linear(name: &str, shape: [usize; 2]) -> Layer<'_> {
    Layer { name, shape, is_linear: true }
}

fn whole(layer: &str, shape: [usize; 2]) -> Vec<Trained> {
    vec![Trained { name: format!("base_model.model.{layer}.weight"), shape }]
}

fn pair(layer: &str, rank: usize, [outputs, inputs]: [usize; 2]) -> Vec<Trained> {
    let part =
        |part: &str, shape| Trained { name: format!("base_model.model.{layer}.lora_{part}.weight"), shape };
    vec![part("A", [rank, inputs]), part("B", [outputs, rank])]
}

fn compare(
    steps: &dyn Classify,
    layers: &[Layer<'_>],
    adapter: &Adapter<'_>,
    want: &[Vec<Trained>],
) -> Result<(), String> {
    same(&format!("{adapter:?} of {layers:?}"), &steps.trained(layers, adapter), &Ok(want.concat()))
}

/// Layers of a model of some depth, each projection with a pair, whole, or neither.
fn drawn(steps: &dyn Classify, random: &mut Random) -> Result<(), String> {
    const PROJECTIONS: [&str; 4] = ["self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"];
    let rank = 1 + random.below(8);
    let mut fates = PROJECTIONS.map(|_| random.below(3));
    fates[random.below(4)] = 1; // there is a target
    let of = |fate: usize| -> Vec<&str> {
        let chosen = PROJECTIONS.iter().zip(fates).filter(|(_, of)| *of == fate);
        chosen.filter_map(|(name, _)| name.split('.').next_back()).collect()
    };
    let (targets, saved) = (of(1), of(2));
    let names: Vec<(String, usize)> = (0..=random.below(3))
        .flat_map(|layer| {
            PROJECTIONS
                .iter()
                .zip(fates)
                .map(move |(name, fate)| (format!("model.layers.{layer}.{name}"), fate))
        })
        .chain([("score".to_owned(), 2)])
        .collect();
    let shapes: Vec<[usize; 2]> = names.iter().map(|_| [0; 2].map(|_: i32| 1 + random.below(9))).collect();
    let layers: Vec<Layer<'_>> =
        names.iter().zip(&shapes).map(|((name, _), shape)| linear(name, *shape)).collect();
    let want = names.iter().zip(&shapes).map(|((name, fate), shape)| match fate {
        0 => Vec::new(),
        1 => pair(name, rank, *shape),
        _ => whole(name, *shape),
    });
    let adapter = Adapter { rank, target_modules: Some(&targets), modules_to_save: &saved };
    compare(steps, &layers, &adapter, &want.collect::<Vec<_>>())
}
