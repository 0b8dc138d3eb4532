//! What happens in which order: streams, events, and graphs captured from a stream.
//!
//! Work on one stream runs in the order in which it was queued. An event is a mark on a stream; the time
//! between two marks is the card's own. A graph is a piece of a stream's work that was written down once and
//! can be queued again with a single call.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use cudarc::driver::sys::{
    self, CUevent, CUevent_flags, CUgraph, CUgraphExec, CUgraphNode, CUstream, CUstream_flags,
    CUstreamCaptureMode,
};

use super::driver::{capture_dependencies, check, elapsed_ms, set_capture_dependencies};
use super::error::CudaError;
use super::module::Function;
use super::probe::{Context, Gpu};

/// A queue of work on a card.
#[derive(Debug)]
pub struct Stream {
    handle: CUstream,
    context: Arc<Context>,
}

// SAFETY: a stream's handle is a name that the driver accepts from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// One that no other waits for: what is captured on it is not disturbed by what another thread does.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes one handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut handle, flags) })?;
        Ok(Self { handle, context: Arc::clone(context) })
    }

    pub(super) fn handle(&self) -> CUstream {
        self.handle
    }

    pub(super) fn enter(&self) -> Result<(), CudaError> {
        self.context.enter()
    }

    /// Waits until everything queued on it is done. The first error of a kernel shows here.
    pub fn sync(&self) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: the handle is a stream.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; the driver finishes what is queued.
        let _ = self.context.enter().map(|()| unsafe { sys::cuStreamDestroy_v2(self.handle) });
    }
}

/// A mark on a stream.
#[derive(Debug)]
pub struct Event {
    handle: CUevent,
    context: Arc<Context>,
}

impl Event {
    /// Puts the mark after everything queued so far.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: both handles are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.handle, stream.handle) })
    }

    /// Waits until the stream has reached the mark.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: the handle is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle) })
    }

    /// Microseconds on the card from `earlier` to this mark; both must have been reached.
    pub fn micros_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        self.context.enter()?;
        Ok(f64::from(elapsed_ms(earlier.handle, self.handle)?) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = self.context.enter().map(|()| unsafe { sys::cuEventDestroy_v2(self.handle) });
    }
}

/// Work that was written down once, to be queued whole.
#[derive(Debug)]
pub struct Graph {
    run: CUgraphExec,
    _plan: Recorded,
    context: Arc<Context>,
    _kernels: Vec<Function>, // stay loaded as long as the graph can be launched
}

// SAFETY: its handles are names that the driver accepts from any thread; one thread at a time launches it.
unsafe impl Send for Graph {}

impl Graph {
    /// Queues all of it.
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: both handles are alive.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.run, stream.handle) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = self.context.enter().map(|()| unsafe { sys::cuGraphExecDestroy(self.run) });
    }
}

/// What a capture wrote down.
#[derive(Debug)]
struct Recorded {
    graph: CUgraph,
    context: Arc<Context>,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = self.context.enter().map(|()| unsafe { sys::cuGraphDestroy(self.graph) });
    }
}

/// A capture that is open on a stream. It ends when it is dropped: neither a refusal nor a panic of what queues the
/// work leaves the stream capturing.
struct Capture<'a> {
    gpu: &'a Gpu,
    stream: &'a Stream,
    is_open: bool,
}

impl<'a> Capture<'a> {
    fn begin(gpu: &'a Gpu, stream: &'a Stream) -> Result<Self, CudaError> {
        gpu.inner.pool.context.enter()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is alive.
        check("cuStreamBeginCapture_v2", unsafe { sys::cuStreamBeginCapture_v2(stream.handle, mode) })?;
        gpu.captured().insert(stream.handle.addr(), Vec::new());
        Ok(Self { gpu, stream, is_open: true })
    }

    /// What was written down, and the kernels in it.
    fn end(mut self) -> Result<(Recorded, Vec<Function>), CudaError> {
        self.is_open = false;
        self.close()
    }

    fn close(&self) -> Result<(Recorded, Vec<Function>), CudaError> {
        let kernels = self.gpu.captured().remove(&self.stream.handle.addr()).unwrap_or_default();
        let context = Arc::clone(&self.gpu.inner.pool.context);
        context.enter()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: a capture is open on the stream; the driver writes one handle.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream.handle, &raw mut graph) })?;
        Ok((Recorded { graph, context }, kernels))
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let _ = self.close(); // the reason is the refusal or the panic that drops it
        }
    }
}

impl Gpu {
    /// Another stream beside the GPU's own.
    pub fn new_stream(&self) -> Result<Stream, CudaError> {
        Stream::new(&self.inner.pool.context)
    }

    /// An event that can be timed.
    pub fn event(&self) -> Result<Event, CudaError> {
        let context = Arc::clone(&self.inner.pool.context);
        context.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: the driver writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut handle, flags) })?;
        Ok(Event { handle, context })
    }

    /// The kernels launched since a capture began, by the address of the stream that captures.
    fn captured(&self) -> MutexGuard<'_, HashMap<usize, Vec<Function>>> {
        self.inner.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a launched kernel for the graph that is being captured on its stream, if one is.
    pub(super) fn note(&self, stream: &Stream, function: &Function) {
        if let Some(kernels) = self.captured().get_mut(&stream.handle.addr()) {
            kernels.push(function.clone());
        }
    }

    /// Writes down what `queue` queues on `stream` instead of running it.
    ///
    /// # Errors
    /// What `queue` refused, what cannot be captured (a wait, an allocation from the driver), or that the stream is
    /// being captured already. The stream captures no more afterwards, nor after a panic of `queue`.
    pub fn capture(
        &self,
        stream: &Stream,
        queue: impl FnOnce(&Stream) -> Result<(), CudaError>,
    ) -> Result<Graph, CudaError> {
        let capture = Capture::begin(self, stream)?;
        queue(stream)?;
        let (plan, kernels) = capture.end()?;
        let context = Arc::clone(&plan.context);
        let mut run = std::ptr::null_mut();
        // SAFETY: the graph is whole; the driver writes one handle.
        check("cuGraphInstantiateWithFlags", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut run, plan.graph, 0)
        })?;
        Ok(Graph { run, _plan: plan, context, _kernels: kernels })
    }

    /// Writes down pieces of work of which each waits only for those earlier ones that `waits` names: what does not
    /// wait for each other, the card may do side by side.
    ///
    /// # Errors
    /// As [`Gpu::capture`].
    pub(super) fn capture_side_by_side(
        &self,
        stream: &Stream,
        waits: &[Vec<usize>],
        mut queue: impl FnMut(&Stream, usize) -> Result<(), CudaError>,
    ) -> Result<Graph, CudaError> {
        self.capture(stream, |stream| {
            let mut last: Vec<Vec<CUgraphNode>> = Vec::with_capacity(waits.len()); // nodes of each piece
            for (piece, waits) in waits.iter().enumerate() {
                let mut nodes: Vec<CUgraphNode> =
                    waits.iter().flat_map(|piece| &last[*piece]).copied().collect();
                nodes.sort_unstable();
                nodes.dedup();
                set_capture_dependencies(stream.handle, &mut nodes)?;
                queue(stream, piece)?;
                last.push(capture_dependencies(stream.handle)?);
            }
            Ok(())
        })
    }
}
