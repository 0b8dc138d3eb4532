//! What sees, beside a language model: the file of tower and projector.

use std::path::Path;

use challenges::issues::gguf::{Activation, Projector, Source, Tower};
use reference::checkpoint::Checkpoint;
use reference::checkpoint::gguf::TensorType;
use reference::graph::Dtype;
use reference::llama::{self, StoredInput};
use reference::vision::{self, Vision};

use super::numbers;
use crate::files::read_json;
use crate::output::Failure;

/// Pixels a side that a file says of a tower that takes any size, where its settings say nothing: what
/// `conversion/qwenvl.py` of llama.cpp says.
const ANY_SIZE: usize = 560;

/// What sees in a checkpoint: its sizes, and its tensors.
pub(super) struct Seeing {
    pub projector: Projector,
    pub tensors: Tensors,
}

impl Seeing {
    /// Opens the folder of a model that reads images.
    pub fn open(folder: &Path, name: &str, stored: TensorType) -> Result<Self, Failure> {
        let vision = Vision::open(&folder.display().to_string()).map_err(Failure::usage)?;
        let projector = projector(folder, name, stored, &vision)?;
        let config = llama::Config::read(&folder.join("config.json")).map_err(Failure::usage)?;
        let checkpoint = llama::open_checkpoint(folder, &config).map_err(Failure::usage)?;
        Ok(Self { projector, tensors: Tensors(checkpoint) })
    }
}

fn projector(folder: &Path, name: &str, stored: TensorType, vision: &Vision) -> Result<Projector, Failure> {
    let json = read_json(&folder.join("config.json")).map_err(Failure::usage)?.unwrap_or_default();
    let image_size = json["vision_config"]["image_size"].as_u64().map_or(ANY_SIZE, |size| size as usize);
    let [mean, std] =
        [vision.normalization.mean, vision.normalization.std].map(|three| three.map(|x| x as f32));
    let name = name.to_owned();
    match vision.tower {
        vision::Tower::Qwen(tower) => Ok(Projector {
            tower: Tower::Qwen2Vl { merge: tower.cut.merge },
            patch_size: tower.cut.patch,
            hidden: tower.width,
            intermediate: tower.intermediate,
            layers: tower.layers,
            heads: tower.heads,
            norm_eps: vision::Qwen::EPS,
            output: tower.hidden,
            activation: Activation::QuickGelu,
            name,
            image_size,
            mean,
            std,
            stored,
        }),
        vision::Tower::Clip(tower) if tower.with_class => Err(Failure::Usage(format!(
            "{}: vision_feature_select_strategy: expected \"default\", which readers of GGUF files follow, found \
             \"full\"",
            folder.display()
        ))),
        vision::Tower::Clip(tower) => Ok(Projector {
            tower: Tower::Llava { feature_layer: tower.read },
            patch_size: tower.patch,
            hidden: tower.width,
            intermediate: tower.intermediate,
            layers: tower.layers,
            heads: tower.heads,
            norm_eps: tower.eps,
            output: tower.hidden,
            activation: Activation::QuickGelu,
            image_size: tower.edge,
            name,
            mean,
            std,
            stored,
        }),
    }
}

/// Every tensor of a checkpoint, as it is stored.
pub(super) struct Tensors(Checkpoint);

impl Source for Tensors {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let shape = |name: &str| self.0.tensor(name).map(|tensor| tensor.shape.to_vec()).unwrap_or_default();
        self.0.names().map(|name| (name.to_owned(), shape(name))).collect()
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let tensor = self.0.tensor(name).map_err(|error| error.to_string())?;
        let float = Dtype::of_file(tensor.dtype).filter(|dtype| dtype.is_float());
        let dtype = float.ok_or_else(|| format!("expected F32, F16 or BF16, found {}", tensor.dtype))?;
        let stored = StoredInput {
            name: name.into(),
            dtype,
            shape: tensor.shape.to_vec(),
            bytes: tensor.bytes.into(),
        };
        Ok(numbers(&stored).into_iter().map(|x| x as f32).collect())
    }
}
