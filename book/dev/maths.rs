//! Formulas: LaTeX between dollars becomes `MathML`, which browsers draw by themselves.
//!
//! No script and no network: the formula is in the page, and its font lies beside the page
//! (`src/fonts`; without a `MATH` table in the font a browser cannot place or stretch its signs). A formula
//! that the parser refuses fails the build; it is never shown in red. A word is set by `\text` or
//! `\operatorname`: as letters of mathematics it would be a product. `\$` is a dollar sign. An inline formula
//! begins and ends with something other than a space, stays within its paragraph, and is not followed by a
//! digit, so that two prices in one sentence are no formula.

use pulldown_latex::config::{DisplayMode, RenderConfig};
use pulldown_latex::event::{Content, Dimension, DimensionUnit};
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
    if let Some(word) = styled_word(latex).or_else(|| bare_word(latex)) {
        return Err(unset(latex.trim(), word));
    }
    let storage = Storage::new();
    let events: Result<Vec<Event<'_>>, ParserError> = Parser::new(latex.trim(), &storage).collect();
    let events = events.map_err(|error| format!("the formula `{latex}` cannot be read: {error}"))?;
    let events: Vec<Event<'_>> = events.into_iter().map(spaced).collect();
    let config = RenderConfig { display_mode, annotation: Some(latex.trim()), ..RenderConfig::default() };
    let mut math = String::new();
    push_mathml(&mut math, events.into_iter().map(Ok::<_, ParserError>), config)
        .map_err(|error| format!("the formula `{latex}` cannot be drawn: {error}"))?;
    Ok(inert(&one_line(&math)))
}

fn unset(latex: &str, word: &str) -> String {
    format!(
        "the formula `{latex}` sets a word as a product: expected \\text{{{word}}} or \\operatorname{{{word}}}, \
         found `{word}`"
    )
}

/// A word in an alphabet of mathematics, as in `\mathrm{clip}`; one letter in it is a name.
fn styled_word(latex: &str) -> Option<&str> {
    let styles = ["\\mathrm{", "\\mathit{", "\\mathbf{", "\\mathsf{", "\\mathtt{", "\\mathnormal{"];
    let words = styles.iter().flat_map(|style| latex.split(style).skip(1));
    words.filter_map(|from| Some(from.split_once('}')?.0)).find(|word| word.chars().count() > 1)
}

/// Three letters side by side are no product of three names. What is no letter of the formula is left out: commands,
/// and the inside of those that take words.
fn bare_word(latex: &str) -> Option<&str> {
    let mut rest = latex;
    while let Some(at) = rest.find(|c: char| c == '\\' || c.is_ascii_alphabetic()) {
        let command = rest[at..].strip_prefix('\\');
        let from = command.unwrap_or(&rest[at..]);
        let (name, after) =
            from.split_at(from.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(from.len()));
        rest = match (command, name) {
            (None, name) if name.len() > 2 => return Some(name),
            (Some(_), "") => after.split_at(after.chars().next().map_or(0, char::len_utf8)).1,
            (Some(_), "text" | "operatorname" | "begin" | "end") => {
                after.split_once('}').map_or("", |(_, after)| after)
            }
            _ => after,
        };
    }
    None
}

/// `\ ` and `~` are a space between words, 1/3 em; the parser gives the name of a character for them, which would be
/// printed as it is written.
fn spaced(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Content(Content::Text("&nbsp;")) => {
            let width = Some(Dimension::new(1.0 / 3.0, DimensionUnit::Em));
            Event::Space { width, height: None, depth: None }
        }
        event => event,
    }
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
    fn a_space_is_a_space() {
        for latex in [r"$a,\ b$", "$a~b$", r"$\text{for }a$"] {
            let html = expanded(latex);
            assert!(!html.contains("&amp;nbsp;"), "{html}");
            assert!(html.contains("<mspace width=\"0.333") || html.contains("for&nbsp;"), "{html}");
        }
    }

    #[test]
    fn a_word_is_set_as_text() {
        for latex in [
            r"$\mathrm{clip}(x)$",
            r"$\mathit{row} \cdot n$",
            r"$\mathrm{f32}(x)$",
            "$row + 1$",
            r"$a \\row$",
        ] {
            let error = expand(latex, str::to_owned).unwrap_err();
            assert!(error.contains("as a product: expected \\text{"), "{error}");
        }
        for latex in [
            r"$\operatorname{clip}(x)$",
            r"$\text{f32}(x)$",
            r"$\mathrm{T}\,xA$",
            r"$\max(a, b)$",
            "$N V H$",
            r"$a\,b$",
        ] {
            assert!(expand(latex, str::to_owned).is_ok(), "{latex}");
        }
    }

    #[test]
    fn a_broken_formula_is_an_error_that_names_it() {
        let error = expand(r"$\frac{1$", str::to_owned).unwrap_err();
        assert!(error.contains(r"\frac{1"), "{error}");
    }
}
