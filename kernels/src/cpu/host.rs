//! What the operating system says of this machine.

#[cfg(windows)]
use super::windows::{cache_bytes, cpu_name, memory_bytes, wine};

/// Facts about the machine, each 0 or `unknown` where the system does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The processor's own name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes of the last-level cache.
    pub cache_bytes: u64,
    /// Bytes of main memory.
    pub memory_bytes: u64,
    /// The version of Wine, where it stands in for Windows.
    pub wine: Option<String>,
}

/// Asks the system. Linux answers through `/proc` and `/sys`, macOS through `sysctl`, Windows through its registry and
/// its functions.
pub fn host() -> Host {
    Host {
        cpu: cpu_name().unwrap_or_else(|| "unknown".into()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        cache_bytes: cache_bytes().unwrap_or(0),
        memory_bytes: memory_bytes().unwrap_or(0),
        wine: wine(),
    }
}

#[cfg(target_os = "linux")]
fn cpu_name() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

#[cfg(target_os = "linux")]
fn cache_bytes() -> Option<u64> {
    let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.flatten().filter_map(|cache| {
        let size = std::fs::read_to_string(cache.path().join("size")).ok()?;
        Some(size.trim().strip_suffix('K')?.parse::<u64>().ok()? * 1024)
    });
    sizes.max()
}

#[cfg(target_os = "linux")]
fn memory_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemTotal"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(target_os = "macos")]
fn sysctl(name: &str) -> Option<String> {
    let output = std::process::Command::new("sysctl").args(["-n", name]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(target_os = "macos")]
fn cpu_name() -> Option<String> {
    sysctl("machdep.cpu.brand_string")
}

#[cfg(target_os = "macos")]
fn cache_bytes() -> Option<u64> {
    let level = |name| sysctl(name).and_then(|size| size.parse().ok()).filter(|size| *size > 0);
    level("hw.l3cachesize").or_else(|| level("hw.l2cachesize"))
}

#[cfg(target_os = "macos")]
fn memory_bytes() -> Option<u64> {
    sysctl("hw.memsize")?.parse().ok()
}

#[cfg(not(windows))]
fn wine() -> Option<String> {
    None
}

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
fn cpu_name() -> Option<String> {
    None
}

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
fn cache_bytes() -> Option<u64> {
    None
}

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
fn memory_bytes() -> Option<u64> {
    None
}
