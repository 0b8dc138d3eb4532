//! `template`: a chat template rendered, tried, mended.

mod lint;
mod render;
mod repair;
mod source;

pub(crate) use render::json_of;
pub(crate) use source::{Source, Templates};

use std::path::PathBuf;

use clap::Subcommand;

use crate::output::{Failure, Options};

/// What is done with a template.
#[derive(Debug, Subcommand)]
pub(crate) enum TemplateVerb {
    /// Writes a conversation as text
    Render(render::Render),
    /// Says what a template loses, changes or mislabels; exit code 1 if there is something
    Lint {
        /// A template, a `tokenizer_config.json`, or a checkpoint's folder
        from: PathBuf,
    },
    /// Mends what lint finds, shows the difference, and writes the result to --output
    Repair(repair::Repair),
}

/// Runs `template`.
pub(crate) fn run(options: &Options, what: &TemplateVerb) -> Result<u8, Failure> {
    match what {
        TemplateVerb::Render(render) => render.run(options),
        TemplateVerb::Lint { from } => lint::run(options, from),
        TemplateVerb::Repair(repair) => repair.run(options),
    }
}
