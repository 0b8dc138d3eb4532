//! .
pub mod rubric;
pub mod scorecard;
