//! The loss of rows that are not trained on: the forward part of a micro-batch alone, without dropout. A chunked loss
//! computes the gradient of its hidden states along, which nobody reads.

use compiler::session::Io;
use reference::llama::Spec;

use super::{Accumulate, Error, Replica};
use crate::step::{Evaluated, Logged, Microbatch};

impl Replica<'_> {
    /// The result of rows that are only read; its loss is the sum over their tokens divided by `items`. A and B are as
    /// they are now. The graph is compiled when it is first needed.
    ///
    /// # Errors
    /// What the session says.
    pub fn evaluate(&mut self, batch: &Microbatch, items: u64) -> Result<Evaluated, Error> {
        if self.evaluation.is_none() {
            let spec = Spec { dropout: false, ..self.spec.clone() };
            let graph = match &self.accumulate {
                Accumulate::Whole(_) => spec.evaluation(),
                Accumulate::Chunked(_) => spec.hidden_states(),
            };
            let graph = graph.map_err(Error::Graph)?;
            self.evaluation = Some(self.session.load(&graph).map_err(Error::Session)?);
        }
        let program = self.evaluation.expect("it was loaded");
        let rounded = self.rounded(batch)?;
        let batch = rounded.as_ref().unwrap_or(batch);
        self.fit(batch)?;
        self.put_batch(batch, items, [0; 2])?; // nothing is dropped
        let mut io = Io::from(&self.tables);
        io.inputs.extend(self.batch.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        if let Accumulate::Chunked(states) = &mut self.accumulate {
            let logged = states.evaluate(&mut self.session, program, io, batch, items)?;
            return Ok(Evaluated { logged, logits: Vec::new() });
        }
        let outputs = self.session.run(program, io).map_err(Error::Session)?;
        let number = |name: &str| {
            let value = outputs.array(name).map_err(Error::Session)?;
            Ok(value.wide().first().copied().unwrap_or(f64::NAN))
        };
        let logits = match self.spec.config.classifier {
            Some(_) => outputs.array("logits").map_err(Error::Session)?.as_floats().to_vec(),
            None => Vec::new(),
        };
        Ok(Evaluated::new(Logged::of(number)?, batch, &logits))
    }
}
