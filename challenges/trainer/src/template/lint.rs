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
    let source = Source::read(from)?;
    let findings = source.findings(from)?;
    let several = findings.len() > 1;
    let all = || findings.iter().flat_map(|(name, all)| all.iter().map(move |finding| (*name, finding)));
    let text = if options.json {
        let describe = |(name, finding): (&str, &Finding)| {
            let mut message = describe(finding);
            if several {
                message["template"] = json!(name);
            }
            message
        };
        format!("{}\n", Json::Array(all().map(describe).collect()))
    } else if all().next().is_none() {
        format!("{}: nothing is lost in any probe\n", from.display())
    } else {
        all().fold(String::new(), |mut message, (name, finding)| {
            let before = if several { format!("{name}: ") } else { String::new() };
            let _ = writeln!(message, "{before}{}", clean(&finding.to_string()));
            message
        })
    };
    options.give(&text)?;
    Ok(u8::from(all().next().is_some()))
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
