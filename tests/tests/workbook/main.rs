//! All tests of the workbook in one binary: one link step.

mod agreement;
mod book;
mod cheats;
mod commands;
mod contract;
mod cuda;
mod device;
mod faults;
mod golden;
mod hostile;
mod laws;
mod look;
mod planted;
mod schema;
mod tampering;
mod transcription;
mod walls;
