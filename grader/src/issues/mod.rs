//! Challenge D in the grader. Its parts are attempts of their own, each with its own evidence: `chat` so far.

mod chat;

pub(crate) use chat::COURSE as CHAT;
