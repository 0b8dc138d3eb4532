//! The cards that a driver lists. Each function is looked up by its name, so that one which an old or broken
//! driver lacks is a sentence; cudarc would panic.

#![allow(unsafe_code)] // the driver's functions

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::fmt;

use super::Found;

/// A card, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its name: `Tesla T4`.
    pub name: String,
    /// Compute capability: major, minor.
    pub capability: (i32, i32),
    /// Streaming multiprocessors.
    pub processors: i32,
    /// Bytes of its memory.
    pub memory_bytes: usize,
    /// Its place on the bus, by which NVML knows it too; empty if the driver does not say.
    pub bus: String,
}

type Status = c_int;

/// The cards that the driver lists, or in a sentence why it lists none.
pub fn cards(driver: &Found) -> Result<Vec<Card>, String> {
    type Init = unsafe extern "C" fn(c_uint) -> Status;
    type Count = unsafe extern "C" fn(*mut c_int) -> Status;

    let init: Init = function(driver, "cuInit")?;
    // SAFETY: the driver's door, which may be called often and from any thread.
    answered("cuInit", unsafe { init(0) })?;
    let count: Count = function(driver, "cuDeviceGetCount")?;
    let mut cards = 0;
    // SAFETY: the driver is initialised; the number outlives the call.
    answered("cuDeviceGetCount", unsafe { count(&raw mut cards) })?;
    (0..cards).map(|ordinal| card(driver, ordinal)).collect()
}

fn card(driver: &Found, ordinal: c_int) -> Result<Card, String> {
    type Get = unsafe extern "C" fn(*mut c_int, c_int) -> Status;
    type Text = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status;
    type Bytes = unsafe extern "C" fn(*mut usize, c_int) -> Status;
    type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Status;
    const PROCESSORS: c_int = 16; // CUdevice_attribute of cuda.h
    const MAJOR: c_int = 75;
    const MINOR: c_int = 76;

    let get: Get = function(driver, "cuDeviceGet")?;
    let (mut device, mut memory_bytes) = (0, 0);
    // SAFETY: the driver is initialised; the number outlives the call.
    answered("cuDeviceGet", unsafe { get(&raw mut device, ordinal) })?;
    let total: Bytes = function(driver, "cuDeviceTotalMem_v2")?;
    // SAFETY: as above, for a device that the driver named.
    answered("cuDeviceTotalMem", unsafe { total(&raw mut memory_bytes, device) })?;
    let attribute: Attribute = function(driver, "cuDeviceGetAttribute")?;
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: as above.
        answered("cuDeviceGetAttribute", unsafe { attribute(&raw mut value, which, device) }).map(|()| value)
    };
    let text = |name| {
        let function: Text = function(driver, name)?;
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: the driver writes no more than the length that it is given, and ends it with a zero.
        answered(name, unsafe { function(text.as_mut_ptr(), 255, device) })?;
        // SAFETY: the last of the 256 is never written, so there is an end.
        Ok::<_, String>(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    };
    Ok(Card {
        name: text("cuDeviceGetName")?,
        capability: (attribute(MAJOR)?, attribute(MINOR)?),
        processors: attribute(PROCESSORS)?,
        memory_bytes,
        bus: text("cuDeviceGetPCIBusId").unwrap_or_default(),
    })
}

/// A function of the driver. `F` must be the type that cuda.h gives it, as it is everywhere in this file.
fn function<F: Copy>(driver: &Found, name: &str) -> Result<F, String> {
    // SAFETY: this file's promise.
    unsafe { driver.function(name) }
        .ok_or_else(|| format!("the NVIDIA driver has no function {name}: install it again"))
}

fn answered(function: &str, status: Status) -> Result<(), String> {
    let told = match status {
        0 => return Ok(()),
        34 => "this is the toolkit's stand-in for a driver, to link against",
        46 => "another process holds the card alone",
        100 => "there is no NVIDIA card",
        802 => "the machine is not ready: is its fabric manager running?",
        803 => "the driver's library and its kernel module differ: restart the machine",
        804 => "this driver cannot stand in for a newer one on this card",
        _ => "see CUresult in cuda.h",
    };
    Err(format!("the NVIDIA driver is there, but {function} returns {status}: {told}"))
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, capability: (major, minor), processors, memory_bytes, .. } = self;
        let gib = *memory_bytes as f64 / f64::from(1 << 30);
        write!(f, "{name}, compute capability {major}.{minor}, {processors} SMs, {gib:.1} GiB")
    }
}
