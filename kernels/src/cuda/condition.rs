//! The card's condition: clocks, temperature, power, what holds the clocks back, who else computes.
//!
//! A timing says something about a kernel only if the card was free to run: one that slows down because it
//! is hot times the cooling. NVML, a part of the driver, knows; where it is not, nothing is known and that
//! is said.
//!
//! Source: NVIDIA Management Library (NVML) reference manual, sections on device queries and on
//! `nvmlClocksEventReasons`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use super::library::{self, Kind};

/// What NVML says of a card at one moment; `None` where this card or its driver does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condition {
    /// Clock of the multiprocessors now, in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory now, in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// The highest clock of the multiprocessors, in MHz.
    pub max_sm_clock_mhz: Option<u32>,
    /// The highest clock of the memory, in MHz.
    pub max_memory_clock_mhz: Option<u32>,
    /// Temperature of the chip in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power drawn by the card, in watts.
    pub power_w: Option<f64>,
    /// The power at which the driver lowers the clocks, in watts.
    pub power_limit_w: Option<f64>,
    /// What holds the clocks below their maximum.
    pub throttle: Vec<Throttle>,
    /// Processes with work on the card, other than this one, its parent and its children.
    pub processes: Option<usize>,
    /// Processes on the card that this system does not list: in a container a process has another number
    /// outside than inside, so these may be strangers or this one.
    pub unlisted: usize,
    /// Whether the driver stays loaded between programs.
    pub persistence: Option<bool>,
}

/// What holds clocks below their maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// Nothing runs.
    Idle,
    /// Somebody set lower clocks.
    ApplicationClocks,
    /// The power limit, held by the driver.
    SoftwarePowerCap,
    /// Heat or power, held by the hardware: clocks are halved or worse.
    HardwareSlowdown,
    /// Cards that boost together wait for one another.
    SyncBoost,
    /// Heat, held by the driver.
    SoftwareThermal,
    /// Heat, held by the hardware.
    HardwareThermal,
    /// The power supply asks for less.
    PowerBrake,
    /// A display needs certain clocks.
    DisplayClocks,
}

/// NVML's bits and their names.
const THROTTLES: [(ThrottleReasons, Throttle); 9] = [
    (ThrottleReasons::GPU_IDLE, Throttle::Idle),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, Throttle::ApplicationClocks),
    (ThrottleReasons::SW_POWER_CAP, Throttle::SoftwarePowerCap),
    (ThrottleReasons::HW_SLOWDOWN, Throttle::HardwareSlowdown),
    (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::SoftwareThermal),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::HardwareThermal),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, Throttle::DisplayClocks),
];

impl Condition {
    /// Asks NVML for a card by its place on the bus (`0000:65:00.0`) or by its UUID (`GPU-...`).
    ///
    /// # Errors
    /// One sentence: there is no NVML, it does not start, or it does not know the card.
    pub fn of(card: &str) -> Result<Self, String> {
        let nvml = nvml()?;
        let device = if card.starts_with("GPU-") || card.starts_with("MIG-") {
            nvml.device_by_uuid(card)
        } else {
            nvml.device_by_pci_bus_id(card)
        };
        let device = device.map_err(|error| format!("NVML does not know the card {card}: {error}"))?;
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
        let reasons = device.current_throttle_reasons().unwrap_or(ThrottleReasons::empty());
        let computing = device.running_compute_processes().ok();
        let strangers = computing.map(|processes| strangers(processes.iter().map(|process| process.pid)));
        Ok(Self {
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            max_sm_clock_mhz: device.max_clock_info(Clock::SM).ok(),
            max_memory_clock_mhz: device.max_clock_info(Clock::Memory).ok(),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            power_w: device.power_usage().ok().map(watts),
            power_limit_w: device.enforced_power_limit().ok().map(watts),
            throttle: throttles(reasons),
            processes: strangers.map(|(listed, _)| listed),
            unlisted: strangers.map_or(0, |(_, unlisted)| unlisted),
            persistence: persistence(&device),
        })
    }

    /// Why a timing taken in this condition would be refused; `None` if it would not be.
    pub fn refusal(&self) -> Option<String> {
        if let Some(throttle) = self.throttle.iter().find(|throttle| throttle.refuses()) {
            return Some(format!("the card is held back: {throttle}"));
        }
        match self.processes {
            None | Some(0) => None,
            Some(1) => Some("another process computes on the card".into()),
            Some(n) => Some(format!("{n} other processes compute on the card")),
        }
    }
}

impl Throttle {
    /// Whether a timing under it says nothing about the kernel. The others are clocks that the card has by
    /// its setting or its power limit: recorded, and a part of what that card is.
    pub fn refuses(self) -> bool {
        matches!(
            self,
            Self::HardwareSlowdown | Self::SoftwareThermal | Self::HardwareThermal | Self::PowerBrake
        )
    }
}

/// NVML, started once: an answer costs microseconds, a start tens of milliseconds.
fn nvml() -> Result<&'static Nvml, String> {
    static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let started = NVML.get_or_init(|| {
        let found = library::open(Kind::Nvml).map_err(|missing| missing.to_string())?;
        let start = Nvml::builder().lib_path(found.path.as_os_str()).init();
        start.map_err(|error: NvmlError| format!("NVML does not start: {error}"))
    });
    started.as_ref().map_err(Clone::clone)
}

fn throttles(reasons: ThrottleReasons) -> Vec<Throttle> {
    THROTTLES.iter().filter(|(bit, _)| reasons.contains(*bit)).map(|(_, throttle)| *throttle).collect()
}

#[cfg(target_os = "linux")]
fn persistence(device: &nvml_wrapper::Device) -> Option<bool> {
    device.is_in_persistent_mode().ok()
}

#[cfg(not(target_os = "linux"))]
fn persistence(_: &nvml_wrapper::Device) -> Option<bool> {
    None
}

/// Of the processes on a card: how many are neither this one nor of its family, and how many are not listed
/// by this system at all.
fn strangers(computing: impl Iterator<Item = u32>) -> (usize, usize) {
    let own = std::process::id();
    let mut family = BTreeSet::from([own]);
    family.extend(parent(own));
    let others: BTreeSet<u32> = computing.filter(|id| !family.contains(id)).collect();
    let (listed, unlisted): (Vec<u32>, Vec<u32>) = others.into_iter().partition(|id| is_listed(*id));
    let strangers = listed.into_iter().filter(|id| parent(*id) != Some(own));
    (strangers.count(), unlisted.len())
}

#[cfg(target_os = "linux")]
fn is_listed(id: u32) -> bool {
    std::path::Path::new("/proc").join(id.to_string()).is_dir()
}

#[cfg(not(target_os = "linux"))]
fn is_listed(_: u32) -> bool {
    true
}

/// The parent of a process, where the system tells it in a file.
fn parent(id: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::ApplicationClocks => "lower clocks were set",
            Self::SoftwarePowerCap => "power limit",
            Self::HardwareSlowdown => "slowdown by the hardware",
            Self::SyncBoost => "synchronised boost",
            Self::SoftwareThermal => "heat (by the driver)",
            Self::HardwareThermal => "heat (by the hardware)",
            Self::PowerBrake => "power brake",
            Self::DisplayClocks => "clocks of a display",
        })
    }
}

impl fmt::Display for Condition {
    /// One line: `1590 of 1590 MHz, memory 5001 of 5001 MHz, 45 C, 68 of 70 W; held back by nothing; ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |now: Option<u32>, most: Option<u32>| match (now, most) {
            (Some(now), Some(most)) => format!("{now} of {most} MHz"),
            (Some(now), None) => format!("{now} MHz"),
            (None, _) => "clock unknown".into(),
        };
        write!(f, "{}", of(self.sm_clock_mhz, self.max_sm_clock_mhz))?;
        write!(f, ", memory {}", of(self.memory_clock_mhz, self.max_memory_clock_mhz))?;
        if let Some(temperature) = self.temperature_c {
            write!(f, ", {temperature} C")?;
        }
        match (self.power_w, self.power_limit_w) {
            (Some(power), Some(limit)) => write!(f, ", {power:.0} of {limit:.0} W")?,
            (Some(power), None) => write!(f, ", {power:.0} W")?,
            (None, _) => {}
        }
        let throttle: Vec<String> = self.throttle.iter().map(ToString::to_string).collect();
        let held = if throttle.is_empty() { "nothing".into() } else { throttle.join(", ") };
        let others = self.processes.map_or("unknown".into(), |n| n.to_string());
        write!(f, "; held back by {held}; other processes: {others}")?;
        match self.unlisted {
            0 => Ok(()),
            n => write!(f, ", {n} not listed here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_and_power_brakes_refuse_a_timing_and_a_power_limit_does_not() {
        let throttle = throttles(ThrottleReasons::SW_POWER_CAP | ThrottleReasons::GPU_IDLE);
        assert_eq!(throttle, [Throttle::Idle, Throttle::SoftwarePowerCap]);
        let calm = Condition { throttle, ..Condition::default() };
        assert_eq!(calm.refusal(), None);
        for bit in [8, 0x20, 0x40, 0x80] {
            let throttle = throttles(ThrottleReasons::from_bits_truncate(bit));
            let held = Condition { throttle, ..Condition::default() };
            assert!(
                held.refusal().is_some_and(|message| message.starts_with("the card is held back: ")),
                "{bit}"
            );
        }
    }

    #[test]
    fn this_process_and_its_family_are_no_strangers() {
        let own = std::process::id();
        assert_eq!(strangers([own].into_iter().chain(parent(own))), (0, 0));
        let nobody = u32::MAX;
        let (listed, unlisted) = strangers([nobody].into_iter());
        assert_eq!(listed + unlisted, 1);
    }

    #[test]
    fn a_machine_without_the_card_says_so_in_a_sentence() {
        let message = Condition::of("ffff:ff:1f.7").expect_err("no bus has such a place");
        assert!(message.contains("NVML") && !message.contains('\n'), "{message}");
    }
}
