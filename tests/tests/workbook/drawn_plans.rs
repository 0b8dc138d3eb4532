//! Plans on a card: what a drawn one leaves behind is what it leaves on the CPU, and the text of its kernels compiles
//! for every architecture.
//!
//! A text needs NVRTC and no card: where there is no NVRTC, or no card, tests print "not measured".

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use challenges::graph::Solution;
use compiler::compile::{Level, compile};
use kernels::Cpu;
use kernels::cuda::{CompileError, Source, Target, compile as compile_text, text_of};
use kernels::plan::{Plan, Step};
use reference::llama::rope;
use reference::llama::train::step_graph;
use tests::one_graph::card;
use tests::plans::{self, Outcome};
use tests::tiny_llama::TinyLlama;

use crate::attention_device;
use crate::compiled::sizes;
use crate::llama::recipe;

/// Plans, the same ones each time.
fn drawn() -> impl Iterator<Item = Plan> {
    let mut random = 7_u64;
    let mut byte = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    };
    std::iter::repeat_with(move || plans::drawn(&(0..300).map(|_| byte()).collect::<Vec<u8>>()))
}

/// Whether a step has no form on a card, or its callee has none.
fn is_of_the_cpu(step: &Step) -> bool {
    matches!(step, Step::Start(_) | Step::Wait { .. } | Step::Call { .. })
}

/// How many plans that the CPU runs are compared.
const PLANS: usize = 300;

#[test]
fn a_drawn_plan_leaves_the_same_on_a_card() {
    let (Some(card), cpu) = (card(), Cpu::with_threads(1)) else { return };
    let [mut compared, mut failed, mut refused] = [0; 3];
    for (number, plan) in drawn().enumerate() {
        let (outcome, want) = plans::ran(plan.clone(), &cpu, 256);
        if outcome == Outcome::Large {
            continue;
        }
        let expected = if plan.steps.iter().any(is_of_the_cpu) { Outcome::Refused } else { outcome };
        let (found, got) = plans::ran(plan.clone(), card, 256);
        assert_eq!(found, expected, "plan {number}\n{plan}{:?}", plan.steps);
        match found {
            Outcome::Ran => {
                let difference = plans::difference(&plan, &want, &got);
                assert_eq!(difference, None, "plan {number}\n{plan}{:?}", plan.steps);
                compared += 1;
            }
            Outcome::Failed => failed += 1,
            Outcome::Refused | Outcome::Large => refused += 1,
        }
        if compared == PLANS {
            break;
        }
    }
    println!("{compared} plans compared, {failed} fail on both, {refused} are refused");
    assert!(failed > 0 && refused > 0, "{failed} plans fail, {refused} are refused");
}

/// Drawn plans, attention with every kind of program, and a training step of the golden Llama.
fn all_plans() -> Vec<Plan> {
    let has_text = |plan: &Plan| text_of(plan, (9, 0)).is_ok_and(|text| text.contains("__global__"));
    let drawn = drawn().filter(|plan| !plan.steps.iter().any(is_of_the_cpu)).filter(has_text).take(30);
    training_step(64).into_iter().chain(attention_device::plans()).chain(drawn).collect()
}

fn training_step(length: i64) -> Option<Plan> {
    let tiny = TinyLlama::find()?;
    let (run, llama, start) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
    let mut spec = llama.spec();
    spec.adapter = Some(start.config);
    let graph = step_graph(&spec, &recipe(&run)).expect("a graph");
    let ids = tiny.ids::<f32>(0..run.batch);
    let mut values = rope::values(&llama.config, ids.shape[1]);
    values.extend([("ids".to_owned(), ids.clone()), ("labels".to_owned(), ids)]);
    let mut sizes = sizes(&graph, &values);
    let given = values["ids"].shape[1] as i64;
    sizes.values_mut().filter(|size| **size == given).for_each(|size| *size = length);
    let compiled = compile(&Solution, &graph, &sizes, Level::O2.options());
    Some(compiled.unwrap_or_else(|error| panic!("{error}")).plan().as_ref().clone())
}

/// The names of a text's kernels, which say what is in them.
fn kernels(text: &str) -> BTreeSet<&str> {
    let named = text
        .split("__global__")
        .skip(1)
        .filter_map(|kernel| kernel.split_once("(const ")?.0.rsplit(' ').next());
    named.collect()
}

/// A step of another length has nearly all of its kernels from the first: what is compiled anew is little.
#[test]
fn another_length_has_the_same_kernels() {
    let text = |length| training_step(length).map(|plan| text_of(&plan, (9, 0)).expect("sound"));
    let [Some(first), Some(longer), Some(shorter)] = [64, 200, 32].map(text) else { return };
    for other in [longer, shorter] {
        let (first, other) = (kernels(&first), kernels(&other));
        let shared = first.intersection(&other).count();
        let of = other.len();
        assert!(first.len() > 20 && shared * 10 >= of * 8, "{shared} of {of} kernels");
    }
}

/// Each with the share of the plans that are compiled for it: every one, every fourth.
const ARCHITECTURES: [((i32, i32), usize); 5] =
    [((9, 0), 1), ((7, 5), 4), ((8, 0), 6), ((8, 9), 6), ((10, 0), 6)];

#[test]
fn the_text_of_a_plan_compiles_for_every_architecture() {
    let (all, narrow) = (all_plans(), attention_device::narrow_plans());
    let jobs = ARCHITECTURES.iter().flat_map(|(capability, each)| {
        let text = |plan| (*capability, text_of(plan, *capability).expect("sound"));
        all.iter().step_by(*each).chain(&narrow).map(text)
    });
    let jobs: Vec<_> = jobs.collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(((major, minor), text)) = jobs.get(next.fetch_add(1, Relaxed)) {
            let source = Source { name: "plan.cu", text, headers: &[], defines: &[] };
            match compile_text(&source, Target::Machine((*major, *minor))) {
                Ok(_) => {}
                Err(error @ (CompileError::NoCompiler(_) | CompileError::UnknownTarget(_))) => {
                    println!("not measured: {error}");
                }
                Err(error) => panic!("sm_{major}{minor}: {error}\n{text}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in [(); 2].map(|()| scope.spawn(work)) {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}
