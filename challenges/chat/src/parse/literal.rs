//! Calls as Python writes them: `[f(city='Oslo', days=3), g()]`.
//!
//! Values are Python's literals: strings in either quotes with their escapes, numbers, lists, dictionaries with strings
//! for keys, `True`, `False` and `None`; JSON's words for the last three are taken too. Names are whatever stands
//! before `(` and `=`, since tools may have names that Python would not take. Half of a surrogate pair becomes U+FFFD.

use serde_json::{Map, Value, json};

use super::error::Problem;
use super::json::DEEPEST;
use super::scalar::{float, int};

/// What ends a name.
const AFTER_NAMES: [char; 11] = ['(', ')', '[', ']', '{', '}', ',', '=', '\'', '"', '\\'];

/// A list of calls, each as its `name` and `arguments`.
pub fn calls(text: &str) -> Result<Value, Problem> {
    let mut reader = Reader { text, at: 0 };
    reader.space();
    if !reader.take('[') {
        return Err(reader.needs("["));
    }
    let calls = reader.list(']', Reader::call)?;
    reader.space();
    if reader.rest().is_empty() { Ok(Value::Array(calls)) } else { Err(reader.needs("the end")) }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn needs(&self, needed: &'static str) -> Problem {
        Problem::Python { needed, at: self.at }
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.rest().starts_with(c);
        self.at += if taken { c.len_utf8() } else { 0 };
        taken
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Items with commas between, also after the last, up to `close`; what opens the list is taken.
    fn list<T>(
        &mut self,
        close: char,
        item: impl Fn(&mut Self) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        let mut items = Vec::new();
        loop {
            self.space();
            if self.take(close) {
                return Ok(items);
            }
            items.push(item(self)?);
            self.space();
            if !self.take(',') && !self.rest().starts_with(close) {
                return Err(self.needs("a comma or what closes the list"));
            }
        }
    }

    fn call(&mut self) -> Result<Value, Problem> {
        let name = self.name("the name of a function")?;
        if !self.take('(') {
            return Err(self.needs("("));
        }
        let arguments = self.list(')', Self::argument)?;
        Ok(json!({"name": name, "arguments": Map::from_iter(arguments)}))
    }

    fn argument(&mut self) -> Result<(String, Value), Problem> {
        let name = self.name("the name of an argument")?;
        if !self.take('=') {
            return Err(self.needs("="));
        }
        Ok((name, self.value(0)?))
    }

    fn name(&mut self, needed: &'static str) -> Result<String, Problem> {
        let rest = self.rest();
        let end = rest.find(AFTER_NAMES).unwrap_or(rest.len());
        let name = rest[..end].trim();
        if name.is_empty() {
            return Err(self.needs(needed));
        }
        self.at += end;
        Ok(name.to_owned())
    }

    fn value(&mut self, depth: usize) -> Result<Value, Problem> {
        self.space();
        if depth > DEEPEST {
            return Err(Problem::TooMuch { what: "levels of python", limit: DEEPEST });
        }
        let start = self.at;
        match self.next() {
            Some(quote @ ('\'' | '"')) => self.string(quote).map(Value::String),
            Some('[') => Ok(Value::Array(self.list(']', |reader| reader.value(depth + 1))?)),
            Some('{') => {
                let entries = self.list('}', |reader| reader.entry(depth + 1))?;
                Ok(Value::Object(Map::from_iter(entries)))
            }
            _ => {
                self.at = start;
                self.word()
            }
        }
    }

    fn entry(&mut self, depth: usize) -> Result<(String, Value), Problem> {
        let key = match self.next() {
            Some(quote @ ('\'' | '"')) => self.string(quote)?,
            _ => return Err(self.needs("a key in quotes")),
        };
        self.space();
        if !self.take(':') {
            return Err(self.needs("a colon"));
        }
        Ok((key, self.value(depth)?))
    }

    /// A number or a word.
    fn word(&mut self) -> Result<Value, Problem> {
        let rest = self.rest();
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let word = &rest[..rest.find(|c| !sound(c)).unwrap_or(rest.len())];
        let value = match word {
            "True" | "true" => Some(Value::Bool(true)),
            "False" | "false" => Some(Value::Bool(false)),
            "None" | "null" => Some(Value::Null),
            number if number.contains(|c: char| c.is_ascii_digit()) => int(number).or_else(|| float(number)),
            _ => None,
        };
        let value = value.ok_or_else(|| self.needs("a value"))?;
        self.at += word.len();
        Ok(value)
    }

    /// A string after its opening quote.
    fn string(&mut self, quote: char) -> Result<String, Problem> {
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.find([quote, '\\']).ok_or_else(|| self.needs("the end of a string"))?;
            out.push_str(&rest[..plain]);
            self.at += plain;
            if self.take(quote) {
                return Ok(out);
            }
            self.escape(&mut out)?;
        }
    }

    /// What a backslash means; before any other character it is itself.
    fn escape(&mut self, out: &mut String) -> Result<(), Problem> {
        self.take('\\');
        let start = self.at;
        let c = self.next().ok_or_else(|| self.needs("an escape"))?;
        let code = match c {
            '\n' => return Ok(()),
            '\\' | '\'' | '"' => c as u32,
            'a' => 7,
            'b' => 8,
            't' => 9,
            'n' => 10,
            'v' => 11,
            'f' => 12,
            'r' => 13,
            'x' => self.digits(16, 2, 2)?,
            'u' => self.unit()?,
            'U' => self.digits(16, 8, 8)?,
            '0'..='7' => {
                self.at = start;
                self.digits(8, 1, 3)?
            }
            _ => {
                out.extend(['\\', c]);
                return Ok(());
            }
        };
        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }

    /// From `least` to `most` digits.
    fn digits(&mut self, radix: u32, least: usize, most: usize) -> Result<u32, Problem> {
        let digits =
            self.rest().bytes().take(most).take_while(|&byte| (byte as char).is_digit(radix)).count();
        if digits < least {
            return Err(self.needs("the digits of an escape"));
        }
        let code = u32::from_str_radix(&self.rest()[..digits], radix).unwrap_or(u32::MAX);
        self.at += digits;
        Ok(code)
    }

    /// Four digits, and four more of a pair of surrogates.
    fn unit(&mut self) -> Result<u32, Problem> {
        let high = self.digits(16, 4, 4)?;
        let after = self.at;
        if (0xd800..0xdc00).contains(&high) && self.rest().starts_with("\\u") {
            self.at += 2;
            if let Ok(low @ 0xdc00..=0xdfff) = self.digits(16, 4, 4) {
                return Ok(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
            }
            self.at = after;
        }
        Ok(high)
    }
}
