//! Patterns as automata, and what can be known of them before any text is seen.

use memchr::memmem::Finder;
use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_syntax::hir::literal::Extractor;

use super::error::TemplateError;
use super::lazy_dfa::Pool;
use super::syntax::{END, anywhere, translate};
use crate::given;
use crate::steps::Steps;
use crate::word::is_word;

/// The largest automaton of a pattern, in bytes: some ten thousand states.
const LARGEST_BYTES: usize = 1 << 20;

/// Two a group, and two for the match.
const MOST_SLOTS: usize = 64;

/// A marker: a pattern that opens or closes a region, or a tag within one.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for alone")]
pub struct Pattern {
    pub(super) nfa: NFA,
    /// The names of groups, with the slot of each one's beginning.
    pub(super) names: Vec<(String, usize)>,
    /// The slots that mark an end before what look-ahead read.
    pub(super) ends: Vec<usize>,
    /// The bytes that a match can begin with.
    pub(super) first: [bool; 256],
    /// The text that each match begins with, if there is one.
    pub(super) prefix: Option<Prefix>,
    /// Whether a match can begin at the end of a text.
    pub(super) at_end: bool,
    /// Whether the next character decides what holds at a place.
    pub(super) peeks: bool,
    /// Whether it does so only for the end of the text.
    pub(super) only_ends: bool,
    /// What searches have learned.
    pub(super) pool: Pool,
    /// What has to follow where a match begins.
    pub(super) ahead: Option<Box<Ahead>>,
    /// Whether nothing but that is asked for.
    pub(super) empty: bool,
    /// The text that the pattern is, if it is only that.
    pub(super) literal: Option<Literal>,
}

/// A marker that is one text, and whose step finds it.
#[derive(Debug)]
pub(super) struct Literal {
    pub(super) text: String,
    pub(super) steps: Steps,
}

/// Look-ahead at the beginning of a pattern.
#[derive(Debug)]
pub struct Ahead {
    /// Whether it must not follow.
    pub(super) negative: bool,
    /// Whether it may follow anywhere, not only here.
    pub(super) anywhere: bool,
    /// What is looked for.
    pub(super) pattern: Pattern,
}

impl Pattern {
    /// Any of the texts, the longer ones first.
    pub fn literals(at: &str, texts: &[&str], steps: &Steps) -> Result<Self, TemplateError> {
        let mut texts = texts.to_vec();
        texts.sort_by_key(|text| std::cmp::Reverse(text.chars().count()));
        let body: Vec<String> = texts.iter().map(|text| regex_syntax::escape(text)).collect();
        let pattern = Self::compile(at, &body.join("|"), None)?;
        let literal = if let [text] = texts[..] {
            Some(Literal { text: text.to_owned(), steps: steps.clone() })
        } else {
            None
        };
        Ok(Self { literal, ..pattern })
    }

    /// A pattern in Python's syntax, in which `.` is any character.
    pub fn regex(at: &str, pattern: &str) -> Result<Self, TemplateError> {
        let parts = translate(pattern).map_err(|what| refused(at, pattern, &what))?;
        let ahead = parts.ahead.map(|(negative, inner)| Ahead::new(at, negative, &inner)).transpose()?;
        Self::compile(at, &parts.body, ahead)
    }

    /// The slot of the group with this name.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.names.iter().find(|(key, _)| key == name).map(|(_, slot)| *slot)
    }

    fn compile(at: &str, body: &str, ahead: Option<Ahead>) -> Result<Self, TemplateError> {
        given::CHAT.count();
        let config = Config::new().which_captures(WhichCaptures::All).nfa_size_limit(Some(LARGEST_BYTES));
        let syntax = syntax::Config::new().dot_matches_new_line(true).nest_limit(100);
        let nfa = Compiler::new().configure(config).syntax(syntax).build(body);
        let nfa = nfa.map_err(|error| refused(at, body, &last_line(&error)))?;
        if nfa.group_info().slot_len() > MOST_SLOTS {
            return Err(refused(at, body, "more than 31 groups with names"));
        }
        let begins = Begins::new(&nfa);
        let names = slots(&nfa);
        let (ends, names): (Vec<_>, _) = names.into_iter().partition(|(name, _)| name.starts_with(END));
        Ok(Self {
            names,
            ends: ends.into_iter().map(|(_, slot)| slot).collect(),
            prefix: Prefix::new(body).filter(|_| !begins.at_end),
            first: begins.first,
            at_end: begins.at_end,
            only_ends: nfa.look_set_any().iter().all(|look| matches!(look, Look::End | Look::EndCRLF)),
            pool: Pool::default(),
            peeks: !nfa.look_set_any().is_empty(),
            ahead: ahead.map(Box::new),
            empty: body.is_empty(),
            literal: None,
            nfa,
        })
    }
}

impl Ahead {
    fn new(at: &str, negative: bool, inner: &str) -> Result<Self, TemplateError> {
        if let Some(rest) = anywhere(inner) {
            let pattern = Pattern::regex(at, rest)?;
            if pattern.ahead.is_some() {
                return Err(refused(at, inner, "look-ahead within look-ahead"));
            }
            return Ok(Self { negative, anywhere: true, pattern });
        }
        let body = translate(inner).map_err(|what| refused(at, inner, &what))?.body;
        let longest = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build().parse(&body);
        let longest =
            longest.map_err(|error| refused(at, inner, &last_line(&error)))?.properties().maximum_len();
        if longest.is_none_or(|bytes| bytes > 1024) {
            return Err(refused(
                at,
                inner,
                "look-ahead for more than 1024 bytes before something else, (?= or (?!",
            ));
        }
        Ok(Self { negative, anywhere: false, pattern: Pattern::compile(at, &body, None)? })
    }
}

/// What each match of a pattern begins with.
#[derive(Debug)]
pub(super) struct Prefix(Finder<'static>);

impl Prefix {
    /// The longest beginning that all matches of `body` share; assertions take no part in it.
    fn new(body: &str) -> Option<Self> {
        let hir = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build().parse(body).ok()?;
        let literals = Extractor::new().extract(&hir);
        let common = literals.longest_common_prefix().filter(|common| !common.is_empty())?;
        Some(Self(Finder::new(common).into_owned()))
    }

    /// Where it stands first, or where one begins that more bytes may complete, or the end.
    pub(super) fn begin(&self, bytes: &[u8]) -> usize {
        self.0.find(bytes).unwrap_or_else(|| bytes.len() - self.begun(bytes))
    }

    /// The length of the longest end of the bytes that is a beginning.
    fn begun(&self, bytes: &[u8]) -> usize {
        let prefix = self.0.needle();
        let tail = &bytes[bytes.len().saturating_sub(prefix.len() - 1)..];
        let mut places = memchr::memchr_iter(prefix[0], tail);
        places.find(|&place| prefix.starts_with(&tail[place..])).map_or(0, |place| tail.len() - place)
    }
}

fn refused(at: &str, pattern: &str, what: &str) -> TemplateError {
    TemplateError::new(
        at,
        format_args!("{what} in the pattern {pattern:?}"),
        "a pattern that this parser supports",
    )
}

/// The last line of an error, which says what is wrong; the lines before show where.
fn last_line(error: &dyn std::error::Error) -> String {
    let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    error.lines().last().unwrap_or_default().to_owned()
}

fn slots(nfa: &NFA) -> Vec<(String, usize)> {
    let info = nfa.group_info();
    let names = info.pattern_names(regex_automata::PatternID::ZERO).enumerate();
    names.filter_map(|(group, name)| name.map(|name| (name.to_owned(), group * 2))).collect()
}

/// Where a match can begin.
struct Begins {
    first: [bool; 256],
    at_end: bool,
}

impl Begins {
    /// Follows all that comes before a first byte. What holds only at a text's end opens a way there, or at a last
    /// newline.
    fn new(nfa: &NFA) -> Self {
        let mut begins = Self { first: [false; 256], at_end: false };
        let mut seen = vec![false; nfa.states().len()];
        let mut todo: Vec<StateID> = vec![nfa.start_anchored()];
        while let Some(id) = todo.pop() {
            if !std::mem::replace(&mut seen[id.as_usize()], true) {
                begins.state(nfa.state(id), &mut todo);
            }
        }
        begins
    }

    fn allow(&mut self, start: u8, end: u8) {
        self.first[usize::from(start)..=usize::from(end)].fill(true);
    }

    fn state(&mut self, state: &State, todo: &mut Vec<StateID>) {
        match state {
            State::ByteRange { trans } => self.allow(trans.start, trans.end),
            State::Sparse(sparse) => sparse.transitions.iter().for_each(|t| self.allow(t.start, t.end)),
            State::Look { look: Look::End | Look::EndCRLF, .. } => {
                self.allow(b'\n', b'\n');
                self.at_end = true;
            }
            State::Look { next, .. } | State::Capture { next, .. } => todo.push(*next),
            State::Union { alternates } => todo.extend(alternates.iter()),
            State::BinaryUnion { alt1, alt2 } => todo.extend([*alt1, *alt2]),
            State::Fail => {}
            State::Dense(_) | State::Match { .. } => {
                self.allow(0, 255);
                self.at_end = true;
            }
        }
    }
}

/// Whether an assertion holds before the byte at `at`; Python's `$` comes as `EndCRLF`.
pub(super) fn holds(nfa: &NFA, look: Look, text: &str, at: usize) -> bool {
    match look {
        Look::EndCRLF => matches!(&text.as_bytes()[at..], b"" | b"\n"),
        Look::WordUnicode => at_word_boundary(text, at),
        Look::WordUnicodeNegate => !at_word_boundary(text, at),
        _ => nfa.look_matcher().matches(look, text.as_bytes(), at),
    }
}

fn at_word_boundary(text: &str, at: usize) -> bool {
    let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default());
    before.chars().next_back().is_some_and(is_word) != after.chars().next().is_some_and(is_word)
}
