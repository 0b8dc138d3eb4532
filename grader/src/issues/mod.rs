//! Challenge D in the grader. Its parts are attempts of their own, each with its own evidence.

mod attention;
mod chat;

pub(crate) use attention::COURSE as ATTENTION;
pub(crate) use chat::COURSE as CHAT;
