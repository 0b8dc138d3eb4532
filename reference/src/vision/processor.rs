//! The files of a checkpoint that say how images are read.
//!
//! ```text
//! processor_config.json      {"image_processor": {..}, ..}     what transformers 5 writes, and it wins
//! preprocessor_config.json   {..}                              older checkpoints
//! ```
//!
//! Every field is obeyed, or has the one value that is supported, or is refused by name. A field that is null is a
//! field that is not there.
//!
//! Sources: `Qwen2VLImageProcessor`, `CLIPImageProcessor`, `LlavaImageProcessor`, `LlavaProcessor` and
//! `get_image_processor_dict` of the `transformers` library, 5.24.

use std::path::Path;

use serde_json::Value;

use super::Rule;
use super::patches::{COLOURS, Normalization};
use super::tower::{Clip, Qwen, Tower};
use crate::llama::{Error, Fields};

/// The fields of both towers' processors that are read or checked below.
const COMMON: [&str; 13] = [
    "image_processor_type",
    "size",
    "do_resize",
    "resample",
    "do_center_crop",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
    "do_convert_rgb",
    "do_pad",
    "default_to_square",
];

/// The fields of one tower alone.
const QWEN: [&str; 5] = ["min_pixels", "max_pixels", "patch_size", "merge_size", "temporal_patch_size"];
const CLIP: [&str; 1] = ["crop_size"];

/// Fields that say nothing about an image: names of classes, and how a program holds its arrays.
const HARMLESS: [&str; 7] = [
    "processor_class",
    "feature_extractor_type",
    "_valid_processor_keys",
    "data_format",
    "device",
    "disable_grouping",
    "return_tensors",
];

/// The fields of a `processor_config.json` around the image processor.
const AROUND: [&str; 8] = [
    "processor_class",
    "image_processor",
    "video_processor", // no video is read
    "image_token",     // its number is in the config.json
    "video_token",
    "patch_size",
    "vision_feature_select_strategy",
    "num_additional_image_tokens",
];

/// The processors of each tower; each name may end with the library that it uses.
const QWEN_TYPES: [&str; 1] = ["Qwen2VLImageProcessor"];
const CLIP_TYPES: [&str; 2] = ["CLIPImageProcessor", "LlavaImageProcessor"];
const LIBRARIES: [&str; 3] = ["", "Fast", "Pil"];

/// The areas in pixels that Qwen2-VL's processor asks for where no file does: at least 4 tokens, at most 1280.
const AREAS: [usize; 2] = [56 * 56, 28 * 28 * 1280];

/// The number of antialiased bicubic resampling.
const BICUBIC: f64 = 3.0;

/// Reads how images are sized and made floats. Without files, they are as in the processor's class.
///
/// Fails where a file is not JSON, and where a field asks for what is not done here.
pub(super) fn read(folder: &Path, tower: &Tower) -> Result<(Rule, Normalization), Error> {
    let (new, old) = (folder.join("processor_config.json"), folder.join("preprocessor_config.json"));
    let fields = |path: &Path| if path.exists() { Fields::read(path).map(Some) } else { Ok(None) };
    let around = fields(&new).map_err(|fault| fault.at(&new))?;
    let nested = around.as_ref().map(|around| inner(around, tower)).transpose();
    if let Some(nested) = nested.map_err(|fault| fault.at(&new))?.flatten() {
        return of(&nested, tower).map_err(|fault| fault.at(&new));
    }
    match fields(&old).map_err(|fault| fault.at(&old))? {
        Some(fields) => of(&fields, tower).map_err(|fault| fault.at(&old)),
        None => Ok((usual(tower), Normalization::CLIP)),
    }
}

/// The image processor of a `processor_config.json`, if it has one, which older ones do not.
fn inner(around: &Fields, tower: &Tower) -> Result<Option<Fields>, Error> {
    if let Some(name) = around.names().find(|name| around.get(name).is_some() && !AROUND.contains(name)) {
        let need = match name {
            "chat_template" => "no such field: the template belongs into a chat_template.jinja",
            _ => "no such field here: those of images belong into `image_processor`",
        };
        return Err(around.wrong(name, need));
    }
    if let Tower::Clip(Clip { patch, with_class, .. }) = tower {
        only_size(around, "patch_size", *patch)?;
        only_size(around, "num_additional_image_tokens", 1)?;
        let strategy = if *with_class { "full" } else { "default" };
        around.only("vision_feature_select_strategy", strategy)?;
    }
    around.object("image_processor")
}

fn of(fields: &Fields, tower: &Tower) -> Result<(Rule, Normalization), Error> {
    check_names(fields, tower)?;
    for field in ["do_resize", "do_rescale", "do_normalize", "do_convert_rgb"] {
        fields.only(field, true)?;
    }
    for field in ["do_pad", "default_to_square"] {
        fields.only(field, false)?;
    }
    if fields.get("resample").is_some_and(|number| number.as_f64() != Some(BICUBIC)) {
        return Err(fields.wrong("resample", "3, which is bicubic"));
    }
    let is_byte = |factor: f64| (factor * 255.0 - 1.0).abs() < 1e-6;
    if fields.get("rescale_factor").is_some_and(|factor| !factor.as_f64().is_some_and(is_byte)) {
        return Err(fields.wrong("rescale_factor", "1 / 255"));
    }
    let rule = match tower {
        Tower::Qwen(tower) => areas(fields, tower)?,
        Tower::Clip(tower) => edge(fields, tower)?,
    };
    Ok((rule, normalization(fields)?))
}

/// Checks that every field is one of the tower's processor.
fn check_names(fields: &Fields, tower: &Tower) -> Result<(), Error> {
    let (types, own) = match tower {
        Tower::Qwen(_) => (&QWEN_TYPES[..], &QWEN[..]),
        Tower::Clip(_) => (&CLIP_TYPES[..], &CLIP[..]),
    };
    let is_known = |name: &&str| COMMON.contains(name) || HARMLESS.contains(name) || own.contains(name);
    if let Some(name) = fields.names().filter(|name| fields.get(name).is_some()).find(|name| !is_known(name))
    {
        return Err(fields.wrong(name, "no such field, as it is not supported"));
    }
    let is_of_tower = |name: &str| {
        types.iter().any(|known| name.strip_prefix(known).is_some_and(|rest| LIBRARIES.contains(&rest)))
    };
    match fields.text("image_processor_type")? {
        Some(name) if !is_of_tower(&name) => {
            let need: Vec<String> = types.iter().map(|name| format!("{name:?}")).collect();
            Err(fields.wrong("image_processor_type", &need.join(" or ")))
        }
        _ => Ok(()),
    }
}

/// Areas stand under `min_pixels` and `max_pixels`, or in `size` under these names or those of edges.
fn areas(fields: &Fields, Qwen { cut, .. }: &Qwen) -> Result<Rule, Error> {
    only_size(fields, "patch_size", cut.patch)?;
    only_size(fields, "merge_size", cut.merge)?;
    only_size(fields, "temporal_patch_size", cut.frames)?;
    fields.only("do_center_crop", false)?;
    let size = fields.object("size")?;
    if let Some(size) = &size {
        let known = ["shortest_edge", "longest_edge", "min_pixels", "max_pixels"];
        check_only(size, &known, "no such field next to shortest_edge and longest_edge")?;
    }
    let area = |own: &str, edge: &str, usual: usize| {
        if let Some(area) = fields.size(own, usize::MAX)? {
            return Ok(area);
        }
        let Some(size) = &size else { return Ok(usual) };
        match (size.size(edge, usize::MAX)?, size.size(own, usize::MAX)?) {
            (Some(edge), Some(other)) if edge != other => Err(size.wrong(own, &edge.to_string())),
            (None, None) => Err(size.wrong(edge, "an area in pixels")),
            (edge, other) => Ok(edge.or(other).unwrap_or(usual)),
        }
    };
    let [least, most] = AREAS;
    let least = area("min_pixels", "shortest_edge", least)?;
    let most = area("max_pixels", "longest_edge", most)?;
    if least > most {
        let (within, name) = match (&size, fields.get("max_pixels")) {
            (Some(size), None) if size.get("longest_edge").is_some() => (size, "longest_edge"),
            (Some(size), None) => (size, "max_pixels"),
            _ => (fields, "max_pixels"),
        };
        return Err(within.wrong(name, &format!("at least {least}, the smallest area")));
    }
    Ok(Rule::Area { factor: cut.patch * cut.merge, least, most })
}

/// The shorter edge and the square that is cut out are the one that the tower reads.
fn edge(fields: &Fields, Clip { edge, .. }: &Clip) -> Result<Rule, Error> {
    fields.only("do_center_crop", true)?;
    only_edge(fields, "size", &["shortest_edge"], *edge)?;
    only_edge(fields, "crop_size", &["height", "width"], *edge)?;
    Ok(Rule::Crop { edge: *edge })
}

/// Checks that a size is the tower's: as a number, or as an object that has it under each name.
fn only_edge(fields: &Fields, field: &str, names: &[&str], edge: usize) -> Result<(), Error> {
    if !matches!(fields.get(field), Some(Value::Object(_))) {
        return only_size(fields, field, edge);
    }
    let Some(size) = fields.object(field)? else { return Ok(()) };
    check_only(&size, names, &format!("no such field next to {}", names.join(" and ")))?;
    let wrong = |name: &str| Err(size.wrong(name, &format!("{edge}, the edge that the tower reads")));
    match names.iter().find(|name| size.get(name).and_then(Value::as_u64) != Some(edge as u64)) {
        Some(name) => wrong(name),
        None => Ok(()),
    }
}

/// Checks that an object has no fields but these.
fn check_only(fields: &Fields, known: &[&str], need: &str) -> Result<(), Error> {
    match fields.names().filter(|name| fields.get(name).is_some()).find(|name| !known.contains(name)) {
        Some(name) => Err(fields.wrong(name, need)),
        None => Ok(()),
    }
}

/// Checks that a size, if it is there, is the tower's.
fn only_size(fields: &Fields, field: &str, size: usize) -> Result<(), Error> {
    match fields.get(field) {
        Some(got) if got.as_u64() != Some(size as u64) => {
            Err(fields.wrong(field, &format!("{size}, as the tower has it")))
        }
        _ => Ok(()),
    }
}

/// Returns the sizes of the processor's class.
fn usual(tower: &Tower) -> Rule {
    match tower {
        Tower::Qwen(Qwen { cut, .. }) => {
            let [least, most] = AREAS;
            Rule::Area { factor: cut.patch * cut.merge, least, most }
        }
        Tower::Clip(Clip { edge, .. }) => Rule::Crop { edge: *edge },
    }
}

fn normalization(fields: &Fields) -> Result<Normalization, Error> {
    let three = |name: &str, usual: [f64; COLOURS], is_sound: fn(f64) -> bool| {
        let Some(value) = fields.get(name) else { return Ok(usual) };
        let numbers: Option<Vec<f64>> =
            value.as_array().and_then(|all| all.iter().map(Value::as_f64).collect());
        let three = numbers.and_then(|numbers| <[f64; COLOURS]>::try_from(numbers).ok());
        let sound = three.filter(|three| three.iter().all(|x| x.is_finite() && is_sound(*x)));
        sound.ok_or_else(|| fields.wrong(name, "three numbers, deviations above 0"))
    };
    let Normalization { mean, std } = Normalization::CLIP;
    Ok(Normalization {
        mean: three("image_mean", mean, |_| true)?,
        std: three("image_std", std, |deviation| deviation > 0.0)?,
    })
}
