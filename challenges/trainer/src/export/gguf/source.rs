//! The weights of a GGUF file, as numbers.

use challenges::issues::gguf::{Gguf as _, Model, Solution, Source};
use reference::checkpoint::gguf::TensorType;
use reference::graph::interpret::Values;
use reference::issues::gguf::stored_as;
use reference::llama::Llama;
use reference::lora::Adapter;

use super::super::{is_untied, own_numbers, range, with_adapter};

/// The weights of a Llama, with an adapter merged into them.
pub(super) struct Merged<'m> {
    model: &'m Llama,
    adapter: Option<&'m Adapter>,
    trained: Values<f32>,
}

impl<'m> Merged<'m> {
    pub fn new(model: &'m Llama, adapter: Option<&'m Adapter>) -> Self {
        Self { model, adapter, trained: adapter.map(Adapter::trained).unwrap_or_default() }
    }

    /// The weight that a name stands for: of a tied model the output layer is the embedding.
    fn stored_under<'n>(&self, name: &'n str) -> &'n str {
        let is_output = name == "lm_head.weight" && self.model.config.tied;
        if is_output { "model.embed_tokens.weight" } else { name }
    }
}

impl Source for Merged<'_> {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let config = &self.model.config;
        let mut all: Vec<_> = config.tensor_specs().into_iter().map(|spec| (spec.name, spec.shape)).collect();
        if is_untied(config, self.adapter) {
            all.push(("lm_head.weight".into(), vec![config.vocab, config.hidden]));
        }
        all
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let stored = self.stored_under(name);
        let weight = own_numbers(self.model, stored)?;
        let specs = self.model.config.tensor_specs();
        let shape = specs.iter().find(|spec| spec.name == stored).map_or(&[][..], |spec| &spec.shape);
        let weight = match self.adapter {
            None => weight,
            Some(adapter) => {
                let is_tied = self.model.config.tied;
                with_adapter(weight, (name, shape), &adapter.config, is_tied, &self.trained)
            }
        };
        Ok(weight.into_iter().map(|x| x as f32).collect())
    }
}

/// Weights whose numbers the types that they are written in can hold. NaN and infinities are refused in every type:
/// blocks turn them into NaN or into wrong numbers, and a model that has some does not work.
pub(super) struct Held<'s> {
    pub model: Model<'s>,
    pub source: &'s dyn Source,
}

impl Source for Held<'_> {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.source.tensors()
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let numbers = self.source.numbers(name)?;
        range::check_finite(&numbers)?;
        let tensors = self.source.tensors();
        let shape = tensors.iter().find(|(known, _)| known == name).map_or(&[][..], |(_, shape)| shape);
        for ty in self.types(name, shape) {
            range::check(&numbers, ty)?;
        }
        Ok(numbers)
    }
}

impl Held<'_> {
    /// The types that the pieces of a tensor are written in.
    fn types(&self, name: &str, shape: &[usize]) -> Vec<TensorType> {
        let (pieces, stored) = match self.model {
            Model::Text(model) => {
                (Solution.text_tensor(model, name).into_iter().collect::<Vec<_>>(), model.stored)
            }
            Model::Projector(projector) => {
                (Solution.projector_tensors(projector, name, shape), projector.stored)
            }
        };
        let parts = pieces.iter().filter_map(|piece| Some((&piece.name, piece.part.shape(shape)?)));
        parts.map(|(name, shape)| stored_as(stored, name, &Solution.sizes(&shape))).collect()
    }
}
