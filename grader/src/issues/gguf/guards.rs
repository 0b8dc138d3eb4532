//! Guards: attempts that answer what they have seen. `tests` holds a cheat for each.

use challenges::issues::gguf::Gguf;
use reference::checkpoint::gguf::quantize_calls;
use reference::issues::gguf::{oracle_calls, rotary_rows};

use super::super::part::remembered;
use super::blocks;
use super::drawn::{STORED, number, projector, text_model};
use crate::random::Random;
use crate::table;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(&dyn Gguf, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of this part.
const GUARDS: [(&str, Guard); 3] = [
    ("blocks that are remembered", |steps, random| Ok(remembers(steps, random))),
    ("known heads only", |steps, random| Ok(known_only(steps, random))),
    ("a reference that is asked", |steps, random| Ok(oracle_called(steps, random))),
];

/// Their names.
pub(super) const NAMES: [&str; 3] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, steps: &dyn Gguf, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(steps, &mut Random::named(seed, name))
}

/// The same memory holds the numbers of another weight in the next call.
fn remembers(steps: &dyn Gguf, random: &mut Random) -> Option<String> {
    let mut numbers = vec![0.0_f32; 64];
    STORED.into_iter().find_map(|ty| {
        let others: Vec<f32> = (0..64).map(|_| number(random)).collect();
        remembered(
            blocks::one(steps, ty, &others).is_ok(),
            (0..4).map(|round| {
                numbers.fill_with(|| number(random));
                let wrong = blocks::one(steps, ty, &numbers).err();
                let wrong = wrong.map(|wrong| format!("round {round} in the same memory: {wrong}"));
                (steps.quantize(ty, &numbers), wrong)
            }),
        )
    })
}

/// Heads of more rows, and more of them, than a check has.
fn known_only(steps: &dyn Gguf, random: &mut Random) -> Option<String> {
    let is_right = |(rows, heads)| steps.rotary_rows(rows, heads) == rotary_rows(rows, heads);
    if ![(8, 1), (12, 3)].into_iter().all(is_right) {
        return None; // the checks tell it
    }
    (0..4).find_map(|_| {
        let heads = 40 + random.below(90);
        let rows = heads * 2 * (60 + random.below(70));
        (!is_right((rows, heads)))
            .then(|| format!("{rows} rows of {heads} heads: the rows are others than the reference's"))
    })
}

/// The plain functions count their calls; no step may add to them.
fn oracle_called(steps: &dyn Gguf, random: &mut Random) -> Option<String> {
    let asked = |step: &str, run: &mut dyn FnMut()| {
        let so_far = || oracle_calls() + quantize_calls();
        let before = so_far();
        run();
        let calls = so_far() - before;
        (calls > 0).then(|| format!("the reference was called {calls} times while {step} ran"))
    };
    let text = text_model(false, 1, random);
    let towers = [false, true].map(|is_qwen| projector(is_qwen, 1, 16, random));
    let numbers: Vec<f32> = (0..32).map(|_| number(random)).collect();
    asked("D.19", &mut || {
        drop((steps.sizes(&[2, 3]), steps.rotary_rows(8, 2)));
        drop(steps.rope_factors(&text.config.rope, text.config.head_dim));
    })
    .or_else(|| STORED.iter().find_map(|ty| asked("D.20", &mut || drop(steps.quantize(*ty, &numbers)))))
    .or_else(|| {
        asked("D.21", &mut || {
            drop(steps.text_tensor(&text, "model.layers.0.self_attn.q_proj.weight"));
            drop(steps.text_keys(&text));
        })
    })
    .or_else(|| {
        towers.iter().find_map(|tower| {
            asked("D.22", &mut || {
                drop(steps.projector_tensors(tower, "visual.blocks.0.attn.qkv.weight", &[12, 4]));
                drop(steps.projector_tensors(tower, "multi_modal_projector.linear_1.weight", &[12, 4]));
                drop(steps.projector_keys(tower));
            })
        })
    })
}
