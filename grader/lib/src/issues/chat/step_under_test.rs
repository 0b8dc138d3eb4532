//! The steps of tool calling, of which one is under test. A template keeps its steps, so that this one owns what the
//! other challenges' borrow.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use challenges::issues::chat::lint::Criterion;
use challenges::issues::chat::tools::{ArgumentType, Signature};
use challenges::issues::chat::{Chat, Find, MarkerState, Next, Rendered, Solution, Tool, solution_calls};
use serde_json::Value;

use crate::calls::call;
use crate::gather::Asked;
use crate::oracles;
use crate::step_under_test::{EVERY, counted};

/// The attempt's step of that name, or every step; all others are the solution's.
pub(super) struct StepUnderTest {
    step: String,
    attempt: Arc<dyn Chat>,
    asked: Arc<AtomicU64>,
}

impl StepUnderTest {
    /// `asked` counts the calls to the solution that the attempt's own step makes.
    pub fn new(step: &str, attempt: &Arc<dyn Chat>, asked: &Arc<AtomicU64>) -> Self {
        Self { step: step.into(), attempt: Arc::clone(attempt), asked: Arc::clone(asked) }
    }

    fn of<T>(&self, step: &str, run: impl FnOnce(&dyn Chat) -> T) -> T {
        if self.step != EVERY && self.step != step {
            return run(&Solution);
        }
        let shown = || "`replay` shows the calls of a check".to_owned();
        let own = || oracles::during(step, shown, || run(self.attempt.as_ref()));
        if self.step == EVERY { own() } else { counted(solution_calls, &self.asked, own) }
    }
}

impl Chat for StepUnderTest {
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        let _asked = asked(|| format!("the JSON of {text:?}, ensure_ascii {ensure_ascii}"));
        self.of("D.1", |step| step.json_string(text, ensure_ascii, out));
    }

    fn float(&self, value: f64) -> String {
        let _asked = asked(|| format!("the text of {value:?}"));
        self.of("D.1", |step| step.float(value))
    }

    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
        let _asked = asked(|| format!("the mask of tokens at {offsets:?}, spans {spans:?}"));
        self.of("D.2", |step| step.token_mask(offsets, spans))
    }

    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String {
        let _asked = asked(|| format!("{text:?} without {special:?}, broken by {mark:?}"));
        self.of("D.3", |step| step.defuse(text, special, mark))
    }

    fn schema(&self, kind: &ArgumentType) -> Value {
        let _asked = asked(|| format!("the schema of {kind:?}"));
        self.of("D.4", |step| step.schema(kind))
    }

    fn tool(&self, signature: &Signature) -> Tool {
        let _asked = asked(|| format!("the tool of {signature:?}"));
        self.of("D.4", |step| step.tool(signature))
    }

    fn find(&self, text: &str, marker: &str) -> Find {
        let _asked = asked(|| format!("{marker:?} in {text:?}"));
        self.of("D.5", |step| step.find(text, marker))
    }

    fn decide(&self, markers: &[MarkerState], end: usize) -> Next {
        let _asked = asked(|| format!("what comes next of {markers:?}, the text known up to {end}"));
        self.of("D.6", |step| step.decide(markers, end))
    }

    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String {
        let _asked =
            asked(|| format!("the JSON of {text:?}, strings {strings:?}, unquoted_keys {unquoted_keys}"));
        self.of("D.7", |step| step.json_of(text, strings, unquoted_keys))
    }

    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool {
        let _asked = asked(|| {
            format!("{word:?} in {:?} with the spans {:?}, {criterion:?}", rendered.text, rendered.spans)
        });
        self.of("D.8", |step| step.shows(rendered, word, criterion))
    }
}

/// Tells what a step is asked for: now where calls are shown, and with a panic that comes of it.
fn asked<F: Fn() -> String>(message: F) -> Asked<F> {
    call(&message);
    Asked(message)
}
