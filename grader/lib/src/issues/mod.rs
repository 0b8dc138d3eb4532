//! Challenge D in the grader. Its parts are attempts of their own, each with its own evidence.

mod attention;
mod chat;
mod classify;
mod gguf;
mod part;
mod vision;
pub(crate) mod windows;

pub(crate) use attention::COURSE as ATTENTION;
pub(crate) use chat::COURSE as CHAT;
pub(crate) use classify::COURSE as CLASSIFY;
pub(crate) use classify::LAST_CONFUSION;
pub(crate) use gguf::COURSE as GGUF;
pub(crate) use vision::COURSE as VISION;
