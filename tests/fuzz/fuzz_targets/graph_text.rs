//! Fuzz: any text, read as a graph.
//!
//! Nothing may panic, overflow or run out of memory; an error names a line, and a graph that is handed out is sound and
//! reads back from its own text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reference::graph::Graph;

fuzz_target!(|text: &str| read(text));

fn read(text: &str) {
    match Graph::parse(text) {
        Ok(graph) => {
            graph.check().expect("what is handed out is sound");
            let again = graph.to_string();
            let back = Graph::parse(&again).expect("what is printed is read");
            assert_eq!(back.to_string(), again);
        }
        Err(error) => assert!(error.to_string().starts_with("line "), "{error} names no line"),
    }
}
