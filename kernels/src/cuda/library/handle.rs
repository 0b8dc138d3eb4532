//! An opened library: by file or by name, with what it needs beside it, under the name that cudarc looks for.

#![allow(unsafe_code)] // opening a library runs its initialisers; a function's type is not written in it

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

use super::alias::{self, Alias};
use super::loader::{Opening, load};
use super::{Kind, Version};

/// A library that stays open as long as this lives.
#[derive(Debug)]
pub(super) struct Handle {
    kind: Kind,
    library: Library,
    _builtins: Option<Library>,
    _alias: Option<Alias>,
}

impl Handle {
    /// Opens a file, or what the loader finds under a bare name.
    pub fn open(kind: Kind, file: &Path) -> Result<Self, Opening> {
        let bare = file.parent().is_none_or(|folder| folder.as_os_str().is_empty());
        if !bare && file.symlink_metadata().is_err() {
            return Err(Opening::Absent);
        }
        // NVRTC opens its built-in functions by name in the middle of a compilation: they go first.
        let mut builtins = if bare { None } else { builtins(kind, file)? };
        let library = load(file)?;
        let path = path(&library, kind);
        let refuse = |why: String| Opening::Refused { path: path.clone(), why };
        if address(&library, kind.symbol()).is_none() {
            return Err(refuse(format!("it has no function {}", kind.symbol())));
        }
        if let (true, Some(path)) = (bare, &path) {
            builtins = self::builtins(kind, path)?;
        }
        let alias = named(kind, &library, path.as_deref().unwrap_or(file)).map_err(refuse)?;
        Ok(Self { kind, library, _builtins: builtins, _alias: alias })
    }

    /// The file that the loader took, if it says so.
    pub fn path(&self) -> Option<PathBuf> {
        path(&self.library, self.kind)
    }

    /// What the library says of itself.
    pub fn version(&self) -> Option<Version> {
        match self.kind {
            Kind::Driver => self.number("cuDriverGetVersion").map(|n| (n / 1000, n % 1000 / 10)),
            Kind::Nvrtc => self.nvrtc_version(),
            Kind::CublasLt => self.cublaslt_version(),
            // 2.8.4 is 2804, 2.9.6 is 20906
            Kind::Nccl => self.number("ncclGetVersion").map(|n| {
                let thousand = if n < 10000 { 1000 } else { 10000 };
                (n / thousand, n % thousand / 100)
            }),
            Kind::Nvml => None,
        }
    }

    /// A function of the library; `None` if it has none of that name.
    ///
    /// # Safety
    /// `F` is the type of a pointer to that function.
    unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller's promise.
        unsafe { self.library.get::<F>(name) }.ok().map(|function| *function)
    }

    /// What `function(&mut number)` gives, if it returns 0.
    fn number(&self, function: &str) -> Option<c_int> {
        type Function = unsafe extern "C" fn(*mut c_int) -> c_int;
        // SAFETY: so `cuDriverGetVersion` and `ncclGetVersion` are declared, the only ones asked for here.
        let function = unsafe { self.function::<Function>(function) }?;
        let mut number = 0;
        // SAFETY: neither needs to be initialised first; the number outlives the call.
        (unsafe { function(&raw mut number) } == 0).then_some(number)
    }

    fn nvrtc_version(&self) -> Option<Version> {
        type Function = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        // SAFETY: so it is declared in nvrtc.h.
        let function = unsafe { self.function::<Function>("nvrtcVersion") }?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both numbers outlive the call.
        (unsafe { function(&raw mut major, &raw mut minor) } == 0).then_some((major, minor))
    }

    fn cublaslt_version(&self) -> Option<Version> {
        type Function = unsafe extern "C" fn() -> usize;
        // SAFETY: so it is declared in cublasLt.h.
        let function = unsafe { self.function::<Function>("cublasLtGetVersion") }?;
        // SAFETY: it takes nothing and needs no context.
        let number = unsafe { function() } as i32; // 13.1.0 is 130100
        Some((number / 10000, number % 10000 / 100))
    }
}

impl Kind {
    /// A function that the library has always had.
    fn symbol(self) -> &'static str {
        match self {
            Self::Driver => "cuInit",
            Self::Nvrtc => "nvrtcVersion",
            Self::CublasLt => "cublasLtGetVersion",
            Self::Nccl => "ncclGetVersion",
            Self::Nvml => "nvmlInit_v2",
        }
    }

    /// The names that cudarc gives the loader, in its order; none where cudarc is not what opens it.
    fn cudarc_names(self) -> Vec<String> {
        let stems: &[&str] = match self {
            Self::Driver => &["cuda", "nvcuda"],
            Self::Nvrtc => &["nvrtc"],
            Self::CublasLt => &["cublasLt"],
            Self::Nccl => &["nccl"],
            Self::Nvml => &[],
        };
        stems.iter().flat_map(|stem| cudarc::get_lib_name_candidates(stem)).collect()
    }
}

/// Sees to it that cudarc finds this very library. cudarc takes the first of its names that the loader knows;
/// where that is another library, or none, the library is given cudarc's first name as well.
fn named(kind: Kind, library: &Library, path: &Path) -> Result<Option<Alias>, String> {
    let Some(first) = kind.cudarc_names().into_iter().next() else { return Ok(None) };
    if cudarc_finds(kind, library) {
        return Ok(None);
    }
    let alias = alias::alias(&first, path)?;
    if cudarc_finds(kind, library) {
        return Ok(Some(alias));
    }
    Err(format!("the loader does not know it as {first}"))
}

fn cudarc_finds(kind: Kind, library: &Library) -> bool {
    let taken = kind.cudarc_names().iter().find_map(|name| load(Path::new(name)).ok());
    taken.is_some_and(|taken| address(&taken, kind.symbol()) == address(library, kind.symbol()))
}

/// NVRTC's built-in functions, in a file of their own beside it.
fn builtins(kind: Kind, nvrtc: &Path) -> Result<Option<Library>, Opening> {
    let name = nvrtc.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (Kind::Nvrtc, Some(folder)) = (kind, nvrtc.parent()) else { return Ok(None) };
    // libnvrtc.so.13: libnvrtc-builtins.so.13.0; nvrtc64_130_0.dll: nvrtc-builtins64_130.dll
    let prefix = match name.strip_prefix("nvrtc64_") {
        Some(rest) => format!("nvrtc-builtins64_{}", rest.split('_').next().unwrap_or_default()),
        None => name.split(".so").last().map_or_else(String::new, |n| format!("libnvrtc-builtins.so{n}")),
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let beside = entries.map(|entry| entry.path()).find(|file| {
        file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix))
    });
    beside.map(|file| load(&file)).transpose()
}

fn address(library: &Library, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: the symbol is not called, only its address is taken.
    unsafe { library.get::<unsafe extern "C" fn()>(symbol).ok()?.try_as_raw_ptr() }
}

/// The file that a library was loaded from.
#[cfg(unix)]
fn path(library: &Library, kind: Kind) -> Option<PathBuf> {
    use std::ffi::{CStr, OsStr, c_char};
    use std::os::unix::ffi::OsStrExt;

    /// `Dl_info` of dlfcn.h.
    #[repr(C)]
    struct Info {
        file: *const c_char,
        base: *mut c_void,
        name: *const c_char,
        address: *mut c_void,
    }
    unsafe extern "C" {
        fn dladdr(address: *const c_void, info: *mut Info) -> c_int;
    }
    let address = address(library, kind.symbol())?;
    let null: *mut c_void = std::ptr::null_mut();
    let mut info = Info { file: null.cast(), base: null, name: null.cast(), address: null };
    // SAFETY: any address may be asked about; the answer is written to `info`.
    if unsafe { dladdr(address, &raw mut info) } == 0 || info.file.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as the library is open.
    let file = unsafe { CStr::from_ptr(info.file) };
    Some(PathBuf::from(OsStr::from_bytes(file.to_bytes())))
}

/// The file that a library was loaded from.
#[cfg(windows)]
fn path(library: &Library, kind: Kind) -> Option<PathBuf> {
    use std::os::windows::ffi::OsStringExt;

    const FROM_ADDRESS: u32 = 4; // of libloaderapi.h
    const UNCHANGED_COUNT: u32 = 2;
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetModuleHandleExW(flags: u32, name: *const u16, module: *mut *mut c_void) -> c_int;
        fn GetModuleFileNameW(module: *mut c_void, name: *mut u16, size: u32) -> u32;
    }
    let address = address(library, kind.symbol())?;
    let (mut module, mut name) = (std::ptr::null_mut(), [0; 1024]);
    // SAFETY: with these flags the name is an address, and the module's count is left alone.
    let known = unsafe {
        GetModuleHandleExW(FROM_ADDRESS | UNCHANGED_COUNT, address.cast_const().cast(), &raw mut module)
    };
    // SAFETY: the module is open, and the system writes no more than the size that it is given.
    let length = unsafe { GetModuleFileNameW(module, name.as_mut_ptr(), name.len() as u32) } as usize;
    let whole = known != 0 && (1..name.len()).contains(&length);
    whole.then(|| PathBuf::from(std::ffi::OsString::from_wide(&name[..length])))
}
