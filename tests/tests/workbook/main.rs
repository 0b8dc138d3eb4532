//! All tests of the workbook in one binary: one link step.

mod golden;
mod hostile;
mod laws;
