//! Images of the data: which a line has, and what the model takes of them.
//!
//! ```text
//! {"images": ["a.png", "b.jpg"], "messages": [{"role": "user", "content": [{"type": "image"}, ..]}, ..]}
//!
//! while data are read   file -> pixels -> size, patches -> grid, digest      the tokens of the row
//! for a micro-batch     file -> pixels -> size, patches -> tower -> features   beside its rows
//! ```
//!
//! A path is relative to the folder of the data file; [`image_files`](super::image_files) finds it in a line. As many placeholders as images have to stand in the text that the
//! template writes; each becomes as many tokens as its image has features, and none of these is trained. A row with
//! images is never cut: a part of an image means nothing.
//!
//! The tower is frozen, so that nothing of it is kept for a backward pass. Its graph is compiled like the model's own. An
//! image is read again for each micro-batch that has it: features of all images of a data set can be larger than the
//! set.
//!
//! Source: the processors that [`challenges::issues::vision`] names.

use std::path::Path;

use challenges::issues::vision::{self, Grid, Placeholders, Rule, Sample, Vision as _};
use challenges::train::{self, ImageRows, Machine};
use reference::llama::Llama;
use reference::lora::{self, Targets};
use reference::vision::{Tower, Vision};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::config::{Config, Objective, Task};
use super::image_files::paths;
use super::row::{Picture, Row};
use crate::output::Failure;
use crate::picture;

/// How a model reads images.
pub struct Images {
    /// The tower of its checkpoint.
    pub model: Vision,
    rule: Rule,
}

/// What a tower gets of an image.
struct Prepared {
    pixels: Vec<f32>,
    grid: Grid,
    digest: [u8; 32],
}

impl Images {
    /// Those of a run; `None` if the model reads texts alone.
    ///
    /// Fails where the tower cannot be read, and where the config asks for what is not done beside images.
    pub fn of(config: &Config, model: &Llama) -> Result<Option<Self>, Failure> {
        if model.config.images.is_none() {
            return match config.max_pixels {
                None => Ok(None),
                Some(most) => Err(Failure::Usage(format!(
                    "max_pixels: expected a model that reads images beside it, found {most} and a model of texts"
                ))),
            };
        }
        check(config).map_err(Failure::Usage)?;
        let model = Vision::open(&config.model_name_or_path).map_err(Failure::usage)?;
        let most = config.max_pixels.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let rule = vision::Solution.limited(model.rule, most);
        let rule = rule.map_err(|error| Failure::Usage(format!("max_pixels: {error}")))?;
        Ok(Some(Self { model, rule }))
    }

    /// What stands in a text for an image.
    pub fn placeholders(&self) -> Placeholders {
        self.model.placeholders
    }

    /// That an adapter stands beside the language model alone.
    ///
    /// Fails where one of its targets is a layer of the tower, too, as `peft` reads it.
    pub fn check_targets(&self, adapter: &lora::Config) -> Result<(), Failure> {
        let need = "names of projections of the language model alone, for the tower of images is not trained";
        let wrong =
            |found: &str| Err(Failure::Usage(format!("lora_target_modules: expected {need}, found {found}")));
        let Targets::Named(names) = &adapter.targets else { return wrong("\"all-linear\"") };
        let weights = self.model.tower.weights();
        let modules: Vec<&str> =
            weights.iter().filter_map(|(name, _)| name.strip_suffix(".weight")).collect();
        let is_called =
            |name: &str| modules.iter().any(|module| format!(".{module}").ends_with(&format!(".{name}")));
        match names.iter().find(|name| is_called(name)) {
            Some(name) => wrong(&format!("{name:?}, which the tower has, too")),
            None => Ok(()),
        }
    }

    /// A row with the images of its line, whose files are beside `folder`.
    ///
    /// Fails with what is wrong of the line, of an image with its file.
    pub fn expanded(&self, row: Row, object: &Map<String, Json>, folder: &Path) -> Result<Row, String> {
        let mut pictures = Vec::new();
        for path in paths(object)? {
            let path = folder.join(path);
            let Prepared { grid, digest, .. } = self.prepared(&path)?;
            pictures.push(Picture { path, tokens: 0..0, grid, digest });
        }
        let grids = pictures.iter().map(|picture| picture.grid).collect();
        let sample = Sample { ids: row.ids, trained: row.trained, grids };
        let expanded =
            vision::Solution.expanded(&sample, &self.placeholders()).map_err(|error| error.to_string())?;
        let labels = vision::Solution.labels(&expanded);
        pictures
            .iter_mut()
            .zip(&expanded.images)
            .for_each(|(picture, (tokens, _))| picture.tokens = tokens.clone());
        Ok(Row {
            trained: labels.iter().map(|label| *label != reference::loss::IGNORED).collect(),
            documents: vec![expanded.ids.len()],
            ids: expanded.ids,
            targets: row.targets,
            pictures,
        })
    }

    /// Checks that a row with images is short enough without a cut.
    pub fn check_whole(&self, row: &Row, most: Option<usize>) -> Result<(), String> {
        match most.filter(|most| row.ids.len() > *most && !row.pictures.is_empty()) {
            Some(most) => Err(format!(
                "expected at most {most} tokens (max_length) in a row with images, which is not cut, found {}; {}",
                row.ids.len(),
                self.hint(&[row], most)
            )),
            None => Ok(()),
        }
    }

    /// Returns a hint about rows with images that have more tokens than `most`.
    pub fn hint(&self, rows: &[&Row], most: usize) -> String {
        let leave_out = "leave such rows out";
        let Rule::Area { factor, least, .. } = self.rule else { return leave_out.into() };
        // an image has a token for each square of the factor, so at most the area over that of the square
        let fitting = |row: &&Row| {
            let seen: usize = row.pictures.iter().map(|picture| picture.tokens.len()).sum();
            let each = most.saturating_sub(row.ids.len() - seen) / row.pictures.len().max(1);
            each.saturating_mul(factor * factor)
        };
        let area = rows.iter().map(fitting).min().unwrap_or(0);
        let smallest = least.max(factor * factor);
        if area < smallest {
            return format!(
                "images of {smallest} pixels, the fewest, are too large next to the text: {leave_out}"
            );
        }
        format!("max_pixels = {area} makes the images small enough")
    }

    /// The pixels of a file as the tower gets them.
    fn prepared(&self, path: &Path) -> Result<Prepared, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        let image = picture::read(path).map_err(named)?;
        let to = vision::Solution.size(self.rule, image.size).map_err(|error| named(error.to_string()))?;
        let resized = vision::Solution.resized(&image, to);
        let by = &self.model.normalization;
        let (pixels, grid) = match &self.model.tower {
            Tower::Qwen(tower) => {
                let grid = Grid::of_image(to.height / tower.cut.patch, to.width / tower.cut.patch);
                (vision::Solution.patches(&resized, tower.cut, by), grid)
            }
            Tower::Clip(tower) => {
                (resized.cropped(tower.edge).planes(by), Grid::of_image(tower.across(), tower.across()))
            }
        };
        let mut hasher = Sha256::new();
        for pixel in &pixels {
            hasher.update(pixel.to_le_bytes());
        }
        Ok(Prepared { pixels, grid, digest: hasher.finalize().into() })
    }
}

/// What a config may not ask for beside images.
fn check(config: &Config) -> Result<(), String> {
    let beside = |key: &str, need: &str, found: &str| {
        Err(format!("{key}: expected {need} with a model that reads images, found {found}"))
    };
    if config.task_type != Task::CausalLm {
        return beside("task_type", "\"CAUSAL_LM\"", "\"SEQ_CLS\"");
    }
    if config.objective != Objective::Sft {
        return beside("objective", "sft", config.objective.name());
    }
    if config.packing {
        return beside("packing", "false", "true");
    }
    Ok(())
}

/// What the images of rows are to the model: the tower on a device.
pub struct Seer<'a> {
    images: &'a Images,
    tower: train::Tower<'a>,
    hidden: usize,
}

impl<'a> Seer<'a> {
    /// Copies the tower's weights to a device; `hidden` is the width of the language model.
    pub fn new(on: Machine<'a>, images: &'a Images, hidden: usize) -> Result<Self, Failure> {
        let tower = train::Tower::new(on, &images.model).map_err(Failure::usage)?;
        Ok(Self { images, tower, hidden })
    }

    /// Fills in what the images of rows are to the model.
    ///
    /// Fails where a file cannot be read, or is another than it was when its row was made.
    pub fn see(&mut self, rows: &[&Row], to: &mut ImageRows) -> Result<(), Failure> {
        let (mut pixels, mut grids) = (Vec::new(), Vec::new());
        for picture in rows.iter().flat_map(|row| &row.pictures) {
            let prepared = self.images.prepared(&picture.path).map_err(Failure::Usage)?;
            if prepared.digest != picture.digest {
                let path = picture.path.display();
                let wrong = "expected the image that the run began with, found another";
                return Err(Failure::Usage(format!("{path}: {wrong}")));
            }
            pixels.extend(prepared.pixels);
            grids.push(prepared.grid);
        }
        to.features = vec![0.0; self.hidden]; // of no token
        if !grids.is_empty() {
            to.features.extend(self.tower.features(&pixels, &grids).map_err(Failure::bug)?);
        }
        Ok(())
    }
}
