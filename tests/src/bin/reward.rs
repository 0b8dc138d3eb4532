//! A program that judges completions for the tests of `trainer train`: the share of their characters that are vowels, or,
//! asked by its argument, one of the things that such a program may do wrong.

use std::io::{BufRead as _, stdin};
use std::time::Duration;

use serde_json::Value;

fn main() {
    let wrong = std::env::args().nth(1).unwrap_or_default();
    if wrong == "unread" {
        return; // and nothing answered
    }
    let lines: Vec<String> = stdin().lock().lines().map(|line| line.expect("UTF-8")).collect();
    for (number, line) in lines.iter().enumerate() {
        let line: Value = serde_json::from_str(line).expect("an object a line");
        match (wrong.as_str(), number) {
            ("slow", _) => std::thread::sleep(Duration::from_mins(1)),
            ("short", 0) => {}
            ("word", 1) => println!("good"),
            ("infinite", 1) => println!("inf"),
            _ => println!("{}", worth(&line)),
        }
    }
    if wrong == "fails" {
        eprintln!("the judge is ill");
        std::process::exit(3);
    }
}

/// The share of vowels; the line's `bonus` is added.
fn worth(line: &Value) -> f64 {
    let completion = line["completion"].as_str().or_else(|| line["completion"][0]["content"].as_str());
    let text = completion.expect("a text or a message");
    assert!(line["prompt"].is_string() || line["prompt"].is_array(), "a prompt beside it");
    let vowels = text.chars().filter(|c| "aeiou".contains(*c)).count();
    vowels as f64 / text.chars().count().max(1) as f64 + line["bonus"].as_f64().unwrap_or(0.0)
}
