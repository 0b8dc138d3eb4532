//! Challenge E: a loss made chunk by chunk is the loss, and costs what is said.
//!
//! Below: every golden loss in chunks; what TRL answers; laws on drawn problems; what is reported of nonsense; counted
//! bytes; a training run.

mod bytes;
mod case;
mod drawn;
mod errors;
mod golden;
mod groups;
mod laws;
mod llama;
mod trl;
