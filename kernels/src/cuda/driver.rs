//! The driver's calls, each checked.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUevent, CUgraph, CUgraphNode, CUresult, CUstream, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags,
};

use super::error::CudaError;

/// Every symbol that this room calls: all of them are in drivers since CUDA 12.0. A driver is asked for each
/// before it is called at all, since the bindings end the process at a missing one.
pub(super) const SYMBOLS: [&str; 42] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuLaunchKernelEx",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventElapsedTime",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamUpdateCaptureDependencies",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
];

/// The symbols that the driver lacks. Only after `library::open(Kind::Driver)` has succeeded.
pub(super) fn lacking() -> Vec<&'static str> {
    SYMBOLS.into_iter().filter(|name| symbol::<unsafe extern "C" fn()>(name).is_none()).collect()
}

/// A symbol of the driver by name.
fn symbol<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: the library is open; the type is the caller's claim, made beside the CUDA header's declaration.
    unsafe { sys::culib().get::<F>(name.as_bytes()).ok().map(|symbol| *symbol) }
}

/// What a call returned, as a result.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        refused => Err(CudaError::Driver { call, code: refused as u32, text: text(refused) }),
    }
}

/// The driver's name and sentence for a reason.
fn text(result: CUresult) -> String {
    let ask = |function: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a string that lives as long as the process, or refuses.
        let found = unsafe { function(result, &raw mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
        // SAFETY: as above.
        if found { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { String::new() }
    };
    format!("{} ({})", ask(sys::cuGetErrorName), ask(sys::cuGetErrorString))
}

/// A function of the driver that the bindings do not reach in all drivers: they ask for the name that the newest ones
/// have, and would end the process on an older one.
struct Older<F> {
    call: &'static str,
    found: OnceLock<Option<F>>,
}

impl<F: Copy> Older<F> {
    const fn new(call: &'static str) -> Self {
        Self { call, found: OnceLock::new() }
    }

    fn get(&self) -> Result<F, CudaError> {
        let missing = || CudaError::Driver {
            call: self.call,
            code: CUresult::CUDA_ERROR_NOT_FOUND as u32,
            text: "the driver has no such function".into(),
        };
        self.found.get_or_init(|| symbol(self.call)).ok_or_else(missing)
    }
}

/// Milliseconds between two events.
pub(super) fn elapsed_ms(begin: CUevent, end: CUevent) -> Result<f32, CudaError> {
    type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    static FUNCTION: Older<ElapsedTime> = Older::new("cuEventElapsedTime");
    let function = FUNCTION.get()?;
    let mut ms = 0.0;
    // SAFETY: the function's type is its declaration in cuda.h; both events were recorded.
    check(FUNCTION.call, unsafe { function(&raw mut ms, begin, end) })?;
    Ok(ms)
}

/// What the work that is captured next on a stream would wait for.
pub(super) fn capture_dependencies(stream: CUstream) -> Result<Vec<CUgraphNode>, CudaError> {
    type CaptureInfo = unsafe extern "C" fn(
        CUstream,
        *mut CUstreamCaptureStatus,
        *mut u64,
        *mut CUgraph,
        *mut *const CUgraphNode,
        *mut usize,
    ) -> CUresult;
    static FUNCTION: Older<CaptureInfo> = Older::new("cuStreamGetCaptureInfo_v2");
    let function = FUNCTION.get()?;
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, std::ptr::null_mut());
    let (mut nodes, mut count) = (std::ptr::null(), 0);
    // SAFETY: the function's type is its declaration in cuda.h; a capture is open on the stream.
    let asked = unsafe {
        function(stream, &raw mut status, &raw mut id, &raw mut graph, &raw mut nodes, &raw mut count)
    };
    check(FUNCTION.call, asked)?;
    // SAFETY: the driver's array has so many nodes, and lasts until the next call on the stream.
    Ok(if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec() })
}

/// Lets the work that is captured next on a stream wait for these nodes and for nothing else.
pub(super) fn set_capture_dependencies(stream: CUstream, nodes: &mut [CUgraphNode]) -> Result<(), CudaError> {
    type Update = unsafe extern "C" fn(CUstream, *mut CUgraphNode, usize, u32) -> CUresult;
    static FUNCTION: Older<Update> = Older::new("cuStreamUpdateCaptureDependencies");
    let set = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
    let function = FUNCTION.get()?;
    // SAFETY: the function's type is its declaration in cuda.h before CUDA 13, which drivers keep; a capture is open on
    // the stream, and the nodes are of its graph.
    check(FUNCTION.call, unsafe { function(stream, nodes.as_mut_ptr(), nodes.len(), set) })
}
