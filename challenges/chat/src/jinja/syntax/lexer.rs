//! Template text to tokens, as Jinja cuts it under `trim_blocks` and `lstrip_blocks`.

use std::sync::Arc;

use num_bigint::BigInt;

use super::super::error::{Error, Kind, Span};
use super::super::python::big;
use super::super::python::text::is_space;

/// One token and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) what: Lexeme,
    pub(crate) span: Span,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lexeme {
    /// Text between tags, already stripped.
    Data(String),
    /// `{{` or `{%`.
    Begin(Tag),
    /// `}}` or `%}`.
    End(Tag),
    Name(String),
    Text(String),
    Int(i128),
    /// A whole number that needs more than 128 bits.
    Huge(Arc<BigInt>),
    Float(f64),
    Op(&'static str),
}

/// Which kind of tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Variable,
    Block,
}

const OPERATORS: [&str; 27] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";", "!",
];

/// Cuts `source`, whose line ends are already `\n`.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, Error> {
    let mut lexer = Lexer { source, at: 0, fresh: true, out: Vec::new() };
    lexer.root()?;
    Ok(lexer.out)
}

/// `\r\n` and `\r` become `\n`, and one line end at the very end is dropped: what Jinja does first.
pub(crate) fn normalized(source: &str) -> String {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    /// Whether the last token ended a line.
    fresh: bool,
    out: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let taken = &self.source[self.at..self.at + bytes];
        self.at += bytes;
        if bytes > 0 {
            self.fresh = taken.ends_with('\n');
        }
        taken
    }

    /// A token of the next `bytes`.
    fn push(&mut self, what: Lexeme, bytes: usize) {
        self.out.push(Token { what, span: Span::new(self.at, self.at + bytes) });
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        let next = self.rest().chars().next().map_or(0, char::len_utf8);
        Err(Error::new(Kind::Syntax, message).at(Span::new(self.at, self.at + next)))
    }

    fn root(&mut self) -> Result<(), Error> {
        while let Some(offset) = next_tag(self.rest()) {
            let text = &self.rest()[..offset];
            let tag = self.rest().as_bytes()[offset + 1];
            let sign = self.rest().as_bytes().get(offset + 2).copied().filter(|sign| b"-+".contains(sign));
            let text = self.stripped(text, sign, tag != b'{');
            if !text.is_empty() {
                self.push(Lexeme::Data(text.to_string()), text.len());
            }
            let raw = (tag == b'%').then(|| raw_begin(&self.rest()[offset + 2..], sign)).flatten();
            self.advance(offset + 2 + usize::from(sign.is_some()));
            match (tag, raw) {
                (b'#', _) => self.comment()?,
                (_, Some(length)) => {
                    self.advance(length - usize::from(sign.is_some()));
                    self.raw()?;
                }
                (b'%', None) => self.inside(Tag::Block)?,
                _ => self.inside(Tag::Variable)?,
            }
        }
        if !self.rest().is_empty() {
            let text = self.rest().to_string();
            let bytes = text.len();
            self.push(Lexeme::Data(text), bytes);
        }
        Ok(())
    }

    /// The text before a tag, as the tag's sign and `lstrip_blocks` leave it.
    fn stripped<'b>(&self, text: &'b str, sign: Option<u8>, block: bool) -> &'b str {
        if sign == Some(b'-') {
            return text.trim_end_matches(is_space);
        }
        if sign == Some(b'+') || !block {
            return text;
        }
        let line = text.rfind('\n').map_or(0, |at| at + 1);
        let whole = line > 0 || self.fresh;
        if whole && text[line..].chars().all(is_space) { &text[..line] } else { text }
    }

    fn comment(&mut self) -> Result<(), Error> {
        let Some(end) = self.rest().find("#}") else { return self.fail("missing end of comment tag") };
        let sign = self.rest()[..end].bytes().last();
        self.advance(end + 2);
        self.after(sign);
        Ok(())
    }

    /// What the end of a block takes with it: all space after `-`, nothing after `+`, else one line end.
    fn after(&mut self, sign: Option<u8>) {
        match sign {
            Some(b'-') => self.spaces(),
            Some(b'+') => (),
            _ if self.rest().starts_with('\n') => {
                self.advance(1);
            }
            _ => (),
        }
    }

    fn spaces(&mut self) {
        let rest = self.rest();
        let bytes = rest.len() - rest.trim_start_matches(is_space).len();
        self.advance(bytes);
    }

    fn raw(&mut self) -> Result<(), Error> {
        let rest = self.rest();
        let mut from = 0;
        while let Some(at) = rest[from..].find("{%").map(|at| at + from) {
            if let Some((sign, length, end)) = raw_end(&rest[at + 2..]) {
                let text = self.stripped(&rest[..at], sign, true);
                if !text.is_empty() {
                    self.push(Lexeme::Data(text.to_string()), text.len());
                }
                self.advance(at + 2 + length);
                self.after(end);
                return Ok(());
            }
            from = at + 2;
        }
        self.fail("missing end of raw directive")
    }

    fn inside(&mut self, tag: Tag) -> Result<(), Error> {
        let span = Span::new(self.at.saturating_sub(2), self.at);
        self.out.push(Token { what: Lexeme::Begin(tag), span });
        let mut open = Vec::new();
        loop {
            self.spaces();
            if self.rest().is_empty() {
                return Ok(());
            }
            if open.is_empty() && self.end(tag) {
                return Ok(());
            }
            let what = self.lexeme(&mut open)?;
            self.out.push(what);
        }
    }

    fn end(&mut self, tag: Tag) -> bool {
        let close = if tag == Tag::Block { "%}" } else { "}}" };
        let rest = self.rest();
        let sign = rest.bytes().next().filter(|sign| *sign == b'-' || (*sign == b'+' && tag == Tag::Block));
        let sign = sign.filter(|_| rest[1..].starts_with(close));
        if sign.is_none() && !rest.starts_with(close) {
            return false;
        }
        self.push(Lexeme::End(tag), 2 + usize::from(sign.is_some()));
        self.advance(2 + usize::from(sign.is_some()));
        if tag == Tag::Block || sign.is_some() {
            self.after(sign);
        }
        true
    }

    fn lexeme(&mut self, open: &mut Vec<&'static str>) -> Result<Token, Error> {
        let start = self.at;
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or(' ');
        let dotted = self.source[..self.at].ends_with('.');
        let what = if first.is_ascii_digit() {
            let Some((what, bytes)) = number(rest, dotted) else {
                return self.fail("a number that is too large");
            };
            self.advance(bytes);
            what
        } else if first == '_' || first.is_alphanumeric() {
            let bytes = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            Lexeme::Name(self.advance(bytes).to_string())
        } else if first == '\'' || first == '"' {
            Lexeme::Text(self.text(first)?)
        } else {
            Lexeme::Op(self.operator(open)?)
        };
        Ok(Token { what, span: Span::new(start, self.at) })
    }

    fn text(&mut self, quote: char) -> Result<String, Error> {
        let body = &self.rest()[1..];
        let mut escaped = false;
        let end = body.char_indices().find(|&(_, c)| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else { return self.fail(format!("unexpected char {quote:?}")) };
        let text = unescaped(&body[..end]);
        let Some(text) = text else { return self.fail("a string with an escape that is no character") };
        self.advance(end + 2);
        Ok(text)
    }

    fn operator(&mut self, open: &mut Vec<&'static str>) -> Result<&'static str, Error> {
        let rest = self.rest();
        let found = OPERATORS.iter().copied().find(|operator| rest.starts_with(operator) && *operator != "!");
        let Some(operator) = found else {
            return self.fail(format!("unexpected char {:?}", rest.chars().next().unwrap_or(' ')));
        };
        match operator {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" if open.pop() != Some(operator) => {
                return self.fail(format!("unexpected '{operator}'"));
            }
            _ => (),
        }
        self.advance(operator.len());
        Ok(operator)
    }
}

fn next_tag(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len().saturating_sub(1)).find(|&at| bytes[at] == b'{' && b"{%#".contains(&bytes[at + 1]))
}

/// After `{%`: the bytes up to the end of a `raw` tag.
fn raw_begin(text: &str, sign: Option<u8>) -> Option<usize> {
    let rest = &text[usize::from(sign.is_some())..];
    let rest = rest.trim_start_matches(is_space).strip_prefix("raw")?.trim_start_matches(is_space);
    let rest = match rest.strip_prefix("-%}") {
        Some(rest) => rest.trim_start_matches(is_space),
        None => rest.strip_prefix("%}")?,
    };
    Some(text.len() - rest.len())
}

/// After `{%`: the sign before, the bytes up to the end and the sign at the end of an `endraw` tag.
fn raw_end(text: &str) -> Option<(Option<u8>, usize, Option<u8>)> {
    let sign = text.bytes().next().filter(|sign| b"-+".contains(sign));
    let rest = &text[usize::from(sign.is_some())..];
    let rest = rest.trim_start_matches(is_space).strip_prefix("endraw")?.trim_start_matches(is_space);
    let end = rest.bytes().next().filter(|sign| b"-+".contains(sign));
    let rest = rest[usize::from(end.is_some())..].strip_prefix("%}")?;
    Some((sign, text.len() - rest.len(), end))
}

/// Digits with single underscores between them.
fn digits(text: &str, radix: u32) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(|byte| (*byte as char).is_digit(radix));
    let mut end = 0;
    while digit(end) || (end > 0 && bytes.get(end) == Some(&b'_') && digit(end + 1)) {
        end += 1;
    }
    end
}

fn number(text: &str, dotted: bool) -> Option<(Lexeme, usize)> {
    if !dotted && let Some(bytes) = float(text) {
        let value = text[..bytes].replace('_', "").parse().ok()?;
        return Some((Lexeme::Float(value), bytes));
    }
    let radix = match text.as_bytes().get(1).map(u8::to_ascii_lowercase) {
        Some(b'x') if text.starts_with('0') => 16,
        Some(b'o') if text.starts_with('0') => 8,
        Some(b'b') if text.starts_with('0') => 2,
        _ => 10,
    };
    if radix != 10 {
        let skip = 2 + usize::from(text.as_bytes().get(2) == Some(&b'_'));
        let bytes = digits(&text[skip..], radix);
        if bytes > 0 {
            return Some((whole(&text[skip..skip + bytes], radix)?, skip + bytes));
        }
    }
    let bytes = match text.bytes().next() {
        Some(b'0') => text.bytes().take_while(|byte| *byte == b'0').count(),
        _ => digits(text, 10),
    };
    Some((whole(&text[..bytes], 10)?, bytes))
}

/// A whole number; `None` if it has too many digits.
fn whole(digits: &str, radix: u32) -> Option<Lexeme> {
    let digits = digits.replace('_', "");
    let small = i128::from_str_radix(&digits, radix).ok().map(Lexeme::Int);
    small.or_else(|| big::parse(&digits, radix).ok().map(|number| Lexeme::Huge(number.into())))
}

/// The bytes of a float at the start of `text`.
fn float(text: &str) -> Option<usize> {
    let whole = digits(text, 10);
    let fraction = text[whole..].strip_prefix('.').map_or(0, |rest| digits(rest, 10));
    let mantissa = if fraction > 0 { whole + 1 + fraction } else { whole };
    let exponent = text[mantissa..].strip_prefix(['e', 'E']).map_or(0, |rest| {
        let sign = usize::from(rest.starts_with(['+', '-']));
        let count = digits(&rest[sign..], 10);
        if count > 0 { 1 + sign + count } else { 0 }
    });
    (fraction > 0 || exponent > 0).then_some(mantissa + exponent)
}

/// A string literal's text, by Python's `unicode-escape`.
fn unescaped(body: &str) -> Option<String> {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = escape(&rest[at + 1..], &mut out)?;
    }
    out.push_str(rest);
    Some(out)
}

fn escape<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let first = text.chars().next()?;
    let rest = &text[first.len_utf8()..];
    let simple = match first {
        '\n' => return Some(rest),
        '\\' | '\'' | '"' => first,
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        'x' => return code(rest, 2, out),
        'u' => return code(rest, 4, out),
        'U' => return code(rest, 8, out),
        '0'..='7' => {
            let count = text.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            out.push(char::from_u32(u32::from_str_radix(&text[..count], 8).ok()?)?);
            return Some(&text[count..]);
        }
        _ => {
            out.push('\\');
            first
        }
    };
    out.push(simple);
    Some(rest)
}

fn code<'a>(text: &'a str, digits: usize, out: &mut String) -> Option<&'a str> {
    let number = text.get(..digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    out.push(char::from_u32(u32::from_str_radix(number, 16).ok()?)?);
    Some(&text[digits..])
}
