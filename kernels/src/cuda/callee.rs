//! A callee on a GPU: a dequantiser in CUDA C++, and a weight as addresses of device memory.

use super::error::CudaError;
use super::order::Stream;
use super::probe::Gpu;
use crate::tile::Element;

/// A dequantiser in CUDA C++.
pub trait CardCallee: Sync {
    /// Compiles it for a card, to write elements of a type: f16, bf16 or f32.
    ///
    /// # Errors
    /// What the compiler says of its text, what the driver says of the code, and what its launch asks for in vain.
    fn load(&self, gpu: &Gpu, element: Element) -> Result<Box<dyn CardDequantizer>, CudaError>;
}

/// A dequantiser that is loaded on a card.
pub trait CardDequantizer: Send + Sync {
    /// Whether it takes weights with such blocks.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check(&self, weight: &CardWeight) -> Result<(), String>;

    /// Queues it on a stream of the card: every element of the weight, rounded, from address `out` on.
    ///
    /// # Errors
    /// A launch that the card refuses.
    fn launch(&self, gpu: &Gpu, stream: &Stream, weight: &CardWeight, out: u64) -> Result<(), CudaError>;
}

/// A weight of 4-bit codes in a card's memory: addresses of its parts, and what a kernel takes by value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CardWeight {
    /// Elements.
    pub len: usize,
    /// Elements that share one scale.
    pub block_size: usize,
    /// Blocks that share one second-level scale; `None` if scales are f32.
    pub nested: Option<usize>,
    /// ceil(len / 2) bytes; an even element is the high half of its byte.
    pub packed: u64,
    /// A byte a block, or 0 if scales are f32.
    pub codes: u64,
    /// The scales in f32: of the second level, or all of them.
    pub scales: u64,
    /// The 256 values in f32 that a byte stands for, or 0 if scales are f32.
    pub code2: u64,
    /// Added to every scale of two levels.
    pub offset: f32,
    /// The values that a code stands for.
    pub table: [f32; 16],
}
