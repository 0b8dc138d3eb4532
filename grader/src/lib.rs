//! .
pub mod figure;
pub mod report;
pub mod rubric;
pub mod scorecard;
