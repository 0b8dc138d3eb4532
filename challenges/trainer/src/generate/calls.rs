//! Calls in a model's answer, held to the tools' grammar.
//!
//! ```text
//! It is a text. <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>
//! free                     |  constrained                          | free
//!                marker ---^^ space
//! ```
//!
//! What a template writes before a call is a marker and the white space after it. A model writes what it wants until it
//! has written the marker; then comes the white space, then a valid call of one of the tools, then it is free again.
//! Where a template has no marker, the whole answer is one call.
//!
//! A token may end a marker or the white space, and may not reach beyond: a token of fewer bytes writes the same.

use reference::clean::clean;
use serde_json::Value as Json;

use crate::constrain::{Constraint, Error, Token, Vocabulary, call_schema};

/// What a model may write next.
pub struct Calls {
    vocabulary: Vocabulary,
    begin: Constraint,
    marker: Vec<u8>,
    space: Vec<u8>,
    state: State,
}

enum State {
    /// Anything; the end of what was written, shorter than the marker.
    Free(Vec<u8>),
    /// The rest of the white space.
    Space(Vec<u8>),
    /// A call.
    Call(Box<Constraint>),
    /// Anything: the one call of an answer without markers is written.
    Done,
}

impl Calls {
    /// Calls of `tools` after the text `before`.
    ///
    /// # Errors
    /// If no grammar can be made of the tools.
    pub fn new(vocabulary: &Vocabulary, tools: &[Json], before: &str) -> Result<Self, Error> {
        let marker = before.trim();
        let space = if marker.is_empty() { before } else { &before[before.trim_end().len()..] };
        let mut calls = Self {
            vocabulary: vocabulary.clone(),
            begin: Constraint::new(&call_schema(tools), vocabulary)?,
            marker: marker.into(),
            space: space.into(),
            state: State::Free(Vec::new()),
        };
        if marker.is_empty() {
            calls.open(calls.space.clone());
        }
        Ok(calls)
    }

    /// For each token, whether it may be next.
    ///
    /// # Errors
    /// If the grammar takes more work than it may.
    pub fn mask(&mut self) -> Result<Vec<bool>, Error> {
        if let State::Call(constraint) = &mut self.state {
            return constraint.mask();
        }
        Ok((0..self.vocabulary.tokens().len()).map(|token| self.allows(token)).collect())
    }

    /// Goes on with a token.
    ///
    /// # Errors
    /// If it may not be next.
    pub fn take(&mut self, token: u32) -> Result<(), Error> {
        if let State::Call(constraint) = &mut self.state {
            constraint.take(token)?;
            if constraint.is_complete() {
                let has_marker = !self.marker.is_empty();
                self.state = if has_marker { State::Free(Vec::new()) } else { State::Done };
            }
            return Ok(());
        }
        if !self.allows(token as usize) {
            return Err(Error::Refused {
                token,
                text: clean(&String::from_utf8_lossy(self.bytes(token as usize))),
            });
        }
        let bytes = self.bytes(token as usize).to_vec();
        match &mut self.state {
            State::Free(written) => {
                written.extend(bytes);
                if let Some(at) = find(written, &self.marker) {
                    let left = written.len() - at - self.marker.len();
                    self.open(self.space[left..].to_vec());
                } else {
                    let kept = written.len().min(self.marker.len() - 1);
                    written.drain(..written.len() - kept);
                }
            }
            State::Space(space) => {
                let space = space[bytes.len()..].to_vec();
                self.open(space);
            }
            State::Call(_) | State::Done => {}
        }
        Ok(())
    }

    /// After the marker: so much white space is left.
    fn open(&mut self, space: Vec<u8>) {
        self.state =
            if space.is_empty() { State::Call(Box::new(self.begin.clone())) } else { State::Space(space) };
    }

    /// Whether a token may be next, outside of calls.
    fn allows(&self, token: usize) -> bool {
        let bytes = self.bytes(token);
        match &self.state {
            State::Free(written) => {
                let all = [written, bytes].concat();
                find(&all, &self.marker)
                    .is_none_or(|at| self.space.starts_with(&all[at + self.marker.len()..]))
            }
            State::Space(space) => !bytes.is_empty() && !self.is_special(token) && space.starts_with(bytes),
            State::Call(_) | State::Done => true,
        }
    }

    fn is_special(&self, token: usize) -> bool {
        matches!(self.vocabulary.tokens().get(token), Some(Token::Special(_)))
    }

    /// What a token writes, a special one included.
    fn bytes(&self, token: usize) -> &[u8] {
        match self.vocabulary.tokens().get(token) {
            Some(Token::Text(bytes)) => bytes,
            Some(Token::Special(name)) => name.as_bytes(),
            None => &[],
        }
    }
}

fn find(text: &[u8], marker: &[u8]) -> Option<usize> {
    text.windows(marker.len().max(1)).position(|window| window == marker)
}
