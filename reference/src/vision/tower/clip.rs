//! CLIP's tower with LLaVA's projector: square images of one size, learned positions, a token of the class.
//!
//! ```text
//! x = norm([class; W patch] + positions)                                          (I, 1 + P, E)
//! x = x + attention(norm(x));  x = x + fc2(quick_gelu(fc1(norm(x))))              up to the layer that is read
//! y = linear_2(gelu(linear_1(x)))                                                 (I, P, H), or with the class (I, 1 + P, H)
//! ```
//!
//! Sources: Radford et al., "CLIP" (2021), section 2.4; Liu et al., "Improved Baselines with Visual Instruction Tuning"
//! (2023), section 3; `CLIPVisionModel` and `LlavaModel` of the `transformers` library, 5.23.

use super::MOST_LAYERS;
use super::functions::{Writer, gelu, join, plain, quick_gelu, split};
use crate::graph::{Dtype, Facts, Tensor};
use crate::llama::{Error, Fields};
use crate::vision::patches::COLOURS;

/// The sizes of a tower and of the projector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// Layers that the checkpoint has.
    pub layers: usize,
    /// Layers whose states are read: the others are not computed.
    pub read: usize,
    /// Whether the token of the class is read, too.
    pub with_class: bool,
    /// E, the width of its residual stream.
    pub width: usize,
    /// Heads of its attention.
    pub heads: usize,
    /// The width inside its layers' MLP.
    pub intermediate: usize,
    /// An image's edge, in pixels.
    pub edge: usize,
    /// A patch's edge, in pixels.
    pub patch: usize,
    /// What its norms add to a variance.
    pub eps: f64,
    /// H, the width of the language model.
    pub hidden: usize,
    /// Whether the projector adds biases.
    pub has_biases: bool,
    /// What stands before the names of the tower's weights.
    pub prefix: &'static str,
}

/// The largest number of images that a graph is written for.
const MOST: i64 = 1 << 20;

impl Clip {
    /// `fields` are the tower's, `around` the file's.
    pub(in crate::vision) fn of(
        fields: &Fields,
        around: &Fields,
        hidden: usize,
        most: usize,
    ) -> Result<Self, Error> {
        fields.only("model_type", "clip_vision_model")?;
        fields.only("hidden_act", "quick_gelu")?;
        fields.only("num_channels", COLOURS)?;
        around.only("projector_hidden_act", "gelu")?;
        let size = |name: &str, usual: usize| Ok::<_, Error>(fields.size(name, most)?.unwrap_or(usual));
        let layers = fields.size("num_hidden_layers", MOST_LAYERS)?.unwrap_or(12);
        let (width, heads) = (size("hidden_size", 768)?, size("num_attention_heads", 12)?);
        if width % heads != 0 {
            return Err(fields.wrong("hidden_size", &format!("a multiple of {heads} heads")));
        }
        let (edge, patch) = (size("image_size", 224)?, size("patch_size", 32)?);
        if !edge.is_multiple_of(patch) {
            return Err(fields.wrong("image_size", &format!("a multiple of the patch's edge, {patch}")));
        }
        Ok(Self {
            read: read(around, layers)?,
            with_class: with_class(around)?,
            intermediate: size("intermediate_size", 3072)?,
            eps: fields.positive("layer_norm_eps")?.unwrap_or(1e-5),
            has_biases: around.get("multimodal_projector_bias").is_none_or(|flag| *flag != false),
            prefix: "vision_tower.",
            layers,
            width,
            heads,
            edge,
            patch,
            hidden,
        })
    }

    /// Patches along an edge.
    pub fn across(&self) -> usize {
        self.edge / self.patch
    }

    /// Tokens of an image.
    pub fn tokens(&self) -> usize {
        self.across() * self.across() + usize::from(self.with_class)
    }

    /// Every weight that is read, with its dimensions.
    pub fn weights(&self) -> Vec<(String, Vec<usize>)> {
        let Self { width, patch, intermediate, hidden, prefix, .. } = *self;
        let positions = self.across() * self.across() + 1;
        let mut all = vec![
            (format!("{prefix}embeddings.class_embedding"), vec![width]),
            (format!("{prefix}embeddings.patch_embedding.weight"), vec![width, COLOURS, patch, patch]),
            (format!("{prefix}embeddings.position_embedding.weight"), vec![positions, width]),
        ];
        let mut add = |name: String, outputs: usize, inputs: Option<usize>, has_bias: bool| {
            all.push((format!("{name}.weight"), std::iter::once(outputs).chain(inputs).collect()));
            all.extend(has_bias.then(|| (format!("{name}.bias"), vec![outputs])));
        };
        add(format!("{prefix}pre_layrnorm"), width, None, true);
        for layer in 0..self.read {
            let of = |part: &str| format!("{prefix}encoder.layers.{layer}.{part}");
            for norm in ["layer_norm1", "layer_norm2"] {
                add(of(norm), width, None, true);
            }
            for part in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                add(of(&format!("self_attn.{part}")), width, Some(width), true);
            }
            add(of("mlp.fc1"), intermediate, Some(width), true);
            add(of("mlp.fc2"), width, Some(intermediate), true);
        }
        add("multi_modal_projector.linear_1".into(), hidden, Some(width), self.has_biases);
        add("multi_modal_projector.linear_2".into(), hidden, Some(hidden), self.has_biases);
        all
    }

    /// From `pixel_values` f32 (I, 3, S, S) to what the language model takes, (I * tokens, H).
    pub(in crate::vision) fn write(&self, to: &Writer<'_>) -> Tensor {
        let Self { width, edge, prefix, eps, .. } = *self;
        let count = to.tape.symbol("I", Facts::range(1, MOST));
        let pixels = to.tape.input(
            "pixel_values",
            Dtype::F32,
            [count.clone(), COLOURS.into(), edge.into(), edge.into()],
        );
        let of = |part: &str| format!("{prefix}{part}");
        let patches = to.patches(&of("embeddings.patch_embedding.weight"), &self.patches(&pixels)); // (I, P, E)
        let class =
            to.weight(&of("embeddings.class_embedding")).spread(&[count.clone(), 1.into(), width.into()]);
        let x =
            &to.tape.concat(&[&class, &patches], 1) + &to.weight(&of("embeddings.position_embedding.weight"));
        let mut x = to.norm(&of("pre_layrnorm"), eps, &x);
        for layer in 0..self.read {
            let name = of(&format!("encoder.layers.{layer}"));
            x = &x + &self.attention(to, &name, &to.norm(&format!("{name}.layer_norm1"), eps, &x));
            let inner =
                to.linear(&format!("{name}.mlp.fc1"), &to.norm(&format!("{name}.layer_norm2"), eps, &x));
            x = &x + &to.linear(&format!("{name}.mlp.fc2"), &quick_gelu(&inner));
        }
        let first = usize::from(!self.with_class);
        let x =
            x.slice(1, first, first + self.tokens()).reshape([&count * &self.tokens().into(), width.into()]);
        let inner = gelu(&to.linear("multi_modal_projector.linear_1", &x));
        to.linear("multi_modal_projector.linear_2", &inner)
    }

    /// (I, 3, S, S) to (I, P, 3 p p).
    fn patches(&self, pixels: &Tensor) -> Tensor {
        let (across, patch) = (self.across(), self.patch);
        let apart = [pixels.dim(0), COLOURS.into(), across.into(), patch.into(), across.into(), patch.into()];
        let patches = pixels.reshape(apart).transpose(&[0, 2, 4, 1, 3, 5]);
        patches.reshape([pixels.dim(0), (across * across).into(), (COLOURS * patch * patch).into()])
    }

    /// (I, T, E) to (I, T, E).
    fn attention(&self, to: &Writer<'_>, name: &str, x: &Tensor) -> Tensor {
        let Self { width, heads, .. } = *self;
        let project = |part: &str, x: &Tensor| to.linear(&format!("{name}.self_attn.{part}"), x);
        let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|part| split(&project(part, x), heads, width));
        project("out_proj", &join(&q.attend(plain(width, heads), &k, &v, &[]), width))
    }
}

/// The layers that are computed: `vision_feature_layer` counts from the end where it is below 0, and 0 is before the
/// first.
fn read(around: &Fields, layers: usize) -> Result<usize, Error> {
    let Some(layer) = around.get("vision_feature_layer") else { return Ok(layers - 1) };
    let after = layer.as_i64().map(|layer| if layer < 0 { layers as i64 + 1 + layer } else { layer });
    let known = after.and_then(|after| usize::try_from(after).ok()).filter(|after| *after <= layers);
    known.ok_or_else(|| {
        around.wrong("vision_feature_layer", &format!("a layer from -{} to {layers}", layers + 1))
    })
}

fn with_class(around: &Fields) -> Result<bool, Error> {
    match around.text("vision_feature_select_strategy")?.as_deref() {
        None | Some("default") => Ok(false),
        Some("full") => Ok(true),
        Some(_) => Err(around.wrong("vision_feature_select_strategy", "\"default\" or \"full\"")),
    }
}
