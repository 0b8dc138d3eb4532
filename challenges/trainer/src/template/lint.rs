//! `template lint`: what a template loses, changes or mislabels.

use std::fmt::Write as _;
use std::path::Path;

use challenges::issues::chat::lint::{Finding, Observed};
use reference::clean::clean;
use serde_json::{Value as Json, json};

use super::source::Source;
use crate::output::{Failure, Options};

/// Runs `template lint`; 1 if something is found.
pub(super) fn run(options: &Options, from: &Path) -> Result<u8, Failure> {
    options.writes_elsewhere(&[from])?;
    let findings = Source::read(from)?.findings(from)?;
    let text = if options.json {
        format!("{}\n", Json::Array(findings.iter().map(describe).collect()))
    } else if findings.is_empty() {
        format!("{}: nothing is lost in any probe\n", from.display())
    } else {
        findings.iter().fold(String::new(), |mut message, finding| {
            let _ = writeln!(message, "{}", clean(&finding.to_string()));
            message
        })
    };
    options.give(&text)?;
    Ok(u8::from(!findings.is_empty()))
}

fn describe(finding: &Finding) -> Json {
    let mut message = json!({
        "rule": finding.rule.name(),
        "means": finding.rule.sentence(),
        "probe": finding.probe,
        "sought": finding.expectation.map(|expectation| json!({"what": expectation.what, "word": expectation.word})),
    });
    match &finding.observed {
        Observed::Text(text) => message["text"] = json!(text),
        Observed::Refusal(error) => message["error"] = json!(error.brief()),
    }
    message
}
