//! The kernel texts whose PTX is kept in the repository, so that a machine with a driver and no compiler runs
//! the solutions.
//!
//! `compute_75` is what the oldest cards of hosted notebooks (T4) run, and every later card can; `compute_90` is
//! kept beside it where a text uses what only Hopper has.

use challenges::nf4::cuda::{Attempt, Build};
use kernels::cuda::{BASELINE, FILL, Kept, PRELUDE, Source};
use reference::nf4::OutputDtype;

/// A text, how it is built, and what for.
#[derive(Clone, Debug)]
pub struct Text {
    /// The name of its file under `kernels/ptx/`, without the ending.
    pub name: String,
    /// The architecture.
    pub capability: (i32, i32),
    from: Attempt,
    defines: [(&'static str, u32); 4],
}

impl Text {
    /// What the compiler gets.
    pub fn source(&self) -> Source<'_> {
        Source { name: &self.from.name, text: &self.from.text, headers: &[PRELUDE], defines: &self.defines }
    }

    /// The PTX that is kept for it, if it is of today's text.
    pub fn kept(&self) -> Option<&'static Kept> {
        Kept::of(&self.source(), self.capability).filter(|kept| kept.name == self.name)
    }
}

const TYPES: [(&str, OutputDtype); 3] =
    [("f16", OutputDtype::F16), ("bf16", OutputDtype::Bf16), ("f32", OutputDtype::F32)];

/// Every text whose PTX is kept.
pub fn texts() -> Vec<Text> {
    let mut texts = Vec::new();
    let mut add = |name: String, text: &Attempt, build: Build, capability: (i32, i32)| {
        let name = format!("{name}-{}{}", capability.0, capability.1);
        texts.push(Text { name, capability, from: text.clone(), defines: build.defines() });
    };
    let own = |name: &str, text: &str| Attempt { name: name.into(), text: text.into() };
    let (solution, baseline) = (Attempt::solution(), own("baseline.cu", BASELINE));
    for (name, dtype) in TYPES {
        let build = Build::of(dtype);
        add(format!("nf4-solution-{name}"), &solution, build, (7, 5));
        add(format!("nf4-solution-{name}"), &solution, build, (9, 0));
        add(format!("nf4-solution-plain-{name}"), &solution, build.plain(), (7, 5));
        add(format!("nf4-baseline-{name}"), &baseline, build, (7, 5));
        add(format!("nf4-baseline-{name}"), &baseline, build, (8, 0)); // rounds to bf16 in one instruction
    }
    add("fill".into(), &own("fill.cu", FILL), Build::of(OutputDtype::Bf16), (7, 5));
    add("fill".into(), &own("fill.cu", FILL), Build::of(OutputDtype::Bf16), (9, 0));
    texts
}

/// Every CUDA text of the repository with its name: all of them compile for every architecture that is named.
pub fn every_text() -> [(&'static str, &'static str); 4] {
    [
        ("solution.cu", challenges::nf4::cuda::solution_text()),
        ("staircase.cu", challenges::nf4::cuda::STAIRCASE),
        ("baseline.cu", BASELINE),
        ("fill.cu", FILL),
    ]
}

/// The architectures that the project names: T4, A100, L4, H100, B200.
pub const ARCHITECTURES: [(i32, i32); 5] = [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0)];
