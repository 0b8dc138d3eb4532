//! Challenge D in the grader. Its parts are attempts of their own, each with its own evidence: `chat` so far.

mod chat;

use std::sync::Arc;

use challenges::issues::chat::Chat;

pub(crate) use chat::MEMORY_LIMIT;

use crate::evidence::{Seen, unmeasured};
use crate::gather::{Child, Effort, Item};
use crate::rubric::{Facts, find};

/// Everything that there is to do, in order.
pub(crate) fn items(effort: &Effort) -> Vec<Item> {
    chat::items(effort)
}

/// Does one item.
pub(crate) fn work(child: &mut Child, attempt: &Arc<dyn Chat>, name: &str) {
    chat::work(child, attempt, name);
}

/// The facts of D: each part says what it knows of its rows; the others' parts are still to come.
pub(crate) fn facts(seen: &Seen<'_>) -> Facts {
    let all = find("issues").map(crate::rubric::Rubric::facts).unwrap_or_default();
    let mut facts: Facts =
        all.into_iter().map(|name| (name, unmeasured("not part of this version"))).collect();
    facts.extend(chat::facts(seen));
    facts
}
