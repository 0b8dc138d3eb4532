//! A dequantiser whose calls are counted, in Rust on a CPU and as a kernel on a card.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use challenges::nf4::{self, Dequantizer, Nf4};
use kernels::callee::{CardCallee, CardDequantizer, CardWeight, HostCallee};
use kernels::cuda::{CudaError, Gpu, Stream};
use kernels::tile::Element;
use kernels::{Callee, Cpu};

/// Calls so far.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<AtomicUsize>);

impl Calls {
    /// How many there were.
    pub fn count(&self) -> usize {
        self.0.load(Relaxed)
    }

    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// An attempt at A whose calls are counted.
pub(super) struct Counting<'a> {
    pub inner: &'a dyn Nf4,
    pub calls: Calls,
}

/// The same, as a plan calls it.
pub(super) struct CountingCallee<'a> {
    rust: Dequantizer<'a>,
    calls: Calls,
}

impl<'a> CountingCallee<'a> {
    pub fn of(counting: &'a Counting<'a>) -> Self {
        Self { rust: Dequantizer(counting), calls: counting.calls.clone() }
    }
}

impl Callee for CountingCallee<'_> {
    fn name(&self) -> &str {
        self.rust.name()
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        self.rust.host()
    }

    fn card(&self) -> Option<&dyn CardCallee> {
        Some(self)
    }
}

impl CardCallee for CountingCallee<'_> {
    fn load(&self, gpu: &Gpu, element: Element) -> Result<Box<dyn CardDequantizer>, CudaError> {
        let none = || CudaError::Library { call: "nf4", text: "expected a kernel, found none".into() };
        let inner = self.rust.card().ok_or_else(none)?.load(gpu, element)?;
        Ok(Box::new(CountingKernel { inner, calls: self.calls.clone() }))
    }
}

/// A kernel whose launches are counted, where a run queues them: not those of a captured graph.
struct CountingKernel {
    inner: Box<dyn CardDequantizer>,
    calls: Calls,
}

impl CardDequantizer for CountingKernel {
    fn check(&self, weight: &CardWeight) -> Result<(), String> {
        self.inner.check(weight)
    }

    fn launch(&self, gpu: &Gpu, stream: &Stream, weight: &CardWeight, out: u64) -> Result<(), CudaError> {
        self.calls.add();
        self.inner.launch(gpu, stream, weight, out)
    }
}

impl Nf4 for Counting<'_> {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        self.inner.unpack(packed, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        self.inner.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        self.inner.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &nf4::Absmax<'_>, block: usize) -> f32 {
        self.inner.absmax(absmax, block)
    }

    fn dequantize(&self, cpu: &Cpu, weight: &nf4::Weight<'_>, out: nf4::Output<'_>) {
        self.inner.dequantize(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &nf4::Weight<'_>, out: nf4::Output<'_>) {
        self.calls.add();
        self.inner.dequantize_fast(cpu, weight, out);
    }
}
