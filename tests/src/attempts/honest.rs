//! The solutions' texts as this program's own, as if they had been typed in: what these compute is an attempt's own
//! work, while each call of the workbook's solutions is counted.

#[path = "../../../challenges/src/issues/attention/solution.rs"]
pub mod attention;
#[path = "../../../challenges/src/issues/chat/solution.rs"]
pub mod chat;
#[path = "../../../challenges/src/issues/classify/solution.rs"]
pub mod classify;
#[path = "../../../challenges/src/fsdp/solution.rs"]
pub mod fsdp;
#[path = "../../../challenges/src/issues/gguf/solution.rs"]
pub mod gguf;
#[path = "../../../challenges/src/graph/solution.rs"]
pub mod graph;
#[path = "../../../challenges/src/loss/solution.rs"]
pub mod loss;
#[path = "../../../challenges/src/nf4/solution.rs"]
pub mod nf4;
#[path = "../../../challenges/src/issues/vision/solution.rs"]
pub mod vision;
