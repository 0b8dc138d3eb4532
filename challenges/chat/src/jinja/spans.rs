//! Where the assistant's text is, in characters.

use std::ops::Range;

/// Spans in characters, of marks that are ordered by their first byte: for each span that byte, and how many characters
/// it has.
pub(super) fn characters(text: &str, marks: &[(usize, usize)]) -> Vec<Range<usize>> {
    let (mut byte, mut count) = (0, 0);
    let mut spans = Vec::with_capacity(marks.len());
    for &(start, length) in marks {
        count += text.get(byte..start).map_or(0, |part| part.chars().count());
        byte = start.max(byte);
        spans.push(count..count + length);
    }
    spans
}
