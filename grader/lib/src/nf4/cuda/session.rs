//! A card, an attempt's text, and what was compiled of it: made once in a child process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use challenges::nf4::Case;
use challenges::nf4::cuda::{Attempt, Build, Kernel, OnCard, source};
use kernels::cuda::{
    Allocation, Arguments, CompileError, CudaError, Gpu, Kept, Module, Source, Target, compile,
};
use reference::nf4::{OutputDtype, Quantized, dequantize_bits};

use super::trouble::{Tried, Trouble};
use crate::gather::Child;
use crate::nf4::DTYPES;
use crate::nf4::inputs::{Scale, weight};
use crate::random::Random;

/// What a text was compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Via {
    /// The card's own machine code.
    Machine,
    /// PTX for `compute_75`, compiled by the driver: what an older card would run.
    Ptx75,
    /// PTX for the card, with a counter at each instruction of interest.
    Marked,
}

/// See the module's head.
pub(super) struct Session {
    pub gpu: Gpu,
    pub attempt: Attempt,
    modules: RefCell<BTreeMap<(Build, Via), Result<Module, Trouble>>>,
    seed: u64,
    weights: RefCell<BTreeMap<Key, Rc<Quantized>>>,
    wants: RefCell<BTreeMap<(Key, u8), Bits>>,
}

/// A generated weight that several steps are tried with: the case's name and the spread of its scales.
type Key = (&'static str, Scale);

/// Bit patterns of a whole output.
type Bits = Rc<Vec<u32>>;

thread_local! {
    static SESSION: RefCell<Option<Rc<Session>>> = const { RefCell::new(None) };
}

impl Session {
    /// This process's session, made at its first use.
    pub fn of(child: &Child, attempt: Attempt) -> Result<Rc<Self>, String> {
        if let Some(known) = SESSION.with(|session| session.borrow().clone()) {
            return Ok(known);
        }
        let gpu = Gpu::nth(child.request.ordinal).map_err(|reason| reason.to_string())?;
        let session = Rc::new(Self {
            gpu,
            attempt,
            modules: RefCell::default(),
            seed: child.request.effort.seed,
            weights: RefCell::default(),
            wants: RefCell::default(),
        });
        session.compile_ahead(&child.items);
        SESSION.with(|place| *place.borrow_mut() = Some(Rc::clone(&session)));
        Ok(session)
    }

    /// Compiles what the items will need, all at once; the results wait in the compiler's cache. What does not
    /// compile is compiled again where its error is reported.
    fn compile_ahead(&self, items: &[String]) {
        let any = |part: &str| items.iter().any(|item| item.contains(part));
        let card = self.gpu.card().capability;
        let mut wanted = Vec::new();
        for build in DTYPES.map(Build::of) {
            wanted.push((build, Target::Machine(card)));
            if any("as-compute_75") {
                wanted.push((build, Target::Ptx((7, 5))));
            }
            if any("without-inline-ptx") {
                wanted.push((build.plain(), Target::Machine(card)));
            }
        }
        if any("watch/marks") {
            wanted.push((Build::of(OutputDtype::Bf16), Target::Ptx(card)));
        }
        let attempt = &self.attempt;
        std::thread::scope(|scope| {
            for (build, target) in wanted {
                scope.spawn(move || compile(&source(attempt, &build.defines()), target).is_ok());
            }
        });
    }

    /// The weight of a case and what the format says of it, made once for all the steps that are tried with it.
    pub fn known(&self, case: &Case, scale: Scale, dtype: OutputDtype) -> (Rc<Quantized>, Bits) {
        let key = (case.name, scale);
        let seed = Random::named(self.seed, case.name).next_u64();
        let made = || Rc::new(weight(case.len, case.block_size, case.nested, scale, seed));
        let weight = Rc::clone(self.weights.borrow_mut().entry(key).or_insert_with(made));
        let asked = || Rc::new(dequantize_bits(&weight.view(), dtype));
        let want = Rc::clone(self.wants.borrow_mut().entry((key, dtype as u8)).or_insert_with(asked));
        (weight, want)
    }

    /// The attempt compiled in one way.
    pub fn module(&self, build: Build, via: Via) -> Tried<Module> {
        if let Some(known) = self.modules.borrow().get(&(build, via)) {
            return known.clone();
        }
        let made = self.compiled(build, via);
        self.modules.borrow_mut().insert((build, via), made.clone());
        made
    }

    fn compiled(&self, build: Build, via: Via) -> Tried<Module> {
        let defines = build.defines();
        let source = source(&self.attempt, &defines);
        match via {
            Via::Machine => Ok(self.gpu.build(&source)?),
            Via::Ptx75 => {
                let ptx = ptx(&source, (7, 5))?;
                Ok(self.gpu.load(&format!("{} for compute_75", self.attempt.name), ptx.as_bytes())?)
            }
            Via::Marked => {
                let ptx = ptx(&source, self.gpu.card().capability)?;
                let marked = super::marks::marked(&ptx);
                Ok(self.gpu.load(&format!("{} with counters", self.attempt.name), marked.as_bytes())?)
            }
        }
    }

    /// The PTX that the card runs, as text.
    pub fn text(&self, build: Build) -> Tried<String> {
        let defines = build.defines();
        ptx(&source(&self.attempt, &defines), self.gpu.card().capability)
    }

    /// A kernel of the attempt.
    pub fn kernel(&self, build: Build, via: Via, name: &str) -> Tried<Kernel> {
        Ok(Kernel::of(&self.module(build, via)?, name)?)
    }

    /// Runs a kernel over a weight and waits. A `TODO` that was reached is a hole.
    pub fn run(&self, build: Build, via: Via, name: &str, weight: &OnCard, out: u64) -> Tried {
        let kernel = self.kernel(build, via, name)?;
        kernel.run(&self.gpu, weight, out)?;
        self.finished(&self.module(build, via)?)
    }

    /// The same for a kernel with arguments of its own, over `len` elements.
    pub fn run_with(&self, build: Build, name: &str, len: usize, arguments: Arguments) -> Tried {
        let kernel = self.kernel(build, Via::Machine, name)?;
        self.gpu.launch(&kernel.function, kernel.grid(&self.gpu, len)?, arguments)?;
        self.finished(&self.module(build, Via::Machine)?)
    }

    /// Waits; then whether a hole was reached. A text without the prelude has no holes.
    pub fn finished(&self, module: &Module) -> Tried {
        self.gpu.stream().sync()?;
        match module.global("warpbook_hole") {
            Ok(flag) if flag.iter().any(|byte| *byte != 0) => {
                module.set_global("warpbook_hole", &[0; 4])?;
                Err(Trouble::Hole)
            }
            _ => Ok(()),
        }
    }

    /// The kernel that answers the challenge: A.12, or while that is a hole A.10, or A.9.
    pub fn answer(&self) -> Tried<&'static str> {
        let build = Build::of(OutputDtype::Bf16);
        let weight = weight(64, 64, true, Scale::Plain, 1);
        let on_card = OnCard::upload(&self.gpu, &weight.view(), 0)?;
        let out = self.gpu.zeroed("output", 128)?;
        for name in ["dequantize", "dequantize_wide"] {
            match self.run(build, Via::Machine, name, &on_card, out.address()) {
                Err(Trouble::Hole) => {}
                Err(broken) if broken.is_broken() => return Err(broken),
                _ => return Ok(name),
            }
        }
        Ok("dequantize_naive")
    }

    /// Bytes of device memory with a random content that the host can compute, too.
    pub fn filled(&self, tag: &'static str, bytes: usize, seed: u64) -> Tried<Allocation> {
        let allocation = self.gpu.reserve(tag, bytes.next_multiple_of(8))?;
        self.fill(&allocation, seed)?;
        Ok(allocation)
    }

    /// Overwrites memory with such a content.
    pub fn fill(&self, allocation: &Allocation, seed: u64) -> Tried {
        let words = allocation.bytes() / 8;
        let arguments = Arguments::new().u64(allocation.address()).u64(words as u64).u64(seed);
        let kernel = self.helper("random_words")?;
        Ok(self.gpu.launch(&kernel.function, kernel.grid(&self.gpu, words)?, arguments)?)
    }

    /// Reads a scratch buffer larger than the L2 cache, so that nothing dirty is left in it.
    pub fn flush(&self, scratch: &Allocation) -> Tried {
        let count = scratch.bytes() / 16;
        let arguments = Arguments::new().u64(scratch.address()).u64(count as u64).u64(scratch.address());
        let kernel = self.helper("read_all")?;
        Ok(self.gpu.launch(&kernel.function, kernel.grid(&self.gpu, count)?, arguments)?)
    }

    /// Queues a kernel that lets the next one begin at once and writes late: `from` to `to`, a pattern to `filled`.
    pub fn write_late(
        &self,
        from: &Allocation,
        to: &Allocation,
        filled: (u64, usize),
        pattern: u32,
    ) -> Tried {
        const NANOSECONDS: u64 = 400_000; // far longer than a launch takes
        let kernel = self.helper("write_late")?;
        let words = to.bytes().min(from.bytes()) / 4;
        let arguments = Arguments::new().u64(from.address()).u64(to.address()).u64(words as u64);
        let arguments = arguments.u64(filled.0).u64(filled.1 as u64 / 4).u32(pattern).u64(NANOSECONDS);
        Ok(self.gpu.launch(&kernel.function, kernel.grid(&self.gpu, words)?, arguments)?)
    }

    /// A kernel of the grader's own.
    fn helper(&self, name: &str) -> Tried<Kernel> {
        thread_local! {
            static HELPERS: RefCell<Option<Module>> = const { RefCell::new(None) };
        }
        if HELPERS.with(|helpers| helpers.borrow().is_none()) {
            let defines = Build::of(OutputDtype::Bf16).defines();
            let headers = &[kernels::cuda::PRELUDE];
            let source = Source { name: "fill.cu", text: kernels::cuda::FILL, headers, defines: &defines };
            let module = self.gpu.build(&source)?;
            HELPERS.with(|helpers| *helpers.borrow_mut() = Some(module));
        }
        let module = HELPERS.with(|helpers| helpers.borrow().clone());
        let module = module.ok_or_else(|| Trouble::Unmeasured("no helper kernels".into()))?;
        Ok(Kernel::of(&module, name)?)
    }
}

/// The PTX of a text for an architecture; the kept one where there is no compiler.
fn ptx(source: &Source<'_>, capability: (i32, i32)) -> Tried<String> {
    match compile(source, Target::Ptx(capability)) {
        Ok(compiled) => Ok(compiled.ptx),
        Err(error @ CompileError::NoCompiler(_)) => match Kept::of(source, capability) {
            Some(kept) => Ok(kept.ptx.to_owned()),
            None => Err(CudaError::from(error).into()),
        },
        Err(error) => Err(CudaError::from(error).into()),
    }
}
