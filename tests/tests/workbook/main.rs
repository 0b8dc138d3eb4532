//! All tests of the workbook in one binary: one link step.

mod agreement;
mod book;
mod card;
mod cheats;
mod commands;
mod contract;
mod cuda;
mod device;
mod faults;
mod golden;
mod hostile;
mod laws;
mod libraries;
mod llama;
mod look;
mod lora;
mod loss;
mod notebook;
mod optim;
mod planted;
mod probe;
mod schema;
mod tampering;
mod transcription;
mod walls;
