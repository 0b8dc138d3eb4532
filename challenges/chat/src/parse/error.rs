//! What can be wrong with a response template, and with a text.

use std::fmt;

/// A response template that is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TemplateError {
    /// The path of the entry, such as `fields.tool_calls.open_pattern`.
    pub at: String,
    /// What is there.
    pub found: String,
    /// What was expected.
    pub needed: String,
}

impl TemplateError {
    pub(super) fn new(at: impl Into<String>, found: impl fmt::Display, needed: impl Into<String>) -> Self {
        Self { at: at.into(), found: brief(&found.to_string()), needed: needed.into() }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "response template, {}: expected {}, found {}", self.at, self.needed, self.found)
    }
}

impl std::error::Error for TemplateError {}

/// A text that does not fit its template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not UTF-8.
    Utf8 {
        /// How many bytes of the text are sound.
        at: usize,
    },
    /// A region's content cannot be read.
    Content {
        /// The field.
        field: String,
        /// The region's first 80 characters.
        content: String,
        /// What is wrong.
        problem: Problem,
    },
    /// Regions without a character open and close for ever.
    Stuck {
        /// The field.
        field: String,
    },
    /// A field that is not optional does not appear.
    Missing {
        /// The field.
        field: String,
    },
    /// The text has already ended.
    Finished,
}

impl Error {
    pub(super) fn content(field: &str, content: &str, problem: Problem) -> Self {
        Self::Content { field: field.to_owned(), content: brief(content), problem }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utf8 { at } => write!(f, "the text is not utf-8 after {at} bytes"),
            Self::Content { field, content, problem } => write!(f, "{field}: {problem} in {content:?}"),
            Self::Stuck { field } => write!(f, "{field}: an empty region opens again where it closed"),
            Self::Missing { field } => write!(f, "{field}: not in the text, and not optional"),
            Self::Finished => f.write_str("the text has already ended"),
        }
    }
}

impl std::error::Error for Error {}

/// What is wrong with a region's content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It is not JSON.
    Json {
        /// What was expected, or what is too much.
        needed: &'static str,
        /// Bytes before the place, after the dialect's strings and keys were rewritten.
        at: usize,
    },
    /// It is no list of calls in Python.
    Python {
        /// What was expected.
        needed: &'static str,
        /// Bytes before the place.
        at: usize,
    },
    /// JSON that a message cannot hold: nested too deep, or a number too long.
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much of it is allowed.
        limit: usize,
    },
    /// It is not a number.
    Number {
        /// The kind of number.
        needed: &'static str,
    },
    /// A tag has no key, or no value for a parser.
    Tag {
        /// The group without a text.
        group: &'static str,
    },
    /// A placeholder of the transform has nothing to stand for.
    Placeholder {
        /// The placeholder.
        name: String,
    },
    /// A value of another kind than the template needs.
    Kind {
        /// What needs it.
        by: &'static str,
        /// What it needs.
        needed: &'static str,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { needed, at } => write!(f, "invalid JSON at byte {at}: expected {needed}"),
            Self::Python { needed, at } => write!(f, "invalid Python call at byte {at}: expected {needed}"),
            Self::TooMuch { what, limit } => write!(f, "more than {limit} {what}"),
            Self::Number { needed } => write!(f, "no {needed}"),
            Self::Tag { group } => write!(f, "a tag without a {group}"),
            Self::Placeholder { name } => write!(f, "nothing to stand for {{{name}}}"),
            Self::Kind { by, needed } => write!(f, "{by} needs {needed}, and there is none"),
        }
    }
}

/// The first 80 characters.
fn brief(text: &str) -> String {
    text.chars().take(80).collect()
}
