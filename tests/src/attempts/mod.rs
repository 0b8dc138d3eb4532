//! Attempts that a user's own crate might hand in: honest ones, cheats, bugs, faults.
//!
//! A guard that nobody ever saw trip proves nothing, and one that trips on honest work does harm. So each
//! kind of cheat is here as a program, next to an honest twin that does the same kind of thing; each mistake
//! that a report claims to recognise is here as the code of someone who made it; and each way for a program
//! to end early is here, too. `src/bin/own.rs` hands one of them in, chosen by name.

mod attention;
mod callers;
mod chat;
mod chat_second;
mod cheats;
mod classify;
pub mod cuda;
mod elsewhere;
mod faults;
mod forge;
mod forgers;
mod fsdp;
mod gates;
mod gguf;
mod graph;
mod hidden;
pub mod honest;
mod loss;
mod output;
mod planted;
mod twins;
mod vision;

use challenges::nf4::{Absmax, Nf4, Output, Weight};
use grader::Attempts;
use kernels::Cpu;

use honest::nf4::Solution;

pub use attention::{ATTENDERS, ATTENTION_SLIPS};
pub use callers::{NF4_CALLERS, OWN_WORKERS, PART_CALLERS};
pub use chat::{CHAT_SLIPS, CHATTERS};
pub use cheats::{ASKERS, CHEATS};
pub use classify::{CLASS_SLIPS, CLASSIFIERS};
pub use elsewhere::{BESIDE_CHUNKS, BESIDE_PLANS, BESIDE_RANKS, MOVERS};
pub use faults::{BEATS, FAULTS, HEARTBEAT, beat};
pub use forgers::{FORGERS, LEAVERS};
pub use fsdp::{BESIDE, SHARD_SLIPS, SHARDERS};
pub use gates::{GATED, Gates};
pub use gguf::{EXPORT_SLIPS, EXPORTERS};
pub use graph::{COMPILERS, SLIPS, TRIED, with_buckets};
pub use hidden::{BY_SYMBOL, SLOWERS, TWO_PASSES, UNHIDDEN};
pub use loss::{CHUNK_SLIPS, CHUNKERS};
pub use planted::PLANTED;
pub use twins::TWINS;
pub use vision::{SEERS, VISION_SLIPS};

/// The environment variable that names the attempt to hand in.
pub const VARIABLE: &str = "WARPBOOK_ATTEMPT";

/// An attempt with a name.
pub struct Entry {
    /// What [`VARIABLE`] says.
    pub name: &'static str,
    /// Adds it to what a program hands in.
    pub hand_in: fn(Attempts) -> Attempts,
}

/// The attempt called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    CHEATS
        .iter()
        .chain(&ASKERS)
        .chain(&BY_SYMBOL)
        .chain(&TWO_PASSES)
        .chain(&SLOWERS)
        .chain(&UNHIDDEN)
        .chain(&NF4_CALLERS)
        .chain(&PART_CALLERS)
        .chain(&OWN_WORKERS)
        .chain(&TWINS)
        .chain(&PLANTED)
        .chain(&FAULTS)
        .chain(&FORGERS)
        .chain(&LEAVERS)
        .chain(&GATED)
        .chain(&COMPILERS)
        .chain(&SLIPS)
        .chain(&TRIED)
        .chain(&CHUNKERS)
        .chain(&CHUNK_SLIPS)
        .chain(&SHARDERS)
        .chain(&SHARD_SLIPS)
        .chain(&BESIDE)
        .chain(&BESIDE_RANKS)
        .chain(&BESIDE_PLANS)
        .chain(&BESIDE_CHUNKS)
        .chain(&MOVERS)
        .chain(&CHATTERS)
        .chain(&CHAT_SLIPS)
        .chain(&ATTENDERS)
        .chain(&ATTENTION_SLIPS)
        .chain(&CLASSIFIERS)
        .chain(&CLASS_SLIPS)
        .chain(&EXPORTERS)
        .chain(&EXPORT_SLIPS)
        .chain(&SEERS)
        .chain(&VISION_SLIPS)
        .find(|entry| entry.name == name)
}

/// The solution with another last step: `fast` answers in place of A.6.
struct Last<F>(F);

/// The solution with `fast` in place of A.6; what it captures is its memory between calls.
fn last<F: Fn(&Cpu, &Weight<'_>, Output<'_>) + Sync>(fast: F) -> Last<F> {
    Last(fast)
}

impl<F: Fn(&Cpu, &Weight<'_>, Output<'_>) + Sync> Nf4 for Last<F> {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        Solution.unpack(packed, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        Solution.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        Solution.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        Solution.absmax(absmax, block)
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        Solution.dequantize(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        (self.0)(cpu, weight, out);
    }
}
