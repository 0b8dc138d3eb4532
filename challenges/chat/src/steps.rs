//! Whose steps a renderer and a parser take.
//!
//! A template of either kind keeps the attempt that it was compiled with: what it renders asks it as its [`Host`], and
//! what it parses asks the copy that a marker or a field holds.

use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::contract::{Chat, Solution};
use crate::jinja::Host;

/// An attempt, shared.
#[derive(Clone)]
pub struct Steps(Arc<dyn Chat>);

static SOLUTION: LazyLock<Steps> = LazyLock::new(|| Steps::new(Solution));

impl Steps {
    /// The steps of an attempt.
    pub fn new(attempt: impl Chat + 'static) -> Steps {
        Steps(Arc::new(attempt))
    }

    /// The attempt.
    pub fn chat(&self) -> &dyn Chat {
        self.0.as_ref()
    }
}

impl Default for Steps {
    /// The solution's.
    fn default() -> Steps {
        SOLUTION.clone()
    }
}

impl From<Arc<dyn Chat>> for Steps {
    fn from(attempt: Arc<dyn Chat>) -> Steps {
        Steps(attempt)
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps(..)")
    }
}

/// A template's texts are an attempt's steps.
impl Host for Steps {
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        self.chat().json_string(text, ensure_ascii, out);
    }

    fn float(&self, value: f64) -> String {
        self.chat().float(value)
    }
}
