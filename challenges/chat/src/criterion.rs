//! How a word is looked for in a rendered text.

// ANCHOR: chat-criterion
/// How a word is looked for. A mark is a span of the assistant's that holds a character. A word is inside a
/// mark if all of it is in that one, and outside of marks if none of it is in any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Criterion {
    /// It is in the text.
    Written,
    /// It is not in the text.
    Unwritten,
    /// There is a mark, whatever the word.
    Any,
    /// It is nowhere outside of marks, or there are no marks.
    Marked,
    /// It is nowhere inside a mark.
    Unmarked,
    /// The last of the marks that hold it goes on after its last place in it, by more than white space; or
    /// nothing but white space follows that mark; or no mark holds it.
    Closed,
    /// The text begins with the text of all messages but the last and the beginning of a turn.
    SameStart,
    /// The text is the same if there is no clock.
    SameDay,
}
// ANCHOR_END: chat-criterion

impl Criterion {
    /// Returns the words for a criterion that does not hold, to be read between a word and a text.
    pub(crate) fn failed(self) -> &'static str {
        match self {
            Criterion::Written | Criterion::Any => "is nowhere in",
            Criterion::Unwritten => "is written in",
            Criterion::Marked | Criterion::Closed => "is outside the marks in",
            Criterion::Unmarked => "is inside the marks in",
            Criterion::SameStart => "comes after another beginning than the prompt in",
            Criterion::SameDay => "is asked for in",
        }
    }
}
