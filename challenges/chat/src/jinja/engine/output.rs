//! The text that comes out, what is taken out of it again, and where the assistant's own is.

use std::ops::Range;
use std::rc::Rc;

use super::super::context::Context;
use super::super::error::Error;
use super::super::limits::Limit;
use super::super::spans;

/// The text so far.
pub(crate) struct Output<'t> {
    cx: &'t Context<'t>,
    text: String,
    most: usize,
    /// While something is written that may be taken out again: how much was there before it.
    fixed: Option<usize>,
    /// For each of the assistant's texts: the byte at which it begins, and its length in characters.
    marks: Vec<(usize, usize)>,
}

/// Where a part begins that may be taken out again.
pub(crate) struct Part {
    start: usize,
    outer: bool,
}

impl<'t> Output<'t> {
    pub(crate) fn new(cx: &'t Context<'t>, most: usize) -> Output<'t> {
        Output { cx, text: String::with_capacity(1024), most, fixed: None, marks: Vec::new() }
    }

    #[inline]
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Error> {
        self.cx.charge(text.len())?;
        if text.len() > self.most.saturating_sub(self.text.len()) {
            return Err(self.cx.exceeded(Limit::Output));
        }
        self.text.push_str(text);
        Ok(())
    }

    /// Lets `work` append.
    pub(crate) fn append(
        &mut self,
        work: impl FnOnce(&mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.cx.appending(self.text.len(), self.most, || work(&mut self.text))?;
        if self.text.len() > self.most { Err(self.cx.exceeded(Limit::Output)) } else { Ok(()) }
    }

    /// Begins a part.
    pub(crate) fn begin(&mut self) -> Part {
        let (start, outer) = (self.text.len(), self.fixed.is_none());
        self.fixed.get_or_insert(start);
        Part { start, outer }
    }

    /// Ends a part, which stays where it is.
    pub(crate) fn keep(&mut self, part: &Part) {
        if part.outer {
            self.fixed = None;
        }
    }

    /// Ends a part and takes it out.
    pub(crate) fn take(&mut self, part: &Part) -> Result<Rc<str>, Error> {
        self.keep(part);
        let text = self.text.get(part.start..).unwrap_or_default();
        self.cx.charge(text.len())?;
        let text = text.into();
        self.text.truncate(part.start);
        Ok(text)
    }

    /// Marks what the part has as the assistant's. It counts from where the whole text stood before the outermost part.
    pub(crate) fn mark(&mut self, part: &Part) {
        let length = self.text.get(part.start..).map_or(0, |text| text.chars().count());
        self.marks.push((self.fixed.unwrap_or(part.start), length));
    }

    /// The text, and the assistant's parts of it in characters.
    pub(crate) fn finish(self) -> (String, Vec<Range<usize>>) {
        let spans = spans::characters(&self.text, &self.marks);
        (self.text, spans)
    }
}
