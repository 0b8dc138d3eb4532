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
    /// The template does not parse. A `break` outside of a loop is such a mistake here; Jinja leaves it to Python's own
    /// compiler, whose exception is a `SyntaxError`.
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

/// A part of a template's source, in bytes; its line ends are `\n` already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { start: narrow(start), end: narrow(end) }
    }

    /// From where this one starts to where `last` ends.
    pub(crate) fn to(self, last: Span) -> Span {
        Span { start: self.start, end: last.end.max(self.start) }
    }

    /// What stands there.
    pub(crate) fn of(self, source: &str) -> &str {
        source.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Why a template does not compile or a conversation does not render.
///
/// It shows the line of the template that is to blame, if one is, with a caret under the part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What Python would raise, or which limit was met.
    pub kind: Kind,
    /// What was there, in Python's words where they are known.
    pub message: String,
    /// The line of the template, from 1, if one is to blame.
    pub line: Option<u32>,
    place: Option<Box<Blame>>,
}

/// Which part of a template is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Blame {
    span: Span,
    /// The line and the carets under it, once the source was at hand.
    excerpt: Option<[String; 2]>,
}

impl Error {
    /// An error that no line of the template is to blame for.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), line: None, place: None }
    }

    /// The same on one line: the line of the template, the kind and what was there.
    pub fn brief(&self) -> String {
        let line = self.line.map_or_else(String::new, |line| format!("line {line} of the template: "));
        format!("{line}{}: {}", self.kind.name(), self.message)
    }

    /// The same at a part of the template, unless it knows a closer one.
    #[cold]
    pub(crate) fn at(mut self, span: Span) -> Error {
        self.place.get_or_insert_with(|| Box::new(Blame { span, excerpt: None }));
        self
    }

    /// Whether it knows which part of the template is to blame.
    pub(crate) fn is_placed(&self) -> bool {
        self.place.is_some()
    }

    /// The same with the line to blame and what it says.
    pub(crate) fn shown(mut self, source: &str) -> Error {
        if let Some(place) = &mut self.place {
            let before = source.get(..place.span.start as usize).unwrap_or(source);
            self.line = u32::try_from(before.matches('\n').count() + 1).ok();
            place.excerpt = Some(excerpt(source, before.len(), place.span.end as usize));
        }
        self
    }
}

/// How many characters of a line are shown before and after the part that is to blame, and of the part itself.
const SHOWN_BEFORE: usize = 48;
const SHOWN: usize = 100;

/// The line around `start`, cut where it is long, and a caret under each character of the part.
fn excerpt(source: &str, start: usize, end: usize) -> [String; 2] {
    let first = source[..start].rfind('\n').map_or(0, |at| at + 1);
    let last = source[start..].find('\n').map_or(source.len(), |at| start + at);
    let end = end.clamp(start, last);
    let characters = |text: &str| text.chars().count();
    let skipped = characters(&source[first..start]).saturating_sub(SHOWN_BEFORE);
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = if skipped > 0 { "…".into() } else { String::new() };
    line.extend(source[first..last].chars().skip(skipped).take(SHOWN).map(visible));
    if characters(&source[first..last]) > skipped + SHOWN {
        line.push('…');
    }
    let column = characters(&source[first..start]) - skipped + usize::from(skipped > 0);
    let room = characters(&line).saturating_sub(column).max(1);
    let width = source.get(start..end).map_or(1, characters).clamp(1, room);
    [line, " ".repeat(column) + &"^".repeat(width)]
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.brief())?;
        match self.place.as_ref().and_then(|place| place.excerpt.as_ref()) {
            Some([line, carets]) => write!(f, "\n    {line}\n    {carets}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
