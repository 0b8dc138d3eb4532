//! A template, and whose steps write its texts.

use crate::jinja::{self, Clock, Conversation, Environment, Error, Limits, Rendered, Variables};
use crate::steps::Steps;

/// What a template is compiled with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a render may take.
    pub limits: Limits,
    /// The time that `strftime_now` writes.
    pub clock: Clock,
    /// Whose steps write texts and numbers.
    pub steps: Steps,
}

/// A chat template, compiled once and rendered as often as wanted, from any thread.
pub struct ChatTemplate {
    compiled: jinja::Template,
    options: Options,
}

impl ChatTemplate {
    /// Compiles `source`.
    pub fn new(source: &str, options: Options) -> Result<ChatTemplate, Error> {
        Ok(ChatTemplate { compiled: jinja::Template::new(source, &options.limits)?, options })
    }

    /// What it was compiled with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Renders with `variables`.
    pub fn render(&self, variables: &Variables) -> Result<Rendered, Error> {
        self.compiled.render(variables, self.environment())
    }

    /// Renders a conversation, as [`jinja::Template::chat`] says.
    pub fn chat(&self, conversation: &Conversation) -> Result<Rendered, Error> {
        self.compiled.chat(conversation, self.environment())
    }

    fn environment(&self) -> Environment<'_> {
        let Options { limits, clock, steps } = &self.options;
        Environment { limits, clock: *clock, host: steps }
    }
}
