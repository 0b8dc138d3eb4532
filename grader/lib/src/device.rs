//! The device that the plans of an item run on: a CPU that is made for it, or the card of this process.

use std::ops::Deref;
use std::sync::OnceLock;

use kernels::{Cpu, Device, Which};

use crate::course::Backend;
use crate::gather::Child;

/// What the plans of a course run on.
#[derive(Clone, Copy)]
pub(crate) enum Processor {
    /// A CPU, made where it is asked for: what one item leaves in it, no other finds.
    Cpu,
    /// A card, as long as the process lives.
    Card(&'static dyn Device),
}

/// A device, as long as it is used.
pub(crate) enum Lent {
    Cpu(Cpu),
    Card(&'static dyn Device),
}

impl Processor {
    /// That of a back end; of cards the one that a child is asked for.
    ///
    /// # Errors
    /// Why the card cannot be had.
    pub fn of(child: &Child, backend: Backend) -> Result<Self, String> {
        match backend {
            Backend::Cpu => Ok(Self::Cpu),
            Backend::Cuda => card(child.request.ordinal).map(Self::Card),
        }
    }

    /// What is checked runs here: on a CPU with two threads, as many as every machine has that grades.
    pub fn checked(self) -> Lent {
        self.lent(|| Cpu::with_threads(2))
    }

    /// What is timed runs here: on a CPU with all its threads.
    pub fn timed(self) -> Lent {
        self.lent(Cpu::new)
    }

    fn lent(self, cpu: impl FnOnce() -> Cpu) -> Lent {
        match self {
            Self::Cpu => Lent::Cpu(cpu()),
            Self::Card(card) => Lent::Card(card),
        }
    }

    /// Whether it is a card, whose numbers are of other sizes.
    pub fn is_card(self) -> bool {
        matches!(self, Self::Card(_))
    }

    /// Waits for what an item has queued. `false` if a card fails: what went wrong may be that item's, and every later
    /// one of this process would see it.
    pub fn is_sound(self) -> bool {
        match self {
            Self::Cpu => true,
            Self::Card(card) => card.sync().is_ok(),
        }
    }
}

impl Lent {
    /// The CPU, if it is one.
    pub fn cpu(&self) -> Option<&Cpu> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::Card(_) => None,
        }
    }
}

impl Deref for Lent {
    type Target = dyn Device;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Cpu(cpu) => cpu,
            Self::Card(card) => *card,
        }
    }
}

/// This process's card, opened at its first use.
fn card(ordinal: usize) -> Result<&'static dyn Device, String> {
    static CARD: OnceLock<Result<Box<dyn Device>, String>> = OnceLock::new();
    let open = || Which::Cuda(ordinal).open(|_| {}).map_err(|reason| reason.to_string());
    CARD.get_or_init(open).as_deref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_not_there_is_a_reason_and_no_panic() {
        let Err(reason) = card(usize::MAX) else { panic!("expected no card of that number") };
        assert!(!reason.is_empty());
        assert!(Processor::Cpu.is_sound() && !Processor::Cpu.is_card());
    }
}
