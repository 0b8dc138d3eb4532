//! C.8: attention with the user's programs.

use challenges::graph::Compile;
use compiler::compile::Level;
use kernels::plan::Step;
use reference::grad;
use reference::graph::programs::{self, ScoreEntry};
use reference::graph::{Attention, Dim, Dtype, Facts, Id, Known, Tensor, Type};

use super::{Check, Rows, Trial, graph, input, values};
use crate::compare::{describe, right};

pub(super) const CHECKS: &Rows<Check> = &[
    ("causal", |trial| flex(trial, With::CAUSAL)),
    ("window", |trial| {
        flex(trial, With { sizes: [1, 2, 2, 150, 150, 8], mask: Some(local), ..With::CAUSAL })
    }),
    ("softcap", |trial| {
        flex(trial, With { score: Some(|at| programs::softcap(&at.score, 1.5)), ..With::CAUSAL })
    }),
    ("alibi", |trial| {
        flex(trial, With { score: Some(|at| programs::alibi(at, &at.score, 2)), ..With::CAUSAL })
    }),
    ("documents", |trial| {
        let extras = vec![Type::new(Dtype::I32, [With::CAUSAL.sizes[3]])];
        flex(trial, With { extras, mask: Some(within_documents), ..With::CAUSAL })
    }),
    ("relative-bias", |trial| {
        let extras = vec![Type::new(Dtype::F32, [21_usize])];
        flex(trial, With { extras, score: Some(biased), mask: None, ..With::CAUSAL })
    }),
    ("grouped-heads", |trial| flex(trial, With { sizes: [2, 6, 2, 33, 33, 8], ..With::CAUSAL })),
    ("one-launch-each", |trial| flex(trial, With::CAUSAL).and_then(|()| keeps_facts(trial.passes))),
];

/// What an attention is made with.
struct With {
    /// Batch, heads, key heads, queries, keys, depth.
    sizes: [usize; 6],
    /// The types of what its programs read beside scores and places.
    extras: Vec<Type>,
    score: Option<fn(&ScoreEntry) -> Tensor>,
    mask: Option<fn(&ScoreEntry) -> Tensor>,
}

impl With {
    const CAUSAL: Self =
        Self { sizes: [2, 2, 2, 29, 29, 8], extras: Vec::new(), score: None, mask: Some(programs::causal) };

    fn attention(&self, name: &str) -> Result<Attention, String> {
        let score = self.score.map(|body| programs::score(name, &self.extras, body)).transpose();
        let mask = self.mask.map(|body| programs::mask(name, &self.extras, body)).transpose();
        Ok(Attention { scale: 0.35, score: score.map_err(describe)?, mask: mask.map_err(describe)? })
    }
}

fn local(at: &ScoreEntry) -> Tensor {
    programs::and(&programs::causal(at), &programs::sliding_window(at, 20))
}

fn within_documents(at: &ScoreEntry) -> Tensor {
    programs::and(&programs::causal(at), &programs::document(at, &at.extras[0]))
}

fn biased(at: &ScoreEntry) -> Tensor {
    programs::relative_bias(at, &at.score.tanh(), &at.extras[0], 10)
}

/// That an attention and its gradients are one launch each, and right.
fn flex(trial: &mut Trial<'_>, with: With) -> Result<(), String> {
    let Trial { passes, device, case, random, .. } = trial;
    let attention = with.attention(case)?;
    let With { sizes: [batch, heads, groups, queries, keys, depth], extras, .. } = with;
    let mut made = graph(case, |tape| {
        let q = input(tape, "q", &[batch, heads, queries, depth]);
        let [k, v] = ["k", "v"].map(|name| input(tape, name, &[batch, groups, keys, depth]));
        let extra = |(i, ty): (usize, &Type)| tape.input(&format!("extra{i}"), ty.dtype, &ty.shape);
        let extras: Vec<Tensor> = extras.iter().enumerate().map(extra).collect();
        let attended = q.attend(attention, &k, &v, &extras.iter().collect::<Vec<_>>());
        tape.output("attended", &attended);
        tape.output("loss", &(&attended * &attended).total());
    })?;
    let loss = made.outputs()[1].1;
    let wrt: Vec<Id> = ["q", "k", "v"].iter().filter_map(|name| made.find_input(name)).collect();
    let gradients = grad::differentiate(&mut made, loss, &wrt).map_err(describe)?;
    ["grad_q", "grad_k", "grad_v"].iter().zip(gradients).for_each(|(name, id)| made.output(*name, id));
    let compiled = right(*device, *passes, &made, &values(&made, random, 3), Level::O2.options())?;
    let steps = &compiled.plan().steps;
    let count = |is: fn(&Step) -> bool| steps.iter().filter(|step| is(step)).count();
    let forward = count(|step| matches!(step, Step::Attention { .. }));
    let backward = count(|step| matches!(step, Step::AttentionGrad(_)));
    if (forward, backward) != (1, 1) {
        return Err(format!(
            "expected one launch of attention and one of its gradients, found {forward} and {backward}:\n{}",
            compiled.plan()
        ));
    }
    Ok(())
}

/// That a program over sizes that are symbols knows of them what the graph knew.
fn keeps_facts(passes: &dyn Compile) -> Result<(), String> {
    let program = programs::mask("causal", &[], programs::causal).map_err(describe)?;
    let types = [(); 3]
        .map(|()| Type::new(Dtype::F32, [Dim::fixed(1), Dim::fixed(2), Dim::symbol("T"), Dim::fixed(8)]));
    let known = Known::from([("T".into(), Facts::range(8, 512).multiple_of(8))]);
    let written = passes.flex(&program, &types, &known, false).map_err(describe)?;
    if *written.known() == known {
        return Ok(());
    }
    Err(format!(
        "of T the program knows {:?}, the graph knows {:?}",
        written.known().get("T"),
        known.get("T")
    ))
}
