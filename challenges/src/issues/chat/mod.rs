//! Messages to text, and text to messages.

pub mod parse;
