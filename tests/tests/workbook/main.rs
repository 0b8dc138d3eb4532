//! All tests of the workbook in one binary: one link step.

mod agreement;
mod book;
mod device;
mod golden;
mod hostile;
mod laws;
mod look;
mod schema;
mod transcription;
mod walls;
