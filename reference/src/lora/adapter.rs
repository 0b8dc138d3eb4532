//! An adapter: its settings and its numbers.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::{Config, fresh, write};
use crate::checkpoint::{self, Checkpoint};
use crate::graph::interpret::Values;
use crate::graph::{Array, Dtype, Real};
use crate::llama::{self, Error, Llama, dense};

/// An adapter in memory. It fits the model that it was opened or made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// Its settings.
    pub config: Config,
    values: Values<f32>, // by the names of `super::keys` and of `super::Module`
    vocab: usize,        // of the model
    is_tied: bool,       // its output layer is its embedding
    has_images: bool,    // it is the language model of one that reads images
    is_on_nf4: bool,     // it was trained next to weights in NF4
}

/// The entry of a file's metadata that says how the base was quantised while the adapter was trained, and its value.
/// It is this project's own; peft ignores it.
const BASE: (&str, &str) = ("base_quantization", "nf4");

/// The longest header that is looked at for [`BASE`], in bytes.
const LONGEST_HEADER: u64 = 100 << 20;

/// The names of the two files.
const FILES: [&str; 2] = ["adapter_config.json", "adapter_model.safetensors"];

impl Adapter {
    /// Opens a folder with an adapter of a model.
    ///
    /// Fails as [`Config::read`] and [`Checkpoint::open`] do, and where a target is no projection of the model, or a
    /// tensor is missing, has another shape or type, or no place in the model.
    pub fn open(folder: impl AsRef<Path>, model: &llama::Config) -> Result<Self, Error> {
        let [config, weights] = FILES.map(|name| folder.as_ref().join(name));
        let read = Config::read(&config)?;
        let needs = tensors(&read, model).map_err(|fault| fault.at(&config))?;
        let own = |file: Checkpoint| values(&file, &needs, model.images.is_some());
        let values = Checkpoint::open(&weights).map_err(Error::from).and_then(own);
        let adapter = Self::new(read, model, values.map_err(|fault| fault.at(&weights))?);
        let is_on_nf4 = metadata(&weights).is_some_and(|entries| entries[BASE.0] == BASE.1);
        Ok(adapter.on_nf4(is_on_nf4))
    }

    fn new(config: Config, model: &llama::Config, values: Values<f32>) -> Self {
        Self {
            config,
            values,
            vocab: model.vocab,
            is_tied: model.tied,
            has_images: model.images.is_some(),
            is_on_nf4: false,
        }
    }

    /// Sets whether its file says that it is trained next to weights in NF4.
    #[must_use]
    pub fn on_nf4(self, is_on_nf4: bool) -> Self {
        Self { is_on_nf4, ..self }
    }

    /// Returns true if its file says that it was trained next to weights in NF4. Files of other programs never do.
    pub fn is_on_nf4(&self) -> bool {
        self.is_on_nf4
    }

    /// One that changes nothing yet, beside a model whose modules it may train as a whole: see [`Self::fresh`].
    ///
    /// Fails where a target is no projection of the model, a token none of its vocabulary, and where a module that is
    /// to be trained as a whole is stored in NF4.
    pub fn beside(config: Config, model: &Llama, seed: u64) -> Result<Self, Error> {
        let trained = config.modules.start(model, seed)?;
        let mut values = pairs(&config, &model.config, seed)?;
        values.extend(trained);
        Ok(Self::new(config, &model.config, values))
    }

    /// One of low-rank pairs alone that changes nothing yet: A uniform within 1 / sqrt(in) of 0, B zero. Equal seeds
    /// give equal adapters.
    ///
    /// Fails where a target is no projection of the model, or modules are trained as a whole, which takes their
    /// weights: see [`Self::beside`]. Source of the bound: He et al., "Delving Deep into Rectifiers" (2015), with the
    /// slope sqrt 5 that torch's linear layers and `peft` start from.
    pub fn fresh(config: Config, model: &llama::Config, seed: u64) -> Result<Self, Error> {
        if let Some(whole) = config.modules.tensors(model)?.first() {
            let need = "an adapter of low-rank pairs alone".to_owned();
            return Err(Error::Field { field: "modules".into(), got: whole.name.clone(), need });
        }
        let values = pairs(&config, model, seed)?;
        Ok(Self::new(config, model, values))
    }

    /// One with the numbers that a graph's run has given, found by their names among `values` and rounded to f32.
    ///
    /// Fails where a target is no projection of the model, or a tensor is missing or has another shape.
    pub fn of<R: Real>(config: Config, model: &llama::Config, values: &Values<R>) -> Result<Self, Error> {
        let mut own = Values::new();
        for (name, need) in tensors(&config, model)? {
            let missing = || Error::from(checkpoint::Error::MissingTensor).of(&name);
            let value = values.get(&name).ok_or_else(missing)?;
            check_shape(&value.shape, need).map_err(|fault| fault.of(&name))?;
            own.insert(name, Array::floats(Dtype::F32, &need, value.wide()));
        }
        Ok(Self::new(config, model, own))
    }

    /// Every input of a graph that belongs to it, by its name: what is trained, and which trained row each token has.
    pub fn values<R: Real>(&self) -> Values<R> {
        let mut all = self.trained();
        all.append(&mut self.config.modules.slots(self.vocab, self.is_tied));
        all
    }

    /// Every tensor, under the names of files and graphs.
    pub fn trained<R: Real>(&self) -> Values<R> {
        let wide = |value: &Array<f32>| Array::floats(Dtype::F32, &value.shape, value.wide());
        self.values.iter().map(|(name, value)| (name.clone(), wide(value))).collect()
    }

    /// Writes both files into a folder, which is made if it is missing. Each file is complete or not there: it is
    /// written under another name first.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<(), Error> {
        let folder = folder.as_ref();
        let failed = |path: &Path, source| Error::Write { source }.at(path);
        std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let filed = |(name, value): (&String, &Array<f32>)| (in_file(name, self.has_images), value.clone());
        let values = self.values.iter().map(filed).collect();
        let weights =
            if self.is_on_nf4 { write::serialize_with(&values, BASE) } else { write::serialize(&values) };
        let contents = [format!("{:#}\n", self.config.to_json()).into_bytes(), weights];
        for (path, bytes) in FILES.map(|name| folder.join(name)).iter().zip(contents).rev() {
            crate::atomic_write::write(path, &bytes).map_err(|source| failed(path, source))?;
        }
        Ok(())
    }
}

/// The metadata of a safetensors file; `None` if it cannot be read.
fn metadata(path: &Path) -> Option<Value> {
    let mut file = File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length.min(LONGEST_HEADER)).read_to_end(&mut header).ok()?;
    Some(serde_json::from_slice::<Value>(&header).ok()?["__metadata__"].take())
}

/// Low-rank pairs that change nothing yet.
fn pairs(config: &Config, model: &llama::Config, seed: u64) -> Result<Values<f32>, Error> {
    let mut numbers = fresh::Uniform::new(seed);
    let mut values = Values::new();
    for (pair, (name, shape)) in config.needs(model)?.into_iter().enumerate() {
        let bound = if pair % 2 == 0 { 1.0 / (shape[1] as f64).sqrt() } else { 0.0 };
        let drawn = (0..shape[0] * shape[1]).map(|_| bound * numbers.signed());
        let array = if bound == 0.0 { zeros(&shape) } else { Array::floats(Dtype::F32, &shape, drawn) };
        values.insert(name, array);
    }
    Ok(values)
}

/// Name and shape of every tensor of an adapter of a model.
fn tensors(config: &Config, model: &llama::Config) -> Result<Vec<(String, [usize; 2])>, Error> {
    let mut all = config.needs(model)?;
    all.extend(config.modules.tensors(model)?.into_iter().map(|whole| (whole.name, whole.shape)));
    Ok(all)
}

fn zeros(shape: &[usize]) -> Array<f32> {
    Array::floats(Dtype::F32, shape, std::iter::repeat_n(0.0, shape.iter().product()))
}

fn check_shape(got: &[usize], need: [usize; 2]) -> Result<(), Error> {
    if got == need { Ok(()) } else { Err(Error::Shape { got: got.to_vec(), need: need.to_vec() }) }
}

/// The name of a tensor in an adapter's file. `peft` names the modules of a model as they are in memory, and there the
/// language model beside a tower has a name of its own.
fn in_file(name: &str, has_images: bool) -> String {
    match name.strip_prefix("base_model.model.model.").filter(|_| has_images) {
        Some(rest) => format!("base_model.model.model.language_model.{rest}"),
        None => name.to_owned(),
    }
}

/// The tensors of a file, if they are those needed and no others.
fn values(file: &Checkpoint, needs: &[(String, [usize; 2])], has_images: bool) -> Result<Values<f32>, Error> {
    let known: BTreeSet<String> = needs.iter().map(|(name, _)| in_file(name, has_images)).collect();
    if let Some(name) = file.names().find(|name| !known.contains(*name)) {
        return Err(Error::Unexpected.of(name));
    }
    let value = |(name, need): &(String, [usize; 2])| {
        let tensor = file.tensor(&in_file(name, has_images))?;
        let checked = check_shape(tensor.shape, *need).and_then(|()| dense::<f32>(tensor));
        let value = checked.map_err(|fault| fault.of(name))?;
        Ok((name.clone(), Array::floats(Dtype::F32, need, value.wide())))
    };
    needs.iter().map(value).collect()
}
