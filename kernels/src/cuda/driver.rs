//! The driver's calls, each checked.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::{self, CUevent, CUresult};

use super::error::CudaError;

/// Every symbol that this room calls: all of them are in drivers since CUDA 12.0. A driver is asked for each
/// before it is called at all, since the bindings end the process at a missing one.
pub(super) const SYMBOLS: [&str; 40] = [
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

/// Milliseconds between two events, through the symbol that drivers before 12.8 have, too; the bindings' own
/// would end the process on them.
pub(super) fn elapsed_ms(begin: CUevent, end: CUevent) -> Result<f32, CudaError> {
    type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    static FUNCTION: std::sync::OnceLock<Option<ElapsedTime>> = std::sync::OnceLock::new();
    let call = "cuEventElapsedTime";
    let Some(function) = FUNCTION.get_or_init(|| symbol(call)) else {
        return Err(CudaError::Driver { call, code: 500, text: "the driver has no such function".into() });
    };
    let mut ms = 0.0;
    // SAFETY: the function's type is its declaration in cuda.h; both events were recorded.
    check(call, unsafe { function(&raw mut ms, begin, end) })?;
    Ok(ms)
}
