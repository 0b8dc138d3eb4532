//! *Look*: the notebook, without running it.
//!
//! It is run on a machine with a GPU. What can be held everywhere: it is a notebook, its code is Python, it says
//! what was not measured, and it fetches nothing but what a reader expects.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

fn notebook() -> Value {
    let path = tests::place::workbook().join("book/notebooks/colab-t4.ipynb");
    let text = std::fs::read_to_string(path).expect("the notebook");
    serde_json::from_str(&text).expect("JSON")
}

fn cells(notebook: &Value) -> &Vec<Value> {
    notebook["cells"].as_array().expect("cells")
}

/// A cell's text, which the format keeps as a list of lines.
fn source(cell: &Value) -> String {
    let lines = cell["source"].as_array().expect("lines");
    lines.iter().map(|line| line.as_str().expect("a line")).collect()
}

fn code(notebook: &Value) -> impl Iterator<Item = (&str, String)> {
    let code = cells(notebook).iter().filter(|cell| cell["cell_type"] == "code");
    code.map(|cell| (cell["id"].as_str().expect("an id"), source(cell)))
}

#[test]
fn the_notebook_is_of_the_format_that_it_names() {
    let notebook = notebook();
    assert_eq!((&notebook["nbformat"], &notebook["nbformat_minor"]), (&4.into(), &5.into()));
    assert!(notebook["metadata"].is_object());
    let ids: BTreeSet<&str> = cells(&notebook).iter().filter_map(|cell| cell["id"].as_str()).collect();
    assert_eq!(ids.len(), cells(&notebook).len(), "every cell has an id of its own");
    for cell in cells(&notebook) {
        let kind = cell["cell_type"].as_str().expect("a kind");
        assert!(["code", "markdown"].contains(&kind) && cell["metadata"].is_object(), "{cell}");
        assert!(
            kind != "code" || cell["outputs"].is_array() && cell.get("execution_count").is_some(),
            "{cell}"
        );
    }
}

#[test]
fn the_notebook_says_first_what_nobody_measured() {
    assert!(source(&cells(&notebook())[0]).contains("Not measured on a T4"));
}

#[test]
fn the_notebooks_code_is_python() {
    let notebook = notebook();
    for (id, text) in code(&notebook) {
        let plain = |line: &&str| !line.trim_start().starts_with(['!', '%']);
        let text = text.lines().filter(plain).collect::<Vec<_>>().join("\n");
        match parsed(&text) {
            None => return println!("not measured: no python3 on the path"),
            Some(error) => assert!(error.is_empty(), "{id}: {error}"),
        }
    }
}

/// What Python says of a text, nothing if it reads it; `None` where there is no Python.
fn parsed(text: &str) -> Option<String> {
    let mut python = Command::new("python3");
    python.args(["-c", "import ast, sys; ast.parse(sys.stdin.read())"]);
    python.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = python.spawn().ok()?;
    child.stdin.take()?.write_all(text.as_bytes()).ok()?;
    let ended = child.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn the_notebook_fetches_rust_and_a_repository_that_its_reader_names() {
    let notebook = notebook();
    let text: String = code(&notebook).map(|(_, text)| text).collect();
    let addresses: Vec<&str> =
        text.split("http").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
    assert_eq!(addresses, ["s'", "s://sh.rustup.rs"], "curl's protocol, and rustup");
    assert!(text.contains("REPOSITORY = \"...\""), "the address of the repository is the reader's");
}

#[test]
fn what_the_notebook_shows_did_not_fail() {
    for cell in cells(&notebook()) {
        let outputs = cell["outputs"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(outputs.iter().all(|output| output["output_type"] != "error"), "{cell}");
    }
}
