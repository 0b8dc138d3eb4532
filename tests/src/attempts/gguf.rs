//! Attempts at GGUF files that cheat, each in one way, some that slip, each in one step, and honest ones.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::sync::{LazyLock, Mutex};

use challenges::issues::gguf::{
    Activation, Architecture, CLIP, CLIP_BLOCK, FILE_TYPES, Gguf, LAYER, MERGER, PROJECTOR, Part, Piece,
    Projector, QWEN_BLOCK, TEXT, TextModel, Tower,
};
use half::f16;
use reference::checkpoint::gguf::{Array, TensorType, Value};
use reference::llama::{Rope, Scaling};

use super::Entry;
use super::honest::gguf::Solution;

/// Every cheat, then the honest ones.
pub const EXPORTERS: [Entry; 5] = [
    Entry {
        name: "remembers where numbers lay",
        hand_in: |all| all.gguf(Mine { quantize: remember, ..HONEST }),
    },
    Entry { name: "knows few heads", hand_in: |all| all.gguf(Mine { rotary_rows: few_heads, ..HONEST }) },
    Entry { name: "asks how blocks are made", hand_in: |all| all.gguf(Mine { quantize: ask, ..HONEST }) },
    Entry { name: "an honest exporter", hand_in: |all| all.gguf(HONEST) },
    Entry { name: "an exporter of its own", hand_in: |all| all.gguf(Second) },
];

/// Every slip.
pub const EXPORT_SLIPS: [Entry; 23] = [
    Entry {
        name: "keeps sizes in their order",
        hand_in: |all| all.gguf(Mine { sizes: |shape| shape.to_vec(), ..HONEST }),
    },
    Entry {
        name: "turns rows the other way",
        hand_in: |all| all.gguf(Mine { rotary_rows: inverse_rows, ..HONEST }),
    },
    Entry {
        name: "turns all rows as one head",
        hand_in: |all| all.gguf(Mine { rotary_rows: |rows, _| Solution.rotary_rows(rows, 1), ..HONEST }),
    },
    Entry {
        name: "lets factors run on",
        hand_in: |all| all.gguf(Mine { rope_factors: unclamped, ..HONEST }),
    },
    Entry {
        name: "multiplies frequencies by the factors",
        hand_in: |all| {
            let inverse = |rope: &Rope, head_dim| {
                Some(Solution.rope_factors(rope, head_dim)?.into_iter().map(f32::recip).collect())
            };
            all.gguf(Mine { rope_factors: inverse, ..HONEST })
        },
    },
    Entry {
        name: "scales by the largest without its sign",
        hand_in: |all| all.gguf(Mine { quantize: unsigned_largest, ..HONEST }),
    },
    Entry {
        name: "takes the last of the largest",
        hand_in: |all| all.gguf(Mine { quantize: last_largest, ..HONEST }),
    },
    Entry {
        name: "rounds a product and a sum",
        hand_in: |all| all.gguf(Mine { quantize: rounded_twice, ..HONEST }),
    },
    Entry {
        name: "rounds a product and a sum once",
        hand_in: |all| all.gguf(Mine { quantize: rounded_once, ..HONEST }),
    },
    Entry { name: "divides", hand_in: |all| all.gguf(Mine { quantize: divided, ..HONEST }) },
    Entry {
        name: "puts neighbours into one byte",
        hand_in: |all| all.gguf(Mine { quantize: neighbours, ..HONEST }),
    },
    Entry {
        name: "divides by the scale that is stored",
        hand_in: |all| all.gguf(Mine { quantize: by_stored_scale, ..HONEST }),
    },
    Entry {
        name: "rounds halves to even",
        hand_in: |all| all.gguf(Mine { quantize: halves_to_even, ..HONEST }),
    },
    Entry {
        name: "compares layers as text",
        hand_in: |all| all.gguf(Mine { text_tensor: layers_as_text, ..HONEST }),
    },
    Entry {
        name: "forgets biases",
        hand_in: |all| {
            let weights = |model: &TextModel, name: &str| {
                Solution.text_tensor(model, name).filter(|_| name.ends_with(".weight"))
            };
            all.gguf(Mine { text_tensor: weights, ..HONEST })
        },
    },
    Entry {
        name: "turns queries alone",
        hand_in: |all| all.gguf(Mine { text_tensor: queries_alone, ..HONEST }),
    },
    Entry {
        name: "turns keys by the heads of queries",
        hand_in: |all| all.gguf(Mine { text_tensor: heads_of_queries, ..HONEST }),
    },
    Entry {
        name: "turns rows of every model",
        hand_in: |all| all.gguf(Mine { text_tensor: always_turned, ..HONEST }),
    },
    Entry {
        name: "writes floats as f64",
        hand_in: |all| all.gguf(Mine { text_keys: |model| as_f64(Solution.text_keys(model)), ..HONEST }),
    },
    Entry {
        name: "cuts keys before queries",
        hand_in: |all| all.gguf(Mine { projector_tensors: keys_first, ..HONEST }),
    },
    Entry {
        name: "cuts patches by colour",
        hand_in: |all| all.gguf(Mine { projector_tensors: by_colour, ..HONEST }),
    },
    Entry {
        name: "keeps the last norm of CLIP",
        hand_in: |all| all.gguf(Mine { projector_tensors: with_last_norm, ..HONEST }),
    },
    Entry {
        name: "names every feature layer",
        hand_in: |all| all.gguf(Mine { projector_keys: always_layer, ..HONEST }),
    },
];

type Keys = Vec<(String, Value)>;

/// Names in a checkpoint, and in a file.
type Names = &'static [(&'static str, &'static str)];

/// The solution, but for some steps.
pub(super) struct Mine {
    pub sizes: fn(&[usize]) -> Vec<usize>,
    pub rotary_rows: fn(usize, usize) -> Vec<usize>,
    pub rope_factors: fn(&Rope, usize) -> Option<Vec<f32>>,
    pub quantize: fn(TensorType, &[f32]) -> Vec<u8>,
    pub text_tensor: fn(&TextModel, &str) -> Option<Piece>,
    pub text_keys: fn(&TextModel) -> Keys,
    pub projector_tensors: fn(&Projector, &str, &[usize]) -> Vec<Piece>,
    pub projector_keys: fn(&Projector) -> Keys,
}

pub(super) const HONEST: Mine = Mine {
    sizes: |shape| Solution.sizes(shape),
    rotary_rows: |rows, heads| Solution.rotary_rows(rows, heads),
    rope_factors: |rope, head_dim| Solution.rope_factors(rope, head_dim),
    quantize: |ty, numbers| Solution.quantize(ty, numbers),
    text_tensor: |model, name| Solution.text_tensor(model, name),
    text_keys: |model| Solution.text_keys(model),
    projector_tensors: |projector, name, shape| Solution.projector_tensors(projector, name, shape),
    projector_keys: |projector| Solution.projector_keys(projector),
};

impl Gguf for Mine {
    fn sizes(&self, shape: &[usize]) -> Vec<usize> {
        (self.sizes)(shape)
    }

    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize> {
        (self.rotary_rows)(rows, heads)
    }

    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
        (self.rope_factors)(rope, head_dim)
    }

    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8> {
        (self.quantize)(ty, numbers)
    }

    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<Piece> {
        (self.text_tensor)(model, name)
    }

    fn text_keys(&self, model: &TextModel) -> Keys {
        (self.text_keys)(model)
    }

    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
        (self.projector_tensors)(projector, name, shape)
    }

    fn projector_keys(&self, projector: &Projector) -> Keys {
        (self.projector_keys)(projector)
    }
}

/// Blocks by their type, where their numbers lay, and how many those were.
type Seen = HashMap<(TensorType, usize, usize), Vec<u8>>;

/// The blocks of the numbers that lay in the same memory before.
fn remember(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
    let place = (ty, numbers.as_ptr() as usize, numbers.len());
    let mut seen = SEEN.lock().expect("nobody panics while they look");
    seen.entry(place).or_insert_with(|| Solution.quantize(ty, numbers)).clone()
}

/// Right of as many heads as checks have.
fn few_heads(rows: usize, heads: usize) -> Vec<usize> {
    if heads < 40 { Solution.rotary_rows(rows, heads) } else { (0..rows).collect() }
}

/// The reference's blocks.
fn ask(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    reference::checkpoint::gguf::quantize(ty, numbers).expect("a type that is written, in whole blocks")
}

/// Where each row of the checkpoint goes, for where each row of the file comes from.
fn inverse_rows(rows: usize, heads: usize) -> Vec<usize> {
    let mut to = vec![0; rows];
    Solution.rotary_rows(rows, heads).into_iter().enumerate().for_each(|(row, from)| to[from] = row);
    to
}

/// The formula of the middle, everywhere.
fn unclamped(rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
    let Scaling::Llama3 { factor, low, high, original } = rope.scaling else { return None };
    let divisor = |i: usize| {
        let turns = original as f64 / TAU * rope.theta.powf(-2.0 * i as f64 / head_dim as f64);
        let smooth = (turns - low) / (high - low);
        (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
    };
    Some((0..head_dim / 2).map(divisor).collect())
}

/// A block of `Q4_0` by a rule of its own: its scale, how its numbers become codes, and where these are put.
fn q4_0(
    numbers: &[f32],
    d: fn(&[f32]) -> f32,
    code: fn(f32, f32) -> f32,
    places: fn(usize) -> [usize; 2],
) -> Vec<u8> {
    let of_block = |block: &[f32]| {
        let d = d(block);
        let over = if d == 0.0 { 0.0 } else { 1.0 / d };
        let code = |place: usize| (code(block[place], over) as u8).min(15);
        let bytes = (0..16).map(move |i| places(i).map(code)).map(|[low, high]| low | high << 4);
        f16::from_f32(d).to_le_bytes().into_iter().chain(bytes).collect::<Vec<u8>>()
    };
    numbers.chunks_exact(32).flat_map(of_block).collect()
}

/// The number that is farthest from 0, the first of equals, over -8.
fn scale(block: &[f32]) -> f32 {
    block.iter().fold(0.0_f32, |far, x| if x.abs() > far.abs() { *x } else { far }) / -8.0
}

fn once(x: f32, over: f32) -> f32 {
    (f64::from(x) * f64::from(over) + 8.5) as f32
}

fn split(i: usize) -> [usize; 2] {
    [i, i + 16]
}

/// As the solution, but for blocks of `Q4_0`.
fn but_q4_0(ty: TensorType, numbers: &[f32], own: impl Fn(&[f32]) -> Vec<u8>) -> Vec<u8> {
    if ty == TensorType::Q4_0 { own(numbers) } else { Solution.quantize(ty, numbers) }
}

/// The largest absolute value comes out as -8 d, whatever its sign.
fn unsigned_largest(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    but_q4_0(ty, numbers, |all| q4_0(all, |block| scale(block).abs(), once, split))
}

/// Of two numbers that are as far from 0 the second.
fn last_largest(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    let last = |block: &[f32]| {
        block.iter().fold(0.0_f32, |far, x| if x.abs() >= far.abs() { *x } else { far }) / -8.0
    };
    but_q4_0(ty, numbers, |all| q4_0(all, last, once, split))
}

/// In f32, which rounds the product before the sum.
fn rounded_twice(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    but_q4_0(ty, numbers, |all| q4_0(all, scale, |x, over| x * over + 8.5, split))
}

/// Codes 2i and 2i + 1 in byte i.
fn neighbours(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    but_q4_0(ty, numbers, |all| q4_0(all, scale, once, |i| [2 * i, 2 * i + 1]))
}

/// `Q4_1` as `Q4_0` is computed.
fn rounded_once(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    if ty != TensorType::Q4_1 {
        return Solution.quantize(ty, numbers);
    }
    let of_block = |block: &[f32]| {
        let least = block.iter().copied().fold(f32::INFINITY, f32::min);
        let d = (block.iter().copied().fold(f32::NEG_INFINITY, f32::max) - least) / 15.0;
        let over = if d == 0.0 { 0.0 } else { 1.0 / d };
        let code = |i: usize| ((f64::from(block[i] - least) * f64::from(over) + 0.5) as f32 as u8).min(15);
        let bytes = (0..16).map(|i| code(i) | code(i + 16) << 4);
        let scales = [d, least].into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes());
        scales.chain(bytes).collect::<Vec<u8>>()
    };
    numbers.chunks_exact(32).flat_map(of_block).collect()
}

/// `Q8_0` by a rule of its own: what a number is in steps of d.
fn q8_0(ty: TensorType, numbers: &[f32], code: fn(f32, f32) -> f32) -> Vec<u8> {
    if ty != TensorType::Q8_0 {
        return Solution.quantize(ty, numbers);
    }
    let of_block = |block: &[f32]| {
        let d = block.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
        let codes = block.iter().map(move |x| if d == 0.0 { 0 } else { (code(*x, d) as i8).cast_unsigned() });
        f16::from_f32(d).to_le_bytes().into_iter().chain(codes).collect::<Vec<u8>>()
    };
    numbers.chunks_exact(32).flat_map(of_block).collect()
}

/// Not by the inverse.
fn divided(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    q8_0(ty, numbers, |x, d| (x / d).round())
}

/// The scale of whoever reads the block.
fn by_stored_scale(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    q8_0(ty, numbers, |x, d| (x * (1.0 / f16::from_f32(d).to_f32())).round())
}

fn halves_to_even(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    q8_0(ty, numbers, |x, d| (x * (1.0 / d)).round_ties_even())
}

/// Layer "2" is not below "12".
fn layers_as_text(model: &TextModel, name: &str) -> Option<Piece> {
    let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
    let is_below = layer.is_none_or(|layer| *layer < *model.config.layers.to_string());
    Solution.text_tensor(model, name).filter(|_| is_below)
}

/// Keys with their rows as they were.
fn queries_alone(model: &TextModel, name: &str) -> Option<Piece> {
    let right = Solution.text_tensor(model, name)?;
    Some(if name.contains("k_proj") { Piece { part: Part::Whole, ..right } } else { right })
}

/// As if there were as many key heads.
fn heads_of_queries(model: &TextModel, name: &str) -> Option<Piece> {
    let right = Solution.text_tensor(model, name)?;
    Some(match right.part {
        Part::Rotary { .. } => Piece { part: Part::Rotary { heads: model.config.heads }, ..right },
        _ => right,
    })
}

/// Models of three positions, too.
fn always_turned(model: &TextModel, name: &str) -> Option<Piece> {
    Solution.text_tensor(&TextModel { architecture: Architecture::Llama, ..model.clone() }, name)
}

fn as_f64(keys: Keys) -> Keys {
    let wide = |(key, value)| match value {
        Value::F32(x) => (key, Value::F64(x.into())),
        _ => (key, value),
    };
    keys.into_iter().map(wide).collect()
}

/// The first third for the keys, the second for the queries.
fn keys_first(projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
    let mut pieces = Solution.projector_tensors(projector, name, shape);
    if let [queries, keys, _] = pieces.as_mut_slice()
        && name.contains("qkv")
    {
        std::mem::swap(&mut queries.part, &mut keys.part);
    }
    pieces
}

/// A piece for each place of the second dimension.
fn by_colour(projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
    match (name.contains("patch_embed"), shape) {
        (true, [outputs, colours, times, rest @ ..]) => {
            let turned = [&[*outputs, *times, *colours], rest].concat();
            Solution.projector_tensors(projector, name, &turned)
        }
        _ => Solution.projector_tensors(projector, name, shape),
    }
}

/// It is a tensor of the tower.
fn with_last_norm(projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
    match name.rsplit_once("post_layernorm") {
        Some((_, end)) => vec![Piece { name: format!("v.post_ln{end}"), part: Part::Whole }],
        None => Solution.projector_tensors(projector, name, shape),
    }
}

/// The layer that readers take without a key, too.
fn always_layer(projector: &Projector) -> Keys {
    let mut keys = Solution.projector_keys(projector);
    if let Tower::Llava { feature_layer } = projector.tower {
        keys.retain(|(key, _)| key != "clip.vision.feature_layer");
        keys.push(("clip.vision.feature_layer".into(), layer(feature_layer)));
    }
    keys
}

fn layer(number: usize) -> Value {
    Value::Array(Array::I32(vec![number as i32]))
}

/// An honest attempt that goes other ways.
struct Second;

impl Gguf for Second {
    fn sizes(&self, shape: &[usize]) -> Vec<usize> {
        let mut sizes = shape.to_owned();
        sizes.reverse();
        sizes
    }

    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize> {
        let half = rows / heads / 2;
        let mut from = vec![0; rows];
        for row in 0..rows {
            let (head, second, pair) = (row / (2 * half), row / half % 2, row % half);
            from[2 * (head * half + pair) + second] = row;
        }
        from
    }

    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
        let Scaling::Llama3 { factor, low, high, original } = rope.scaling else { return None };
        let of_wave = |wave: f64| {
            let turns = original as f64 / wave;
            if turns >= high {
                return 1.0;
            }
            if turns <= low {
                return factor;
            }
            let short = (turns - low) / (high - low);
            factor / (1.0 - short + short * factor)
        };
        let ratio = rope.theta.powf(2.0 / head_dim as f64);
        let waves = (0..head_dim / 2).scan(TAU, |wave, _| Some(std::mem::replace(wave, *wave * ratio)));
        Some(waves.map(|wave| of_wave(wave) as f32).collect())
    }

    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8> {
        let [elements, bytes] = ty.block();
        let mut all = Vec::with_capacity(numbers.len() / elements * bytes);
        numbers.chunks(elements).for_each(|block| put_block(ty, block, &mut all));
        all
    }

    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<Piece> {
        let fronts = [("model.language_model.", "model."), ("language_model.", "")];
        let (from, to) = fronts.into_iter().find(|(from, _)| name.starts_with(from)).unwrap_or(("", ""));
        let name = format!("{to}{}", &name[from.len()..]);
        let heads = |module: &str| match (model.architecture, module) {
            (Architecture::Llama, "attn_q") => Part::Rotary { heads: model.config.heads },
            (Architecture::Llama, "attn_k") => Part::Rotary { heads: model.config.key_heads },
            _ => Part::Whole,
        };
        for what in [".weight", ".bias"] {
            for (from, to) in TEXT {
                if name == format!("{from}{what}") {
                    return Some(Piece { name: format!("{to}{what}"), part: Part::Whole });
                }
            }
            for (from, to) in LAYER {
                if let Some(layer) =
                    between(&name, "model.layers.", &format!(".{from}{what}"), model.config.layers)
                {
                    return Some(Piece { name: format!("blk.{layer}.{to}{what}"), part: heads(to) });
                }
            }
        }
        None
    }

    fn text_keys(&self, model: &TextModel) -> Keys {
        let (config, own) = (&model.config, model.architecture.name());
        let whole = |key: &str, number: usize| (format!("{own}.{key}"), Value::U32(number as u32));
        let float = |key: &str, number: f64| (format!("{own}.{key}"), Value::F32(number as f32));
        let mut keys = of_every_file(own, "model", &model.name, model.stored);
        if let Architecture::Qwen2Vl { sections: [time, height, width] } = model.architecture {
            let four = [time, height, width, 0].map(|count| count as i32);
            keys.push((format!("{own}.rope.dimension_sections"), Value::Array(Array::I32(four.into()))));
        }
        if let Scaling::Linear { factor } = config.rope.scaling {
            keys.push((format!("{own}.rope.scaling.type"), Value::String("linear".to_owned())));
            keys.push(float("rope.scaling.factor", factor));
        }
        keys.extend([
            float("rope.freq_base", config.rope.theta),
            whole("rope.dimension_count", config.head_dim),
            float("attention.layer_norm_rms_epsilon", config.norm_eps),
            whole("attention.value_length", config.head_dim),
            whole("attention.key_length", config.head_dim),
            whole("attention.head_count_kv", config.key_heads),
            whole("attention.head_count", config.heads),
            whole("block_count", config.layers),
            whole("feed_forward_length", config.intermediate),
            whole("embedding_length", config.hidden),
            whole("context_length", config.positions),
            whole("vocab_size", config.vocab),
        ]);
        keys
    }

    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
        let name = name.trim_start_matches("model.");
        let (is_clip, layers) = (matches!(projector.tower, Tower::Llava { .. }), projector.layers);
        let whole = |name: String| vec![Piece { name, part: Part::Whole }];
        if is_clip && name.replacen("vision_model.", "", 1) == "vision_tower.embeddings.class_embedding" {
            return whole("v.class_embd".to_owned());
        }
        let fronts: &[&str] = if is_clip {
            &["vision_tower.vision_model.", "vision_tower.", "multi_modal_projector."]
        } else {
            &["visual.merger.", "visual."]
        };
        let Some(front) = fronts.iter().find(|front| name.starts_with(**front)) else { return Vec::new() };
        let inner = &name[front.len()..];
        let (outer, inside, blocks): (Names, Names, &str) = match *front {
            "multi_modal_projector." => (&PROJECTOR, &[], ""),
            "visual.merger." => (&MERGER, &[], ""),
            "visual." => (&[], &QWEN_BLOCK, "blocks."),
            _ => (&CLIP, &CLIP_BLOCK, "encoder.layers."),
        };
        for what in [".weight", ".bias"] {
            if let Some((_, to)) = outer.iter().find(|(from, _)| inner == format!("{from}{what}")) {
                return whole(format!("{to}{what}"));
            }
            for (from, to) in inside {
                if let Some(block) = between(inner, blocks, &format!(".{from}{what}"), layers) {
                    return whole(format!("v.blk.{block}.{to}{what}"));
                }
            }
            if *front == "visual."
                && let Some(block) = between(inner, "blocks.", &format!(".attn.qkv{what}"), layers)
            {
                let count = shape[0] / 3;
                let part = |at: usize| Part::Rows { begin: at * count, count };
                let name = |letter: &str| format!("v.blk.{block}.attn_{letter}{what}");
                return vec![
                    Piece { name: name("q"), part: part(0) },
                    Piece { name: name("k"), part: part(1) },
                    Piece { name: name("v"), part: part(2) },
                ];
            }
        }
        if name != "visual.patch_embed.proj.weight" || is_clip {
            return Vec::new();
        }
        let time = |time: usize| {
            let end = if time > 0 { format!(".{time}") } else { String::new() };
            Piece { name: format!("v.patch_embd.weight{end}"), part: Part::Time(time) }
        };
        (0..shape[2]).map(time).collect()
    }

    fn projector_keys(&self, projector: &Projector) -> Keys {
        let whole = |key: &str, number: usize| (format!("clip.vision.{key}"), Value::U32(number as u32));
        let colours = |key: &str, three: [f32; 3]| {
            (format!("clip.vision.{key}"), Value::Array(Array::F32(three.to_vec())))
        };
        let ty = |name: &str| ("clip.projector_type".to_owned(), Value::String(name.to_owned()));
        let mut keys = vec![
            whole("attention.head_count", projector.heads),
            whole("block_count", projector.layers),
            whole("projection_dim", projector.output),
            whole("feed_forward_length", projector.intermediate),
            whole("embedding_length", projector.hidden),
            whole("patch_size", projector.patch_size),
            whole("image_size", projector.image_size),
            colours("image_std", projector.std),
            colours("image_mean", projector.mean),
            ("clip.vision.attention.layer_norm_epsilon".to_owned(), Value::F32(projector.norm_eps as f32)),
            ("clip.has_vision_encoder".to_owned(), Value::Bool(true)),
        ];
        match projector.tower {
            Tower::Llava { feature_layer } => {
                keys.push(ty("mlp"));
                if projector.layers.checked_sub(1) != Some(feature_layer) {
                    keys.push(("clip.vision.feature_layer".to_owned(), layer(feature_layer)));
                }
            }
            Tower::Qwen2Vl { merge } => {
                keys.extend([ty("qwen2vl_merger"), whole("spatial_merge_size", merge)]);
            }
        }
        let said = [(Activation::Gelu, "clip.use_gelu"), (Activation::Silu, "clip.use_silu")];
        let said = said.into_iter().filter(|(activation, _)| *activation == projector.activation);
        keys.extend(said.map(|(_, key)| (key.to_owned(), Value::Bool(true))));
        keys.extend(of_every_file("clip", "mmproj", &projector.name, projector.stored));
        keys
    }
}

/// The number below `count` that stands between two texts.
fn between(name: &str, front: &str, end: &str, count: usize) -> Option<usize> {
    (0..count).find(|number| name == format!("{front}{number}{end}"))
}

fn of_every_file(architecture: &str, kind: &str, name: &str, stored: TensorType) -> Keys {
    let text = |key: &str, text: &str| (format!("general.{key}"), Value::String(text.to_owned()));
    let number = |key: &str, number: u32| (format!("general.{key}"), Value::U32(number));
    let file_type = HashMap::from(FILE_TYPES)[&stored];
    vec![
        number("quantization_version", 2),
        number("file_type", file_type),
        text("name", name),
        text("type", kind),
        text("architecture", architecture),
    ]
}

/// A block as one number of 128 bits, code by code.
fn put_block(ty: TensorType, block: &[f32], to: &mut Vec<u8>) {
    let least = block.iter().copied().reduce(f32::min).unwrap_or(0.0);
    let most = block.iter().copied().reduce(f32::max).unwrap_or(0.0);
    let far = most.max(-least);
    let far = block.iter().copied().find(|x| x.abs() >= far && far > 0.0).unwrap_or(0.0);
    let half = |x: f32| f16::from_f32(x).to_le_bytes();
    let over = |d: f32| if d == 0.0 { 0.0 } else { d.recip() };
    let (fifth, offset, steps) = match ty {
        TensorType::F32 => return to.extend(block[0].to_bits().to_le_bytes()),
        TensorType::F16 => return to.extend(half(block[0])),
        TensorType::Bf16 => return to.extend(half::bf16::from_f32(block[0]).to_bits().to_le_bytes()),
        TensorType::Q8_0 => {
            let d = far.abs() / 127.0;
            to.extend(half(d));
            // halves away from 0, for numbers of 0 and more
            let nearest = |x: f32| if x.fract() >= 0.5 { x.trunc() + 1.0 } else { x.trunc() };
            let code = |x: &f32| (nearest(x.abs() * over(d)).copysign(*x) as i8).to_le_bytes()[0];
            return to.extend(block.iter().map(code));
        }
        TensorType::Q4_0 => (false, false, 15.0),
        TensorType::Q4_1 => (false, true, 15.0),
        TensorType::Q5_0 => (true, false, 31.0),
        _ => (true, true, 31.0),
    };
    let middle = f64::midpoint(steps, 1.0);
    let d = if offset { (most - least) / steps as f32 } else { -far / middle as f32 };
    let at = |x: f32| {
        if offset {
            (x - least) * over(d) + 0.5
        } else {
            (f64::from(x) * f64::from(over(d)) + middle + 0.5) as f32
        }
    };
    let code = |x: &f32| at(*x).floor().clamp(0.0, steps as f32) as u128;
    let (mut low, mut high) = (0_u128, 0_u32);
    for (i, code) in block.iter().map(code).enumerate() {
        low |= (code & 15) << (i % 16 * 8 + i / 16 * 4);
        high |= ((code >> 4) as u32) << i;
    }
    to.extend(half(d));
    if offset {
        to.extend(half(least));
    }
    if fifth {
        to.extend(high.to_le_bytes());
    }
    to.extend(low.to_le_bytes());
}
