//! JSON as Python's reader takes it, with a bound on depth.
//!
//! It differs from `serde_json` as follows: `-0` is an integer, integers of more than 64 bits stay exact ([`exact`]), and
//! half of a surrogate pair, which no text can hold, becomes U+FFFD. Python's `NaN` and `Infinity`, and floats too large,
//! are refused: a message has no value for them.

use reference::exact;
use serde_json::{Map, Number, Value};

use super::error::Problem;

/// How deep arrays and objects may be nested.
pub const DEEPEST: usize = 128;

/// How many digits an integer may have, as in Python.
pub const LONGEST: usize = exact::MOST_DIGITS;

/// Reads one JSON value and the white space around it.
pub fn read(text: &str) -> Result<Value, Problem> {
    let mut reader = Reader { text, at: 0 };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    if reader.at == text.len() { Ok(value) } else { Err(reader.needs("the end")) }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn needs(&self, needed: &'static str) -> Problem {
        Problem::Json { needed, at: self.at }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let taken = self.peek() == Some(byte);
        self.at += usize::from(taken);
        taken
    }

    fn value(&mut self, depth: usize) -> Result<Value, Problem> {
        match self.peek() {
            Some(b'{' | b'[') if depth == DEEPEST => {
                Err(Problem::TooMuch { what: "levels of json", limit: DEEPEST })
            }
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Value, Problem> {
        let words = [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))];
        let rest = &self.text.as_bytes()[self.at..];
        let found = words.into_iter().find(|(word, _)| rest.starts_with(word.as_bytes()));
        let (word, value) = found.ok_or_else(|| self.needs("a value"))?;
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut map = Map::new();
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.needs("a name in double quotes"));
            }
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.needs("a colon"));
            }
            self.space();
            map.insert(name, self.value(depth)?);
            self.space();
            if self.take(b'}') {
                return Ok(Value::Object(map));
            }
            if !self.take(b',') {
                return Err(self.needs("a comma or }"));
            }
            self.space();
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            self.space();
            items.push(self.value(depth)?);
            self.space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return Err(self.needs("a comma or ]"));
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value, Problem> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') && self.digits() == 0 {
            self.at = start;
            return Err(self.needs("a value"));
        }
        let whole = self.at;
        self.part(|reader| reader.take(b'.'));
        self.part(|reader| {
            let exponent = reader.take(b'e') || reader.take(b'E');
            let _sign = exponent && (reader.take(b'+') || reader.take(b'-'));
            exponent
        });
        let text = &self.text[start..self.at];
        if self.at == whole { integer(text) } else { float(text) }.ok_or_else(|| too_much(whole - start))
    }

    /// A fraction or an exponent: what `begins` takes, and digits; nothing if there are no digits.
    fn part(&mut self, begins: impl Fn(&mut Self) -> bool) {
        let start = self.at;
        if !begins(self) || self.digits() == 0 {
            self.at = start;
        }
    }

    fn string(&mut self) -> Result<String, Problem> {
        let mut out = String::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let plain =
                rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return Err(self.needs("an escape for a control character")),
                None => return Err(self.needs("the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Problem> {
        self.at += 1;
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => c as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.needs("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode(&mut self) -> Result<char, Problem> {
        let high = self.four().ok_or_else(|| self.needs("four hexadecimal digits"))?;
        if !(0xd800..0xdc00).contains(&high) {
            return Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        if self.take(b'\\') && self.take(b'u') {
            let low = self.four().ok_or_else(|| self.needs("four hexadecimal digits"))?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        self.at = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn four(&mut self) -> Option<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        let value = digits.iter().try_fold(0, |sum, &d| Some(sum * 16 + (d as char).to_digit(16)?))?;
        self.at += 4;
        Some(value)
    }
}

fn too_much(digits: usize) -> Problem {
    if digits > LONGEST {
        return Problem::TooMuch { what: "digits", limit: LONGEST };
    }
    Problem::Number { needed: "finite number" }
}

/// An integer of any size, as [`exact`] keeps it; `None` if it has more than [`LONGEST`] digits.
pub fn integer(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    (digits.trim_start_matches('-').len() <= LONGEST).then(|| exact::whole(digits))
}

/// A float, unless it is infinite or no number.
pub fn float(text: &str) -> Option<Value> {
    text.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number)
}

/// A string as JSON, as short as it goes.
pub fn quoted(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
