//! Just enough HTML: escaping what is written, reading back what mdBook wrote.
//!
//! The reader is for pages that a program made and that are known to be well formed. It is no parser of
//! the wild: it gives tags with their attributes and the text between them, in order.

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// `<name a="b">`, or with a `/` before the name where it closes.
    Tag {
        /// Lower case, with a leading `/` where the tag closes.
        name: String,
        /// Attribute names and values with their entities resolved.
        attributes: Vec<(String, String)>,
    },
    /// Text between two tags, as it stands in the file.
    Text(&'a str),
}

/// Makes a text safe between tags and in double-quoted attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escapes a short text and sets what stands between backticks as code and between dollars as maths.
///
/// # Errors
/// The words of the formula's parser.
pub fn inline(text: &str) -> Result<String, String> {
    use crate::markdown::{Piece, pieces};
    let mut html = String::new();
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => html += &crate::maths::expand(text, escape)?,
            Piece::Span(code) => html += &format!("<code>{}</code>", escape(code.trim_matches('`').trim())),
            Piece::Block(block) => html += &escape(block.whole),
        }
    }
    Ok(html)
}

/// The tags and texts of a page. Comments are left out; the inside of `script` and `style` is one text.
pub fn tokens(page: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        push_text(&rest[..start], &mut tokens);
        rest = &rest[start..];
        if rest.starts_with("<!--") {
            rest = after(rest, "-->");
            continue;
        }
        let end = tag_end(rest);
        let tag = tag(&rest[1..end]);
        rest = rest.get(end + 1..).unwrap_or("");
        let raw = matches!(&tag, Token::Tag { name, .. } if name == "script" || name == "style");
        if let (true, Token::Tag { name, .. }) = (raw, &tag) {
            let close = rest.find(&format!("</{name}")).unwrap_or(rest.len());
            let inside = &rest[..close];
            tokens.push(tag);
            push_text(inside, &mut tokens);
            rest = &rest[close..];
        } else {
            tokens.push(tag);
        }
    }
    push_text(rest, &mut tokens);
    tokens
}

fn push_text<'a>(text: &'a str, tokens: &mut Vec<Token<'a>>) {
    if !text.is_empty() {
        tokens.push(Token::Text(text));
    }
}

fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    text.find(mark).map_or("", |at| &text[at + mark.len()..])
}

/// The byte of the `>` that ends the tag, outside quotes.
fn tag_end(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '>') => return at,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    text.len()
}

fn tag<'a>(inside: &str) -> Token<'a> {
    let inside = inside.trim_end_matches('/').trim();
    let (name, mut rest) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
    let mut attributes = Vec::new();
    while let Some((attribute, after)) = attribute(rest) {
        attributes.push(attribute);
        rest = after;
    }
    Token::Tag { name: name.to_lowercase(), attributes }
}

fn attribute(text: &str) -> Option<((String, String), &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
    let name = text[..end].to_lowercase();
    if name.is_empty() {
        return None;
    }
    let Some(value) = text[end..].strip_prefix('=') else {
        return Some(((name, String::new()), &text[end..]));
    };
    let (value, after) = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
        _ => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
    };
    Some(((name, unescape(value)), after))
}

/// Resolves the entities that a serialiser writes: five names and every number. Another name stays.
pub fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('&') {
        out += before;
        let resolved = from.split_once(';').and_then(|(name, after)| Some((character(name)?, after)));
        let (c, after) = resolved.unwrap_or(('&', from));
        out.push(c);
        rest = after;
    }
    out + rest
}

/// The character of an entity's name.
fn character(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "amp" => Some('&'),
        "nbsp" => Some('\u{a0}'),
        _ => {
            let number = name.strip_prefix('#')?;
            let hex = number.strip_prefix(['x', 'X']);
            hex.map_or_else(|| number.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
                .and_then(char::from_u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_back() {
        let page = r#"a<!-- <b> --><p id=x class="y > z" hidden>t</p><script>if (a<b) {}</script><br/>"#;
        let names: Vec<_> = tokens(page)
            .into_iter()
            .map(|token| match token {
                Token::Tag { name, attributes } => format!("<{name} {}>", attributes.len()),
                Token::Text(text) => text.to_owned(),
            })
            .collect();
        let want = ["a", "<p 3>", "t", "</p 0>", "<script 0>", "if (a<b) {}", "</script 0>", "<br 0>"];
        assert_eq!(names, want);
    }

    #[test]
    fn an_entity_is_resolved_once() {
        for (text, want) in
            [("&lt;&#92;&#x27;", "<\\'"), ("&amp;lt;", "&lt;"), ("a & b;", "a & b;"), ("&no;&", "&no;&")]
        {
            assert_eq!(unescape(text), want);
        }
        assert_eq!(unescape(&escape("&lt; <\">")), "&lt; <\">");
        assert_eq!(unescape("&#99999999;&#xd800;&#;"), "&#99999999;&#xd800;&#;");
    }

    #[test]
    fn short_texts_keep_code_and_escape_the_rest() {
        assert_eq!(inline("a < `b<c>`").unwrap(), "a &lt; <code>b&lt;c&gt;</code>");
    }
}
