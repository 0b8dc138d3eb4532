//! The tower of a checkpoint: opened, checked, and asked for what its language model takes.
//!
//! ```text
//! let vision = Vision::open("org/name")?;                       // every weight is there and fits
//! let features = vision.features::<f64>(&pixels, &grids)?;      // (N, H), a row for each token of an image
//! ```

use std::collections::BTreeMap;

use super::patches::{COLOURS, Cut, Grid, Normalization};
use super::tower::{Clip, Qwen, Tower, Writer};
use super::{Placeholders, Rule, processor};
use crate::checkpoint::Checkpoint;
use crate::graph::interpret::Values;
use crate::graph::{self, Array, Builder, Dtype, Graph, Real, interpret};
use crate::llama::{self, Error, Fields, StoredInput, dense, hub};

/// What a checkpoint has beside its language model.
#[derive(Debug)]
pub struct Vision {
    /// The sizes of the tower.
    pub tower: Tower,
    /// What stands in a text for an image.
    pub placeholders: Placeholders,
    /// How images are sized.
    pub rule: Rule,
    /// How their pixels are made floats.
    pub normalization: Normalization,
    weights: BTreeMap<String, (Dtype, Vec<usize>)>,
    checkpoint: Checkpoint,
}

/// No tower comes near: what is larger is a damaged file.
const LARGEST: usize = 1 << 20;

impl Vision {
    /// Opens a folder with a `config.json` and safetensors files, or a repository in the local cache
    /// ([`hub::find`]). Sizes of images are those of `processor_config.json` or `preprocessor_config.json`, where the
    /// folder has one.
    ///
    /// Fails where a file is missing or no JSON, where a field is missing, makes no sense or asks for what is not done
    /// here, where the model reads no images or has another tower, and where a weight is missing or has another shape or type.
    pub fn open(model: &str) -> Result<Self, Error> {
        let folder = hub::find(model)?;
        let config = folder.join("config.json");
        let language = llama::Config::read(&config)?;
        let checkpoint = llama::open_checkpoint(&folder, &language)?;
        let file = Fields::read(&config);
        let read = file.and_then(|file| read(&file, language.hidden, &checkpoint));
        let (tower, placeholders) = read.map_err(|fault| fault.at(&config))?;
        let (rule, normalization) = processor::read(&folder, &tower)?;
        let mut weights = BTreeMap::new();
        for (name, shape) in tower.weights() {
            let dtype = stored(&checkpoint, &name, &shape).map_err(|fault| fault.of(&name))?;
            weights.insert(name, (dtype, shape));
        }
        Ok(Self { tower, placeholders, rule, normalization, weights, checkpoint })
    }

    /// From the inputs of [`Self::inputs`] and the weights to `image_features` f32 (N, H).
    pub fn graph(&self) -> Result<Graph, graph::Error> {
        let builder = Builder::new("vision");
        let writer = Writer { tape: builder.tape(), weights: &self.weights };
        let features = match &self.tower {
            Tower::Qwen(tower) => tower.write(&writer),
            Tower::Clip(tower) => tower.write(&writer),
        };
        builder.tape().output("image_features", &features);
        builder.finish()
    }

    /// Every weight as it is stored, under the names of the graph's inputs.
    pub fn stored(&self) -> Result<Vec<StoredInput<'_>>, Error> {
        let input = |(name, (dtype, shape)): (&String, &(Dtype, Vec<usize>))| {
            let bytes = self.checkpoint.tensor(name)?.bytes.into();
            Ok(StoredInput { name: name.clone(), dtype: *dtype, shape: shape.clone(), bytes })
        };
        self.weights.iter().map(input).collect()
    }

    /// Every weight as numbers.
    pub fn values<R: Real>(&self) -> Result<Values<R>, Error> {
        let value = |name: &String| Ok((name.clone(), dense(self.checkpoint.tensor(name)?)?));
        self.weights.keys().map(value).collect()
    }

    /// What the graph is given of images: their pixels, one image after the other, and where patches stand.
    ///
    /// # Panics
    /// If there are not as many pixels as the images have, or no image.
    pub fn inputs<R: Real>(&self, pixels: &[f32], grids: &[Grid]) -> Values<R> {
        let need: usize = grids.iter().map(|grid| self.tower.pixels(*grid)).sum();
        assert!(need > 0 && pixels.len() == need, "{} pixels for {grids:?}, which have {need}", pixels.len());
        let (shape, mut values) = match &self.tower {
            Tower::Qwen(tower) => {
                let Cut { patch, merge, frames } = tower.cut;
                let wide = COLOURS * frames * patch * patch;
                (vec![need / wide / (merge * merge), merge * merge, wide], tower.places(grids))
            }
            Tower::Clip(tower) => (vec![grids.len(), COLOURS, tower.edge, tower.edge], Values::new()),
        };
        let pixels = Array::floats(Dtype::F32, &shape, pixels.iter().copied().map(f64::from));
        values.insert("pixel_values".into(), pixels);
        values
    }

    /// What the language model takes of images, (N, H): a row for each of their tokens, image after image. The graph,
    /// interpreted.
    ///
    /// Fails where a weight cannot be read, and as [`interpret`] does.
    ///
    /// # Panics
    /// As [`Self::inputs`].
    pub fn features<R: Real>(&self, pixels: &[f32], grids: &[Grid]) -> Result<Array<R>, FeatureError> {
        let mut values = self.values::<R>().map_err(FeatureError::Model)?;
        values.append(&mut self.inputs(pixels, grids));
        let outputs =
            self.graph().and_then(|graph| interpret(&graph, &values)).map_err(FeatureError::Graph)?;
        Ok(outputs.into_iter().next().expect("the graph has one output"))
    }
}

/// Why images have no features.
#[derive(Debug)]
#[non_exhaustive]
pub enum FeatureError {
    /// A weight cannot be read.
    Model(Error),
    /// The graph cannot be written or run.
    Graph(graph::Error),
}

impl std::fmt::Display for FeatureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model(error) => error.fmt(f),
            Self::Graph(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FeatureError {}

/// The tower, and what stands for an image in a text.
fn read(file: &Fields, hidden: usize, checkpoint: &Checkpoint) -> Result<(Tower, Placeholders), Error> {
    let fields = file.object("vision_config")?.ok_or_else(|| file.wrong("vision_config", "an object"))?;
    let token = |name: &str| file.size(name, i32::MAX as usize).map(|id| id.map(|id| id as i32));
    let need = |name: &str| file.wrong(name, "the token that stands for an image");
    match file.text("model_type")?.as_deref() {
        Some("qwen2_vl") => {
            let tower = Qwen::of(&fields, LARGEST)?;
            if tower.hidden != hidden {
                return Err(fields.wrong("hidden_size", &format!("{hidden}, the language model's")));
            }
            let image = token("image_token_id")?.ok_or_else(|| need("image_token_id"))?;
            Ok((Tower::Qwen(tower), Placeholders::Qwen { image, merge: tower.cut.merge }))
        }
        Some("llava") => {
            let mut tower = Clip::of(&fields, file, hidden, LARGEST)?;
            let is_nested = checkpoint.names().any(|name| name.starts_with("vision_tower.vision_model."));
            tower.prefix = if is_nested { "vision_tower.vision_model." } else { "vision_tower." };
            let image = match token("image_token_index")? {
                None => token("image_token_id")?,
                index => index,
            };
            let image = image.ok_or_else(|| need("image_token_index"))?;
            Ok((Tower::Clip(tower), Placeholders::Llava { image, more: usize::from(tower.with_class) }))
        }
        _ => Err(file.wrong("model_type", "\"qwen2_vl\" or \"llava\"")),
    }
}

/// The type of a weight, if it is as the tower needs it.
fn stored(checkpoint: &Checkpoint, name: &str, shape: &[usize]) -> Result<Dtype, Error> {
    let tensor = checkpoint.tensor(name)?;
    if tensor.shape != shape {
        return Err(Error::Shape { got: tensor.shape.to_vec(), need: shape.to_vec() });
    }
    let float = Dtype::of_file(tensor.dtype).filter(|dtype| dtype.is_float());
    float.ok_or_else(|| Error::Dtype { got: tensor.dtype.to_string(), need: "F32, F16 or BF16" })
}
