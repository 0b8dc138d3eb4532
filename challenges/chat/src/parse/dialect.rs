//! JSON as models write it: strings between markers of their own, names without quotes.
//!
//! A dialect is rewritten to JSON, which is a step ([`super::super::Chat::json_of`]), then read.

use serde_json::Value;

use super::entry::Entry;
use super::error::{Problem, TemplateError};
use super::json;
use super::scalar::Strip;
use crate::steps::Steps;

/// What a dialect allows that JSON does not.
#[derive(Debug)]
pub struct Dialect {
    /// What begins and ends a string.
    delims: Vec<(String, String)>,
    unquoted_keys: bool,
    allow_non_json: bool,
    strip: Strip,
    steps: Steps,
}

impl Dialect {
    /// From the arguments of a `json` parser.
    pub fn new(args: &Entry) -> Result<Self, TemplateError> {
        Ok(Self {
            delims: args.pairs("string_delims")?,
            unquoted_keys: args.flag("unquoted_keys", false)?,
            allow_non_json: args.flag("allow_non_json", false)?,
            strip: Strip::new(args)?,
            steps: args.steps().clone(),
        })
    }

    /// The value of a text.
    pub fn parse(&self, text: &str) -> Result<Value, Problem> {
        match self.read(text) {
            Err(Problem::Json { .. }) if self.allow_non_json => Ok(self.strip.apply(text).into()),
            answer => answer,
        }
    }

    fn read(&self, text: &str) -> Result<Value, Problem> {
        if self.delims.is_empty() && !self.unquoted_keys {
            return json::read(text);
        }
        json::read(&self.steps.chat().json_of(text, &self.delims, self.unquoted_keys))
    }
}
