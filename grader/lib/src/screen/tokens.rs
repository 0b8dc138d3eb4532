//! The words, strings and signs of a Rust text.

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// An identifier or a keyword, without `r#`.
    Word(String),
    /// The contents of a string, as written in the source.
    Text(String),
    /// Any other character except white space.
    Sign(char),
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub line: usize,
    pub kind: Kind,
}

impl Token {
    pub fn word(&self) -> Option<&str> {
        if let Kind::Word(word) = &self.kind { Some(word) } else { None }
    }

    pub fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

/// A Rust text's words, strings and signs, without its comments.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut rest = text;
    let (mut tokens, mut line) = (Vec::new(), 1);
    while let Some(first) = rest.chars().next() {
        let (length, kind) = token(rest, first);
        tokens.extend(kind.map(|kind| Token { line, kind }));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// The bytes that the first token takes, and what it is, if it is more than space.
fn token(rest: &str, first: char) -> (usize, Option<Kind>) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (comment(rest), None);
    }
    if let Some((length, text)) = string(rest) {
        return (length, Some(Kind::Text(text.to_owned())));
    }
    if first == '\'' {
        return quote(rest);
    }
    let bare = rest.strip_prefix("r#").unwrap_or(rest);
    let word: String = bare.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if word.is_empty() {
        return (first.len_utf8(), (!first.is_whitespace()).then_some(Kind::Sign(first)));
    }
    (rest.len() - bare.len() + word.len(), Some(Kind::Word(word)))
}

/// The length of a comment, with those inside it.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of a string of any kind and what it holds.
fn string(rest: &str) -> Option<(usize, &str)> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix);
        let after =
            after.map(|after| if prefix.ends_with('r') { after.trim_start_matches('#') } else { after });
        after.is_some_and(|after| after.starts_with('"'))
    })?;
    let marks = if prefix.ends_with('r') {
        rest[prefix.len()..].chars().take_while(|c| *c == '#').count()
    } else {
        0
    };
    let begin = prefix.len() + marks + 1;
    let body = &rest[begin..];
    let length = if prefix.ends_with('r') {
        body.find(&format!("\"{}", "#".repeat(marks))).unwrap_or(body.len())
    } else {
        let mut escaped = false;
        let end = body.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        end.map_or(body.len(), |(at, _)| at)
    };
    Some(((begin + length + 1 + marks).min(rest.len()), &body[..length]))
}

/// A character, or the mark of a lifetime.
fn quote(rest: &str) -> (usize, Option<Kind>) {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let from = at + c.len_utf8(); // after what is escaped, which may be a quote
            let end = rest[from..].find('\'').map_or(rest.len(), |end| from + end + 1);
            (end, None)
        }
        (Some(_), Some((at, '\''))) => (at + 1, None),
        _ => {
            // the whole name, so that the `r` of `'r"..."` begins no raw string
            let name = rest[1..].chars().take_while(|c| c.is_alphanumeric() || *c == '_');
            (1 + name.map(char::len_utf8).sum::<usize>(), Some(Kind::Sign('\'')))
        }
    }
}
