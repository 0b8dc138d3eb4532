//! The published marking scheme of a challenge as a table, rendered from the rows that score.

use grader::rubric::{Effect, Line, Rubric, When, find};

use crate::html::escape;

/// The table of a challenge: the published wording, what it adds, how it is measured.
///
/// # Errors
/// Where no challenge has that name.
pub fn table(name: &str) -> Result<String, String> {
    let rubric = find(name).ok_or_else(|| format!("no rubric has the name `{name}`"))?;
    let rows: String = rubric.lines.iter().map(row).collect();
    Ok(format!(
        "<div class=\"table-wrapper\"><table class=\"rubric\"><caption>{}</caption><thead><tr><th>published line</th>\
         <th>points</th><th>how it is measured</th></tr></thead><tbody>{rows}</tbody></table></div>",
        escape(&caption(rubric)),
    ))
}

fn caption(rubric: &Rubric) -> String {
    let Rubric { letter, name, possible, not_attempted, .. } = rubric;
    format!(
        "{letter}, {name}: {possible} points at most; {} when nothing is handed in",
        signed(*not_attempted)
    )
}

fn row(line: &Line) -> String {
    format!(
        "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
        escape(line.wording),
        escape(&effects(line)),
        measured(line)
    )
}

/// How a line is measured, on the CPU and, where it differs, on CUDA.
fn measured(line: &Line) -> String {
    match line.cuda {
        "" => escape(line.cpu),
        cuda => format!("<b>CPU</b> {}<br><b>CUDA</b> {}", escape(line.cpu), escape(cuda)),
    }
}

/// Every effect with the condition that leads to it: `+1, else -1`.
fn effects(line: &Line) -> String {
    let fact = words(&line.fact);
    let effects = line.branches.iter().map(|(when, effect)| match (when, words(when)) {
        (When::Otherwise, _) => format!("else {}", effect_words(*effect)),
        (_, condition) if condition == fact => effect_words(*effect),
        _ => format!("{} if {}", effect_words(*effect), beside(when, &fact)),
    });
    effects.collect::<Vec<_>>().join(", ")
}

/// A condition without the line's own fact, which goes without saying.
fn beside(when: &When, fact: &str) -> String {
    match when {
        When::All(parts) => {
            parts.iter().map(words).filter(|part| part != fact).collect::<Vec<_>>().join(" and ")
        }
        _ => words(when),
    }
}

fn words(when: &When) -> String {
    match when {
        When::Otherwise => "otherwise".into(),
        When::Is(name) => (*name).into(),
        When::Not(name) => format!("not {name}"),
        When::All(parts) => parts.iter().map(words).collect::<Vec<_>>().join(" and "),
    }
}

fn effect_words(effect: Effect) -> String {
    match effect {
        Effect::Add(n) => signed(n),
        Effect::Reset => "the score so far becomes 0".into(),
    }
}

/// A number with its sign, a real minus before it.
pub fn signed(n: i32) -> String {
    match n {
        0 => "0".into(),
        n if n < 0 => format!("\u{2212}{}", n.unsigned_abs()),
        n => format!("+{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_rubric_is_in_its_table() {
        for rubric in &grader::rubric::RUBRICS {
            let table = table(rubric.name).unwrap();
            for line in rubric.lines {
                assert!(table.contains(&escape(line.wording)), "{}: {}", rubric.name, line.wording);
            }
        }
    }

    #[test]
    fn an_effect_reads_as_published() {
        let nf4 = find("nf4").unwrap();
        let of = |wording: &str| effects(nf4.lines.iter().find(|line| line.wording == wording).unwrap());
        assert_eq!(of("speedup >= 1.10"), "+2");
        assert_eq!(of("kernel_works_in_torch_compile"), "+1, else \u{2212}1");
        let graph = find("graph").unwrap();
        let compiled = graph.lines.iter().find(|line| line.wording == "mlp_compiled").unwrap();
        assert_eq!(effects(compiled), "\u{2212}2 if excessive_recompilation, +1");
    }
}
