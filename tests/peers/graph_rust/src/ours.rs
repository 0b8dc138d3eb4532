//! The compiled step: forward and backward as one plan, run by a session.

use std::collections::BTreeMap;

use challenges::graph::Solution;
use challenges::nf4;
use compiler::compile::Level;
use compiler::session::{DeviceTensor, Program, Session, Settings};
use kernels::Cpu;
use reference::grad;
use reference::graph::{Graph, Id};

use crate::drawn::Drawn;
use crate::{Outcome, Result};

extern crate solutions as _; // what `Solution` calls

/// A compiled step with its memory.
pub struct Step<'a> {
    session: Session<'a>,
    program: Program,
    given: BTreeMap<String, DeviceTensor>,
}

impl<'a> Step<'a> {
    pub fn new(device: &'a Cpu, drawn: &Drawn, quantized: bool) -> Result<Self> {
        let (spec, values) = drawn.spec(quantized)?;
        let graph = with_gradients(spec.training_loss()?, drawn)?;
        let settings = Settings { level: Level::O3, exact: true, ..Settings::default() };
        let mut session = Session::new(&Solution, device, &nf4::DEQUANTIZER, settings);
        let program = session.load(&graph)?;
        let mut given = BTreeMap::new();
        for (name, value) in &values {
            given.insert(name.clone(), DeviceTensor::new(device, &value.shape, &value.to_memory())?);
        }
        Ok(Self { session, program, given })
    }

    pub fn run(&mut self) -> Result<()> {
        self.session.run(self.program, &self.given)?;
        Ok(())
    }

    /// The loss and the gradients of a run.
    pub fn outcome(&mut self) -> Result<Outcome> {
        let outputs = self.session.run(self.program, &self.given)?;
        let mut gradients = BTreeMap::new();
        let names: Vec<String> = outputs.names().map(str::to_owned).collect();
        for name in &names {
            if let Some(of) = name.strip_prefix("grad.") {
                gradients.insert(of.to_owned(), outputs.array(name)?.as_floats().to_vec());
            }
        }
        Ok((outputs.array("loss")?.as_floats()[0], gradients))
    }
}

/// The loss, and its gradient for each half of an adapter's pair.
fn with_gradients(mut graph: Graph, drawn: &Drawn) -> Result<Graph> {
    let loss = graph.outputs()[0].1;
    let wrt: Vec<(String, Id)> = graph
        .inputs()
        .filter(|(name, _)| drawn.adapter.contains_key(*name))
        .map(|(name, id)| (name.to_owned(), id))
        .collect();
    let ids: Vec<Id> = wrt.iter().map(|(_, id)| *id).collect();
    let gradients = grad::differentiate(&mut graph, loss, &ids)?;
    for ((name, _), gradient) in wrt.iter().zip(gradients) {
        graph.output(format!("grad.{name}"), gradient);
    }
    Ok(graph)
}
