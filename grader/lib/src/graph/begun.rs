//! How far an attempt is: a step that is still a hole is left out of the compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use challenges::graph::Compile;
use compiler::compile::{Level, Options};
use compiler::ir::arena::Life;
use compiler::ir::code::Code;
use compiler::ir::sized::Sized;
use compiler::session::Settings;
use kernels::plan::Choice;
use reference::graph::interpret::Values;
use reference::graph::{Builder, Dtype, Facts, Graph, Op, Type, Unary, programs};

use crate::gather::{Unwound, caught};

/// Without these nothing runs.
const NEEDED: [&str; 2] = ["C.1", "C.6"];

/// The steps of an attempt that are holes.
pub(super) struct Begun {
    holes: BTreeSet<&'static str>,
}

impl Begun {
    /// Tries each step on next to nothing, but for what its helpers are asked.
    pub fn of(attempt: &dyn Compile) -> Self {
        let sample = sample();
        let sizes = BTreeMap::new();
        let mut holes = BTreeSet::new();
        let mut look = |step: &'static str, run: &dyn Fn()| {
            if matches!(caught(run), Err(Unwound::Hole(_))) {
                holes.insert(step);
            }
        };
        look("C.1", &|| {
            let program = |tape: &reference::graph::Tape| {
                tape.output("y", &tape.input("x", Dtype::F32, [2_usize]).exp());
            };
            _ = attempt.capture("one", &program, &Values::new());
        });
        look("C.2", &|| _ = attempt.buckets(Facts::range(1, 64)));
        look("C.3", &|| _ = attempt.prune(&sample));
        look("C.4", &|| {
            if let Ok(sized) = Sized::new(&sample, &sizes) {
                _ = attempt.keep(&sized, &BTreeSet::new());
            }
        });
        look("C.5", &|| {
            let lives = [0..=1, 1..=2, 0..=2].map(|parts| Some(Life { bytes: 64, parts }));
            _ = attempt.place(&lives);
        });
        look("C.6", &|| {
            let op = Op::Unary(Unary::Exp);
            _ = attempt.lower(&op, Dtype::F32, Dtype::F32, &[0], &mut Code::default());
        });
        look("C.7", &|| _ = attempt.tune(&[Choice::Single], &mut |_| Duration::from_micros(1)));
        look("C.8", &|| {
            let types = [(); 3].map(|()| Type::new(Dtype::F32, [1_usize, 1, 1, 1]));
            if let Ok(program) = programs::mask("causal", &[], programs::causal) {
                _ = attempt.flex(&program, &types, sample.known(), false);
            }
            if let Ok(program) = programs::score("softcap", &[], |at| programs::softcap(&at.score, 2.0)) {
                _ = attempt.flex(&program, &types, sample.known(), true);
            }
        });
        Self { holes }
    }

    pub fn has(&self, step: &str) -> bool {
        !self.holes.contains(step)
    }

    /// The step without which nothing can be compiled.
    pub fn lacks(&self) -> Option<&'static str> {
        NEEDED.into_iter().find(|step| !self.has(step))
    }

    /// How a session compiles with what is there.
    pub fn settings(&self) -> Settings {
        let options = Options {
            prune: self.has("C.3"),
            fuse: self.has("C.4"),
            place: self.has("C.5"),
            flex: self.has("C.8"),
            remat: self.has("C.4"),
            remat_layers: false,
            cap: None,
            donate: false,
            narrow_attention: false,
            side_by_side: false,
            in_flight: 0,
        };
        let level = if self.has("C.7") { Level::O3 } else { Level::O2 };
        Settings { level, options: Some(options), exact: !self.has("C.2"), ..Settings::default() }
    }
}

/// A graph with something of everything: used often, through a view, for nothing.
fn sample() -> Graph {
    let builder = Builder::new("sample");
    let x = builder.tape().input("x", Dtype::F32, [4_usize, 4]);
    let (y, unused) = (x.exp().detach(), x.sigmoid());
    builder.tape().output("y", &(&y.matmul(&y.t()) + &y.softmax(1)));
    drop(unused);
    builder.finish().unwrap_or_default()
}
