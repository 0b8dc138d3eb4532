//! D.8: what a template has lost, seen in its text.

use std::ops::Range;

use challenges::issues::chat::lint::Criterion::{Any, Closed, Marked, Unmarked, Unwritten, Written};
use challenges::issues::chat::lint::{Criterion, Rule, limits, lint};
use challenges::issues::chat::{ChatTemplate, Options, Rendered, Steps, own};

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("written", |steps, _| {
        one(steps, "a bc", &[], "b", &[(Written, true), (Unwritten, false)])
            .and_then(|()| one(steps, "a bc", &[], "d", &[(Written, false), (Unwritten, true)]))
    }),
    ("any-mark", |steps, _| {
        one(steps, "abc", &[[0, 1]], "", &[(Any, true)])
            .and_then(|()| one(steps, "abc", &[], "", &[(Any, false)]))
            .and_then(|()| one(steps, "abc", &[[1, 1], [3, 3]], "", &[(Any, false)]))
    }),
    ("inside-and-outside", |steps, _| {
        one(steps, "x a x", &[[2, 3]], "x", &[(Marked, false), (Unmarked, true)])
            .and_then(|()| one(steps, "x a x", &[[2, 3]], "a", &[(Marked, true), (Unmarked, false)]))
            .and_then(|()| one(steps, "x a x", &[[4, 5]], "x", &[(Marked, false), (Unmarked, false)]))
            .and_then(|()| one(steps, "x a x", &[], "x", &[(Marked, true), (Unmarked, true)]))
    }),
    ("across-a-border", |steps, _| {
        one(steps, "ab ab", &[[1, 4]], "ab", &[(Marked, true), (Unmarked, true)])
            .and_then(|()| one(steps, "abab", &[[1, 3]], "ab", &[(Marked, true), (Unmarked, true)]))
    }),
    ("the-end-of-a-turn", |steps, _| {
        one(steps, "a x. b", &[[2, 4]], "x", &[(Closed, true)])
            .and_then(|()| one(steps, "a x . b", &[[2, 3]], "x", &[(Closed, false)]))
            .and_then(|()| one(steps, "a x \n", &[[2, 4]], "x", &[(Closed, true)]))
            .and_then(|()| one(steps, "a x  b", &[[2, 4]], "x", &[(Closed, false)]))
            .and_then(|()| one(steps, "x. x b", &[[0, 2], [3, 4]], "x", &[(Closed, false)]))
            .and_then(|()| one(steps, "x b", &[[2, 3]], "x", &[(Closed, true)]))
    }),
    ("characters-of-several-bytes", |steps, _| {
        one(steps, "éé日x日", &[[3, 4]], "x", &[(Marked, true), (Unmarked, false), (Closed, false)])
    }),
    ("drawn", |steps, random| (0..400).try_for_each(|_| drawn(steps, random))),
    ("templates-that-lose-things", |steps, _| templates(steps)),
];

fn one(
    steps: &Steps,
    text: &str,
    spans: &[[usize; 2]],
    word: &str,
    criteria: &[(Criterion, bool)],
) -> Result<(), String> {
    let spans = spans.iter().map(|[start, end]| *start..*end).collect();
    let rendered = Rendered { text: text.into(), spans };
    criteria.iter().try_for_each(|(criterion, want)| {
        let what = format!("{word:?} in {text:?} with the spans {:?}, {criterion:?}", rendered.spans);
        same(&what, &steps.chat().shows(&rendered, word, *criterion), want)
    })
}

/// By the definition, occurrence by occurrence.
fn drawn(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let text: Vec<char> = (0..random.below(10)).map(|_| ['a', 'é', ' '][random.below(3)]).collect();
    let mut spans = Vec::new();
    let mut at = 0;
    for _ in 0..random.below(4) {
        let start = (at + random.below(3)).min(text.len());
        at = (start + random.below(4)).min(text.len());
        spans.push(start..at);
    }
    let word = ["a", "é", "aa"][random.below(3)];
    let length = word.chars().count();
    let is_there = |at: &usize| text[*at..].iter().take(length).copied().eq(word.chars());
    let places: Vec<usize> = (0..text.len()).filter(is_there).collect();
    let within = |at: &usize| spans.iter().any(|span| span.start <= *at && *at + length <= span.end);
    let apart = |at: &usize| !(*at..*at + length).any(|at| spans.iter().any(|span| span.contains(&at)));
    let is_blank = |range: Range<usize>| text[range].iter().all(|c| c.is_whitespace());
    let last = spans.iter().rev().find_map(|span| {
        let inside = |at: &&usize| span.start <= **at && **at + length <= span.end;
        places.iter().rev().find(inside).map(|at| (at + length, span.end))
    });
    let is_closed = last.is_none_or(|(word, mark)| !is_blank(word..mark) || is_blank(mark..text.len()));
    let has_marks = spans.iter().any(|span| !span.is_empty());
    let rendered = Rendered { text: text.iter().collect(), spans: spans.clone() };
    for (criterion, want) in [
        (Criterion::Written, !places.is_empty()),
        (Criterion::Unwritten, places.is_empty()),
        (Criterion::Any, has_marks),
        (Criterion::Marked, !has_marks || !places.iter().any(apart)),
        (Criterion::Unmarked, !places.iter().any(within)),
        (Criterion::Closed, is_closed),
    ] {
        let what = format!("{word:?} in {:?} with the spans {spans:?}, {criterion:?}", rendered.text);
        same(&what, &steps.chat().shows(&rendered, word, criterion), &want)?;
    }
    Ok(())
}

/// Changes to a template of the project, and what is wrong with it then.
const PLANTED: [(&[[&str; 2]], Rule); 9] = [
    (&[["for call in message.tool_calls or []", "for call in []"]], Rule::DropsCall),
    (&[["if tools %}", "if false %}"]], Rule::DropsTools),
    (&[["tools | map('tojson')", "tools | map(attribute='function.name')"]], Rule::CutsTools),
    (&[["'<tool_response>\\n' + message.content", "'<tool_response>\\n'"]], Rule::DropsResult),
    (
        &[["'<tool_response>\\n' + message.content", "'<tool_response>\\n' ~ message.content | tojson"]],
        Rule::QuotesResult,
    ),
    (&[["role == 'tool' %}", "role == 'never' %}"]], Rule::NoToolRole),
    (&[["{%- generation %}", ""], ["{%- endgeneration %}", ""]], Rule::NoGeneration),
    (
        &[
            ["{{- '<tool_response>", "{%- generation %}{{- '<tool_response>"],
            ["</tool_response>' }}", "</tool_response>' }}{%- endgeneration %}"],
        ],
        Rule::TrainsInput,
    ),
    (
        &[[
            "        {{- '<|im_end|>\\n' }}\n        {%- endgeneration %}",
            "{%- endgeneration %}{{- '<|im_end|>\\n' }}",
        ]],
        Rule::LeavesEnd,
    ),
];

/// What the linter says of a template of the project, and of the same with something broken.
fn templates(steps: &Steps) -> Result<(), String> {
    let whole = own::find("hermes").ok_or("the template is not known")?.template;
    same("what is wrong with the template hermes", &findings(whole, steps)?, &vec![])?;
    for (changes, rule) in PLANTED {
        let change = |text: String, [from, to]: &[&str; 2]| {
            if text.contains(from) {
                Ok(text.replace(from, to))
            } else {
                Err(format!("the template has no {from}"))
            }
        };
        let source = changes.iter().try_fold(whole.to_owned(), change)?;
        let what = format!("what is wrong with the template hermes after the changes {changes:?}");
        same(&what, &findings(&source, steps)?, &vec![rule])?;
    }
    Ok(())
}

fn findings(source: &str, steps: &Steps) -> Result<Vec<Rule>, String> {
    let options = Options { steps: steps.clone(), limits: limits(), ..own::options() };
    let template = ChatTemplate::new(source, options).map_err(|error| error.to_string())?;
    Ok(lint(&template).into_iter().map(|finding| finding.rule).collect())
}
