//! (D) `chat`: conversations as text, byte for byte as transformers renders them, and text as calls ([`parse`]).
//!
//! A model reads text. What turns messages into it is a template that came with the model's weights, written for a
//! Python program: in Jinja, a language whose expressions are Python's. A renderer that is off by one space, or writes
//! `true` where Python writes `True`, feeds the model something that it was not trained on, and nothing fails loudly.
//! And a template is a program from the network: it must not hang, grow or read what is none of its business.
//!
//! **What is given.** The template's source, compiled once as a [`ChatTemplate`], and a [`Conversation`].
//! **What comes out.** [`Rendered`]: the text, and where the assistant's own text is in it, for a mask of the tokens to
//! train on. Or an [`Error`] of the [`Kind`] that Python would raise.
//!
//! What a template means is in `chat::jinja`, the language written out; the two texts in it that a reader's step
//! writes are asked of the attempt.
//!
//! What the two ways have in common with every trainer and every server is small, and is what a reader writes: the
//! steps of [`Chat`].

pub use chat::{
    Chat, ChatTemplate, Clock, Conversation, Counted, Error, Find, Function, Kind, Layout, Limits,
    MarkerState, Match, Message, Moment, Next, Options, Rendered, Solution, Steps, Tool, Variables, is_word,
    json_text, solution_calls, solution_text,
};
pub use chat::{defuse, lint, own, parse, render, steps, tools, toy};

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
