//! The steps of writing a GGUF file, of which one is under test.

use std::sync::atomic::AtomicU64;

use challenges::issues::gguf::{Gguf, Piece, Projector, Solution, TextModel, solution_calls};
use reference::checkpoint::gguf::{TensorType, Value};
use reference::llama::Rope;

use crate::calls::few;

/// The attempt's step of that name; all others are the solution's.
pub(super) type StepUnderTest<'a> = crate::step_under_test::StepUnderTest<'a, dyn Gguf + 'a>;

/// Nothing of it has run yet.
pub(super) fn step_under_test<'a>(step: &'a str, attempt: &'a dyn Gguf) -> StepUnderTest<'a> {
    StepUnderTest { step, attempt, solution: &Solution, solution_calls, asked: AtomicU64::new(0) }
}

impl Gguf for StepUnderTest<'_> {
    fn sizes(&self, shape: &[usize]) -> Vec<usize> {
        self.of("D.19", || format!("sizes: {shape:?}"), |step| step.sizes(shape))
    }

    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize> {
        let asked = || format!("rotary_rows: {rows} rows of {heads} heads");
        self.of("D.19", asked, |step| step.rotary_rows(rows, heads))
    }

    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
        let asked = || format!("rope_factors: {rope:?}, heads of {head_dim}");
        self.of("D.19", asked, |step| step.rope_factors(rope, head_dim))
    }

    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8> {
        let asked = || format!("quantize: {ty}, {} numbers: {}", numbers.len(), few(numbers));
        self.of("D.20", asked, |step| step.quantize(ty, numbers))
    }

    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<Piece> {
        let asked = || {
            format!("text_tensor: {} of {} layers, {name:?}", model.architecture.name(), model.config.layers)
        };
        self.of("D.21", asked, |step| step.text_tensor(model, name))
    }

    fn text_keys(&self, model: &TextModel) -> Vec<(String, Value)> {
        self.of("D.21", || format!("text_keys: {model:?}"), |step| step.text_keys(model))
    }

    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
        let (tower, layers) = (projector.tower, projector.layers);
        let asked = || format!("projector_tensors: {tower:?} of {layers} blocks, {name:?} {shape:?}");
        self.of("D.22", asked, |step| step.projector_tensors(projector, name, shape))
    }

    fn projector_keys(&self, projector: &Projector) -> Vec<(String, Value)> {
        self.of("D.22", || format!("projector_keys: {projector:?}"), |step| step.projector_keys(projector))
    }
}
