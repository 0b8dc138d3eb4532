//! The image files of a line: in a column next to its messages, in the parts of its messages, or in both.
//!
//! ```text
//! {"images": ["a.png"], "messages": [{"content": [{"type": "image"}, ..]}, ..]}         the column's, in their order
//! {"messages": [{"content": [{"type": "image", "image": "a.png"}, ..]}, ..]}            the parts' own
//! {"messages": [{"content": [{"type": "image", "url": "a.png"}, ..]}, ..]}              the same, or "path"
//! {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "a.png"}}, ..]}, ..]}
//! ```
//!
//! Where a line has both, the column has either the files of the parts without one, or those of all parts.
//!
//! The trainer downloads nothing: addresses and base64 are refused by name.
//!
//! Sources: the vision datasets of the `trl` library, 1.16; `apply_chat_template` of the processors of the
//! `transformers` library, 5.24.

use serde_json::{Map, Value as Json};

use super::columns::given;

/// The keys under which a part of a message names its file.
const FILE_KEYS: [&str; 4] = ["image", "url", "path", "image_url"];

/// The types of parts that are images.
const TYPES: [&str; 2] = ["image", "image_url"];

/// The files of a line's images, in the order of its text.
///
/// Fails where a column or a part is not what it should be, and where the two name other files.
pub(super) fn paths(object: &Map<String, Json>) -> Result<Vec<&str>, String> {
    for key in ["videos", "video", "audios", "audio"] {
        if let Some(found) = given(object, key).filter(|found| **found != Json::Array(Vec::new())) {
            return Err(format!("{key}: expected images alone, found {}", short(found)));
        }
    }
    let parts = parts(object)?;
    let own: Vec<&str> = parts.iter().copied().flatten().collect();
    let Some(column) = column(object)? else {
        return match parts.len() - own.len() {
            missing if missing > 0 && !own.is_empty() => Err(format!(
                "expected a file in each of the {} images of the messages, found {missing} without one and no images \
                 column",
                parts.len()
            )),
            _ => Ok(own),
        };
    };
    if own.is_empty() {
        return Ok(column);
    }
    let mut rest = column.iter().copied();
    let is_every = column.len() == parts.len();
    let mut merged = Vec::new();
    for part in &parts {
        let file = match (part, is_every) {
            (Some(own), false) => Some(*own),
            (own, _) => rest.next().filter(|file| own.is_none_or(|own| own == *file)),
        };
        merged.extend(file);
    }
    if merged.len() == parts.len() && rest.next().is_none() {
        return Ok(merged);
    }
    Err(format!(
        "images: expected the files of the {} images of the messages, {} of which name their own, found {column:?}",
        parts.len(),
        own.len()
    ))
}

/// Checks that a line has no images, for a model that reads only texts.
pub(super) fn check_none(object: &Map<String, Json>) -> Result<(), String> {
    for key in ["images", "image"] {
        if let Some(found) = given(object, key).filter(|found| **found != Json::Array(Vec::new())) {
            return Err(format!(
                "{key}: expected no images for a model that reads texts alone, found {}",
                short(found)
            ));
        }
    }
    match parts(object)?.len() {
        0 => Ok(()),
        count => {
            Err(format!("expected no images in messages for a model that reads texts alone, found {count}"))
        }
    }
}

/// The images of a line's messages, each with its file if it names one.
fn parts(object: &Map<String, Json>) -> Result<Vec<Option<&str>>, String> {
    let list = |key: &str| given(object, key).and_then(Json::as_array);
    let messages: Vec<&Json> = match list("prompt") {
        Some(prompt) => prompt.iter().chain(list("completion").into_iter().flatten()).collect(),
        None => list("messages").into_iter().flatten().collect(),
    };
    parts_of(messages)
}

/// Lists the images of messages, each with its file if it names one.
pub(crate) fn parts_of<'j>(
    messages: impl IntoIterator<Item = &'j Json>,
) -> Result<Vec<Option<&'j str>>, String> {
    let mut all = Vec::new();
    for message in messages {
        for part in message.get("content").and_then(Json::as_array).into_iter().flatten() {
            let Json::Object(part) = part else { continue };
            let kind = given(part, "type").and_then(Json::as_str);
            let files: Vec<&Json> = FILE_KEYS.iter().filter_map(|key| given(part, key)).collect();
            match kind {
                Some(kind) if TYPES.contains(&kind) => all.push(file(part, &files)?),
                None if !files.is_empty() => all.push(file(part, &files)?),
                None | Some("text") if files.is_empty() => {}
                Some(kind) => {
                    let found = if files.is_empty() { "" } else { ", which names a file" };
                    return Err(format!(
                        "a part of a message: expected the type \"text\" or \"image\", found {kind:?}{found}"
                    ));
                }
                None => {}
            }
        }
    }
    Ok(all)
}

/// The file of a part, from the values that its keys have.
fn file<'j>(part: &Map<String, Json>, files: &[&'j Json]) -> Result<Option<&'j str>, String> {
    if given(part, "base64").is_some() {
        return Err("a part of a message: expected the path of an image, found the key base64".into());
    }
    match files {
        [] => Ok(None),
        [one] => {
            let one = one.get("url").filter(|url| !url.is_null()).unwrap_or(one);
            path(one).map(Some)
        }
        _ => Err(format!(
            "a part of a message: expected one of {FILE_KEYS:?} for an image, found {}",
            files.len()
        )),
    }
}

/// The files of the column, if there is one.
fn column(object: &Map<String, Json>) -> Result<Option<Vec<&str>>, String> {
    let all = match (given(object, "images"), given(object, "image")) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err("expected images or image, found both".into()),
        (Some(Json::Array(all)), None) => all.iter().collect(),
        (Some(_), None) => return Err("images: expected a list of files".into()),
        (None, Some(one)) => vec![one],
    };
    all.into_iter().map(path).collect::<Result<_, _>>().map(Some)
}

/// The path of a file: a text, or an object with `path` as tables of images have it.
fn path(value: &Json) -> Result<&str, String> {
    let path = match value {
        Json::Object(file) => file.get("path").and_then(Json::as_str),
        other => other.as_str(),
    };
    let path = path.ok_or_else(|| format!("images: expected the path of a file, found {}", short(value)))?;
    let address = ["http:", "https:", "ftp:", "s3:", "hf:", "data:", "file:"];
    match address.iter().find(|scheme| path.to_ascii_lowercase().starts_with(*scheme)) {
        Some(scheme) => {
            Err(format!("images: expected the path of a file, found an address that begins with {scheme:?}"))
        }
        None => Ok(path),
    }
}

/// Writes the beginning of a value.
fn short(value: &Json) -> String {
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(60) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
