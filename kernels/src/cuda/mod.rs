//! The GPU as a device: found at run time, or its absence said in a sentence.
//!
//! ```text
//! library     where the driver, NVRTC, cuBLASLt, NCCL and NVML are, and the line that installs what is missing
//! probe       Gpu::probe() -> Result<Gpu, NoGpu>: the one door; card facts
//! compile     CUDA C++ -> PTX and machine code by NVRTC, with a cache on disk
//! kept        the PTX of this repository's own kernels, for machines with a driver and no compiler
//! module      loaded code: kernels, globals, launches
//! memory      device memory through a counting pool; watermark: the most of it at once
//! order       streams, events, captured graphs
//! condition   clocks, temperature, throttling, other processes
//! blas        products of matrices by cuBLASLt
//! callee      what a plan's call runs here
//! device      the same seam as the CPU's
//! plan        plans: their kernels as text, their launches, what goes wrong in a lane
//! driver      the driver's calls, each checked; error: what it refused
//! texts       the kernel texts of this room
//! ```
//!
//! No CUDA is needed to build, and no Cargo feature decides whether a GPU exists: every library is opened when
//! it is first used, and asked for each symbol before the first call that needs it. The code keeps to symbols
//! that drivers have had since CUDA 12.0, so that hosted notebooks with older drivers work.
//!
//! Kernels are data to this room: it compiles and launches what it is given. A kernel can only touch device
//! memory; whatever it does wrong comes back as a [`CudaError`], never as a fault of the host.

#![allow(unsafe_code)] // foreign functions: each block says why its call is sound

mod blas;
mod callee;
mod compile;
pub mod condition;
mod device;
mod driver;
mod error;
mod kept;
pub mod library;
mod memory;
mod module;
mod order;
mod plan;
mod probe;
mod texts;
mod watermark;

pub use blas::Form;
pub use callee::{CardCallee, CardDequantizer, CardWeight};
pub use compile::{CompileError, Compiled, Source, Target, cache_folder, compile};
pub use device::output_defines;
pub use error::CudaError;
pub use kept::{KEPT, Kept};
pub use memory::{Allocation, Usage};
pub use module::{Arguments, Attributes, Function, Grid, Module};
pub use order::{Event, Graph, Stream};
pub use plan::text_of;
pub use probe::{Card, Gpu, NoGpu};
pub use texts::{BASELINE, FILL, PRELUDE};
