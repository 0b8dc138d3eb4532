//! The bytes alive during each part, before anything runs: polynomials in the graph's symbols.
//!
//! A plan is made for given sizes, but a buffer's size is that of its node, and that is a polynomial. So what a plan
//! made at one length says of another one is known without making another plan, as long as the same operations are
//! fused. Bytes are counted as they are: places in the arena are rounded up to [`LINE`](crate::ir::arena::LINE), and
//! placing may leave gaps.

use std::collections::BTreeMap;
use std::fmt;

use reference::graph::{Dim, Dtype, Symbol, product};

use crate::fuse::attend;
use crate::fuse::{Fused, Part};
use crate::ir::arena::Life;
use crate::ir::sized::Sized;

/// The bytes alive, part by part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryProfile {
    /// In the order of the work; the last one is what is alive when all is done.
    pub steps: Vec<StepMemory>,
}

/// The bytes alive during one part.
#[derive(Clone, Debug, PartialEq)]
pub struct StepMemory {
    /// What runs.
    pub part: String,
    /// The part of the model.
    pub scope: String,
    /// Bytes of all buffers that are alive.
    pub alive: Dim,
}

/// The bytes of each buffer.
pub fn sizes(sized: &Sized, fused: &Fused) -> Vec<Dim> {
    let mut sizes = vec![Dim::default(); fused.bytes.len()];
    for part in &fused.parts {
        if let Part::Attention(of) | Part::AttentionGrad { of, .. } = part {
            let inputs = attend::inputs(sized, of.node);
            let [q, v] = [0, 2].map(|i| &sized.graph.ty(inputs[i]).shape);
            let float = Dim::from(Dtype::F32.bytes());
            let rows = &product(&q[..3]) * &float; // (B, H, Tq)
            sizes[of.output.buffer] = &rows * &v[3];
            of.lse.iter().for_each(|lse| sizes[lse.buffer] = rows.clone());
        }
    }
    for (id, layout) in &fused.layouts {
        // Of a buffer with several nodes the last one counts: a concatenation comes after its parts.
        let ty = sized.graph.ty(*id);
        sizes[layout.buffer] = &product(&ty.shape) * &Dim::from(ty.dtype.bytes());
    }
    sizes
}

/// The memory profile of a plan: its parts and their scopes, and the lives and sizes of its buffers.
pub fn profile(parts: Vec<(String, String)>, lives: &[Option<Life>], sizes: &[Dim]) -> MemoryProfile {
    let alive = |number: usize| {
        let lives_here = |life: &Option<Life>| life.as_ref().is_some_and(|life| life.parts.contains(&number));
        let here = lives.iter().zip(sizes).filter(|(life, _)| lives_here(life));
        here.fold(Dim::default(), |sum, (_, size)| &sum + size)
    };
    let all = parts.into_iter().chain([("results".to_owned(), String::new())]).enumerate();
    let steps = all.map(|(number, (part, scope))| StepMemory { part, scope, alive: alive(number) });
    MemoryProfile { steps: steps.collect() }
}

impl MemoryProfile {
    /// The number of the step that has the most bytes alive for given sizes, and its bytes.
    ///
    /// # Errors
    /// The symbol that has no size.
    pub fn peak(&self, sizes: &BTreeMap<Symbol, i64>) -> Result<(usize, usize), Symbol> {
        let mut peak = (0, 0);
        for (number, step) in self.steps.iter().enumerate() {
            let bytes = usize::try_from(step.alive.value(sizes)?).unwrap_or(0);
            peak = if bytes > peak.1 { (number, bytes) } else { peak };
        }
        Ok(peak)
    }
}

/// A line a part: its number, its scope, what it is, the bytes alive.
impl fmt::Display for MemoryProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            |text: fn(&StepMemory) -> &str| self.steps.iter().map(|step| text(step).len()).max().unwrap_or(0);
        let (scopes, parts) = (width(|step| &step.scope), width(StepMemory::word));
        for (number, step) in self.steps.iter().enumerate() {
            let (scope, word, alive) = (&step.scope, step.word(), &step.alive);
            writeln!(f, "{number:>4}  {scope:<scopes$}  {word:<parts$}  {alive}")?;
        }
        Ok(())
    }
}

impl StepMemory {
    /// What runs, without the scope that its name begins with.
    fn word(&self) -> &str {
        self.part.rsplit_once(": ").map_or(&self.part, |(_, word)| word)
    }
}
