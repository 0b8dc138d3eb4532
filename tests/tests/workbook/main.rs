//! All tests of the workbook in one binary: one link step.

mod cheats;
mod contract;
mod faults;
mod golden;
mod hostile;
mod laws;
mod planted;
