//! Challenge A on CUDA in the grader: the same questions as on the CPU, asked of kernels.
//!
//! One child process holds one card. It compiles the attempt's text when it first needs it and keeps what it
//! compiled; after a fault that ends the use of the card (an illegal address, a trap) it reports what happened
//! and gives way to a new process, which goes on with the next item.

mod bench;
mod checks;
mod content;
mod course;
mod evidence;
mod guards;
mod marks;
mod output;
mod session;
mod staircase;
mod trouble;
mod watched;

use challenges::nf4::cuda::{Attempt, BENCHES};

pub(crate) use course::COURSE;
use evidence::facts;
use session::Session;

use super::bench_name;
use crate::gather::{Child, Effort, Item, Kind};
use crate::table::{self, Measured};

/// The families of versions that stand on the staircase, and the bytes that a call of each moves.
pub fn version_bytes() -> [(&'static str, f64); 2] {
    staircase::SIZES.map(|(family, bench)| (family, super::total_bytes(bench.rows * bench.columns)))
}

pub use bench::credit;

/// Whether a case's samples are refused on a card with an L2 of so many bytes, and what the guard says then.
pub(crate) fn past_the_bound(case: &str, [bound, attempt]: [&[f64]; 2], l2_bytes: usize) -> Option<String> {
    let bench = BENCHES.iter().find(|bench| bench_name(bench) == case)?;
    let samples = super::bench::Samples {
        baseline: vec![],
        attempt: attempt.to_vec(),
        bound: bound.to_vec(),
        disturbed: None,
    };
    super::bench::past_the_bound(case, &samples, credit(bench, l2_bytes))
}

/// Measures something of what a session compiled.
type Measure = Box<dyn Fn(&mut Child, &Session)>;

/// The same without a name of a case.
type Watch = fn(&mut Child, &Session);

/// What is watched.
const WATCHED: [Measured<Watch>; 4] = [
    Measured {
        name: "watch/memory",
        seconds: 30,
        numbers: &[
            "nf4.working_bytes",
            "nf4.launches",
            "nf4.registers",
            "nf4.spilled_bytes",
            "nf4.blocks_per_sm",
        ],
        fresh: false,
        quick: true,
        run: watched::memory,
    },
    Measured {
        name: "watch/marks",
        seconds: 30,
        numbers: &[
            "nf4.inline_ptx_executions",
            "nf4.plain_inline_ptx",
            "nf4.hinted_load_bytes",
            "nf4.hinted_store_bytes",
        ],
        fresh: false,
        quick: true,
        run: watched::marks,
    },
    Measured {
        name: "watch/host",
        seconds: 30,
        numbers: &["nf4.host_share"],
        fresh: false,
        quick: true,
        run: watched::host,
    },
    Measured {
        name: "watch/graph",
        seconds: 60,
        numbers: &["nf4.graph_*"],
        fresh: true,
        quick: true,
        run: watched::in_a_graph,
    },
];

/// What is watched and timed, with what does it.
fn measured(effort: &Effort) -> Vec<(Item, Measure)> {
    let watched = WATCHED.iter().map(|measured| (measured.item(), Box::new(measured.run) as Measure));
    let benches = BENCHES.iter().filter(|bench| bench.published || !effort.quick).map(|bench| {
        let name = bench_name(bench);
        let of_case = format!("nf4.*.{name}");
        let numbers: Vec<&str> = bench::CONDITION.into_iter().chain([of_case.as_str()]).collect();
        let item = Item::new(format!("bench/{name}"), 60).measuring(&numbers).guarded(&bench::GUARDS);
        let run = move |child: &mut Child, session: &Session| bench::run(child, session, bench);
        (item, Box::new(run) as Measure)
    });
    let versions = staircase::names().into_iter().filter(|_| !effort.quick).map(|name| {
        let item = Item::new(format!("bench/version/{name}"), 30).measuring(&[&format!("nf4.*.{name}")]);
        let run = move |child: &mut Child, session: &Session| staircase::run(child, session, &name);
        (item, Box::new(run) as Measure)
    });
    watched.chain(benches).chain(versions).collect()
}

/// Everything that there is to do, in order.
fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    checks.chain(guards).chain(measured(effort).into_iter().map(|(item, _)| item)).collect()
}

/// Does one item.
fn work(child: &mut Child, attempt: Attempt, name: &str) {
    let seed = child.request.effort.seed;
    let session = match Session::of(child, attempt) {
        Ok(session) => session,
        Err(reason) => return child.impossible(name, &reason),
    };
    match Kind::of(name) {
        Kind::Check => checks::report(child, &session, name, seed),
        Kind::Guard(guard) => guards::report(child, &session, guard, seed),
        Kind::Number => match table::made(&measured(&child.request.effort), name) {
            Ok(run) => run(child, &session),
            Err(unknown) => child.unmeasured(name, &unknown),
        },
    }
}
