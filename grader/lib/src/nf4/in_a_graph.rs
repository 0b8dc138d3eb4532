//! Challenge A's dequantiser as an operation of a compiled graph.

use std::collections::BTreeMap;

use challenges::graph::{Compile, Solution};
use compiler::compile::Level;
use kernels::Device;
use kernels::callee::Callee;
use reference::graph::interpret::Values;
use reference::graph::{Dtype, Op, Tape, Tensor, Type};
use reference::llama::parts;
use reference::nf4::{self, Layout};

use crate::compare::{describe, run_with};
use crate::random::Random;

/// What was seen of it.
pub(crate) struct Seen {
    /// Weights that the graph dequantises.
    pub weights: usize,
    /// Those that are equal to the oracle's, bit for bit.
    pub equal: usize,
    /// Breaks of the program that uses them.
    pub breaks: usize,
    /// Launches of the graph that dequantise.
    pub launches: usize,
}

impl Seen {
    /// Its numbers, all of them counts.
    pub fn numbers(&self) -> [(&'static str, usize); 4] {
        [
            ("nf4.graph_weights", self.weights),
            ("nf4.graph_weights_equal", self.equal),
            ("nf4.graph_breaks", self.breaks),
            ("nf4.graph_launches", self.launches),
        ]
    }
}

/// Rows and columns of the weights.
const SHAPES: [(usize, usize, Dtype); 4] =
    [(96, 64, Dtype::F16), (64, 160, Dtype::Bf16), (33, 64, Dtype::F32), (7, 65, Dtype::F16)];

/// A card captures the second run, and the third is replayed.
const RUNS: usize = 3;

/// Captures a program that multiplies with quantised weights, compiles it, and runs it on a device with the attempt's
/// dequantiser.
pub(crate) fn look(device: &dyn Device, attempt: &dyn Callee, seed: u64) -> Result<Seen, String> {
    let mut random = Random::named(seed, "part A in a graph");
    let weights = SHAPES.iter().map(|shape| weight(*shape, &mut random)).collect::<Result<Vec<_>, _>>()?;
    let mut values = Values::new();
    let mut program_parts = BTreeMap::new();
    for (i, weight) in weights.iter().enumerate() {
        let own = parts::<f32, _>(&format!("w{i}"), weight);
        let types =
            own.iter().map(|(name, value)| (name.clone(), Type::new(value.dtype, value.shape.clone())));
        program_parts.insert(i, types.collect::<BTreeMap<_, _>>());
        values.extend(own);
    }
    let program = |tape: &Tape| {
        for (i, (rows, columns, dtype)) in SHAPES.into_iter().enumerate() {
            let types = &program_parts[&i];
            let input = |part: &str| {
                let name = format!("w{i}{part}");
                tape.input(&name, types[&name].dtype, &types[&name].shape)
            };
            let parts =
                Layout { len: rows * columns, block_size: 64, nested: Some(nf4::NESTED_BLOCK) }.parts();
            let handles: Vec<Tensor> = parts.map(|part| input(part.part.suffix())).collect();
            let op = Op::Dequantize { block_size: 64, nested: Some(nf4::NESTED_BLOCK) };
            let ty = Type::new(dtype, [rows, columns]);
            let w = tape.apply(op, &handles.iter().collect::<Vec<_>>(), Some(ty));
            tape.output(&format!("w{i}"), &w);
            let x = w.cast(Dtype::F32);
            tape.output(&format!("gram{i}"), &x.matmul(&x.t()));
        }
    };
    let captured = Solution.capture("part_a", &program, &values).map_err(describe)?;
    let options = Level::O2.options();
    let (compiled, results) = run_with(device, &Solution, &captured.graph, &values, options, attempt, RUNS)?;
    let equal = weights.iter().enumerate().filter(|(i, weight)| {
        let got = results[2 * i].to_memory();
        let want = nf4::dequantize_bits(&weight.view(), weight.dtype);
        got == bytes(&want, weight.dtype.bytes())
    });
    let steps = &compiled.plan().steps;
    let is_call = |step: &&kernels::plan::Step| matches!(step, kernels::plan::Step::Call { .. });
    Ok(Seen {
        weights: weights.len(),
        equal: equal.count(),
        breaks: captured.breaks.len(),
        launches: steps.iter().filter(is_call).count(),
    })
}

fn weight(
    (rows, columns, dtype): (usize, usize, Dtype),
    random: &mut Random,
) -> Result<nf4::Quantized, String> {
    let numbers: Vec<f32> = (0..rows * columns).map(|_| (random.unit() - 0.5) as f32).collect();
    let dtype = nf4::OutputDtype::try_from(dtype).map_err(describe)?;
    nf4::Quantized::double(&numbers, &[rows, columns], dtype, 64).map_err(describe)
}

/// Bit patterns as memory has them.
fn bytes(bits: &[u32], element: usize) -> Vec<u8> {
    let one = |bits: &u32| {
        if element == 2 { (*bits as u16).to_ne_bytes().to_vec() } else { bits.to_ne_bytes().to_vec() }
    };
    bits.iter().flat_map(one).collect()
}
