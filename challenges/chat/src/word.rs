//! The characters of a word.

/// Whether a character belongs to a word, as `\w` in a pattern of the Python package `regex`, by which transformers
/// reads the dialects; each knows the characters of its own version of Unicode. In Python's own `re` combining marks do
/// not, and digits such as `²` do.
pub fn is_word(c: char) -> bool {
    regex_syntax::try_is_word_character(c).unwrap_or_else(|_| c == '_' || c.is_alphanumeric())
}
