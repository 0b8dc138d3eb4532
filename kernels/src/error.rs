//! Why a device refuses: names the program or buffer, what is there and what is needed.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::comm::CommError;

/// Why a device refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// A copy between lengths that differ.
    Length {
        /// The buffer's tag.
        tag: &'static str,
        /// Bytes of the buffer.
        buffer: usize,
        /// Bytes on the host.
        host: usize,
    },
    /// More memory than there is.
    Memory {
        /// What it is for.
        tag: &'static str,
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// A buffer that another device made.
    Elsewhere {
        /// The buffer's tag.
        tag: &'static str,
        /// The device that was given it.
        device: &'static str,
    },
    /// As many peaks are counted at the same time as can be.
    Watermarks,
    /// A GPU's driver or compiler refused.
    Driver(Refusal),
    /// Communication between ranks has ended.
    Comm(CommError),
    /// A program wants more inputs than it was given.
    Inputs {
        /// The program's name.
        program: String,
        /// Inputs that it names.
        needed: usize,
        /// Inputs that it was given.
        given: usize,
    },
    /// A buffer is too short for the lanes.
    Short {
        /// The program's name.
        program: String,
        /// The buffer's tag.
        tag: &'static str,
        /// Bytes that the program touches.
        needed: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// A program reads a place that its input does not have.
    RowIndex {
        /// The program's name.
        program: String,
        /// The operation's number.
        op: usize,
        /// The lane, counted row-major.
        lane: usize,
        /// The place.
        got: i32,
        /// Elements of the input.
        rows: usize,
    },
    /// A step of a plan that cannot run.
    Step {
        /// The plan's name.
        plan: String,
        /// The step's number.
        step: usize,
        /// What it is.
        name: String,
        /// What it needs.
        needed: &'static str,
    },
    /// A plan calls what it is not linked to.
    Callee {
        /// The step's name.
        name: String,
        /// The callee's number.
        number: usize,
        /// How many there are.
        given: usize,
    },
    /// A plan calls what has no form for the device.
    Form {
        /// The step's name.
        name: String,
        /// The callee's name.
        callee: String,
        /// What the device can run: `in Rust`.
        needed: &'static str,
    },
    /// A copy to or from bytes that a buffer does not have.
    Range {
        /// The buffer's tag.
        tag: &'static str,
        /// Bytes of the buffer.
        buffer: usize,
        /// The first byte of the copy.
        first: usize,
        /// Bytes of the copy.
        bytes: usize,
    },
    /// Work that a plan called failed.
    Call {
        /// The step's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A program divides a whole number by zero.
    DivisionByZero {
        /// The program's name.
        program: String,
        /// The operation's number.
        op: usize,
        /// The lane, counted row-major.
        lane: usize,
    },
    /// An operation takes a value that comes later, or of the other kind.
    Value {
        /// The program's name.
        program: String,
        /// The operation's number.
        op: usize,
        /// What it needs.
        needed: &'static str,
    },
}

/// An error of a device's driver or compiler, of that device's own type: what all devices share names none of them.
#[derive(Clone, Debug)]
pub struct Refusal(Arc<dyn Error + Send + Sync>);

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { tag, buffer, host } => {
                write!(f, "buffer {tag} has {buffer} bytes, the host's side of the copy {host}")
            }
            Self::Memory { tag, bytes } => {
                write!(f, "buffer {tag} needs {bytes} bytes, more than there are")
            }
            Self::Elsewhere { tag, device } => {
                write!(f, "buffer {tag} is in another device's memory, and was given to {device}")
            }
            Self::Watermarks => f.write_str("too many peaks of memory are counted already"),
            Self::Driver(refusal) => refusal.fmt(f),
            Self::Comm(error) => error.fmt(f),
            Self::Inputs { program, needed, given } => {
                write!(f, "program {program}: expected {needed} inputs, found {given}")
            }
            Self::Short { program, tag, needed, given } => {
                write!(f, "program {program} touches {needed} bytes of buffer {tag}, which has {given}")
            }
            Self::RowIndex { program, op, lane, got, rows } => {
                write!(f, "operation {op} of program {program} reads place {got} of {rows} in lane {lane}")
            }
            Self::Step { plan, step, name, needed } => {
                write!(f, "step {step} of plan {plan}, {name}, needs {needed}")
            }
            Self::Callee { name, number, given } => {
                write!(f, "step {name} calls callee {number}; the plan is linked to {given}")
            }
            Self::Form { name, callee, needed } => {
                write!(f, "step {name} calls {callee}; expected a callee {needed}, found none")
            }
            Self::Range { tag, buffer, first, bytes } => {
                write!(
                    f,
                    "buffer {tag} has {buffer} bytes, the copy is of {bytes} bytes from byte {first} on"
                )
            }
            Self::Call { name, reason } => write!(f, "step {name} failed: {reason}"),
            Self::DivisionByZero { program, op, lane } => {
                write!(f, "operation {op} of program {program} divides by 0 in lane {lane}")
            }
            Self::Value { program, op, needed } => {
                write!(f, "operation {op} of program {program} needs {needed}")
            }
        }
    }
}

impl Error for DeviceError {}

impl From<CommError> for DeviceError {
    fn from(error: CommError) -> Self {
        Self::Comm(error)
    }
}

impl Refusal {
    /// Keeps a device's own error.
    pub(crate) fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// Returns the device's own error; `None` if it is of another type.
    pub(crate) fn error<T: Error + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Two refusals are equal if they say the same.
impl PartialEq for Refusal {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Refusal {}
