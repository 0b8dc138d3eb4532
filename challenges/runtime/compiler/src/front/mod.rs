//! From a program to a graph: recording it, and saying what cannot be recorded.

pub mod capture;
pub mod change;
pub mod explain;
