#![allow(dead_code, missing_docs)]
#[path = "workbook/fsdp.rs"]
mod fsdp;
#[path = "workbook/llama.rs"]
mod llama;
