//! The regions of a text that grows.
//!
//! At every moment one region is open: one that a marker opened, until its closing marker, or else the implicit one,
//! until any opening. Which of the markers wins that count is a step ([`super::super::Chat::decide`]). Text is handed
//! out as soon as no marker can begin in it any more. So the answer is a function of the whole text, and cuts only
//! decide when it is known.

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::{Error, Problem};
use super::pattern::Pattern;
use super::search::{Known, Reach, Search};
use super::template::{Field, ResponseTemplate};
use super::transform::{Root, Scope};
use super::types::Tools;
use crate::contract::{MarkerState, Match, Next};

/// How many bytes all markers are first looked for in, before any looks farther.
const WINDOW_BYTES: usize = 512;

/// A message: a JSON object's entries.
pub type Message = Map<String, Value>;

/// What happens in a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'t> {
    /// A region of this field begins.
    Open {
        /// The field.
        field: &'t str,
    },
    /// More text of the open region, as the model wrote it.
    Append {
        /// The field.
        field: &'t str,
        /// Never empty.
        text: String,
    },
    /// The region ends.
    Close {
        /// The field.
        field: &'t str,
        /// What its content is, after the transform; shared with the message.
        value: Arc<Value>,
    },
}

/// A text that is being parsed.
#[derive(Debug)]
pub struct Parser<'t> {
    template: &'t ResponseTemplate,
    text: String,
    partial: Partial,
    /// What of the text is taken.
    at: usize,
    ended: bool,
    region: Region<'t>,
    markers: Vec<Marker<'t>>,
    /// Room for what is seen of them.
    seen: Vec<MarkerState<'t>>,
    /// The content of the regions that are closed.
    closed: Vec<(&'t Field, Arc<Value>)>,
    tools: Tools,
    failed: Option<Error>,
}

/// The groups of an opening that took part, and where in the text.
type Captures<'t> = Vec<(&'t str, Range<usize>)>;

/// The open region.
#[derive(Debug)]
struct Region<'t> {
    field: Option<usize>,
    /// Whether a marker opened it.
    explicit: bool,
    /// Where its text begins, once it has some or a marker has opened it.
    start: Option<usize>,
    captures: Captures<'t>,
}

/// A marker that is looked for.
#[derive(Debug)]
struct Marker<'t> {
    field: usize,
    opens: bool,
    pattern: &'t Pattern,
    search: Search,
}

impl<'t> Parser<'t> {
    /// A parser for calls of any tools; see [`Parser::with_tools`].
    pub fn new(
        template: &'t ResponseTemplate,
        prefix: &str,
        events: &mut Vec<Event<'t>>,
    ) -> Result<Self, Error> {
        Self::with_tools(template, prefix, Tools::default(), events)
    }

    /// A parser that has read what a message begins with: `prefix` from its last start on. What happens in it is added
    /// to `events`. Arguments of calls are cast to what the `tools` declare.
    pub fn with_tools(
        template: &'t ResponseTemplate,
        prefix: &str,
        tools: Tools,
        events: &mut Vec<Event<'t>>,
    ) -> Result<Self, Error> {
        let region = Region { field: template.implicit, explicit: false, start: None, captures: Vec::new() };
        let mut parser = Self {
            template,
            text: template.after_start(prefix).to_owned(),
            partial: Partial::default(),
            at: 0,
            ended: false,
            region,
            markers: markers(template),
            seen: Vec::new(),
            closed: Vec::new(),
            tools,
            failed: None,
        };
        parser.run(false, events)?;
        Ok(parser)
    }

    /// Reads on; a character may be cut. What happens is added to `events`, also before an error. After an error, there
    /// is no other answer.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event<'t>>) -> Result<(), Error> {
        self.sound()?;
        let decoded = self.partial.decode(bytes, &mut self.text);
        let run = self.run(false, events);
        self.keep(run.and(decoded))
    }

    /// The text has ended.
    pub fn finish(mut self, events: &mut Vec<Event<'t>>) -> Result<Message, Error> {
        self.sound()?;
        self.partial.finish()?;
        self.run(true, events)?;
        let mut message = self.template.defaults.clone();
        for (field, value) in self.closed {
            field.add(&mut message, Arc::unwrap_or_clone(value));
        }
        let missing = |field: &&Field| !field.optional && !message.contains_key(&field.name);
        if let Some(field) = self.template.fields.iter().find(missing) {
            return Err(Error::Missing { field: field.name.clone() });
        }
        let defaults = &self.template.defaults;
        Ok(message
            .into_iter()
            .filter(|(name, value)| defaults.contains_key(name) || !is_empty(value))
            .collect())
    }

    /// What has come and is not taken yet: it may still become a marker.
    pub fn held(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn sound(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn keep(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        self.failed = result.clone().err();
        result
    }

    /// Takes all markers that are known, then the text that no marker can begin in.
    fn run(&mut self, last: bool, events: &mut Vec<Event<'t>>) -> Result<(), Error> {
        while !self.ended {
            match self.next(last) {
                Next::Take(marker) => self.take(marker, events)?,
                Next::Pending(hold) => {
                    self.append(if last { self.text.len() } else { hold }, events);
                    if !last {
                        return Ok(());
                    }
                    self.ended = true;
                    self.close(self.at, events)?;
                }
            }
        }
        Ok(())
    }

    /// The marker that wins, or how far there is none.
    fn next(&mut self, last: bool) -> Next {
        let mut window = WINDOW_BYTES;
        loop {
            let until = self.at.saturating_add(window);
            self.advance(last, Reach { until, beside: None });
            match (self.decide(last), self.first()) {
                (Next::Pending(_), Some(start)) => {
                    self.advance(last, Reach { until, beside: Some(start) });
                    return self.decide(last);
                }
                (Next::Pending(_), None) if until < self.text.len() => window *= 4,
                (next, _) => return next,
            }
        }
    }

    /// Looks for all markers that count.
    fn advance(&mut self, last: bool, reach: Reach) {
        let region = &self.region;
        for marker in self.markers.iter_mut().filter(|marker| region.watches(marker)) {
            marker.search.seek(self.at);
            marker.search.advance(marker.pattern, &self.text, last, reach);
        }
    }

    /// What the attempt says to what is seen of the markers that count; an answer outside of the text counts as none.
    fn decide(&mut self, last: bool) -> Next {
        let mut seen = std::mem::take(&mut self.seen);
        seen.clear();
        seen.extend(self.watched().map(|(_, marker)| self.sees(marker)));
        let end = if last { usize::MAX } else { self.text.len() };
        let next = self.template.steps.chat().decide(&seen, end);
        let taken = |at: usize| seen.get(at).is_some_and(|seen| matches!(seen.found, Match::At(_)));
        let next = match next {
            Next::Take(at) if taken(at) => self.watched().nth(at).map(|(index, _)| Next::Take(index)),
            Next::Take(_) => None,
            Next::Pending(place) => Some(Next::Pending(place)),
        };
        self.seen = seen;
        match next.unwrap_or(Next::Pending(usize::MAX)) {
            Next::Take(index) => Next::Take(index),
            Next::Pending(place) if last || self.text.get(self.at..place).is_some() => Next::Pending(place),
            Next::Pending(_) => Next::Pending(if last { usize::MAX } else { self.at }),
        }
    }

    /// The markers that count, and their places.
    fn watched(&self) -> impl Iterator<Item = (usize, &Marker<'t>)> {
        self.markers.iter().enumerate().filter(|(_, marker)| self.region.watches(marker))
    }

    fn sees(&self, marker: &Marker<'t>) -> MarkerState<'t> {
        let found = match marker.search.known() {
            // as in the original, nothing begins where the text has ended
            Some(Known::Match) if marker.search.found().start >= self.text.len() => Match::Never,
            Some(Known::Match) => Match::At(marker.search.found().start..marker.search.found().end),
            Some(Known::Never) => Match::Never,
            Some(Known::Until(place)) => Match::Pending(place),
            None => Match::Pending(self.at),
        };
        MarkerState { field: &self.template.fields[marker.field].name, opens: marker.opens, found }
    }

    /// Where the first marker begins that was found.
    fn first(&self) -> Option<usize> {
        let watched = self.markers.iter().filter(|marker| self.region.watches(marker));
        watched.filter(|marker| marker.search.matched()).map(|marker| marker.search.found().start).min()
    }

    fn take(&mut self, index: usize, events: &mut Vec<Event<'t>>) -> Result<(), Error> {
        let marker = &self.markers[index];
        let (field, opens, pattern) = (marker.field, marker.opens, marker.pattern);
        let (start, end) = (marker.search.found().start, marker.search.found().end);
        let captures = if opens { captures(pattern, &marker.search) } else { Vec::new() };
        self.append(start, events);
        let began = self.region.start;
        let explicit = self.region.explicit;
        self.close(start, events)?;
        self.at = end;
        if opens {
            self.region = Region { field: Some(field), explicit: true, start: Some(end), captures };
            events.push(Event::Open { field: &self.template.fields[field].name });
        } else if explicit && began == Some(end) && self.opens_empty(field) {
            return Err(Error::Stuck { field: self.template.fields[field].name.clone() });
        } else if began.is_none() && start == end {
            self.ended = true; // the same again and again: what follows belongs to nothing
        }
        Ok(())
    }

    /// Whether the field's opening has just matched without a character, where an empty region has now closed.
    fn opens_empty(&self, field: usize) -> bool {
        let mut openings = self.markers.iter().filter(|marker| marker.opens && marker.field == field);
        openings.any(|marker| {
            let found = marker.search.found();
            found.start == found.end && found.end == self.at
        })
    }

    /// Hands out the text before `end`; text in no region is dropped.
    fn append(&mut self, end: usize, events: &mut Vec<Event<'t>>) {
        if end <= self.at {
            return;
        }
        let from = std::mem::replace(&mut self.at, end);
        let Some(field) = self.region.field else { return };
        let field = &self.template.fields[field].name;
        if self.region.start.is_none() {
            self.region.start = Some(from);
            events.push(Event::Open { field });
        }
        events.push(Event::Append { field, text: self.text[from..end].to_owned() });
    }

    /// Closes the open region at `end`, if it has begun, and returns to the implicit one.
    fn close(&mut self, end: usize, events: &mut Vec<Event<'t>>) -> Result<(), Error> {
        let next =
            Region { field: self.template.implicit, explicit: false, start: None, captures: Vec::new() };
        let region = std::mem::replace(&mut self.region, next);
        let (Some(field), Some(start)) = (region.field, region.start) else { return Ok(()) };
        let field = &self.template.fields[field];
        let body = &self.text[start..end];
        let captured = |name: &str| {
            let (_, range) = region.captures.iter().find(|(key, _)| *key == name)?;
            self.text.get(range.clone())
        };
        let wrong = |problem| Error::content(&field.name, body, problem);
        let mut value = field.value(body, &captured).map_err(wrong)?;
        self.tools.cast(&mut value);
        if field.join.is_some() && !value.is_string() {
            return Err(wrong(Problem::Kind { by: "join", needed: "a text" }));
        }
        let value = Arc::new(value);
        self.closed.push((field, Arc::clone(&value)));
        events.push(Event::Close { field: &field.name, value });
        Ok(())
    }
}

/// The text that `prefix` and `text` make, parsed as a whole.
pub fn parse(template: &ResponseTemplate, prefix: &str, text: &str) -> Result<Message, Error> {
    let mut events = Vec::new();
    let mut parser = Parser::new(template, prefix, &mut events)?;
    parser.feed(text.as_bytes(), &mut events)?;
    parser.finish(&mut events)
}

fn markers(template: &ResponseTemplate) -> Vec<Marker<'_>> {
    let mut markers = Vec::with_capacity(2 * template.fields.len());
    for (index, field) in template.fields.iter().enumerate() {
        for (opens, pattern) in [(true, &field.open), (false, &field.close)] {
            let Some(pattern) = pattern else { continue };
            markers.push(Marker { field: index, opens, pattern, search: Search::new(pattern) });
        }
    }
    markers
}

fn captures<'t>(pattern: &'t Pattern, search: &Search) -> Captures<'t> {
    let names = pattern.names.iter();
    names.filter_map(|(name, slot)| Some((name.as_str(), search.found().group(*slot)?))).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

impl Region<'_> {
    /// A region that a marker opened waits for its own closing; else all openings count, and the closing of this one.
    fn watches(&self, marker: &Marker) -> bool {
        let own = self.field == Some(marker.field);
        if self.explicit { own && !marker.opens } else { marker.opens || own }
    }
}

impl Field {
    /// A region's content, transformed.
    fn value<'c>(&self, body: &str, captured: &dyn Fn(&str) -> Option<&'c str>) -> Result<Value, Problem> {
        let mut value = self.content.parse(body)?;
        let Some(shape) = &self.transform else { return Ok(value) };
        if !self.transform_each {
            return shape.apply(&mut Scope { root: Root::Content(&mut value), captured });
        }
        let kind = |needed| Problem::Kind { by: "transform_each", needed };
        let items = value.as_array_mut().ok_or_else(|| kind("a list"))?;
        let each = items.iter_mut().map(|item| {
            let item = item.as_object_mut().ok_or_else(|| kind("an object in each place"))?;
            shape.apply(&mut Scope { root: Root::Item(item), captured })
        });
        each.collect()
    }

    /// Adds a region's value to the message.
    fn add(&self, message: &mut Message, value: Value) {
        let old = message.get_mut(&self.name);
        match (&self.join, old) {
            (Some(join), Some(Value::String(old))) => {
                old.push_str(join);
                old.push_str(value.as_str().unwrap_or_default());
            }
            (None, Some(Value::Array(values))) if self.repeats => values.push(value),
            (None, _) if self.repeats => drop(message.insert(self.name.clone(), Value::Array(vec![value]))),
            _ => drop(message.insert(self.name.clone(), value)),
        }
    }
}

/// A character that is not yet complete.
#[derive(Debug, Default)]
struct Partial {
    bytes: Vec<u8>,
    sound: usize,
}

impl Partial {
    /// Adds the complete characters to `text`; the error says how many bytes came before.
    fn decode(&mut self, mut bytes: &[u8], text: &mut String) -> Result<(), Error> {
        while !self.bytes.is_empty() {
            let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
            self.bytes.push(*first);
            bytes = rest;
            let held = std::mem::take(&mut self.bytes);
            self.decode_whole(&held, text)?;
        }
        self.decode_whole(bytes, text)
    }

    fn decode_whole(&mut self, bytes: &[u8], text: &mut String) -> Result<(), Error> {
        if let Ok(sound) = std::str::from_utf8(bytes) {
            text.push_str(sound);
            self.sound += sound.len();
            return Ok(());
        }
        let chunk = bytes.utf8_chunks().next();
        let Some(chunk) = chunk else { return Ok(()) };
        text.push_str(chunk.valid());
        self.sound += chunk.valid().len();
        let rest = &bytes[chunk.valid().len()..];
        let open = std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
        if !rest.is_empty() && !open {
            return Err(Error::Utf8 { at: self.sound });
        }
        self.bytes.extend_from_slice(rest);
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Error::Utf8 { at: self.sound }) }
    }
}
