//! The compiled step: forward and backward as one plan.

use std::collections::BTreeMap;

use challenges::graph::Solution;
use compiler::compile::{Compiled, Level, Tuner, compile};
use compiler::tune::Tuned;
use challenges::nf4;
use kernels::{Buffer, Cpu, Device};
use reference::grad;
use reference::graph::{Graph, Id};

use crate::Result;
use crate::drawn::Drawn;

/// A compiled step with its memory.
pub struct Step {
    device: Cpu,
    compiled: Compiled,
    arena: Buffer,
    given: BTreeMap<String, Buffer>,
}

impl Step {
    pub fn new(drawn: &Drawn, quantized: bool) -> Result<Self> {
        let (spec, values) = drawn.spec(quantized)?;
        let graph = with_gradients(spec.training_loss()?, drawn)?;
        let sizes = BTreeMap::from([("B".into(), 1), ("T".into(), drawn.tokens.len() as i64)]);
        let (device, mut tuned) = (Cpu::new(), Tuned::default());
        let tuner = Tuner { device: &device, tuned: &mut tuned };
        let compiled = compile(&Solution, &graph, &sizes, Level::O3.options(), Some(tuner))?;
        let mut given = BTreeMap::new();
        for (name, value) in &values {
            let bytes = value.to_memory();
            let mut buffer = device.alloc("given", bytes.len())?;
            device.upload(&mut buffer, &bytes)?;
            given.insert(name.clone(), buffer);
        }
        let arena = compiled.arena(&device)?;
        Ok(Self { device, compiled, arena, given })
    }

    pub fn run(&mut self) -> Result<()> {
        let inputs = inputs(&self.given);
        Ok(self.compiled.run(&self.device, &mut self.arena, &inputs, &nf4::Callee(&nf4::Solution))?)
    }

    /// What the last run left.
    pub fn output(&self, name: &str) -> Result<Vec<f32>> {
        let bytes = self.compiled.output(name, &self.arena, &inputs(&self.given));
        let bytes = bytes.ok_or_else(|| format!("there is no output {name}"))?;
        Ok(bytes
            .chunks_exact(4)
            .map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
            .collect())
    }
}

fn inputs(given: &BTreeMap<String, Buffer>) -> BTreeMap<&str, &Buffer> {
    given.iter().map(|(name, buffer)| (name.as_str(), buffer)).collect()
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
