//! The arena of an evaluation: the forward part of a micro-batch alone.

use std::collections::BTreeMap;

use reference::llama::Spec;

use super::Forecaster;
use crate::step::Error;

impl Forecaster<'_> {
    /// The bytes of the arena for batches of so many rows of so many tokens that are only evaluated. Steps and
    /// evaluations share one arena: the larger of both.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn evaluation(&mut self, rows: usize, length: usize) -> Result<usize, Error> {
        let spec = Spec { dropout: false, ..self.spec.clone() };
        let graph = if self.chunk.is_some() { spec.hidden_states() } else { spec.evaluation() };
        let graph = graph.map_err(Error::Graph)?;
        let program = self.session.load(&graph).map_err(Error::Session)?;
        let sizes = BTreeMap::from([("B".into(), rows as i64), ("T".into(), length as i64)]);
        self.session.memory_profile(program, &sizes).map_err(Error::Session)?;
        let needed = self.session.all_compiled(program).map(|compiled| compiled.arena.bytes).max();
        Ok(needed.unwrap_or(0))
    }
}
