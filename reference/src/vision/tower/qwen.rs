//! Qwen2-VL's tower: patches of any number of images in one row, rotary embeddings of two axes, and a merger.
//!
//! ```text
//! x = W patch                                                                     (P, E), patches that merge together
//! x = x + attention(norm(x));  x = x + fc2(quick_gelu(fc1(norm(x))))              for every block
//! y = mlp.2(gelu(mlp.0(norm(x) as (P / m^2, m^2 E))))                             (N, H), N = P / m^2
//! ```
//!
//! A patch attends to the patches of its own image. Of the D / 2 pairs of a head's numbers, (i, i + D / 2), the first
//! half turns with a patch's row, the other with its column, both through the frequencies of a head of D / 2.
//!
//! Sources: Wang et al., "Qwen2-VL" (2024), section 2.1; `Qwen2VisionTransformerPretrainedModel` of the `transformers`
//! library, 5.23.

use super::MOST_LAYERS;
use super::functions::{Writer, fixed, gelu, join, plain, quick_gelu, split};
use crate::graph::interpret::Values;
use crate::graph::{Array, Attention, Dtype, Facts, Real, Tensor, programs};
use crate::llama::{Error, Fields, Rope, Scaling, rope};
use crate::vision::patches::{COLOURS, Cut, Grid, merged_order};

/// The sizes of a tower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Qwen {
    /// Blocks.
    pub layers: usize,
    /// E, the width of its residual stream.
    pub width: usize,
    /// Heads of its attention.
    pub heads: usize,
    /// The width inside its blocks' MLP.
    pub intermediate: usize,
    /// H, the width of the language model.
    pub hidden: usize,
    /// How images are cut.
    pub cut: Cut,
    /// The base of the rotary frequencies.
    pub theta: f64,
}

/// What its norms add to a variance.
const EPS: f64 = 1e-6;

/// The largest number of groups of patches that a graph is written for.
const MOST: i64 = 1 << 24;

impl Qwen {
    /// What its norms add to a variance.
    pub const EPS: f64 = EPS;

    pub(in crate::vision) fn of(fields: &Fields, most: usize) -> Result<Self, Error> {
        fields.only("hidden_act", "quick_gelu")?;
        for colours in ["in_channels", "in_chans"] {
            fields.only(colours, COLOURS)?;
        }
        let size = |name: &str, usual: usize| Ok::<_, Error>(fields.size(name, most)?.unwrap_or(usual));
        let (width, heads) = (size("embed_dim", 1280)?, size("num_heads", 16)?);
        if width % (4 * heads) != 0 {
            let need = format!("a multiple of four for each of {heads} heads");
            return Err(fields.wrong("embed_dim", &need));
        }
        let rope = fields.object("rope_parameters")?;
        Ok(Self {
            layers: fields.size("depth", MOST_LAYERS)?.unwrap_or(32),
            intermediate: (fields.positive("mlp_ratio")?.unwrap_or(4.0) * width as f64) as usize,
            hidden: size("hidden_size", 3584)?,
            cut: Cut {
                patch: size("patch_size", 14)?,
                merge: size("spatial_merge_size", 2)?,
                frames: size("temporal_patch_size", 2)?,
            },
            theta: rope.map(|rope| rope.positive("rope_theta")).transpose()?.flatten().unwrap_or(10000.0),
            width,
            heads,
        })
    }

    /// Every weight, with its dimensions.
    pub fn weights(&self) -> Vec<(String, Vec<usize>)> {
        let Self { width, hidden, intermediate, cut: Cut { patch, merge, frames }, .. } = *self;
        let together = merge * merge * width;
        let mut all =
            vec![("visual.patch_embed.proj.weight".to_owned(), vec![width, COLOURS, frames, patch, patch])];
        let mut add = |name: String, outputs: usize, inputs: Option<usize>| {
            all.push((format!("{name}.weight"), std::iter::once(outputs).chain(inputs).collect()));
            all.push((format!("{name}.bias"), vec![outputs]));
        };
        for layer in 0..self.layers {
            let of = |part: &str| format!("visual.blocks.{layer}.{part}");
            add(of("norm1"), width, None);
            add(of("attn.qkv"), 3 * width, Some(width));
            add(of("attn.proj"), width, Some(width));
            add(of("norm2"), width, None);
            add(of("mlp.fc1"), intermediate, Some(width));
            add(of("mlp.fc2"), width, Some(intermediate));
        }
        add("visual.merger.ln_q".into(), width, None);
        add("visual.merger.mlp.0".into(), together, Some(together));
        add("visual.merger.mlp.2".into(), hidden, Some(together));
        all
    }

    /// From `pixel_values` f32 (N, m^2, 3 T p p), the angles `vision.cos` and `vision.sin` f32 (N, m^2, D/2) of patches
    /// and the number of each patch's image, `images` i32 (N, m^2), to what the language model takes, (N, H).
    pub(in crate::vision) fn write(&self, to: &Writer<'_>) -> Tensor {
        let Self { width, heads, cut: Cut { patch, merge, frames }, .. } = *self;
        let (count, group) = (to.tape.symbol("N", Facts::range(1, MOST)), merge * merge);
        let input = |name: &str, dtype: Dtype, wide: Option<usize>| {
            let shape = [count.clone(), group.into()].into_iter().chain(wide.map(Into::into));
            let rows = to.tape.input(name, dtype, shape);
            rows.reshape(std::iter::once(&rows.dim(0) * &rows.dim(1)).chain(wide.map(Into::into)))
        };
        let pixels = input("pixel_values", Dtype::F32, Some(COLOURS * frames * patch * patch));
        let angles = ANGLES.map(|name| input(name, Dtype::F32, Some(width / heads / 2)));
        let images = input("images", Dtype::I32, None);
        let mut x = to.patches("visual.patch_embed.proj.weight", &pixels); // (P, E)
        for layer in 0..self.layers {
            let name = format!("visual.blocks.{layer}");
            x = &x
                + &self.attention(to, &name, &to.norm(&format!("{name}.norm1"), EPS, &x), &angles, &images);
            let inner = to.linear(&format!("{name}.mlp.fc1"), &to.norm(&format!("{name}.norm2"), EPS, &x));
            x = &x + &to.linear(&format!("{name}.mlp.fc2"), &quick_gelu(&inner));
        }
        let together = to.norm("visual.merger.ln_q", EPS, &x).reshape([count, (group * width).into()]);
        to.linear("visual.merger.mlp.2", &gelu(&to.linear("visual.merger.mlp.0", &together)))
    }

    /// (P, E) to (P, E).
    fn attention(
        &self,
        to: &Writer<'_>,
        name: &str,
        x: &Tensor,
        angles: &[Tensor; 2],
        images: &Tensor,
    ) -> Tensor {
        let Self { width, heads, .. } = *self;
        let all = to.linear(&format!("{name}.attn.qkv"), x).reshape([1.into(), x.dim(0), (3 * width).into()]);
        let part = |i: usize| split(&all.slice(2, i * width, (i + 1) * width), heads, width); // (1, heads, P, D)
        let [q, k] = [0, 1].map(|i| turned(&part(i), angles, width / heads));
        let types = [fixed(Dtype::I32, [images.dim(0)])];
        let mask = programs::mask("image", &types, |at| programs::document(at, &at.extras[0]));
        let mask = Some(mask.expect("scalars fit each other"));
        let attention = Attention { mask, ..plain(width, heads) };
        let attended = join(&q.attend(attention, &k, &part(2), &[images]), width).reshape(x.shape());
        to.linear(&format!("{name}.attn.proj"), &attended)
    }

    /// What is given of images beside their weights and pixels.
    pub(in crate::vision) fn places<R: Real>(&self, grids: &[Grid]) -> Values<R> {
        let (group, head) = (self.cut.merge * self.cut.merge, self.width / self.heads);
        let frequencies = rope::frequencies(&Rope { theta: self.theta, scaling: Scaling::None }, head / 2);
        let frames = |grid: &Grid| std::iter::repeat_n(*grid, grid.t);
        let places = grids.iter().flat_map(frames).flat_map(|grid| merged_order(grid, self.cut.merge));
        let angles = places.flat_map(|(row, column)| {
            [row, column].into_iter().flat_map(|at| frequencies.iter().map(move |f| at as f32 * f))
        });
        let angles: Vec<f32> = angles.collect();
        let frames = grids.iter().flat_map(|grid| std::iter::repeat_n(grid.h * grid.w, grid.t)); // apart from each other
        let images: Vec<i32> =
            (0..).zip(frames).flat_map(|(image, n)| std::iter::repeat_n(image, n)).collect();
        let count = images.len() / group;
        let tables = rope::turned(&angles).map(|table| {
            Array::floats(Dtype::F32, &[count, group, head / 2], table.into_iter().map(f64::from))
        });
        let names = ANGLES.iter().map(|name| (*name).to_owned());
        names.zip(tables).chain([("images".to_owned(), Array::integers(&[count, group], images))]).collect()
    }
}

/// The names of the angles, cosines first.
const ANGLES: [&str; 2] = ["vision.cos", "vision.sin"];

/// The pair (i, i + D/2) of each head's numbers, turned by its patch's angle i: (1, heads, P, D).
fn turned(x: &Tensor, [cos, sin]: &[Tensor; 2], width: usize) -> Tensor {
    let half = width / 2;
    let (left, right) = (x.slice(3, 0, half), x.slice(3, half, width));
    let [turned_left, turned_right] = [&(&left * cos) - &(&right * sin), &(&right * cos) + &(&left * sin)];
    x.tape().concat(&[&turned_left, &turned_right], 3)
}
