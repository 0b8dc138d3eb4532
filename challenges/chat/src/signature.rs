//! The signature of a function that is a tool, as data.

/// A function that is a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What it takes, in order.
    pub arguments: Vec<Argument>,
}

/// An argument of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What it may be.
    pub kind: ArgumentType,
    /// Whether a call may leave it out: in Python, whether it has a default. That it may be null is part of its type.
    pub optional: bool,
}

/// What an argument may be; [`Chat::schema`](crate::contract::Chat::schema) writes it.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentType {
    /// Anything.
    Any,
    /// Nothing: a null.
    Null,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A text.
    Text,
    /// One of these texts.
    Choice(Vec<String>),
    /// This, or nothing: the same schema, and `nullable`.
    Nullable(Box<ArgumentType>),
    /// Any number of these, in order.
    List(Box<ArgumentType>),
    /// One of each, in this order.
    Tuple(Vec<ArgumentType>),
    /// These by name.
    Map(Box<ArgumentType>),
}
