//! One step of an attempt among the solution's others, so that a step is judged for itself.

use std::ops::Range;
use std::sync::Arc;

use challenges::issues::chat::lint::Way;
use challenges::issues::chat::tools::{ArgumentType, Signature};
use challenges::issues::chat::{Chat, Next, Place, Rendered, Seen, Solution, Tool};
use serde_json::Value;

use crate::calls::call;
use crate::gather::Asked;

/// The attempt's step of that name; all others are the solution's.
pub(super) struct Alone {
    pub step: String,
    pub attempt: Arc<dyn Chat>,
}

impl Alone {
    fn of(&self, step: &str) -> &dyn Chat {
        if self.step == step { self.attempt.as_ref() } else { &Solution }
    }
}

impl Chat for Alone {
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        let _asked = asked(|| format!("the JSON of {text:?}, ensure_ascii {ensure_ascii}"));
        self.of("D.1").json_string(text, ensure_ascii, out);
    }

    fn float(&self, value: f64) -> String {
        let _asked = asked(|| format!("the text of {value:?}"));
        self.of("D.1").float(value)
    }

    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
        let _asked = asked(|| format!("the mask of tokens at {offsets:?}, spans {spans:?}"));
        self.of("D.2").token_mask(offsets, spans)
    }

    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String {
        let _asked = asked(|| format!("{text:?} without {special:?}, broken by {mark:?}"));
        self.of("D.3").defuse(text, special, mark)
    }

    fn schema(&self, kind: &ArgumentType) -> Value {
        let _asked = asked(|| format!("the schema of {kind:?}"));
        self.of("D.4").schema(kind)
    }

    fn tool(&self, signature: &Signature) -> Tool {
        let _asked = asked(|| format!("the tool of {signature:?}"));
        self.of("D.4").tool(signature)
    }

    fn find(&self, text: &str, marker: &str) -> Place {
        let _asked = asked(|| format!("{marker:?} in {text:?}"));
        self.of("D.5").find(text, marker)
    }

    fn decide(&self, markers: &[Seen], end: usize) -> Next {
        let _asked = asked(|| format!("what comes next of {markers:?}, the text known up to {end}"));
        self.of("D.6").decide(markers, end)
    }

    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String {
        let _asked =
            asked(|| format!("the JSON of {text:?}, strings {strings:?}, unquoted_keys {unquoted_keys}"));
        self.of("D.7").json_of(text, strings, unquoted_keys)
    }

    fn shows(&self, rendered: &Rendered, word: &str, way: Way) -> bool {
        let _asked =
            asked(|| format!("{word:?} in {:?} with the spans {:?}, {way:?}", rendered.text, rendered.spans));
        self.of("D.8").shows(rendered, word, way)
    }
}

/// Tells what a step is asked for: now where calls are shown, and with a panic that comes of it.
fn asked<F: Fn() -> String>(told: F) -> Asked<F> {
    call(&told);
    Asked(told)
}
