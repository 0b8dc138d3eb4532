//! Why a rank cannot do its part.

use std::fmt;

use compiler::groups;
use kernels::comm::CommError;
use kernels::{DeviceError, comm};
use reference::{fsdp, graph, llama, schedule};

use crate::{step, weights};

/// Why a rank cannot do its part.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A placement is none.
    Placement(fsdp::Fault),
    /// Ranks cannot share a layer.
    Uneven(fsdp::Uneven),
    /// Dropout among ranks that share a layer: its masks would not be those of one rank.
    Dropout {
        /// The number of ranks that share it.
        ranks: usize,
    },
    /// Flat rows of a model that is not sharded as its file stores it.
    Flat {
        /// The sharding that was found.
        found: &'static str,
    },
    /// A pipeline has fewer layers than stages.
    Stages {
        /// Layers of the model.
        layers: usize,
        /// Stages of the pipeline.
        stages: usize,
    },
    /// Ranks of which some at a time compute, and that gather within an operation.
    Slots {
        /// Ranks of the mesh.
        ranks: usize,
        /// Stages of the pipeline.
        stages: usize,
    },
    /// A schedule cannot be run.
    Schedule(Box<schedule::Error>),
    /// A schedule is one of another pipeline or step.
    Pipeline {
        /// The shape of the schedule.
        found: String,
        /// The shape of the step.
        expected: String,
    },
    /// A trained parameter is read by two stages.
    TwoStages {
        /// The parameter.
        name: String,
    },
    /// A mesh has an axis that nothing is done along.
    Axis {
        /// The axis.
        found: String,
    },
    /// A parameter that is trained is stored in another type than f32.
    Trained {
        /// The parameter.
        name: String,
    },
    /// There is no such graph.
    Graph(graph::Error),
    /// An attempt's graph does not fit its step.
    Step {
        /// The step.
        step: &'static str,
        /// The tensor that it is about.
        name: String,
        /// The type that it has.
        found: String,
        /// The type that it must have.
        expected: String,
    },
    /// The checkpoint.
    Model(Box<llama::Error>),
    /// A weight cannot be quantised.
    Weights(Box<weights::Error>),
    /// The device has no room for a tensor, or cannot copy it.
    Device {
        /// The name of the graph's input.
        input: String,
        /// The error of the device.
        source: DeviceError,
    },
    /// More micro-batches than ranks compute at the same time, or none.
    Group {
        /// The micro-batches.
        found: usize,
        /// The largest number.
        most: usize,
    },
    /// A graph does not compile or run.
    Train(Box<step::Error>),
    /// The ranks do not lie as a mesh says.
    Groups(Box<groups::Error>),
    /// Communication has failed.
    Comm(Box<CommError>),
}

impl From<step::Error> for Error {
    fn from(error: step::Error) -> Self {
        Self::Train(Box::new(error))
    }
}

impl From<compiler::session::Error> for Error {
    fn from(error: compiler::session::Error) -> Self {
        Self::from(step::Error::Session(error))
    }
}

impl From<schedule::Error> for Error {
    fn from(error: schedule::Error) -> Self {
        Self::Schedule(Box::new(error))
    }
}

impl From<groups::Error> for Error {
    fn from(error: groups::Error) -> Self {
        Self::Groups(Box::new(error))
    }
}

impl From<llama::Error> for Error {
    fn from(error: llama::Error) -> Self {
        Self::Model(Box::new(error))
    }
}

impl From<graph::Error> for Error {
    fn from(error: graph::Error) -> Self {
        Self::Graph(error)
    }
}

impl From<comm::CommError> for Error {
    fn from(error: comm::CommError) -> Self {
        Self::Comm(Box::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(fault) => fault.fmt(f),
            Self::Uneven(uneven) => uneven.fmt(f),
            Self::Flat { found } => {
                write!(f, "expected flat rows of weights as their file stores them, found {found}")
            }
            Self::Dropout { ranks } => {
                write!(
                    f,
                    "expected lora_dropout = 0 where {ranks} ranks share a layer: their masks would not be those of one"
                )
            }
            Self::Stages { layers, stages } => {
                write!(f, "expected at least a layer for each of {stages} stages, found {layers} layers")
            }
            Self::Slots { ranks, stages } => {
                write!(
                    f,
                    "expected a rank for each of {stages} stages where ranks take turns, found {ranks} ranks"
                )
            }
            Self::Schedule(error) => error.fmt(f),
            Self::Pipeline { found, expected } => {
                write!(f, "expected a schedule `{expected}`, found `{found}`")
            }
            Self::TwoStages { name } => {
                write!(
                    f,
                    "`{name}`: expected a trained parameter that one stage of pp reads, found one that two read, \
                     whose gradients are not added up"
                )
            }
            Self::Axis { found } => {
                write!(f, "expected a mesh of the axes \"fsdp\", \"tp\" and \"pp\", found {found:?}")
            }
            Self::Trained { name } => write!(f, "`{name}`: expected a trained parameter in f32"),
            Self::Group { found, most } => {
                write!(f, "expected a group of 1 to {most} micro-batches, found {found}")
            }
            Self::Graph(error) => error.fmt(f),
            Self::Step { step, name, found, expected } => {
                write!(f, "{step}, `{name}`: expected {expected}, found {found}")
            }
            Self::Model(error) => error.fmt(f),
            Self::Weights(error) => error.fmt(f),
            Self::Device { input, source } => write!(f, "input `{input}`: {source}"),
            Self::Train(error) => error.fmt(f),
            Self::Groups(error) => error.fmt(f),
            Self::Comm(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Placement(fault) => Some(fault),
            Self::Uneven(uneven) => Some(uneven),
            Self::Schedule(error) => Some(&**error),
            Self::Trained { .. }
            | Self::Step { .. }
            | Self::Flat { .. }
            | Self::Dropout { .. }
            | Self::Group { .. }
            | Self::Axis { .. } => None,
            Self::Stages { .. } | Self::Slots { .. } | Self::Pipeline { .. } | Self::TwoStages { .. } => None,
            Self::Graph(error) => Some(error),
            Self::Model(error) => Some(&**error),
            Self::Weights(error) => Some(&**error),
            Self::Device { source, .. } => Some(source),
            Self::Train(error) => Some(&**error),
            Self::Groups(error) => Some(&**error),
            Self::Comm(error) => Some(&**error),
        }
    }
}
