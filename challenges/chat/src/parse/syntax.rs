//! From Python's regular expressions, as the package `regex` reads them for transformers, to those that an automaton
//! can run.
//!
//! The two syntaxes differ in what a bare `{` or `[` means, in escapes, and in `$`, which in Python also holds before a
//! last newline. Look-ahead is split off at the beginning of a pattern and where nothing follows it. The rest is
//! refused by name: backreferences and recursion, which no finite automaton can follow; look-behind, look-ahead
//! elsewhere, possessive repetition, atomic groups and fuzzy matching, which one could, and for which none is built
//! here; properties of characters.

use regex_syntax::escape;

/// The prefix of groups that mark where a match ends, though its look-ahead reads on.
pub const END: &str = "__end";

/// A pattern in three parts.
#[derive(Debug)]
pub struct Parts {
    /// Look-ahead at the beginning: whether it is negative, and its pattern in Python's syntax.
    pub ahead: Option<(bool, String)>,
    /// The rest, in the automaton's syntax.
    pub body: String,
}

/// Takes a pattern of Python's apart; the error names what is not supported.
pub fn translate(pattern: &str) -> Result<Parts, String> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut ahead = None;
    let mut from = 0;
    for (opening, negative) in [("(?=", false), ("(?!", true)] {
        if pattern.starts_with(opening) {
            let close = closing(&chars, 0)?;
            let rest = &chars[close + 1..];
            let inner: String = chars[3..close].iter().collect();
            let alone = rest.is_empty() && !starts_anywhere(&inner);
            if !negative && (alone || has_alternatives(rest)) {
                break;
            }
            if has_alternatives(rest) || rest.first().is_some_and(|c| "*+?{".contains(*c)) {
                return Err(format!("negative or repeated look-ahead in one of several branches, {opening}"));
            }
            ahead = Some((negative, inner));
            from = close + 1;
        }
    }
    let body = Translator {
        chars: &chars,
        at: from,
        out: String::new(),
        ends: 0,
        depth: 0,
        atom: false,
        multi: false,
    };
    Ok(Parts { ahead, body: body.run()? })
}

/// Whether a look-ahead asks only that something comes, no matter where.
pub fn starts_anywhere(inner: &str) -> bool {
    anywhere(inner).is_some()
}

/// What a look-ahead of the form "anything, then X" looks for.
pub fn anywhere(inner: &str) -> Option<&str> {
    let lead = [
        "[\\s\\S]*?",
        "[\\s\\S]*",
        "[\\S\\s]*?",
        "[\\S\\s]*",
        "[\\w\\W]*?",
        "[\\w\\W]*",
        "[\\d\\D]*?",
        "[\\d\\D]*",
        ".*?",
        ".*",
    ];
    let rest = lead.iter().find_map(|lead| inner.strip_prefix(lead))?;
    let chars: Vec<char> = rest.chars().collect();
    (!has_alternatives(&chars) && !rest.starts_with(['?', '+', '*'])).then_some(rest)
}

/// Whether a `|` stands outside every group and class.
fn has_alternatives(chars: &[char]) -> bool {
    let (mut at, mut depth) = (0, 0_usize);
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 1,
            '[' => at = class_end(chars, at).unwrap_or(chars.len()),
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
        at += 1;
    }
    false
}

/// The place of the `)` for the `(` at `at`.
fn closing(chars: &[char], at: usize) -> Result<usize, String> {
    let (mut at, mut depth) = (at, 0_usize);
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 1,
            '[' => at = class_end(chars, at).ok_or("a class without its ]")?,
            '(' => depth += 1,
            ')' if depth == 1 => return Ok(at),
            ')' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    Err("a ( without its )".to_owned())
}

/// The place of the `]` for the `[` at `at`; the first character of a class may be a `]`.
fn class_end(chars: &[char], at: usize) -> Option<usize> {
    let mut at = at + 1;
    at += usize::from(chars.get(at) == Some(&'^'));
    at += usize::from(chars.get(at) == Some(&']'));
    while *chars.get(at)? != ']' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    Some(at)
}

/// Whether nothing can be consumed after `at`: only the ends of groups and other branches follow.
fn is_tail(chars: &[char], mut at: usize) -> bool {
    let mut depth = 0_usize;
    let mut skipping = false;
    while let Some(&c) = chars.get(at) {
        match c {
            '\\' if skipping => at += 1,
            '[' if skipping => at = class_end(chars, at).unwrap_or(chars.len()),
            '(' if skipping => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ')' => {
                skipping = false;
                if chars.get(at + 1).is_some_and(|c| "*+?{".contains(*c)) {
                    return false;
                }
            }
            '|' => skipping = true,
            _ if skipping => {}
            _ => return false,
        }
        at += 1;
    }
    true
}

struct Translator<'p> {
    chars: &'p [char],
    at: usize,
    out: String,
    ends: usize,
    depth: usize,
    atom: bool,
    multi: bool,
}

impl Translator<'_> {
    fn run(mut self) -> Result<String, String> {
        while self.at < self.chars.len() {
            self.item()?;
        }
        if self.depth > 0 { Err("a ( without its )".to_owned()) } else { Ok(self.out) }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn follows(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(k, c)| self.peek(k) == Some(c))
    }

    fn item(&mut self) -> Result<(), String> {
        let c = self.chars[self.at];
        match c {
            '\\' => self.escape()?,
            '[' => self.class()?,
            '(' => return self.group(),
            ')' => self.close()?,
            '|' => self.emit("|", false),
            '$' if self.multi => self.emit("$", false),
            '$' => self.emit("(?mR:$)", false), // what the matcher takes for Python's $
            '*' | '+' | '?' => return self.repetition(&c.to_string(), 1),
            '{' => match self.counts() {
                Some((text, length)) if self.atom => return self.repetition(&text, length),
                _ if self.is_fuzzy() => return Err("fuzzy matching, {".to_owned()),
                _ => self.emit("\\{", true),
            },
            '.' => self.emit(".", true),
            '^' => self.emit("^", false),
            _ => self.emit(&escape(&c.to_string()), true),
        }
        self.at += 1;
        Ok(())
    }

    fn emit(&mut self, text: &str, atom: bool) {
        self.out.push_str(text);
        self.atom = atom;
    }

    fn close(&mut self) -> Result<(), String> {
        self.depth = self.depth.checked_sub(1).ok_or("a ) without its (")?;
        self.emit(")", true);
        Ok(())
    }

    /// A repetition of `length` characters, lazy if a `?` follows.
    fn repetition(&mut self, text: &str, length: usize) -> Result<(), String> {
        if !self.atom {
            return Err(format!("{text} with nothing to repeat"));
        }
        self.at += length;
        self.emit(text, false);
        match self.peek(0) {
            Some('?') => {
                self.at += 1;
                self.emit("?", false);
            }
            Some('+') => return Err(format!("possessive repetition, {text}+")),
            _ => {}
        }
        Ok(())
    }

    /// `{n}`, `{n,}`, `{,m}` or `{n,m}` in the automaton's syntax, and its length.
    fn counts(&self) -> Option<(String, usize)> {
        let end = self.chars[self.at..].iter().take(16).position(|&c| c == '}')?;
        let inner: String = self.chars[self.at + 1..self.at + end].iter().collect();
        let (low, high) =
            inner.split_once(',').map_or((inner.as_str(), None), |(low, high)| (low, Some(high)));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let some = !low.is_empty() || high.is_some_and(|high| !high.is_empty());
        if !some || !digits(low) || !high.is_none_or(digits) {
            return None;
        }
        let low = if low.is_empty() { "0" } else { low };
        Some((high.map_or_else(|| format!("{{{low}}}"), |high| format!("{{{low},{high}}}")), end + 1))
    }

    /// Whether `regex` takes a `{` for a count of mistakes, such as `{e}`, `{s<=1}`, `{1<=e<3}` or `{2i+1d<=4}`, or
    /// refuses it for being none.
    fn is_fuzzy(&self) -> bool {
        let inner = &self.chars[self.at + 1..];
        let least = inner.iter().take_while(|c| c.is_ascii_digit() || matches!(c, '<' | '=')).count();
        let kind = inner.get(least).is_some_and(|c| matches!(c, 'e' | 'i' | 'd' | 's'));
        kind && (least == 0 || inner.get(least + 1).is_some_and(|c| matches!(c, '<' | '+')))
    }

    fn group(&mut self) -> Result<(), String> {
        if self.follows("(?P<") || self.follows("(?<") && !self.follows("(?<=") && !self.follows("(?<!") {
            return self.named();
        }
        if self.follows("(?=") || self.follows("(?!") {
            return self.look();
        }
        if self.follows("(?#") {
            self.at = closing(self.chars, self.at)? + 1;
            return Ok(());
        }
        if self.follows("(?:") {
            self.at += 2;
        } else if self.follows("(?") {
            return self.flags();
        }
        self.at += 1;
        self.depth += 1;
        self.emit("(?:", false);
        Ok(())
    }

    fn named(&mut self) -> Result<(), String> {
        let start = self.at + if self.follows("(?P") { 4 } else { 3 };
        let length =
            self.chars[start..].iter().position(|&c| c == '>').ok_or("a group's name without its >")?;
        let name: String = self.chars[start..start + length].iter().collect();
        if name.starts_with(END) || name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_')
        {
            return Err(format!("a group named {name:?}"));
        }
        self.at = start + length + 1;
        self.depth += 1;
        self.emit(&format!("(?P<{name}>"), false);
        Ok(())
    }

    /// `(?i)`, `(?s)`, `(?m)` at the beginning, `(?i:` and `(?s:` anywhere.
    fn flags(&mut self) -> Result<(), String> {
        let length =
            self.chars[self.at..].iter().position(|&c| c == ')' || c == ':').ok_or("a ( without its )")?;
        let end = self.at + length;
        let text: String = self.chars[self.at..=end].iter().collect();
        let names = &text[2..text.len() - 1];
        let whole = text.ends_with(')');
        let sound = !names.is_empty() && names.chars().all(|c| "is".contains(c) || whole && c == 'm');
        if !sound || whole && !self.out.is_empty() {
            return Err(format!("{text}, a kind of group"));
        }
        self.multi |= names.contains('m');
        self.depth += usize::from(!whole);
        self.at = end + 1;
        self.emit(&text, false);
        Ok(())
    }

    /// Look-ahead that nothing follows: the match ends here, and the automaton reads on.
    fn look(&mut self) -> Result<(), String> {
        let close = closing(self.chars, self.at)?;
        let negative = self.peek(2) == Some('!');
        if !is_tail(self.chars, close + 1) {
            return Err("look-ahead with something behind it, (?= or (?!".to_owned());
        }
        let inner = &self.chars[self.at + 3..close];
        let mut body = Translator {
            chars: inner,
            at: 0,
            out: String::new(),
            ends: self.ends + 1,
            depth: 0,
            atom: false,
            multi: self.multi,
        };
        if negative {
            self.at = close + 1;
            let class = body.negated()?;
            self.emit(&format!("(?P<{END}{}>)(?:{class}|\\z)", self.ends), true);
            self.ends += 1;
            return Ok(());
        }
        let mark = format!("(?P<{END}{}>)(?:", self.ends);
        while body.at < body.chars.len() {
            body.item()?;
        }
        self.ends = body.ends;
        self.at = close + 1;
        self.emit(&format!("{mark}{})", body.out), true);
        Ok(())
    }

    /// The class of all characters but the one, or the class, that this is.
    fn negated(&mut self) -> Result<String, String> {
        self.item()?;
        if self.at < self.chars.len() || !self.atom || self.out.starts_with('(') || self.out == "." {
            return Err("negative look-ahead for more than one character, (?!".to_owned());
        }
        Ok(format!("[^{}]", self.out))
    }

    fn escape(&mut self) -> Result<(), String> {
        let c = self.peek(1).ok_or("a \\ with nothing behind it")?;
        match c {
            'A' => self.emit("\\A", false),
            'Z' | 'z' => self.emit("\\z", false),
            'b' | 'B' => self.emit(&format!("\\{c}"), false),
            _ => {
                let text = self.escaped(c)?;
                self.emit(&text, true);
            }
        }
        self.at += 1;
        Ok(())
    }

    /// An escape that means the same within and outside a class; leaves `at` before its last character.
    fn escaped(&mut self, c: char) -> Result<String, String> {
        let digits = match c {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'n' | 't' | 'r' | 'f' | 'v' | 'a' => {
                return Ok(format!("\\{c}"));
            }
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ if c.is_alphanumeric() => return Err(format!("\\{c}, a reference or an unknown escape")),
            _ => return Ok(escape(&c.to_string())),
        };
        let text: String = self.chars.iter().skip(self.at + 2).take(digits).collect();
        let code = u32::from_str_radix(&text, 16).ok().filter(|_| text.len() == digits);
        self.at += digits;
        let char =
            code.and_then(char::from_u32).ok_or_else(|| format!("\\{c}{text}, which is no character"))?;
        Ok(escape(&char.to_string()))
    }

    fn class(&mut self) -> Result<(), String> {
        let end = class_end(self.chars, self.at).ok_or("a class without its ]")?;
        let mut text = String::from("[");
        self.at += 1;
        if self.peek(0) == Some('^') {
            text.push('^');
            self.at += 1;
        }
        while self.at < end {
            if self.follows("[:") {
                return Err("a class of a class, [[:".to_owned());
            }
            text.push_str(&self.member()?);
            if self.peek(0) == Some('-') && self.at + 1 < end {
                self.at += 1;
                text.push('-');
                text.push_str(&self.member()?);
            }
        }
        text.push(']');
        self.emit(&text, true);
        Ok(())
    }

    /// One character or escape of a class.
    fn member(&mut self) -> Result<String, String> {
        let c = self.chars[self.at];
        let text = match (c, self.peek(1)) {
            ('\\', Some('b')) => {
                self.at += 1;
                "\\x08".to_owned()
            }
            ('\\', Some(next)) => {
                let text = self.escaped(next)?;
                self.at += 1;
                text
            }
            _ => escape(&c.to_string()),
        };
        self.at += 1;
        Ok(text)
    }
}
