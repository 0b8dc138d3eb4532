//! The places, in order, and the first file there that can be used.

use std::path::{Path, PathBuf};

use super::handle::Handle;
use super::loader::Opening;
use super::{Found, Kind, Location, NotFound, Refused, Version, python};

/// A place with its folders; the loader has its own.
struct Candidate {
    place: Location,
    folders: Vec<PathBuf>,
}

/// One step of the order: as a sentence names it, and the rooms that are there.
struct Step {
    message: String,
    candidates: Vec<Candidate>,
}

/// Goes through the places until a library can be used. `driver`: the driver's CUDA version, if known.
pub(super) fn search(kind: Kind, driver: Option<Version>) -> Result<Found, NotFound> {
    let mut missing = NotFound { kind, looked: Vec::new(), refused: Vec::new(), driver };
    if kind.impossible().is_some() {
        return Err(missing);
    }
    let steps: [&dyn Fn(Kind) -> Option<Step>; 4] = [&named, &|_| Some(loader()), &usual, &wheels];
    for step in steps {
        let Some(Step { message, candidates }) = step(kind) else { continue };
        missing.looked.push(message);
        for candidate in candidates {
            if let Some(found) = look(kind, &candidate, &mut missing) {
                return Ok(found);
            }
        }
    }
    Err(missing)
}

/// The first file of a room that can be used; what cannot is noted.
fn look(kind: Kind, candidate: &Candidate, missing: &mut NotFound) -> Option<Found> {
    let Candidate { place, folders } = candidate;
    let bare = kind.names().iter().map(PathBuf::from).filter(|_| *place == Location::Loader);
    let full = folders.iter().flat_map(|folder| kind.names().iter().map(|name| folder.join(name)));
    for file in bare.chain(full) {
        match Handle::open(kind, &file)
            .and_then(|handle| usable(kind, &handle, missing.driver).map(|()| handle))
        {
            Ok(handle) => {
                let path = handle.path().unwrap_or(file);
                let (version, passed_over) = (handle.version(), std::mem::take(&mut missing.refused));
                return Some(Found {
                    kind,
                    path,
                    place: place.clone(),
                    version,
                    passed_over,
                    _handle: handle,
                });
            }
            Err(Opening::Absent) => {}
            Err(Opening::Refused { path, why }) => note(missing, path.unwrap_or(file), why),
        }
    }
    None
}

/// Whether the driver reads what the library makes.
fn usable(kind: Kind, handle: &Handle, driver: Option<Version>) -> Result<(), Opening> {
    let (Some(version), Some(driver)) = (handle.version(), driver) else { return Ok(()) };
    if !kind.follows_driver() || version.0 <= driver.0 {
        return Ok(());
    }
    let why = format!(
        "it is of CUDA {}.{}, which the driver (CUDA {}.{}) does not read",
        version.0, version.1, driver.0, driver.1
    );
    Err(Opening::Refused { path: handle.path(), why })
}

/// Notes a refusal, once a file: toolkits are linked under several names.
fn note(missing: &mut NotFound, path: PathBuf, why: String) {
    let same = |one: &Path, other: &Path| match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    };
    if !missing.refused.iter().any(|refused| same(&refused.path, &path)) {
        missing.refused.push(Refused { path, why });
    }
}

/// 1. What the environment names.
fn named(kind: Kind) -> Option<Step> {
    if matches!(kind, Kind::Driver | Kind::Nvml) {
        return None; // a toolkit has only stand-ins of these, to link against
    }
    let mut candidates = Vec::<Candidate>::new();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        let Some(root) = std::env::var_os(variable).filter(|root| !root.is_empty()).map(PathBuf::from) else {
            continue;
        };
        let folders = inside_toolkit(&root);
        if candidates.iter().all(|candidate| candidate.folders != folders) {
            candidates.push(Candidate { place: Location::Named { variable, root }, folders });
        }
    }
    let message: Vec<String> = candidates.iter().map(|candidate| candidate.place.to_string()).collect();
    (!candidates.is_empty()).then(|| Step { message: message.join(", "), candidates })
}

/// 2. The loader's own path.
fn loader() -> Step {
    let place = Location::Loader;
    Step { message: place.to_string(), candidates: vec![Candidate { place, folders: vec![] }] }
}

/// 3. Where toolkits and drivers are usually put.
fn usual(kind: Kind) -> Option<Step> {
    match kind {
        Kind::Driver | Kind::Nvml => drivers(),
        _ => Some(toolkits()),
    }
}

/// Folders of drivers beside the loader's: WSL; Colab; containers of Kubernetes; `NixOS`.
const DRIVERS: [&str; 4] =
    ["/usr/lib/wsl/lib", "/usr/lib64-nvidia", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"];

fn drivers() -> Option<Step> {
    if cfg!(windows) {
        return None; // they are in the system's folder
    }
    let candidate = |folder: &&str| {
        let folder = PathBuf::from(folder);
        Candidate { place: Location::Folder { folder: folder.clone() }, folders: vec![folder] }
    };
    Some(Step { message: DRIVERS.join(", "), candidates: DRIVERS.iter().map(candidate).collect() })
}

/// Toolkits of the system, newest first.
fn toolkits() -> Step {
    let (parent, prefix) = if cfg!(windows) {
        let programs = std::env::var_os("ProgramFiles").unwrap_or_else(|| r"C:\Program Files".into());
        (PathBuf::from(programs).join("NVIDIA GPU Computing Toolkit").join("CUDA"), "v")
    } else {
        (PathBuf::from("/usr/local"), "cuda")
    };
    let roots = versioned(&parent, prefix);
    let candidate =
        |root: PathBuf| Candidate { folders: inside_toolkit(&root), place: Location::Toolkit { root } };
    Step {
        message: format!("{}*", parent.join(prefix).display()),
        candidates: roots.into_iter().map(candidate).collect(),
    }
}

/// Folders whose names begin with `prefix`, the highest version first and the one without a version last.
fn versioned(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let rest = name.strip_prefix(prefix)?.trim_start_matches('-');
            let version = rest.split('.').filter(|_| !rest.is_empty()).map(str::parse);
            Some((version.collect::<Result<_, _>>().ok()?, entry.path()))
        })
        .collect();
    found.sort_by(|one, other| other.0.cmp(&one.0));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Where a toolkit keeps its libraries.
fn inside_toolkit(root: &Path) -> Vec<PathBuf> {
    let folders: &[&str] = if cfg!(windows) { &["bin/x64", "bin"] } else { &["lib64", "lib"] };
    folders.iter().map(|folder| root.join(folder)).collect()
}

/// 4. The wheels of the Python on `PATH`.
fn wheels(kind: Kind) -> Option<Step> {
    let own = match kind {
        Kind::Driver | Kind::Nvml => return None, // parts of the driver
        Kind::Nvrtc => "cuda_nvrtc",
        Kind::CublasLt => "cublas",
        Kind::Nccl => "nccl",
    };
    let python = match python::ask() {
        Ok(python) => python,
        Err(why) => return Some(Step { message: why.clone(), candidates: vec![] }),
    };
    let place = Location::Wheel { python: python.program.clone() };
    let folders = python.path.iter().map(|site| site.join("nvidia")).flat_map(|nvidia| {
        let mut roots = versioned(&nvidia, "cu"); // CUDA 13: one folder for all
        roots.push(nvidia.join(own)); // CUDA 12: one folder each
        roots.into_iter().flat_map(|root| inside_wheel(&root))
    });
    Some(Step {
        message: place.to_string(),
        candidates: vec![Candidate { folders: folders.collect(), place }],
    })
}

fn inside_wheel(root: &Path) -> Vec<PathBuf> {
    let folders: &[&str] = if cfg!(windows) { &["bin/x86_64", "bin"] } else { &["lib"] };
    folders.iter().map(|folder| root.join(folder)).collect()
}
