//! The signature of a function that is a tool, as data.

/// A function that is a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The function's name.
    pub name: String,
    /// A description of the function, for the model.
    pub description: String,
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
}

/// An argument of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The argument's name.
    pub name: String,
    /// A description of the argument, for the model.
    pub description: String,
    /// The argument's type.
    pub kind: ArgumentType,
    /// True if a call may leave the argument out: in Python, if it has a default. Whether it may be null is part of its type.
    pub optional: bool,
}

/// The type of an argument. [`Chat::schema`](crate::contract::Chat::schema) writes it as a JSON schema.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentType {
    /// Any value.
    Any,
    /// Null.
    Null,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A text out of a list.
    Choice(Vec<String>),
    /// A type that may also be null: its schema has `nullable`.
    Nullable(Box<ArgumentType>),
    /// A list of any length whose elements have one type.
    List(Box<ArgumentType>),
    /// A list with one element of each type, in this order.
    Tuple(Vec<ArgumentType>),
    /// An object whose values have one type.
    Map(Box<ArgumentType>),
}
