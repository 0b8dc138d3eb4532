//! D.9: which keys a query sees, entry by entry.

use challenges::issues::attention::{Attend, Problem, Rules, Sizes};
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Data, Dtype, Graph, Type, apply, interpret, programs};

use super::{Check, Rows};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("causal", |steps, _| all(steps, &[Rules { causal: true, ..Rules::default() }])),
    ("window", |steps, _| {
        let of = |window| Rules { causal: true, window: Some(window), ..Rules::default() };
        all(steps, &[of(1), of(2), of(6), of(100)])
    }),
    ("window-of-both-sides", |steps, _| {
        let of = |window| Rules { window: Some(window), ..Rules::default() };
        all(steps, &[of(1), of(4), of(100)])
    }),
    ("window-of-nothing", |steps, _| {
        all(steps, &[true, false].map(|causal| Rules { causal, window: Some(0), ..Rules::default() }))
    }),
    ("prefix", |steps, _| {
        let of = |causal, prefix| Rules { causal, prefix: Some(prefix), ..Rules::default() };
        all(steps, &[of(true, 0), of(true, 5), of(true, 100), of(false, 5)])
    }),
    ("documents", |steps, _| all(steps, &[Rules { documents: true, ..Rules::default() }])),
    ("causal-documents", |steps, _| {
        all(steps, &[Rules { causal: true, documents: true, ..Rules::default() }])
    }),
    ("window-behind-a-prefix", |steps, _| {
        let of = |window, prefix| Rules { causal: true, window, prefix: Some(prefix), documents: false };
        all(steps, &[of(Some(3), 6), of(Some(7), 2)])
    }),
    ("far", |steps, _| {
        let of = |window, prefix| Rules { causal: true, window, prefix, documents: false };
        let rules =
            [of(None, None), of(Some(150), None), of(None, Some(250)), of(Some(100_000), Some(100_000))];
        let each = |offset: usize| rules.iter().try_for_each(|rules| right_of(steps, *rules, 3, FAR, offset));
        each(0).and_then(|()| each(200)).and_then(|()| each(FAR - 3))
    }),
    ("all-rules", |steps, random| {
        let drawn = |random: &mut Random| Rules {
            causal: random.below(2) > 0,
            window: (random.below(2) > 0).then(|| random.below(12) as u32),
            prefix: (random.below(2) > 0).then(|| random.below(12) as u32),
            documents: random.below(2) > 0,
        };
        all(steps, &(0..16).map(|_| drawn(random)).collect::<Vec<_>>())
    }),
];

/// Two rows: two documents, padding before, between and after them; and one document of the same number as one there.
const DOCUMENTS: [i32; 2 * KEYS] = [0, 0, 1, 1, 1, 0, 3, 3, 3, 3, 0, 3, 3, 3, 3, 3, 3, -1, 2, 2, 2, 2];

pub(super) const KEYS: usize = 11;

/// Keys without documents, most of them further from a query than a step is tried with elsewhere.
const FAR: usize = 300;

fn all(steps: &dyn Attend, rules: &[Rules]) -> Result<(), String> {
    let square = rules.iter().try_for_each(|rules| right(steps, *rules, KEYS, 0));
    square.and_then(|()| rules.iter().try_for_each(|rules| right(steps, *rules, 3, KEYS - 3)))
}

/// Whether the program says of every entry what the rules say.
pub(super) fn right(steps: &dyn Attend, rules: Rules, queries: usize, offset: usize) -> Result<(), String> {
    right_of(steps, rules, queries, KEYS, offset)
}

fn right_of(
    steps: &dyn Attend,
    rules: Rules,
    queries: usize,
    keys: usize,
    offset: usize,
) -> Result<(), String> {
    let sizes = Sizes { batch: 2, heads: 1, groups: 1, queries, keys, depth: 1, width: 1 };
    let problem = Problem {
        sizes,
        scale: 1.0,
        offset,
        rules,
        documents: DOCUMENTS.to_vec(),
        softcap: None,
        alibi: false,
        score: None,
        mask: None,
        sinks: None,
        dropout: None,
    };
    let seen = seen(steps, rules, sizes, offset)?;
    for (row, got) in seen.iter().enumerate() {
        let [batch, query, key] = [row / keys / queries, row / keys % queries + offset, row % keys];
        let (got, want) = (*got != 0, problem.sees([batch, 0, query, key]));
        if got != want {
            let sees = |sees| if sees { "sees" } else { "does not see" };
            return Err(format!(
                "{rules:?}: the query at {query} {} the key at {key}, and it {} it{}",
                sees(got),
                if want { "should see" } else { "should not see" },
                if rules.documents {
                    format!(", documents {:?}", &DOCUMENTS[batch * KEYS..][..KEYS])
                } else {
                    String::new()
                }
            ));
        }
    }
    Ok(())
}

/// What the program says of every entry (batch, query, key).
fn seen(steps: &dyn Attend, rules: Rules, sizes: Sizes, offset: usize) -> Result<Vec<u8>, String> {
    let extras = if rules.documents {
        vec![Type::new(Dtype::I32, [DOCUMENTS.len()]), Type::scalar(Dtype::I32)]
    } else {
        Vec::new()
    };
    let body = |at: &programs::ScoreEntry| steps.sees(&at.with_offset(offset as i32), &rules);
    let program = programs::mask("rules", &extras, body).map_err(describe)?;
    let graph = over(&program, sizes, rules.documents)?;
    let mut values: Values<f64> = Values::new();
    let shape = [sizes.batch, 1, sizes.queries, sizes.keys];
    values.insert(
        "scores".into(),
        Array::floats(Dtype::F32, &shape, std::iter::repeat_n(0.0, shape.iter().product())),
    );
    if rules.documents {
        values.insert("documents".into(), Array::integers(&[DOCUMENTS.len()], DOCUMENTS.to_vec()));
        values.insert("row".into(), Array::integers(&[], vec![sizes.keys as i32]));
    }
    let found = interpret(&graph, &values).map_err(describe)?;
    match &found[0].data {
        Data::U8(seen) => Ok(seen.clone()),
        Data::Float(_) | Data::I32(_) => Err("expected a u8 of each entry".into()),
    }
}

/// A mask's program over every entry.
fn over(program: &Graph, sizes: Sizes, has_documents: bool) -> Result<Graph, String> {
    let builder = Builder::new("seen");
    let tape = builder.tape();
    let scores = tape.input("scores", Dtype::F32, [sizes.batch, 1, sizes.queries, sizes.keys]);
    let extras = if has_documents {
        let row: [usize; 0] = [];
        vec![tape.input("documents", Dtype::I32, [DOCUMENTS.len()]), tape.input("row", Dtype::I32, row)]
    } else {
        Vec::new()
    };
    tape.output("seen", &apply(program, &scores, &extras));
    drop((scores, extras));
    builder.finish().map_err(describe)
}
