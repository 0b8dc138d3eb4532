//! Why we believe it.
//!
//! The tests are one integration binary, `tests/workbook/`; what several of its modules need is here.

pub mod golden;
