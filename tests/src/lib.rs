//! Why we believe it.
//!
//! The tests are one integration binary, `tests/workbook/`; what several of its modules need is here, and
//! so are the attempts that the program `own` hands in.

pub mod attempts;
pub mod compiled;
pub mod drawn_llama;
pub mod example_run;
pub mod fixture;
pub mod golden;
pub mod gpu;
pub mod graphs;
pub mod one_graph;
pub mod place;
pub mod plans;
pub mod program;
pub mod small_llama;
pub mod stub;
pub mod svg;
pub mod tiny_llama;
pub mod whole_report;
