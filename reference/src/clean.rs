//! Text that somebody else wrote, made harmless for a terminal.
//!
//! A compiler's or an attempt's words may hold terminal escape sequences (ECMA-48), other control characters, and
//! Unicode's direction marks and characters without a width, which make a line read otherwise than it is stored. Whole
//! sequences go, not only their first byte, so that no `[31m` remains. Line ends and indentation stay.

/// The text without escape sequences, control characters, direction marks and characters that nobody sees; tabs become
/// four spaces.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut rest),
            '\u{9b}' => skip_control(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            '\n' => out.push('\n'),
            '\t' => out.push_str("    "),
            c if c.is_control() || is_unseen(c) => {}
            c => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::str::Chars<'a>;

/// What follows ESC: a control sequence, a string, or one to three characters.
fn skip_sequence(rest: &mut Chars) {
    let mut ahead = rest.clone();
    match ahead.next() {
        Some('[') => {
            *rest = ahead;
            skip_control(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            *rest = ahead;
            skip_string(rest);
        }
        Some(' '..='/') => {
            skip_while(rest, |c| (' '..='/').contains(&c));
            rest.next();
        }
        Some('0'..='~') => *rest = ahead,
        _ => {}
    }
}

/// Parameters and intermediates, then one final character; stops before what cannot belong to it.
fn skip_control(rest: &mut Chars) {
    skip_while(rest, |c| (' '..='?').contains(&c));
    let mut ahead = rest.clone();
    if ahead.next().is_some_and(|c| ('@'..='~').contains(&c)) {
        *rest = ahead;
    }
}

/// Everything up to BEL, ST or the end of the line: a string left open must not swallow the report.
fn skip_string(rest: &mut Chars) {
    skip_while(rest, |c| !matches!(c, '\u{7}' | '\u{1b}' | '\u{9c}' | '\n'));
    let mut ahead = rest.clone();
    match ahead.next() {
        Some('\u{7}' | '\u{9c}') => *rest = ahead,
        Some('\u{1b}') if ahead.next() == Some('\\') => *rest = ahead,
        _ => {}
    }
}

fn skip_while(rest: &mut Chars, belongs: impl Fn(char) -> bool) {
    let mut ahead = rest.clone();
    while ahead.next().is_some_and(&belongs) {
        *rest = ahead.clone();
    }
}

/// Marks of direction, and characters that nobody sees: a line with them reads otherwise than it is stored.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_sequences_go_and_the_words_stay() {
        let cases = [
            ("\u{1b}[1;31merror\u{1b}[0m: no", "error: no"),
            ("\u{1b}]0;owned\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{9b}31mred", "red"),
            ("\u{1b}(Bplain\u{1b}c", "plain"),
            ("a\rb\u{8}c\u{0}d\u{7f}", "abcd"),
            ("\tx\n  y\r\n", "    x\n  y\n"),
            ("left\u{202e}right\u{2066}", "leftright"),
            ("A.1\u{200b}/pri\u{ad}me\u{e0041}\u{2060}", "A.1/prime"),
            ("\u{1b}]open string\nnext line", "\nnext line"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{e9}\u{1b}[31\u{e9}", "\u{e9}\u{e9}"),
        ];
        for (given, want) in cases {
            assert_eq!(clean(given), want, "{given:?}");
        }
    }
}
