//! Challenge D in the grader. Its parts are attempts of their own, each with its own evidence.

mod chat;
mod classify;

pub(crate) use chat::COURSE as CHAT;
pub(crate) use classify::COURSE as CLASSIFY;
pub(crate) use classify::LAST_CONFUSION;
