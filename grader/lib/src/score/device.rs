//! The device that was asked for.

use kernels::Which;
use kernels::cuda::Gpu;

use crate::course::{Backend, Course};
use crate::stub::Language;

/// The device that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A GPU where one answers and the challenge has a back end for it, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The simulator.
    Sim,
    /// A GPU by number.
    Cuda(usize),
}

impl Device {
    /// As reports name it, for a course that runs on a back end.
    pub fn name(&self, back: Backend) -> String {
        match (self, back) {
            (Self::Auto, Backend::Cuda) => "cuda:0".into(),
            (Self::Auto | Self::Cpu, _) => "cpu".into(),
            (Self::Sim, _) => "sim".into(),
            (Self::Cuda(n), _) => format!("cuda:{n}"),
        }
    }

    /// Why a course cannot run here, if so.
    pub fn cannot_run(&self, course: &Course) -> Option<String> {
        let lacking =
            || format!("challenge {} has no back end for {} yet", course.letter(), self.name(course.backend));
        match (self, course.backend) {
            (Self::Auto | Self::Cuda(_), Backend::Cuda) => self.card_lacks(course.language),
            (Self::Auto | Self::Cpu, Backend::Cpu) => None,
            _ => Some(lacking()),
        }
    }

    /// What a card lacks for an attempt: kernels need the driver, plans also the libraries that they call.
    fn card_lacks(&self, language: Language) -> Option<String> {
        let ordinal = self.ordinal();
        match language {
            Language::Cuda => Gpu::look(ordinal).err().map(|reason| reason.to_string()),
            Language::Rust => Which::Cuda(ordinal).look().err().map(|reason| reason.to_string()),
        }
    }

    /// The GPU's number.
    pub(super) fn ordinal(&self) -> usize {
        if let Self::Cuda(n) = self { *n } else { 0 }
    }
}
