//! Every kind of break and of recompilation as a program of a few lines, beside its cure.
//!
//! The log of the published notebook counts 24 graph breaks and 5 recompilations. The cases here are kinds, each once:
//! those that public solutions quote from such logs, and those that the same libraries show beyond the MLP that the
//! notebook compiles - in attention, loss, trainer and optimiser. `seen` says where.
//!
//! Every line that breaks ends in `// break`; the line of the first node in which two graphs differ ends in
//! `// changes`. The cured program of a case has no such line, means the same, and is one and the same graph for every
//! number.

mod breaks;
mod recompilations;

use std::panic::Location;

use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Eager, Op, Tape, Tensor, Type};

/// A program that does not compile as it stands, and the same one cured.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it does.
    pub name: &'static str,
    /// Which library does it, and where.
    pub seen: &'static str,
    /// Where the case begins.
    pub at: &'static Location<'static>,
    /// What it shows.
    pub shows: Shows,
}

/// What a case shows. An output of the program is an output of the cured one too, with the same values.
#[derive(Clone, Debug)]
pub enum Shows {
    /// Breaks.
    Breaks {
        /// How many, where the examples are given.
        times: usize,
        /// The program.
        program: fn(&Tape),
        /// The same without a break.
        cured: fn(&Tape),
        /// Values for the inputs of both.
        examples: fn() -> Values<f32>,
    },
    /// One graph for each number.
    Recompiles {
        /// Two numbers that give two graphs.
        numbers: [i64; 2],
        /// The program.
        program: fn(&Tape, i64),
        /// The same with one graph for both numbers.
        cured: fn(&Tape, i64),
        /// Values for the inputs of both, where that is the number.
        examples: fn(i64) -> Values<f32>,
    },
}

/// Every case: first the breaks, then the recompilations.
pub fn zoo() -> Vec<Case> {
    [breaks::all(), recompilations::all()].concat()
}

/// Values by names.
fn given<const N: usize>(values: [(&str, Array<f32>); N]) -> Values<f32> {
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Floats of a shape.
fn floats(shape: &[usize], values: &[f64]) -> Array<f32> {
    Array::floats(Dtype::F32, shape, values.iter().copied())
}

/// Floats of a shape: -1.5, -1, -0.5, .. to 1.5, again and again.
fn ramp(shape: &[usize]) -> Array<f32> {
    let values = (0..shape.iter().product()).map(|i: usize| (i % 7) as f64 * 0.5 - 1.5);
    Array::floats(Dtype::F32, shape, values)
}

/// A float without dimensions.
#[track_caller]
fn number(tape: &Tape, name: &str) -> Tensor {
    tape.input(name, Dtype::F32, NONE)
}

/// No dimensions.
const NONE: [usize; 0] = [];

/// What a library's function does on values, said with the graph's operations.
fn at_once(values: &[Array<f32>], program: impl Fn(&[Tensor]) -> Tensor) -> Array<f32> {
    let names = (0..values.len()).map(|i| i.to_string());
    let eager = Eager::new(names.zip(values.iter().cloned()).collect());
    let handle = |(i, value): (usize, &Array<f32>)| {
        eager.tape().input(&i.to_string(), value.dtype, value.shape.iter().copied())
    };
    let handles: Vec<Tensor> = values.iter().enumerate().map(handle).collect();
    eager.tape().output("result", &program(&handles));
    let mut results = eager.finish().expect("a library's function fits its inputs");
    results.remove("result").expect("one result")
}

/// The parts of a frozen weight (8, 16) in NF4: codes, table, a scale for each 64 elements.
fn packed(tape: &Tape) -> [Tensor; 3] {
    [
        tape.input("codes", Dtype::U8, [64]),
        tape.input("table", Dtype::F32, [16]),
        tape.input("absmax", Dtype::F32, [2]),
    ]
}

/// The type of that weight.
fn weight_type() -> Type {
    Type::new(Dtype::F32, [8, 16])
}

/// That weight from its parts.
fn dequantize(tape: &Tape, parts: &[Tensor]) -> Tensor {
    let op = Op::Dequantize { block_size: 64, nested: None };
    tape.apply(op, &[&parts[0], &parts[1], &parts[2]], Some(weight_type()))
}

/// Values for those parts and for `x` (2, 16).
fn packed_values() -> Values<f32> {
    let codes = (0..64_u8).map(|i| i.wrapping_mul(37)).collect();
    let table = reference::nf4::NF4.map(f64::from);
    given([
        ("codes", Array::bytes(&[64], codes)),
        ("table", floats(&[16], &table)),
        ("absmax", floats(&[2], &[0.5, 2.0])),
        ("x", ramp(&[2, 16])),
    ])
}
