//! What can be wrong with a model's folder, its configuration, its weights or its adapter.
//!
//! A case says what is there and what is needed; [`Error::InFile`] and [`Error::InTensor`] add where.

use std::error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::{checkpoint, json, nf4};

/// Why a model or its adapter cannot be opened, or an adapter not be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// One of the other cases, with the file that it happened in.
    InFile {
        /// The file's path.
        path: PathBuf,
        /// What is wrong with it.
        fault: Box<Error>,
    },
    /// One of the other cases, with the tensor that it happened to.
    InTensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong with it.
        fault: Box<Error>,
    },

    // Where the model is.
    /// Neither a folder nor the name of a repository.
    NoSuchModel {
        /// What was asked for.
        given: String,
    },
    /// A repository that is not in the local cache, or not completely.
    NotCached {
        /// Its name.
        repository: String,
        /// What was looked for.
        looked: PathBuf,
    },

    // A file.
    /// It cannot be read.
    Open {
        /// The system's reason.
        source: io::Error,
    },
    /// It cannot be written.
    Write {
        /// The system's reason.
        source: io::Error,
    },
    /// It is no JSON object.
    Json {
        /// Where and why.
        source: json::Error,
    },
    /// A field is not there.
    MissingField {
        /// The field, with those around it: `rope_scaling.factor`.
        field: String,
        /// What is needed.
        need: String,
    },
    /// A field has a value that cannot be used.
    Field {
        /// The field, with those around it.
        field: String,
        /// Its value as JSON.
        got: String,
        /// What is needed.
        need: String,
    },

    // Tensors.
    /// A checkpoint or one of its tensors cannot be read.
    Checkpoint(checkpoint::Error),
    /// A quantised weight cannot be read.
    Nf4(nf4::Error),
    /// A tensor has another shape than the configuration calls for.
    Shape {
        /// Its shape.
        got: Vec<usize>,
        /// The shape needed.
        need: Vec<usize>,
    },
    /// A tensor has elements of a type that is not read.
    Dtype {
        /// The type, as the file's header writes it.
        got: String,
        /// The types that are.
        need: &'static str,
    },
    /// A tensor is there that has no place in the model.
    Unexpected,
}

impl Error {
    /// The same error, naming the file.
    pub(crate) fn at(self, path: &Path) -> Self {
        Error::InFile { path: path.to_owned(), fault: Box::new(self) }
    }

    /// The same error, naming the tensor.
    pub(crate) fn of(self, tensor: &str) -> Self {
        Error::InTensor { tensor: tensor.to_owned(), fault: Box::new(self) }
    }

    /// The case itself, without the names around it.
    pub fn fault(&self) -> &Error {
        match self {
            Error::InFile { fault, .. } | Error::InTensor { fault, .. } => fault.fault(),
            fault => fault,
        }
    }
}

impl From<checkpoint::Error> for Error {
    fn from(fault: checkpoint::Error) -> Self {
        Error::Checkpoint(fault)
    }
}

impl From<nf4::Error> for Error {
    fn from(fault: nf4::Error) -> Self {
        Error::Nf4(fault)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InFile { path, fault } => write!(f, "`{}`: {fault}", path.display()),
            Error::InTensor { tensor, fault } => write!(f, "tensor `{tensor}`: {fault}"),
            Error::NoSuchModel { given } => {
                write!(f, "`{given}` is neither a folder nor a repository's name such as `org/name`")
            }
            Error::NotCached { repository, looked } => write!(
                f,
                "`{repository}` is not in the local cache, where `{}` is missing; get it with \
                 `hf download {repository}`",
                looked.display()
            ),
            Error::Open { source } => write!(f, "cannot be opened: {source}"),
            Error::Write { source } => write!(f, "cannot be written: {source}"),
            Error::Json { source } => write!(f, "{source}"),
            Error::MissingField { field, need } => write!(f, "missing `{field}`: expected {need}"),
            Error::Field { field, got, need } => write!(f, "`{field}`: expected {need}, found {got}"),
            Error::Checkpoint(fault) => fault.fmt(f),
            Error::Nf4(fault) => fault.fmt(f),
            Error::Shape { got, need } => write!(f, "expected shape {need:?}, found {got:?}"),
            Error::Dtype { got, need } => write!(f, "expected elements of {need}, found {got}"),
            Error::Unexpected => write!(f, "has no place in this model"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::InFile { fault, .. } | Error::InTensor { fault, .. } => fault.source(),
            Error::Open { source } | Error::Write { source } => Some(source),
            Error::Json { source } => Some(source),
            Error::Checkpoint(fault) => fault.source(),
            Error::Nf4(fault) => fault.source(),
            _ => None,
        }
    }
}
