//! Look: reports and figures compared whole with the files in `tests/look/`.
//!
//! What people read is judged by reading it, so the expected texts are kept as files that open in a
//! terminal, an editor or a browser. `UPDATE=1 cargo test --release -p tests look` writes them anew; the
//! change then shows in the diff. The scorecards come from a fixture whose numbers nobody measured.

use std::fs;

use grader::report::text::Options;
use grader::report::{html, markdown, text};
use scorecard::Scorecard;
use tests::fixture;

/// Compares with the kept file, or writes it where `UPDATE=1` asks for that.
pub fn looks_like(name: &str, got: &str) {
    let path = tests::place::tests().join("look").join(name);
    if std::env::var("UPDATE").is_ok_and(|update| update == "1") {
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the folder can be made");
        return fs::write(&path, got).expect("the file can be written");
    }
    let [kept, got] =
        [fs::read_to_string(&path).unwrap_or_default(), got.into()].map(|text| text.replace("\r\n", "\n"));
    if let Some(difference) = first_difference(&kept, &got) {
        panic!("{name} looks different; UPDATE=1 rewrites it\n{difference}");
    }
}

fn first_difference(kept: &str, got: &str) -> Option<String> {
    let mut lines = kept.split('\n').zip(got.split('\n')).enumerate();
    match lines.find(|(_, (kept, got))| kept != got) {
        Some((i, (kept, got))) => Some(format!("line {}\n  kept {kept}\n  got  {got}", i + 1)),
        None => (kept != got).then(|| format!("{} bytes are kept, {} came", kept.len(), got.len())),
    }
}

fn cards() -> [(&'static str, Scorecard); 5] {
    [
        ("solved", fixture::solved()),
        ("half-done", fixture::half_done()),
        ("untouched", fixture::untouched()),
        ("compiled", fixture::compiled()),
        ("chunked", fixture::chunked()),
    ]
}

#[test]
fn the_terminal_scorecard_looks_as_kept() {
    for (name, card) in cards() {
        looks_like(&format!("{name}.txt"), &text::render(&card, Options::default()));
    }
}

#[test]
fn the_screen_of_the_readme_is_the_kept_report() {
    let read =
        |name: &str| fs::read_to_string(tests::place::workbook().join(name)).expect("a file of the workbook");
    let kept: Scorecard =
        serde_json::from_str(&read("book/src/results/epyc-2-cores.json")).expect("a scorecard");
    let screen = text::render(&kept, Options::default());
    assert!(
        read("README.md").replace("\r\n", "\n").contains(screen.trim()),
        "expected in README.md:\n{screen}"
    );
}

#[test]
fn the_coloured_scorecard_looks_as_kept() {
    let colored = text::render(&fixture::half_done(), Options { color: true, ..Options::default() });
    looks_like("half-done.ansi", &colored);
}

#[test]
fn the_markdown_scorecard_looks_as_kept() {
    for (name, card) in cards() {
        looks_like(&format!("{name}.md"), &markdown::render(&card));
    }
}

#[test]
fn the_html_scorecard_looks_as_kept() {
    for (name, card) in cards() {
        looks_like(&format!("{name}.html"), &html::render(&card).expect("the template renders"));
    }
}

#[test]
fn the_figures_look_as_kept() {
    let (nf4, graph) = (&fixture::solved().challenges[0], &fixture::compiled().challenges[2]);
    let (fsdp, loss) = (&fixture::on_ranks().challenges[1], &fixture::chunked().challenges[4]);
    for figure in [nf4, fsdp, graph, loss].into_iter().flat_map(figures::all) {
        looks_like(&format!("{}.svg", figure.name), &figure.svg);
    }
}
