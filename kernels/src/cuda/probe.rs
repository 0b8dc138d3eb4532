//! The one door to a GPU: [`Gpu::probe`] opens it, or says in a sentence what is missing.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute as Attribute};

use super::blas::Blas;
use super::driver::{check, lacking};
use super::error::CudaError;
use super::library::{self, Kind};
use super::memory::{Allocation, Pool};
use super::module::Function;
use super::order::Stream;
use super::plan::fault::Faults;

/// The oldest driver whose symbols are used, as the driver counts: 1000 * major + 10 * minor.
const OLDEST: i32 = 12000;

/// Why there is no GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoGpu {
    /// No driver library.
    NoDriver(library::NotFound),
    /// The driver is older than what is needed, or lacks functions that its version should have.
    OldDriver {
        /// Its CUDA version, if it tells.
        version: Option<(i32, i32)>,
        /// Functions that it lacks.
        lacks: Vec<&'static str>,
    },
    /// The driver answers, and knows of fewer devices.
    NoDevice {
        /// The device that was asked for.
        asked: usize,
        /// How many there are.
        count: usize,
    },
    /// The driver does not start.
    Refused(CudaError),
    /// The bindings ended the probe.
    Broken(String),
}

impl fmt::Display for NoGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(reason) => reason.fmt(f),
            Self::OldDriver { version, lacks } => {
                let version = version.map_or("of an unknown version".into(), |(major, minor)| {
                    format!("for CUDA {major}.{minor}")
                });
                write!(
                    f,
                    "the NVIDIA driver is too old: expected one for CUDA 12.0 or later, found one {version}"
                )?;
                match lacks.split_first() {
                    None => Ok(()),
                    Some((first, [])) => write!(f, " (it lacks {first})"),
                    Some((first, rest)) => write!(f, " (it lacks {first} and {} more functions)", rest.len()),
                }
            }
            Self::NoDevice { count: 0, .. } => {
                f.write_str("the NVIDIA driver finds no device that it can use")
            }
            Self::NoDevice { asked, count } => {
                write!(f, "cuda:{asked} is not there: the driver knows {count} device(s), counted from 0")
            }
            Self::Refused(error) => write!(f, "the NVIDIA driver does not start: {error}"),
            Self::Broken(what) => write!(f, "the NVIDIA driver cannot be used: {what}"),
        }
    }
}

impl std::error::Error for NoGpu {}

/// What a card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its number, from 0.
    pub ordinal: usize,
    /// The driver's name for it.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub sms: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: usize,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Bytes of shared memory that a block may ask for.
    pub shared_bytes: usize,
    /// Threads a block may have.
    pub max_threads: u32,
    /// The CUDA version that the driver speaks.
    pub driver: (i32, i32),
    /// Where it sits, as NVML knows it: `0000:3b:00.0`.
    pub pci_bus: String,
}

impl Card {
    /// `sm_90`.
    pub fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }
}

/// A GPU: a context on one card, its memory pool, and the stream that work runs on. Clones share them.
///
/// Threads may share it: each run of a plan is queued as a whole. What a lane did wrong comes up in the thread that
/// waits next, whichever of them ran the plan; threads whose errors should stay theirs open a GPU each.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub card: Card,
    pub pool: Arc<Pool>,
    pub stream: Arc<Stream>,
    pub launches: AtomicU64,
    pub read: AtomicU64,       // bytes, by steps of plans
    pub written: AtomicU64,    // bytes, by steps of plans
    pub uploaded: AtomicU64,   // bytes
    pub downloaded: AtomicU64, // bytes
    pub made: Instant,
    pub captured: Mutex<HashMap<usize, Vec<Function>>>, // kernels launched while a graph is captured, by stream
    pub blas: OnceLock<Result<Blas, CudaError>>,
    pub scratch: Mutex<Option<Arc<Allocation>>>, // shared by all plans
    pub queueing: Mutex<()>, // held while a run is queued: steps of two runs would share the scratch memory
    pub faults: Faults,
}

/// The context that is current on a thread is the driver's state; remembered, so that it is set when it changes.
#[derive(Debug)]
pub(super) struct Context {
    handle: CUcontext,
    device: CUdevice,
}

// SAFETY: a context's handle is a name that the driver accepts from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

thread_local! {
    static CURRENT: Cell<CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

impl Context {
    /// Makes the context current on this thread.
    pub fn enter(&self) -> Result<(), CudaError> {
        if CURRENT.get() != self.handle {
            // SAFETY: the handle was retained and is released only when the last user is gone.
            check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })?;
            CURRENT.set(self.handle);
        }
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null_mut());
        // SAFETY: retained once, released once. An error at the very end has nobody to go to.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Gpu {
    /// The first card.
    ///
    /// # Errors
    /// What is missing, in one sentence. Never panics.
    pub fn probe() -> Result<Self, NoGpu> {
        Self::nth(0)
    }

    /// Card number `ordinal`, as the driver counts them (`CUDA_VISIBLE_DEVICES` is respected).
    ///
    /// # Errors
    /// As for [`Gpu::probe`].
    pub fn nth(ordinal: usize) -> Result<Self, NoGpu> {
        guarded(|| {
            let (device, version) = find(ordinal)?;
            start(ordinal, device, version).map_err(NoGpu::Refused)
        })
    }

    /// What card number `ordinal` is, without taking any of it: no context, no memory.
    ///
    /// # Errors
    /// As for [`Gpu::probe`].
    pub fn look(ordinal: usize) -> Result<Card, NoGpu> {
        guarded(|| {
            let (device, version) = find(ordinal)?;
            card(ordinal, device, version).map_err(NoGpu::Refused)
        })
    }

    /// What the card is.
    pub fn card(&self) -> &Card {
        &self.inner.card
    }

    /// The stream that work runs on when no other is named.
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// The library of matrix products, opened when it is first needed.
    pub(super) fn blas(&self) -> Result<&Blas, CudaError> {
        self.inner.blas.get_or_init(|| Blas::open(self)).as_ref().map_err(Clone::clone)
    }

    /// Kernels launched through this GPU and its clones, captured ones counted when they are captured.
    pub fn launches(&self) -> u64 {
        self.inner.launches.load(Relaxed)
    }
}

/// Opens the driver and asks it something. The bindings panic where a symbol is missing; every one is asked for
/// first, and this is the net below.
fn guarded<T>(ask: impl FnOnce() -> Result<T, NoGpu> + std::panic::UnwindSafe) -> Result<T, NoGpu> {
    library::open(Kind::Driver).map_err(NoGpu::NoDriver)?;
    std::panic::catch_unwind(ask).unwrap_or_else(|payload| {
        let said = payload.downcast_ref::<String>().cloned();
        Err(NoGpu::Broken(said.unwrap_or_else(|| "its library does not answer".into())))
    })
}

/// Starts the driver and finds a device; the driver's version with it.
fn find(ordinal: usize) -> Result<(CUdevice, (i32, i32)), NoGpu> {
    let lacks = lacking();
    let version = if lacks.contains(&"cuDriverGetVersion") { None } else { driver_version() };
    if !lacks.is_empty() || version.is_some_and(|(major, minor)| major * 1000 + minor * 10 < OLDEST) {
        return Err(NoGpu::OldDriver { version, lacks });
    }
    // SAFETY: the symbol is there; takes a number, touches no memory of ours.
    match check("cuInit", unsafe { sys::cuInit(0) }) {
        Err(CudaError::Driver { code: 100, .. }) => return Err(NoGpu::NoDevice { asked: ordinal, count: 0 }),
        other => other.map_err(NoGpu::Refused)?,
    }
    let count = device_count().map_err(NoGpu::Refused)?;
    if ordinal >= count {
        return Err(NoGpu::NoDevice { asked: ordinal, count });
    }
    let mut device = 0;
    // SAFETY: the driver writes one handle.
    let found = check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal as c_int) });
    found.map_err(NoGpu::Refused)?;
    Ok((device, version.unwrap_or_default()))
}

fn driver_version() -> Option<(i32, i32)> {
    let mut version = 0;
    // SAFETY: the driver writes one number.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) }).ok()?;
    Some((version / 1000, version % 1000 / 10))
}

fn device_count() -> Result<usize, CudaError> {
    let mut count = 0;
    // SAFETY: the driver writes one number.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn start(ordinal: usize, device: CUdevice, driver: (i32, i32)) -> Result<Gpu, CudaError> {
    let card = card(ordinal, device, driver)?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: the driver writes one handle, which `Context` releases.
    check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut handle, device) })?;
    let context = Arc::new(Context { handle, device });
    context.enter()?;
    let stream = Arc::new(Stream::new(&context)?);
    let pool = Arc::new(Pool::new(context, Arc::clone(&stream)));
    Ok(Gpu {
        inner: Arc::new(Inner {
            card,
            pool,
            stream,
            launches: AtomicU64::new(0),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            uploaded: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
            made: Instant::now(),
            captured: Mutex::default(),
            blas: OnceLock::new(),
            scratch: Mutex::default(),
            queueing: Mutex::default(),
            faults: Faults::default(),
        }),
    })
}

fn card(ordinal: usize, device: CUdevice, driver: (i32, i32)) -> Result<Card, CudaError> {
    let attribute = |which: Attribute| {
        let mut value = 0;
        // SAFETY: the driver writes one number.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) })?;
        Ok::<i32, CudaError>(value)
    };
    let size = |which| attribute(which).map(|value| usize::try_from(value).unwrap_or(0));
    let mut memory_bytes = 0;
    // SAFETY: the driver writes one number.
    check("cuDeviceTotalMem_v2", unsafe { sys::cuDeviceTotalMem_v2(&raw mut memory_bytes, device) })?;
    Ok(Card {
        ordinal,
        name: describe("cuDeviceGetName", |text, length| {
            // SAFETY: the driver writes at most `length` bytes, the last one zero.
            unsafe { sys::cuDeviceGetName(text, length, device) }
        })?,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sms: size(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        l2_bytes: size(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        memory_bytes,
        shared_bytes: size(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        max_threads: size(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)? as u32,
        driver,
        pci_bus: describe("cuDeviceGetPCIBusId", |text, length| {
            // SAFETY: as above.
            unsafe { sys::cuDeviceGetPCIBusId(text, length, device) }
        })?,
    })
}

/// A text that the driver writes.
fn describe(
    call: &'static str,
    write: impl FnOnce(*mut std::ffi::c_char, c_int) -> sys::CUresult,
) -> Result<String, CudaError> {
    let mut text = [0u8; 256];
    check(call, write(text.as_mut_ptr().cast(), text.len() as c_int - 1))?;
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    Ok(text.to_string_lossy().trim().to_owned())
}
