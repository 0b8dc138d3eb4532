//! The figure of challenge D's classifier: what it answers as it learns, from a file of kept answers.

use figures::confusion::{CAPTION, Look, confusions};

use crate::figure::Drawn;

/// The squares of a kept run: a line for each look, its steps and then its counts, row by row.
pub(crate) fn learning(kept: &str) -> Result<Drawn, String> {
    let looks = kept.lines().filter(|line| !line.starts_with('#')).map(look).collect::<Option<Vec<Look>>>();
    let looks = looks.ok_or("the kept answers are lines of steps and counts")?;
    let svg = confusions("A classifier as it learns", &looks);
    Ok(("classify-learning", CAPTION, svg.ok_or("there are no answers to draw")?))
}

fn look(line: &str) -> Option<Look> {
    let (steps, counts) = line.split_once(',')?;
    let counts = counts.split(',').map(|count| count.parse().ok()).collect::<Option<_>>()?;
    Some(Look { steps: steps.parse().ok()?, counts })
}
