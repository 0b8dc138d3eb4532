//! All tests of the workbook in one binary: one link step.

mod cheats;
mod commands;
mod contract;
mod faults;
mod golden;
mod hostile;
mod laws;
mod look;
mod planted;
mod tampering;
