//! All tests of the workbook in one binary: one link step.

mod agreement;
mod attention;
mod book;
mod card;
mod cheats;
mod commands;
mod contract;
mod cuda;
mod device;
mod faults;
mod golden;
mod grad;
mod graph;
mod hostile;
mod interpret;
mod laws;
mod libraries;
mod look;
mod notebook;
mod planted;
mod probe;
mod schema;
mod tampering;
mod text;
mod transcription;
mod walls;
