//! Which device a program runs on: `auto`, `cpu`, `cuda`, `cuda:1`.

use std::fmt;
use std::str::FromStr;

use crate::cpu::Cpu;
use crate::cuda::library::{self, Kind};
use crate::cuda::{Gpu, NoGpu};
use crate::device::Device;

/// A device by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The first card, if one answers and the libraries that plans need are there, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A card by its number, as the driver counts them.
    Cuda(usize),
}

/// Why a device cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDevice {
    /// No such card, or none that can be used.
    Gpu(NoGpu),
    /// A library that its plans need is not there.
    Library(library::NotFound),
}

impl Which {
    /// Opens it. With `auto`, `passed_over` is told why a card that is there is not used.
    ///
    /// # Errors
    /// What is missing, of a card that was asked for by name.
    pub fn open(self, passed_over: impl FnOnce(NoDevice)) -> Result<Box<dyn Device>, NoDevice> {
        let number = match self {
            Self::Cpu => return Ok(Box::new(Cpu::new())),
            Self::Cuda(number) => number,
            Self::Auto => 0,
        };
        match card(number) {
            Ok(gpu) => Ok(Box::new(gpu)),
            Err(reason) if self == Self::Auto => {
                if reason.is_of_a_card() {
                    passed_over(reason);
                }
                Ok(Box::new(Cpu::new()))
            }
            Err(reason) => Err(reason),
        }
    }
}

impl Which {
    /// Whether it could be opened, without taking any of it.
    ///
    /// # Errors
    /// What is missing, of a card that was asked for by name.
    pub fn look(self) -> Result<(), NoDevice> {
        let Self::Cuda(number) = self else { return Ok(()) };
        Gpu::look(number).map_err(NoDevice::Gpu)?;
        libraries()
    }
}

impl NoDevice {
    /// Whether there is a card, or a driver for one, that cannot be used.
    fn is_of_a_card(&self) -> bool {
        match self {
            Self::Gpu(NoGpu::NoDriver(library)) => !library.refused.is_empty(),
            Self::Gpu(NoGpu::NoDevice { .. }) => false,
            _ => true,
        }
    }
}

/// A card with what its plans need.
fn card(number: usize) -> Result<Gpu, NoDevice> {
    let gpu = Gpu::nth(number).map_err(NoDevice::Gpu)?;
    libraries().map(|()| gpu)
}

/// The libraries that plans on a card need.
fn libraries() -> Result<(), NoDevice> {
    let open = |kind| library::open(kind).map(drop).map_err(NoDevice::Library);
    [Kind::Nvrtc, Kind::CublasLt].into_iter().try_for_each(open)
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().map(Self::Cuda);
        let found = match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(number),
        };
        found.ok_or_else(|| format!("expected auto, cpu, cuda or cuda:1, found {text:?}"))
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl fmt::Display for NoDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(reason) => reason.fmt(f),
            Self::Library(reason) => write!(f, "{reason}; {}", reason.fix()),
        }
    }
}

impl std::error::Error for NoDevice {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_cannot_be_used_is_told_and_none_at_all_is_not() {
        let missing =
            |kind| library::NotFound { kind, looked: Vec::new(), refused: Vec::new(), driver: None };
        let without = [NoGpu::NoDriver(missing(Kind::Driver)), NoGpu::NoDevice { asked: 0, count: 0 }];
        assert!(without.into_iter().all(|reason| !NoDevice::Gpu(reason).is_of_a_card()));
        let unusable =
            [NoGpu::OldDriver { version: Some((11, 8)), lacks: Vec::new() }, NoGpu::Broken("x".into())];
        assert!(unusable.into_iter().all(|reason| NoDevice::Gpu(reason).is_of_a_card()));
        assert!(NoDevice::Library(missing(Kind::Nvrtc)).is_of_a_card());
    }

    #[test]
    fn a_device_reads_back_from_its_name() {
        for which in [Which::Auto, Which::Cpu, Which::Cuda(0), Which::Cuda(7)] {
            assert_eq!(which.to_string().parse(), Ok(which));
        }
        assert_eq!("cuda".parse(), Ok(Which::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            let said = text.parse::<Which>().expect_err("no device");
            assert!(said.contains(&format!("found {text:?}")), "{said}");
        }
    }
}
