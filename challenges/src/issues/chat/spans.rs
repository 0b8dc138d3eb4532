//! Where the assistant's text is: spans of characters, and masks of tokens.

use std::cell::{Cell, RefCell};
use std::ops::Range;

thread_local! {
    static WRITTEN: Cell<usize> = const { Cell::new(0) };
    /// For each span: the byte at which it begins, and its length in characters.
    static MARKS: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Begins to record spans on this thread.
pub(super) fn start() {
    WRITTEN.set(0);
    MARKS.with(|marks| marks.borrow_mut().clear());
}

/// The spans that were recorded since, in characters of `text`.
pub(super) fn finish(text: &str) -> Vec<Range<usize>> {
    characters(text, &MARKS.with(|marks| std::mem::take(&mut *marks.borrow_mut())))
}

/// Counts bytes that have come out.
pub(super) fn written(bytes: usize) {
    WRITTEN.set(WRITTEN.get() + bytes);
}

/// Remembers that `text`, which is about to come out, is the assistant's.
pub(super) fn record(text: &str) {
    MARKS.with(|marks| marks.borrow_mut().push((WRITTEN.get(), text.chars().count())));
}

/// Spans in characters, of marks that are ordered by their first byte.
fn characters(text: &str, marks: &[(usize, usize)]) -> Vec<Range<usize>> {
    let (mut byte, mut count) = (0, 0);
    let mut spans = Vec::with_capacity(marks.len());
    for &(start, length) in marks {
        count += text.get(byte..start).map_or(0, |part| part.chars().count());
        byte = start.max(byte);
        spans.push(count..count + length);
    }
    spans
}

/// Which tokens are the assistant's: of the characters `offsets` that each token covers (an empty range: a token of no
/// text), those that share a character with one of the `spans`.
///
/// `spans` are in order and do not overlap, as a template without nested generations writes them.
pub fn token_mask(offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
    let shares = |token: &Range<usize>| {
        let first = spans.partition_point(|span| span.end <= token.start);
        spans[first..].iter().find(|span| !span.is_empty()).is_some_and(|span| span.start < token.end)
    };
    offsets.iter().map(|token| token.start < token.end && shares(token)).collect()
}
