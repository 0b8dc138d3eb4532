//! The text of a graph that somebody wrote: read, its mistakes shown with their place, its nodes known by their lines.

use reference::graph::Graph;

/// Bytes of a text that is read: a training step of a large model has about a tenth.
pub const MOST_TEXT_BYTES: usize = 4 << 20;

/// Nodes of a graph that is compiled.
pub const MOST_NODES: usize = 20_000;

/// Reads a graph.
///
/// # Errors
/// What is wrong with it, with its line and a caret under its column.
pub fn read(text: &str) -> Result<Graph, String> {
    if text.len() > MOST_TEXT_BYTES {
        return Err(format!("expected at most {MOST_TEXT_BYTES} bytes of text, found {}", text.len()));
    }
    let graph = Graph::parse_placed(text).map_err(|(error, at)| match at {
        Some(at) => format!("{error}\n{}", shown(text, at)),
        None => error.to_string(),
    })?;
    match graph.nodes().len() {
        nodes if nodes > MOST_NODES => Err(format!("expected at most {MOST_NODES} nodes, found {nodes}")),
        _ if graph.outputs().is_empty() => {
            Err("expected an output such as `return \"y\" %0`, found none".into())
        }
        _ => Ok(graph),
    }
}

/// Characters of a long line that are shown on either side of a place.
const AROUND: usize = 50;

/// The line of a place, with a caret under it.
fn shown(text: &str, at: usize) -> String {
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[begin..].lines().next().unwrap_or_default();
    let (number, column) = (text[..at].matches('\n').count() + 1, text[begin..at].chars().count());
    let first = column.saturating_sub(AROUND);
    let part: String = line.chars().map(plain).skip(first).take(column - first + AROUND).collect();
    let lead = format!("  {number}:{} | ", column + 1);
    format!("{lead}{part}\n{}^", " ".repeat(lead.len() + column - first))
}

/// A character that takes one column.
fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

/// The line on which each node begins, from 1: the nodes of programs stand in deeper braces.
pub fn lines(text: &str) -> Vec<usize> {
    let (mut lines, mut line, mut depth) = (Vec::new(), 1, 0_usize);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\n' => line += 1,
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '"' => {
                let end = string_end(rest);
                line += rest[..end].matches('\n').count();
                rest = &rest[end..];
            }
            '%' if depth == 1 && defines(rest) => lines.push(line),
            _ => {}
        }
    }
    lines
}

/// The bytes up to and with the quote that ends a string.
fn string_end(rest: &str) -> usize {
    let mut escaped = false;
    let end = rest.char_indices().find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// Whether what follows a `%` is a node's own number.
fn defines(rest: &str) -> bool {
    rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').trim_start().starts_with('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_with_its_line_and_column() {
        let message = read("graph \"g\" {\n  %0 = input \"x\" : f64[2]\n}").expect_err("no such type");
        let want =
            "line 2: expected f32, f16, bf16, u8 or i32, found `f64`\n  2:20 |   %0 = input \"x\" : f64[2]\n";
        assert_eq!(message, format!("{want}{}^", " ".repeat(9 + 19)));
        let long = format!("graph \"{}\" {{ ! }}", "x".repeat(5000));
        assert!(read(&long).expect_err("a stray sign").lines().all(|line| line.chars().count() < 130));
        assert!(read("graph \"g\" {").expect_err("no end").contains("found the end of the text"));
    }

    #[test]
    fn the_nodes_of_programs_have_no_line_of_their_own() {
        let text = "graph \"%0 = {\\\"\n\" {\n %0\n= input \"x\" : f32[]\n %1 = attention %0 scale 1.0 mask \
                    graph \"m\" {\n %0 = input \"s\" : f32[] }\n : f32[]\n%2 = neg %1 : f32[] }";
        assert_eq!(lines(text), [3, 5, 8]);
    }
}
