//! `report` and `verify-report`: a scorecard from a file, shown or computed again.

use std::path::{Path, PathBuf};

use reference::clean::clean;
use scorecard::file as scorecard_file;

use crate::courses::Supplied;
use crate::options::{Failure, Options};
use crate::score::{Scope, exit_code, run};
use crate::scorecard::Scorecard;
use crate::terminal::print;
use crate::verb::score::show;
use crate::verify::{About, Finding, Verified, compare, verify};
use crate::workbook::{Workbook, folder};

/// Shows a scorecard that was measured before.
pub(crate) fn report(options: &Options, file: Option<&Path>) -> Result<u8, Failure> {
    let path = match file {
        Some(path) => path.to_path_buf(),
        None => last()?,
    };
    options.writes_elsewhere(&[&path])?;
    let card = scorecard_file::read(&path).map_err(Failure::Usage)?;
    show(options, &card, Scope::Score, &[])?;
    Ok(exit_code(&card, options.strict))
}

/// Returns the file of the last scorecard.
fn last() -> Result<PathBuf, Failure> {
    let path = folder(&Workbook::find().map_err(Failure::Usage)?).join("last.json");
    if path.exists() {
        return Ok(path);
    }
    let what_to_do =
        "`score` keeps that of your exercises; `report FILE` shows one that `score --json -o FILE` wrote";
    Err(Failure::Usage(format!("no scorecard is kept yet: {what_to_do}")))
}

/// What `verify-report` cannot know of a report that holds.
const NOT_COVERED: &str = "Not covered: that its samples and counts were ever taken, its day and its machine. \
                           `verify-report --again FILE` runs it anew.";

/// Computes a report again; with `again` runs its attempt anew, too.
pub(crate) fn verify_report(
    options: &Options,
    own: &Supplied,
    path: &Path,
    again: bool,
) -> Result<u8, Failure> {
    let card = scorecard_file::read(path).map_err(Failure::Usage)?;
    let verified = verify(&card);
    print(&describe(path, &verified));
    if !verified.findings.is_empty() {
        return Ok(1);
    }
    if again { run_again(options, own, &card) } else { Ok(0) }
}

fn describe(path: &Path, verified: &Verified) -> String {
    let path = clean(&path.display().to_string());
    let Verified { findings, parts } = verified;
    let mut lines: Vec<String> =
        parts.iter().map(|part| format!("{part}; none of its rows counts")).collect();
    lines.extend(listed(findings));
    lines.push(match findings.first() {
        None => format!("{path} follows from its own numbers. {NOT_COVERED}"),
        Some(_) if findings.iter().all(|finding| finding.about == About::Version) => format!(
            "{path} does not hold: it was edited, or another version than warpbook {} wrote it; that version verifies it.",
            env!("CARGO_PKG_VERSION")
        ),
        Some(_) => format!("{path} does not hold: it contradicts itself."),
    });
    lines.join("\n") + "\n"
}

/// Findings that are printed; the rest is counted.
const SHOWN: usize = 20;

fn listed(findings: &[Finding]) -> Vec<String> {
    let mut lines: Vec<String> = findings.iter().take(SHOWN).map(ToString::to_string).collect();
    if findings.len() > SHOWN {
        lines.push(format!("and {} more", findings.len() - SHOWN));
    }
    lines
}

fn run_again(options: &Options, own: &Supplied, card: &Scorecard) -> Result<u8, Failure> {
    let plan = options.again(own, card)?;
    let now = run(&plan).map_err(Failure::Fault)?;
    let compared = compare(card, &now);
    let mut lines = listed(&compared.findings);
    lines.extend(compared.times);
    lines.push(match compared.findings.len() {
        0 => "Run anew with its seed: checks, guards and rows end alike; times are told, not judged.".into(),
        n => format!("Run anew with its seed: {n} of its checks, guards and rows end otherwise."),
    });
    print(&(lines.join("\n") + "\n"));
    Ok(u8::from(!compared.findings.is_empty()))
}
