//! What Windows says of this machine, and whether it is Windows or Wine that says it.

#![allow(unsafe_code)] // the system's own functions: each answers into memory that is counted out to it

use std::ffi::{CStr, c_char};

use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Registry::{HKEY_LOCAL_MACHINE, RRF_RT_REG_SZ, RegGetValueW};
use windows_sys::Win32::System::SystemInformation::{
    GetLogicalProcessorInformation, GlobalMemoryStatusEx, MEMORYSTATUSEX, RelationCache,
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION,
};
use windows_sys::core::w;

/// Most characters of a processor's name.
const NAME: usize = 256;

/// The processor's own name, as the registry keeps it.
pub(super) fn cpu_name() -> Option<String> {
    let key = w!(r"HARDWARE\DESCRIPTION\System\CentralProcessor\0");
    let mut name = [0_u16; NAME];
    let mut bytes = size_of_val(&name) as u32;
    // SAFETY: both names end in a zero, and at most `bytes` bytes of `name` are written.
    let status = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key,
            w!("ProcessorNameString"),
            RRF_RT_REG_SZ,
            std::ptr::null_mut(),
            name.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    let end = name.iter().position(|unit| *unit == 0)?;
    (status == 0).then(|| String::from_utf16_lossy(&name[..end]).trim().to_owned())
}

/// Bytes of the largest cache.
pub(super) fn cache_bytes() -> Option<u64> {
    let mut bytes = 0;
    // SAFETY: without a buffer it answers how many bytes it needs.
    unsafe { GetLogicalProcessorInformation(std::ptr::null_mut(), &raw mut bytes) };
    let one = size_of::<SYSTEM_LOGICAL_PROCESSOR_INFORMATION>();
    let mut all = vec![SYSTEM_LOGICAL_PROCESSOR_INFORMATION::default(); bytes as usize / one];
    // SAFETY: `all` has the bytes that were asked for.
    let done = unsafe { GetLogicalProcessorInformation(all.as_mut_ptr(), &raw mut bytes) };
    let caches = all.iter().filter(|entry| done != 0 && entry.Relationship == RelationCache);
    // SAFETY: of a cache the field `Cache` is the one that is filled in.
    caches.map(|entry| u64::from(unsafe { entry.Anonymous.Cache.Size })).max()
}

/// Bytes of main memory.
pub(super) fn memory_bytes() -> Option<u64> {
    let mut status =
        MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..MEMORYSTATUSEX::default() };
    // SAFETY: the structure says its own length.
    let done = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    (done != 0).then_some(status.ullTotalPhys)
}

/// The version of Wine, whose ntdll.dll has a function more than that of Windows.
pub(super) fn wine() -> Option<String> {
    // SAFETY: ntdll.dll is in every process and stays there; both names end in a zero.
    let version =
        unsafe { GetProcAddress(GetModuleHandleW(w!("ntdll.dll")), c"wine_get_version".as_ptr().cast()) }?;
    // SAFETY: the function of this name takes nothing and returns a text that lives as long as the process.
    let version = unsafe {
        let version: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(version);
        CStr::from_ptr(version())
    };
    Some(version.to_string_lossy().into_owned())
}
