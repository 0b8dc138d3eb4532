//! Models that are drawn: sizes, settings, and checkpoints of their names.

use challenges::issues::gguf::{Activation, Architecture, Projector, Source, TextModel, Tower};
use reference::checkpoint::gguf::TensorType;
use reference::llama::{Config, Rope, Scaling};

use crate::graph::model::llama_1b;
use crate::random::Random;

/// Every type that weights are stored in.
pub(super) const STORED: [TensorType; 8] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::Bf16,
    TensorType::Q8_0,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
];

/// One of some.
pub(super) fn one_of<T: Copy>(all: &[T], random: &mut Random) -> T {
    all[random.below(all.len())]
}

/// A number drawn from (-1, 1)^3: many small ones, a few large.
pub(super) fn number(random: &mut Random) -> f32 {
    let x = 2.0 * random.unit() - 1.0;
    (x * x * x) as f32
}

/// A language model, of few numbers that are alike.
pub(super) fn text_model(is_qwen: bool, layers: usize, random: &mut Random) -> TextModel {
    let key_heads = 1 + random.below(3);
    let (heads, head_dim) = (key_heads * (2 + random.below(2)), 2 * (4 + random.below(5)));
    let half = head_dim / 2;
    let scaling = match random.below(3) {
        _ if is_qwen => Scaling::None,
        0 => Scaling::None,
        1 => Scaling::Linear { factor: 2.0 + random.below(5) as f64 },
        _ => llama3(random),
    };
    TextModel {
        name: format!("drawn-{}", random.below(1000)),
        architecture: if is_qwen {
            Architecture::Qwen2Vl { sections: [half - 2 * (half / 3), half / 3, half / 3] }
        } else {
            Architecture::Llama
        },
        config: Config {
            vocab: 50 + random.below(50),
            hidden: 32 * (1 + random.below(3)) + 8 * random.below(2),
            intermediate: 160 + 32 * random.below(3),
            layers,
            heads,
            key_heads,
            head_dim,
            positions: 300 + random.below(1000),
            norm_eps: one_of(&[1e-5, 1e-6, 3e-6], random),
            rope: Rope { theta: one_of(&[1e4, 5e5, 1e6], random), scaling },
            tied: false,
            ..llama_1b()
        },
        stored: one_of(&STORED, random),
    }
}

/// A scaling of which some frequencies are long, some short and some between, if there are enough.
pub(super) fn llama3(random: &mut Random) -> Scaling {
    let low = 1.0 + random.below(2) as f64;
    Scaling::Llama3 {
        factor: one_of(&[2.0, 8.0, 32.0], random),
        low,
        high: low + 1.0 + random.below(4) as f64,
        original: 32 << random.below(9),
    }
}

/// A tower with its projector; its output is as wide as the language model.
pub(super) fn projector(is_qwen: bool, layers: usize, output: usize, random: &mut Random) -> Projector {
    let (heads, patch_size) = (2 + random.below(4), 4 + random.below(12));
    let three = |random: &mut Random| std::array::from_fn(|_| random.unit() as f32 + 0.1);
    Projector {
        name: format!("drawn-{}", random.below(1000)),
        tower: if is_qwen {
            Tower::Qwen2Vl { merge: 2 + random.below(2) }
        } else {
            Tower::Llava { feature_layer: random.below(layers + 1) }
        },
        image_size: patch_size * (3 + random.below(4)),
        patch_size,
        hidden: heads * (8 + random.below(9)),
        intermediate: 64 + 8 * random.below(5),
        layers,
        heads,
        norm_eps: one_of(&[1e-5, 1e-6], random),
        output,
        activation: one_of(&[Activation::QuickGelu, Activation::Gelu, Activation::Silu], random),
        mean: three(random),
        std: three(random),
        stored: one_of(&STORED, random),
    }
}

/// The tensors of a checkpoint, with their dimensions.
pub(super) type Tensors = Vec<(String, Vec<usize>)>;

/// Those of a language model, each behind `front`.
pub(super) fn text_tensors(model: &TextModel, front: &str) -> Tensors {
    let config = &model.config;
    let mut all = Tensors::new();
    for spec in config.tensor_specs() {
        all.push((spec.name.clone(), spec.shape.clone()));
        let is_biased = ["q_proj.weight", "k_proj.weight", "v_proj.weight"].iter();
        let mut is_biased = is_biased.filter(|_| model.architecture != Architecture::Llama);
        if is_biased.any(|end| spec.name.ends_with(end)) {
            all.push((spec.name.replace("weight", "bias"), vec![spec.shape[0]]));
        }
    }
    // one with its own `language_model` has no `model` of its own
    let renamed = |name: String| match front {
        "model.language_model." => match name.strip_prefix("model.") {
            Some(inner) => format!("{front}{inner}"),
            None => name,
        },
        _ => format!("{front}{name}"),
    };
    all.into_iter().map(|(name, shape)| (renamed(name), shape)).collect()
}

/// Those of a tower and its projector; names as in checkpoints of several versions.
pub(super) fn vision_tensors(projector: &Projector, is_new: bool) -> Tensors {
    let front = if is_new { "model." } else { "" };
    let all = match projector.tower {
        Tower::Llava { .. } => llava_tensors(projector, if is_new { "" } else { "vision_model." }),
        Tower::Qwen2Vl { merge } => qwen_tensors(projector, merge),
    };
    all.into_iter().map(|(name, shape)| (format!("{front}{name}"), shape)).collect()
}

/// Adds a module's weight and bias.
fn pair(all: &mut Tensors, name: &str, weight: &[usize]) {
    all.push((format!("{name}.weight"), weight.to_vec()));
    all.push((format!("{name}.bias"), vec![weight[0]]));
}

fn llava_tensors(projector: &Projector, inner: &str) -> Tensors {
    let &Projector { hidden, intermediate, output, patch_size, image_size, .. } = projector;
    let front = format!("vision_tower.{inner}");
    let patches = (image_size / patch_size).pow(2);
    let mut all = vec![
        (format!("{front}embeddings.class_embedding"), vec![hidden]),
        (format!("{front}embeddings.patch_embedding.weight"), vec![hidden, 3, patch_size, patch_size]),
        (format!("{front}embeddings.position_embedding.weight"), vec![patches + 1, hidden]),
    ];
    for norm in ["pre_layrnorm", "post_layernorm"] {
        pair(&mut all, &format!("{front}{norm}"), &[hidden]);
    }
    for layer in 0..projector.layers {
        let of_layer = |part: &str| format!("{front}encoder.layers.{layer}.{part}");
        for part in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"] {
            pair(&mut all, &of_layer(part), &[hidden, hidden]);
        }
        for norm in ["layer_norm1", "layer_norm2"] {
            pair(&mut all, &of_layer(norm), &[hidden]);
        }
        pair(&mut all, &of_layer("mlp.fc1"), &[intermediate, hidden]);
        pair(&mut all, &of_layer("mlp.fc2"), &[hidden, intermediate]);
    }
    pair(&mut all, "multi_modal_projector.linear_1", &[output, hidden]);
    pair(&mut all, "multi_modal_projector.linear_2", &[output, output]);
    all
}

fn qwen_tensors(projector: &Projector, merge: usize) -> Tensors {
    let &Projector { hidden, intermediate, output, patch_size, .. } = projector;
    let patch = vec![hidden, 3, 2, patch_size, patch_size];
    let mut all = vec![("visual.patch_embed.proj.weight".to_owned(), patch)];
    for block in 0..projector.layers {
        let of_block = |part: &str| format!("visual.blocks.{block}.{part}");
        for norm in ["norm1", "norm2"] {
            pair(&mut all, &of_block(norm), &[hidden]);
        }
        pair(&mut all, &of_block("attn.qkv"), &[3 * hidden, hidden]);
        pair(&mut all, &of_block("attn.proj"), &[hidden, hidden]);
        pair(&mut all, &of_block("mlp.fc1"), &[intermediate, hidden]);
        pair(&mut all, &of_block("mlp.fc2"), &[hidden, intermediate]);
    }
    let merged = hidden * merge * merge;
    pair(&mut all, "visual.merger.ln_q", &[hidden]);
    pair(&mut all, "visual.merger.mlp.0", &[merged, merged]);
    pair(&mut all, "visual.merger.mlp.2", &[output, merged]);
    all
}

/// A checkpoint: tensors, and the seed of their numbers.
pub(super) struct Checkpoint {
    pub tensors: Tensors,
    pub seed: u64,
}

impl Source for Checkpoint {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.clone()
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let (_, shape) = self.tensors.iter().find(|(own, _)| own == name).ok_or("there is no such tensor")?;
        let mut random = Random::named(self.seed, name);
        Ok((0..shape.iter().product::<usize>()).map(|_| number(&mut random)).collect())
    }
}
