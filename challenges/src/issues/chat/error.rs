//! What can go wrong, by the kind that Python would name.

use std::fmt;

/// The kind of an error: the exception that the Python renderer raises on the same input, or a limit of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The template called `raise_exception`: it refuses this conversation.
    RaiseException,
    /// A name, an item or an attribute is used that is not there.
    Undefined,
    /// A value has the wrong type for what is done with it.
    Type,
    /// A value has the right type and cannot be used all the same.
    Value,
    /// An attribute is missing where Python looks it up by itself.
    Attribute,
    /// A filter got an argument that it cannot take.
    FilterArgument,
    /// The sandbox refuses: the value would be changed, or the name is private.
    Security,
    /// A key is missing.
    Key,
    /// An index is out of range.
    Index,
    /// A division by zero.
    ZeroDivision,
    /// A number or a range is too large.
    Overflow,
    /// The template engine itself refuses at run time.
    Runtime,
    /// The template does not parse.
    Syntax,
    /// The template names a filter or a test that there is not.
    Assertion,
    /// A limit of [`super::Limits`] ended the render, or the template is larger or deeper than allowed.
    Limit,
    /// The template uses what this renderer does not carry.
    Unsupported,
}

impl Kind {
    /// The name that the golden files and Python use.
    pub fn name(self) -> &'static str {
        match self {
            Kind::RaiseException => "raise_exception",
            Kind::Undefined => "UndefinedError",
            Kind::Type => "TypeError",
            Kind::Value => "ValueError",
            Kind::Attribute => "AttributeError",
            Kind::FilterArgument => "FilterArgumentError",
            Kind::Security => "SecurityError",
            Kind::Key => "KeyError",
            Kind::Index => "IndexError",
            Kind::ZeroDivision => "ZeroDivisionError",
            Kind::Overflow => "OverflowError",
            Kind::Runtime => "TemplateRuntimeError",
            Kind::Syntax => "TemplateSyntaxError",
            Kind::Assertion => "TemplateAssertionError",
            Kind::Limit => "limit",
            Kind::Unsupported => "unsupported",
        }
    }
}

/// Why a template does not compile or a conversation does not render.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What Python would raise, or which limit was met.
    pub kind: Kind,
    /// What was there, in Python's words where they are known.
    pub message: String,
    /// The line of the template, from 1, if one is to blame.
    pub line: Option<u32>,
}

impl Error {
    /// An error that no line of the template is to blame for.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), line: None }
    }

    /// The same, in a line of the template.
    #[must_use]
    pub fn at(self, line: u32) -> Error {
        Error { line: Some(line), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line} of the template: {}: {}", self.kind.name(), self.message),
            None => write!(f, "{}: {}", self.kind.name(), self.message),
        }
    }
}

impl std::error::Error for Error {}
