//! Decoding: the model over tokens that follow those in a cache of keys and values.
//!
//! ```text
//! slot       0 1 2 3 4 5 6 7        C = 8 slots, start = 3 tokens in the cache, T = 2 new ones
//! before     a b c . . . . .
//! after      a b c d e . . .        written where 0 <= slot - start < T
//! query d    x x x x                sees slot <= start + its own number
//! ```
//!
//! A cache has a fixed number of slots, so that one graph serves every length and the cache can be updated in place. An
//! update is a `select` over all slots; a slot that is not written keeps its old value, and one that no token has
//! reached is hidden by the mask, whatever it holds as long as it is finite.
//!
//! Keys are cached after their rotation, in the compute type: (C, key heads * D), the layout that the projections give.
//!
//! Source: Pope et al., "Efficiently Scaling Transformer Inference" (2022), section 2: prefill, and decoding with
//! cached keys and values.

use super::cache::caches;
use super::rows::Rows;
use super::{Model, Spec};
use crate::graph::{Builder, Error, Graph, Type};

impl Spec {
    /// The same model with a context of so many tokens, one for each slot of a cache. See [`Self::decode`].
    #[must_use]
    pub fn with_context(&self, slots: usize) -> Self {
        let mut spec = Self { rows: Rows::default(), ..self.clone() };
        spec.config.positions = slots;
        spec
    }

    /// `ids` i32 (1, T), T from 1 to C, and `start` i32 (), how many tokens are in the cache, to `logits` (V) of the
    /// last token, in the compute type. C is the context. The inputs of [`Self::caches`] are outputs, too, with the T
    /// tokens added. `start` + T is at most C. The rotary tables have C rows; what [`Rows`] ask for is left out.
    pub fn decode(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_decode");
        let model = Model::decoding(self, builder.tape());
        let logits = model.last_logits(&model.tokens("ids"));
        builder.tape().output("logits", &logits);
        builder.finish()
    }
}

impl Spec {
    /// The caches of [`Self::decode`] and their type (C, key heads * D), in the compute type.
    pub fn caches(&self) -> (Vec<String>, Type) {
        let layers = 0..self.config.layers;
        let names = layers.flat_map(|layer| caches(&format!("model.layers.{layer}"))).collect();
        let shape = [self.config.positions, self.config.key_heads * self.config.head_dim];
        (names, Type::new(self.compute, shape))
    }
}
