//! The project's templates with its conversations, by all steps of the attempt together: texts as transformers wrote
//! them, and the spans of the assistant in them.

use challenges::issues::chat::own::{self, Case, Expected, Own};
use challenges::issues::chat::{ChatTemplate, Options, Rendered, Steps};

use super::same_text;
use crate::gather::{Child, Unwound, caught};
use crate::scorecard::Measurement;

/// Renders everything and reports how much of it is equal.
pub(super) fn watch(child: &mut Child, steps: &Steps) {
    match caught(|| own::expected().iter().filter(|row| right(row, steps).is_ok()).count()) {
        Ok(same) => {
            for (name, count) in [("same", same), ("all", own::expected().len())] {
                child.measured(&format!("issues.prompts.{name}"), counted(count));
            }
        }
        Err(Unwound::Hole(hole)) => {
            child.unmeasured("issues.prompts.same", &format!("not written yet: {hole}"));
        }
        Err(Unwound::Panic(message)) => child.unmeasured("issues.prompts.same", &message),
    }
}

/// A number of things.
pub(super) fn counted(count: usize) -> Measurement {
    Measurement { value: count as f64, unit: "count".into(), interval: None, samples: vec![] }
}

/// All of them, by one step of the attempt; the first that differs is reported.
pub(super) fn all(steps: &Steps) -> Result<(), String> {
    own::expected().iter().try_for_each(|row| right(row, steps))
}

/// Whether a text is rendered as expected, or refused with the error that Python raises.
fn right(row: &Expected, steps: &Steps) -> Result<(), String> {
    let what = format!("the template {} with the conversation {}", row.template, row.conversation);
    let (own, case) = found(row).ok_or_else(|| format!("{what}: not known"))?;
    match (&row.text, rendered(own, case, steps)) {
        (Ok(text), Ok(got)) => {
            same_text(&what, &got.text, text)?;
            match &row.spans {
                Some(spans) if *spans != got.spans => {
                    Err(format!("{what}: the assistant's spans are {:?}, want {spans:?}", got.spans))
                }
                _ => Ok(()),
            }
        }
        (Ok(_), Err(error)) => Err(format!("{what}: {error}")),
        (Err(kind), Err(error)) if kind == error.kind.name() => Ok(()),
        (Err(kind), Err(error)) => Err(format!("{what}: got {error}, want an error of the kind {kind}")),
        (Err(kind), Ok(_)) => Err(format!("{what}: it is rendered, want an error of the kind {kind}")),
    }
}

/// The template and the conversation of a row.
pub(super) fn found(row: &Expected) -> Option<(&'static Own, &'static Case)> {
    let case = own::conversations().iter().find(|case| case.name == row.conversation);
    Some((own::find(&row.template)?, case?))
}

fn rendered(own: &Own, case: &Case, steps: &Steps) -> Result<Rendered, challenges::issues::chat::Error> {
    template(own, steps)?.chat(&own.conversation(case))
}

/// A template of the project that takes these steps.
pub(super) fn template(own: &Own, steps: &Steps) -> Result<ChatTemplate, challenges::issues::chat::Error> {
    ChatTemplate::new(own.template, Options { steps: steps.clone(), ..own::options() })
}
