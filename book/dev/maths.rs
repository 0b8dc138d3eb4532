//! Formulas: LaTeX between dollars becomes `MathML`, which browsers draw by themselves.
//!
//! No script, no font and no network: the formula is in the page. A formula that the parser refuses fails
//! the build; it is never shown in red. `\$` is a dollar sign. An inline formula begins and ends with
//! something other than a space, stays within its paragraph, and is not followed by a digit, so that two
//! prices in one sentence are no formula.

use pulldown_latex::config::{DisplayMode, RenderConfig};
use pulldown_latex::{Event, Parser, ParserError, Storage, push_mathml};

/// Renders every formula of a text that holds no code; what is not a formula goes through `keep`.
///
/// # Errors
/// The formula and the words of its parser.
pub fn expand(text: &str, keep: impl Fn(&str) -> String) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('\\') {
            out += &keep(before);
            out.push('$');
            rest = &from[1..];
        } else if let Some((formula, after)) = formula(from) {
            out += &keep(before);
            out += &formula.render()?;
            rest = after;
        } else {
            out += &keep(&rest[..=at]);
            rest = &from[1..];
        }
    }
    Ok(out + &keep(rest))
}

/// A formula of the text.
struct Formula<'a> {
    latex: &'a str,
    mode: DisplayMode,
}

/// The formula at the head of `text`, which begins with a dollar, and what follows it.
fn formula(text: &str) -> Option<(Formula<'_>, &str)> {
    if let Some(inside) = text.strip_prefix("$$") {
        let (latex, after) = inside.split_once("$$")?;
        return Some((Formula { latex, mode: DisplayMode::Block }, after));
    }
    let inside = &text[1..];
    let end = inside.find('$')?;
    let (latex, after) = (&inside[..end], &inside[end + 1..]);
    let tight = !latex.is_empty() && latex.trim() == latex && !latex.contains("\n\n");
    let price = after.starts_with(|c: char| c.is_ascii_digit());
    (tight && !price).then_some((Formula { latex, mode: DisplayMode::Inline }, after))
}

impl Formula<'_> {
    fn render(&self) -> Result<String, String> {
        let math = mathml(self.latex, self.mode)?;
        Ok(match self.mode {
            DisplayMode::Inline => math,
            DisplayMode::Block => format!("\n\n<div class=\"formula\">{math}</div>\n\n"),
        })
    }
}

/// One formula as `MathML` on one line, safe to stand in Markdown.
fn mathml(latex: &str, display_mode: DisplayMode) -> Result<String, String> {
    let storage = Storage::new();
    let events: Result<Vec<Event<'_>>, ParserError> = Parser::new(latex.trim(), &storage).collect();
    let events = events.map_err(|error| format!("the formula `{latex}` cannot be read: {error}"))?;
    let config = RenderConfig { display_mode, annotation: Some(latex.trim()), ..RenderConfig::default() };
    let mut math = String::new();
    push_mathml(&mut math, events.into_iter().map(Ok::<_, ParserError>), config)
        .map_err(|error| format!("the formula `{latex}` cannot be drawn: {error}"))?;
    Ok(inert(&one_line(&math)))
}

/// Writes what Markdown would take for markup as entities, between tags only.
fn inert(html: &str) -> String {
    let mut inside_tag = false;
    let mut out = String::new();
    for c in html.chars() {
        match c {
            '<' => inside_tag = true,
            '>' => inside_tag = false,
            '*' | '_' | '`' | '[' | ']' | '\\' | '~' | '|' | '!' | '$' if !inside_tag => {
                out += &format!("&#{};", u32::from(c));
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

/// Puts HTML on one line: a line break could end a Markdown HTML block, a blank line certainly does.
pub fn one_line(html: &str) -> String {
    html.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        expand(text, str::to_owned).unwrap()
    }

    #[test]
    fn a_formula_becomes_mathml() {
        let html = expanded(r"so $\frac{a_1}{2}$ it is");
        assert!(html.starts_with("so <math"), "{html}");
        assert!(html.contains("<mfrac>") && html.ends_with("</math> it is"), "{html}");
    }

    #[test]
    fn a_displayed_formula_stands_alone() {
        assert!(expanded("a\n$$x * y$$\nb").contains("\n\n<div class=\"formula\"><math display=\"block\">"));
    }

    #[test]
    fn dollars_that_are_no_formula_stay() {
        for (text, want) in [("5$ and 6$ more", "5$ and 6$ more"), (r"\$5", "$5"), ("a $ b", "a $ b")] {
            assert_eq!(expanded(text), want);
        }
    }

    #[test]
    fn a_broken_formula_is_an_error_that_names_it() {
        let error = expand(r"$\frac{1$", str::to_owned).unwrap_err();
        assert!(error.contains(r"\frac{1"), "{error}");
    }
}
