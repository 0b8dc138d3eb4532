//! Guards: attempts that look as if their ranks shared something. `tests` holds a cheat for each guard.

use challenges::fsdp::Fsdp;
use reference::fsdp::{Parameter, check};
use reference::graph::Dtype;
use reference::llama::Storage;
use reference::nf4::NESTED_BLOCK;

use super::checks::{self, drawn_parameters, drawn_part, held_bytes, left_out};
use crate::oracles::{INSIDE_A_STEP, in_checks};
use crate::random::Random;
use crate::table;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(&dyn Fsdp, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guard on sums that leave ranks out.
pub(super) const LEFT_OUT: &str = "ranks left out";
/// The guard on oracles.
pub(super) const ORACLE: &str = INSIDE_A_STEP;

/// The guards of B.
const GUARDS: [(&str, Guard); 4] = [
    ("everything on every rank", replicated),
    ("more than shards on the wire", wide),
    (LEFT_OUT, |attempt, random| left_out(attempt, random)),
    (ORACLE, |attempt, random| {
        let check = |name: &str, seed| checks::run(name, attempt, seed);
        Ok(in_checks("fsdp", checks::names(), random.next_u64(), check))
    }),
];

/// Their names.
pub(super) const NAMES: [&str; 4] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, attempt: &dyn Fsdp, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(attempt, &mut Random::named(seed, name))
}

fn packed(shape: [usize; 2]) -> Parameter {
    let storage = Storage::Nf4 { dtype: Dtype::Bf16, block_size: 64, nested: Some(NESTED_BLOCK) };
    Parameter { name: "w".into(), shape: shape.to_vec(), storage }
}

/// A rank holds 1/n of what is large, whatever it is called and however large it is.
#[allow(clippy::unnecessary_wraps)] // as every guard answers
fn replicated(attempt: &dyn Fsdp, random: &mut Random) -> Verdict {
    let name = |random: &mut Random| format!("model.layers.{}.mlp.up_proj.weight", random.below(80));
    let large = |random: &mut Random| {
        let shape = [64 * (32 + random.below(193)), 512 * (1 + random.below(8))];
        Parameter { name: name(random), ..packed(shape) }
    };
    let large: Vec<Parameter> = (0..4).map(|_| large(random)).collect();
    for ranks in [2, 3 + random.below(3), 6 + random.below(4)] {
        let [held, whole] = held_bytes(attempt, &large, ranks);
        if held as f64 > 1.01 * whole as f64 / ranks as f64 {
            return Ok(Some(format!(
                "a rank of {ranks} holds {held} bytes of {whole}, {:.2} times its share",
                held as f64 * ranks as f64 / whole as f64
            )));
        }
        for parameter in large.iter().chain(&drawn_parameters(random)) {
            if let Err(fault) = check(parameter, &attempt.place(parameter, ranks), ranks) {
                return Ok(Some(fault.to_string()));
            }
        }
    }
    Ok(None)
}

/// What is gathered are the shards as they are stored, each once, and the whole is what comes of them.
#[allow(clippy::unnecessary_wraps)] // as every guard answers
fn wide(attempt: &dyn Fsdp, random: &mut Random) -> Verdict {
    for ranks in 2..=8 {
        for _ in 0..2 {
            if let Some(message) = drawn_part(attempt, ranks, random) {
                return Ok(Some(message));
            }
        }
    }
    Ok(None)
}
