//! Drawings: SVG files of `book/src/figures`, inlined so that they take the colours of the page's theme.
//!
//! A file stands on its own: its `<title>` is the caption, its `<desc>` says in words what is drawn. Lines
//! and letters are `currentColor`; fills are the style sheet's variables with a fallback for viewers that
//! do not know them.

use std::path::Path;

use crate::html::{escape, unescape};
use crate::maths::one_line;

/// A computed figure: its name, its caption, and its SVG.
pub(crate) type Drawn = (&'static str, &'static str, String);

/// The drawing `NAME.svg` as a figure with caption and alternative text.
///
/// # Errors
/// Where the file is missing or lacks its title or description.
pub fn inline(folder: &Path, name: &str) -> Result<String, String> {
    let path = folder.join(format!("{name}.svg"));
    let svg = crate::read(&path).map_err(|error| error.to_string())?;
    let (title, svg) = take(&svg, "title").ok_or_else(|| lacks(name, "title"))?;
    let (desc, svg) = take(&svg, "desc").ok_or_else(|| lacks(name, "desc"))?;
    let label = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&unescape(&one_line(&desc))));
    Ok(framed(&one_line(&svg).replacen("<svg ", &label, 1), &title))
}

/// Any SVG in a figure with a caption, scrolled sideways where the page is narrow.
pub fn framed(svg: &str, caption: &str) -> String {
    format!(
        "<figure class=\"diagram\"><div class=\"scroll\">{}</div><figcaption>{}</figcaption></figure>",
        one_line(svg),
        one_line(caption)
    )
}

fn lacks(name: &str, element: &str) -> String {
    format!("figure `{name}` has no <{element}>")
}

/// The text of the first `<element>` and the SVG without it.
fn take(svg: &str, element: &str) -> Option<(String, String)> {
    let (before, from) = svg.split_once(&format!("<{element}>"))?;
    let (text, after) = from.split_once(&format!("</{element}>"))?;
    Some((text.trim().to_owned(), format!("{before}{after}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_told_as_it_reads() {
        let folder = tempfile::tempdir().unwrap();
        let svg =
            "<svg viewBox=\"0 0 1 1\"><title>a &lt; b</title><desc>\"&lt;|x|&gt;\" &amp; c</desc></svg>";
        std::fs::write(folder.path().join("one.svg"), svg).unwrap();
        let html = inline(folder.path(), "one").unwrap();
        assert!(html.contains("aria-label=\"&quot;&lt;|x|&gt;&quot; &amp; c\""), "{html}");
        assert!(html.contains("<figcaption>a &lt; b</figcaption>"), "{html}");
    }
}
