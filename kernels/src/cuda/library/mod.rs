//! Where CUDA's libraries are.
//!
//! Nothing of CUDA is linked. cudarc opens each library by its name at the first call and panics where there
//! is none, so [`open`] comes first: it looks wherever CUDA is usually put, opens what it finds for the life
//! of the process, and sees to it that cudarc's names lead to just that library. What is missing is reported in
//! one sentence, with the line that mends it.
//!
//! Looked at, in this order, until one can be used:
//! 1. what the environment names: `CUDA_HOME`, `CUDA_PATH`;
//! 2. the loader's own path (`LD_LIBRARY_PATH` and the system's folders; on Windows `PATH`);
//! 3. the toolkits of the system, newest first; for the driver's own libraries, where WSL, Colab and
//!    containers put them;
//! 4. the wheels of the Python on `PATH`, in the folders of CUDA 13 and of CUDA 12.
//!
//! A compiler or a library of matrix products that is newer than the driver's CUDA makes code that the
//! driver does not read: one with a higher major version is passed over.

mod alias;
mod handle;
mod loader;
mod python;
mod search;

use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use handle::Handle;

/// A library of CUDA that is opened when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The driver: contexts, memory, launches.
    Driver,
    /// The compiler of CUDA C++.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Collectives between GPUs.
    Nccl,
    /// The card's clocks, temperature and processes.
    Nvml,
}

/// A version: major, minor.
pub type Version = (i32, i32);

/// A library that was found and opened: its functions can be called.
#[derive(Debug)]
pub struct Found {
    /// Which one.
    pub kind: Kind,
    /// The file.
    pub path: PathBuf,
    /// Where it was found.
    pub place: Location,
    /// What it says of itself: the CUDA version of the driver, NVRTC and cuBLASLt, NCCL's own. `None` where
    /// the library does not say.
    pub version: Option<Version>,
    /// Those that came before it in the order and could not be used.
    pub passed_over: Vec<Refused>,
    _handle: Handle, // held open, never read
}

/// Where a library was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A toolkit that the environment names.
    Named {
        /// The variable.
        variable: &'static str,
        /// The folder that it names.
        root: PathBuf,
    },
    /// The loader's own path.
    Loader,
    /// A toolkit in its usual place.
    Toolkit {
        /// Its folder.
        root: PathBuf,
    },
    /// A folder that drivers are put into.
    Folder {
        /// The folder.
        folder: PathBuf,
    },
    /// The wheels of a Python.
    Wheel {
        /// Its program.
        python: PathBuf,
    },
}

/// A file that is there and is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The file, or the name that the loader was given.
    pub path: PathBuf,
    /// Why, in the loader's words or ours.
    pub why: String,
}

/// Why a library cannot be had: a sentence, and [`fix`](Self::fix).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotFound {
    /// Which library.
    pub kind: Kind,
    /// The places that were looked at.
    pub looked: Vec<String>,
    /// What was there and could not be used.
    pub refused: Vec<Refused>,
    /// The driver's CUDA version, if there is a driver that says so.
    pub driver: Option<Version>,
}

/// Opens a library for the life of the process. The answer, good or bad, is remembered.
pub fn open(kind: Kind) -> Result<&'static Found, NotFound> {
    static ANSWERS: [OnceLock<Result<Found, NotFound>>; 5] = [const { OnceLock::new() }; 5];
    let answer = ANSWERS[kind as usize].get_or_init(|| search::search(kind, driver_version(kind)));
    answer.as_ref().map_err(Clone::clone)
}

/// The driver's CUDA version, for the libraries that depend on it.
fn driver_version(kind: Kind) -> Option<Version> {
    if kind == Kind::Driver { None } else { open(Kind::Driver).ok()?.version }
}

impl Kind {
    /// Whether what it makes is read by the driver, so that it may not be newer than that.
    fn follows_driver(self) -> bool {
        matches!(self, Self::Nvrtc | Self::CublasLt)
    }

    /// File names, the newest first.
    fn names(self) -> &'static [&'static str] {
        if cfg!(windows) {
            match self {
                Self::Driver => &["nvcuda.dll"],
                Self::Nvrtc => &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
                Self::CublasLt => &["cublasLt64_13.dll", "cublasLt64_12.dll"],
                Self::Nccl => &[],
                Self::Nvml => &["nvml.dll"],
            }
        } else {
            match self {
                Self::Driver => &["libcuda.so.1", "libcuda.so"],
                Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
                Self::CublasLt => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
                Self::Nccl => &["libnccl.so.2", "libnccl.so"],
                Self::Nvml => &["libnvidia-ml.so.1", "libnvidia-ml.so"],
            }
        }
    }

    /// Why no file of any name would do on this system.
    fn impossible(self) -> Option<&'static str> {
        match self {
            _ if !cfg!(any(target_os = "linux", windows)) => Some("CUDA exists for Linux and Windows only"),
            Self::Nccl if cfg!(windows) => Some("NCCL exists for Linux only"),
            _ => None,
        }
    }
}

impl NotFound {
    /// What was looked for and where, or what was there and of no use.
    pub fn reason(&self) -> String {
        if let Some(why) = self.kind.impossible() {
            return why.into();
        }
        if self.refused.is_empty() {
            let names = self.kind.names().join(" or ");
            return format!("looked for {names} in {}", self.looked.join(", "));
        }
        let refused: Vec<String> = self.refused.iter().map(ToString::to_string).collect();
        refused.join("; ")
    }

    /// One line that mends it.
    pub fn fix(&self) -> String {
        if self.kind.impossible().is_some() {
            return "nothing to do: the CPU runs every challenge, and ranks are threads".into();
        }
        let wheel = match (self.kind, self.wheels()) {
            (Kind::Driver | Kind::Nvml, _) if cfg!(windows) => return "install NVIDIA's driver".into(),
            (Kind::Driver, _) => {
                return "install NVIDIA's driver; under WSL install the one for Windows".into();
            }
            (Kind::Nvml, _) => return "install NVIDIA's driver in full: NVML is a part of it".into(),
            (_, None) => return "update NVIDIA's driver to one of CUDA 12.0 or newer".into(),
            (Kind::Nvrtc, Some((12, minor))) => format!("nvidia-cuda-nvrtc-cu12==12.{minor}.*"),
            (Kind::Nvrtc, _) => "nvidia-cuda-nvrtc==13.0.*".into(),
            (Kind::CublasLt, Some((12, minor))) => format!("nvidia-cublas-cu12==12.{minor}.*"),
            (Kind::CublasLt, _) => "nvidia-cublas==13.0.*".into(),
            (Kind::Nccl, Some((12, _))) => "nvidia-nccl-cu12".into(),
            (Kind::Nccl, _) => "nvidia-nccl-cu13".into(),
        };
        format!("pip install {wheel}")
    }

    /// The CUDA version whose wheels fit the driver; `None` if the driver is older than all of them.
    fn wheels(&self) -> Option<Version> {
        match self.driver {
            None => Some((13, 0)),
            Some((12, 7)) => Some((12, 6)), // drivers of 12.7 exist, a toolkit does not
            Some((12, minor)) => Some((12, minor)),
            Some((major, _)) => (major > 12).then_some((13, 0)),
        }
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let that = if self.refused.is_empty() { "" } else { " that can be used" };
        write!(f, "no {}{that}: {}", self.kind, self.reason())
    }
}

impl std::error::Error for NotFound {}

impl fmt::Display for Refused {
    /// The file and the reason; the loader's words often name the file already, and better.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        let bare = !path.contains(std::path::MAIN_SEPARATOR);
        if self.why.starts_with(&path) || bare && self.why.contains(&path) {
            return f.write_str(&self.why);
        }
        write!(f, "{path}: {}", self.why)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named { variable, root } => write!(f, "{variable}, {}", root.display()),
            Self::Loader => f.write_str("the loader's path"),
            Self::Toolkit { root } => write!(f, "the CUDA toolkit at {}", root.display()),
            Self::Folder { folder } => write!(f, "{}", folder.display()),
            Self::Wheel { python } => write!(f, "the wheels of {}", python.display()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "NVIDIA driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Nccl => "NCCL",
            Self::Nvml => "NVML",
        })
    }
}
