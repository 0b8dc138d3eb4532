//! A stand-in for NVIDIA's driver, for the tests of machines that are not at hand: a Tesla T4 as far as it
//! can be asked about; nothing can be done on it. The tests compile it into a `libcuda.so.1`.
//!
//! Variants, by `--cfg`:
//! - none: a driver of CUDA 13.0
//! - `old`: of CUDA 12.4, without what is newer than CUDA 12.0
//! - `ancient`: of CUDA 11.4, without the same
//! - `empty`: no card
//! - `bare`: nothing but `cuInit`

#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// CUresult of cuda.h.
type Status = c_int;
const SUCCESS: Status = 0;
const INVALID_DEVICE: Status = 101;
const NO_DEVICE: Status = 100;
const NOT_SUPPORTED: Status = 801;

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> Status {
    if cfg!(empty) { NO_DEVICE } else { SUCCESS }
}

#[cfg(not(bare))]
mod card {
    use super::*;

    const BYTES: usize = 15_655_829_504;

    /// Writes an answer.
    fn answer<T>(to: *mut T, value: T) -> Status {
        // SAFETY: the caller of a driver's function hands in a place for its answer.
        unsafe { to.write(value) };
        SUCCESS
    }

    fn text(to: *mut c_char, length: c_int, text: &str) -> Status {
        let bytes = text.bytes().take(length as usize - 1).chain([0]);
        // SAFETY: the caller hands in room for `length` characters, and no more are written.
        bytes.enumerate().for_each(|(n, byte)| unsafe { to.add(n).write(byte as c_char) });
        SUCCESS
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
        let old = if cfg!(old) { 12040 } else { 13000 };
        answer(version, if cfg!(ancient) { 11040 } else { old })
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
        if cfg!(empty) { NO_DEVICE } else { answer(count, 1) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
        if cfg!(empty) || ordinal != 0 { INVALID_DEVICE } else { answer(device, 0) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) -> Status {
        text(name, length, "Tesla T4")
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceGetPCIBusId(bus: *mut c_char, length: c_int, _device: c_int) -> Status {
        text(bus, length, "0000:00:1f.7")
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], _device: c_int) -> Status {
        answer(uuid, [0x42; 16])
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: c_int) -> Status {
        answer(uuid, [0x42; 16])
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> Status {
        answer(bytes, BYTES)
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
        answer(free, BYTES);
        answer(total, BYTES)
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) -> Status {
        let known = match attribute {
            1..=3 => 1024,       // threads a block, and its x and y
            4 => 64,             // its z
            5 => i32::MAX,       // blocks a grid: x
            6 | 7 => 65535,      // y, z
            8 => 48 << 10,       // shared bytes a block
            10 => 32,            // threads a warp
            12 | 82 => 65536,    // registers a block, an SM
            13 => 1_590_000,     // clock in kHz
            16 => 40,            // SMs
            36 => 5_001_000,     // memory clock in kHz
            37 => 256,           // memory bus, bits
            38 => 4 << 20,       // bytes of the second-level cache
            39 => 1024,          // threads an SM
            31 | 41 | 83 => 1,   // concurrent kernels, unified addresses, managed memory
            50 => 0x1f,          // place on the bus
            75 => 7,             // compute capability, major
            76 => 5,             // minor
            81 | 97 => 64 << 10, // shared bytes an SM; a block, if asked for
            95 | 115 => 1,       // cooperative launches; memory pools
            106 => 16,           // blocks an SM
            _ => 0,
        };
        answer(value, known)
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) -> Status {
        answer(context, std::ptr::without_provenance_mut(0x1000))
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> Status {
        SUCCESS
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuCtxSetCurrent(_context: *mut c_void) -> Status {
        SUCCESS
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> Status {
        answer(context, std::ptr::without_provenance_mut(0x1000))
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Status {
        answer(device, 0)
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuCtxSynchronize() -> Status {
        SUCCESS
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuGetErrorName(status: Status, name: *mut *const c_char) -> Status {
        let known = match status {
            SUCCESS => c"CUDA_SUCCESS",
            NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
            INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
            NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
            _ => c"CUDA_ERROR_UNKNOWN",
        };
        answer(name, known.as_ptr())
    }

    #[unsafe(no_mangle)]
    extern "C" fn cuGetErrorString(status: Status, words: *mut *const c_char) -> Status {
        let known = match status {
            SUCCESS => c"no error",
            NO_DEVICE => c"no CUDA-capable device is detected",
            INVALID_DEVICE => c"invalid device ordinal",
            NOT_SUPPORTED => c"operation not supported",
            _ => c"unknown error",
        };
        answer(words, known.as_ptr())
    }
}

/// Functions that are there and refuse, whatever they are given: by the C calling convention a function may
/// be handed more than it looks at.
macro_rules! refuse {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> Status {
                NOT_SUPPORTED
            }
        )*
    };
}

#[cfg(not(bare))]
refuse! {
    cuCtxCreate_v2 cuCtxCreate_v3 cuCtxDestroy_v2 cuCtxGetApiVersion cuCtxGetLimit cuCtxSetLimit
    cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSetCacheConfig cuCtxGetStreamPriorityRange
    cuDeviceCanAccessPeer cuDeviceGetByPCIBusId cuDeviceGetDefaultMemPool cuDeviceGetMemPool
    cuDevicePrimaryCtxGetState cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuDeviceSetMemPool
    cuEventCreate cuEventDestroy_v2 cuEventElapsedTime cuEventQuery cuEventRecord cuEventSynchronize
    cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig cuGetExportTable cuGetProcAddress
    cuGetProcAddress_v2 cuGraphDestroy cuGraphExecDestroy cuGraphInstantiateWithFlags cuGraphLaunch
    cuGraphUpload cuLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx cuLibraryGetKernel
    cuLibraryGetModule cuLibraryLoadData cuLibraryUnload cuLinkAddData_v2 cuLinkComplete cuLinkCreate_v2
    cuLinkDestroy cuMemAllocAsync cuMemAllocHost_v2 cuMemAllocManaged cuMemAlloc_v2 cuMemFreeAsync
    cuMemFreeHost cuMemFree_v2 cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemHostRegister_v2
    cuMemHostUnregister cuMemPoolSetAttribute cuMemPoolTrimTo cuMemcpyAsync cuMemcpyDtoDAsync_v2
    cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2
    cuMemcpyPeerAsync cuMemsetD16Async cuMemsetD32Async cuMemsetD32_v2 cuMemsetD8Async cuMemsetD8_v2
    cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleLoad cuModuleLoadData cuModuleLoadDataEx
    cuModuleUnload cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
    cuPointerGetAttribute cuStreamBeginCapture_v2 cuStreamCreate cuStreamCreateWithPriority
    cuStreamDestroy_v2 cuStreamEndCapture cuStreamGetCaptureInfo_v2 cuStreamIsCapturing cuStreamQuery
    cuStreamSynchronize cuStreamUpdateCaptureDependencies cuStreamWaitEvent
    cuThreadExchangeStreamCaptureMode
}

// Newer than CUDA 12.0.
#[cfg(not(any(bare, old, ancient)))]
refuse! {
    cuCtxCreate_v4 cuCtxGetDevice_v2 cuCtxRecordEvent cuCtxSynchronize_v2 cuEventElapsedTime_v2
    cuFuncGetName cuFuncGetParamInfo cuGraphAddNode cuGraphInstantiate cuGraphKernelNodeGetParams_v2
    cuGreenCtxCreate cuKernelGetName cuLibraryEnumerateKernels cuLibraryGetKernelCount cuMemAdvise_v2
    cuMemPrefetchAsync_v2 cuMemcpyBatchAsync cuStreamBeginCaptureToGraph cuStreamGetCaptureInfo_v3
    cuStreamGetDevice
}
