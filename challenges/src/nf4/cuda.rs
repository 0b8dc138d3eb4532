//! (A) on CUDA: an attempt is a value - a text, the kernels in it, and how each wants to be launched.
//!
//! Nothing of an attempt runs on the host. The grader compiles the text, reads each kernel's [`Launch`] out of
//! the compiled module, puts a weight into the card's memory and launches. So a saved `exercise.cu` is graded
//! without building any Rust, and a kernel can be looked at as PTX before it runs.
//!
//! | step | kernel | is |
//! |---|---|---|
//! | A.7 | `codes` | the 4-bit codes, one a thread |
//! | A.8 | `scales` | the f32 scales, one a thread |
//! | A.9 | `dequantize_naive` | the whole weight, one element a thread |
//! | A.10 | `dequantize_wide` | the same with wide loads and stores |
//! | A.11 | `copy_once` | a copy through the two hinted accesses, in inline PTX |
//! | A.12 | `dequantize` | everything that helps: the kernel that is timed |
//!
//! Kernels include "warpbook.cuh", which declares the weight they get; [`OnCard::argument`] is its twin here.

use kernels::callee::{Callee, CardCallee, CardDequantizer, CardWeight, HostCallee};
use kernels::cuda::{
    Allocation, Arguments, CudaError, Function, Gpu, Grid, Module, PRELUDE, Source, Stream, output_defines,
};
use kernels::tile::Element;

use super::{Absmax, Bench, OutputDtype, Weight};
use linked::linked;

linked!(warpbook_nf4_cuda -> &'static str);

/// The solution's text on CUDA.
pub fn solution_text() -> &'static str {
    warpbook_nf4_cuda()
}

/// Every version that led to it, and those that did not help.
pub const STAIRCASE: &str = include_str!("staircase.cu");

/// Kernels of the steps, in order.
pub const STEPS: [(&str, &str); 6] = [
    ("A.7", "codes"),
    ("A.8", "scales"),
    ("A.9", "dequantize_naive"),
    ("A.10", "dequantize_wide"),
    ("A.11", "copy_once"),
    ("A.12", "dequantize"),
];

/// The timed cases: the published ones, the other 16.8 M shape, the largest in the other type, and a matrix of
/// a 70B model.
pub const BENCHES: [Bench; 6] = [
    Bench { rows: 2048, columns: 8192, dtype: OutputDtype::F16, seed: 3407, published: true },
    Bench { rows: 1024, columns: 4096, dtype: OutputDtype::Bf16, seed: 3409, published: true },
    Bench { rows: 4096, columns: 14336, dtype: OutputDtype::Bf16, seed: 3408, published: true },
    Bench { rows: 4096, columns: 4096, dtype: OutputDtype::Bf16, seed: 3407, published: false },
    Bench { rows: 4096, columns: 14336, dtype: OutputDtype::F16, seed: 3408, published: false },
    Bench { rows: 8192, columns: 28672, dtype: OutputDtype::Bf16, seed: 3408, published: false },
];

/// A text to grade, and its name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// `exercise.cu`.
    pub name: String,
    /// CUDA C++.
    pub text: String,
}

impl Attempt {
    /// The workbook's solution.
    pub fn solution() -> Self {
        Self { name: "solution.cu".into(), text: solution_text().into() }
    }

    /// Every version of the staircase.
    pub fn staircase() -> Self {
        Self { name: "staircase.cu".into(), text: STAIRCASE.into() }
    }
}

/// How a text is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Build {
    /// The output's type: 0 for f16, 1 for bf16, 2 for f32.
    pub dtype: u8,
    /// Whether inline PTX may be used; else its plain C twin.
    pub inline_ptx: bool,
}

impl Build {
    /// The usual build for a type.
    pub fn of(dtype: OutputDtype) -> Self {
        Self { dtype: dtype as u8, inline_ptx: true }
    }

    /// The same without inline PTX.
    #[must_use]
    pub fn plain(self) -> Self {
        Self { inline_ptx: false, ..self }
    }

    /// The compiler's defines.
    pub fn defines(self) -> [(&'static str, u32); 4] {
        let element = [Element::F16, Element::Bf16, Element::F32][usize::from(self.dtype)];
        let mut defines = output_defines(element);
        defines[3].1 = u32::from(self.inline_ptx);
        defines
    }
}

/// What the compiler is given for an attempt.
pub fn source<'a>(attempt: &'a Attempt, defines: &'a [(&'a str, u32)]) -> Source<'a> {
    Source { name: &attempt.name, text: &attempt.text, headers: &[PRELUDE], defines }
}

/// How a kernel wants to be launched: `LAUNCH(...)` in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Threads a block.
    pub threads: u32,
    /// Elements a thread takes at a time.
    pub per_thread: u32,
    /// 0: as many blocks as the elements need; else so many on each multiprocessor.
    pub blocks_per_sm: u32,
    /// Dynamic shared memory a block, in bytes.
    pub shared_bytes: u32,
    /// Programmatic dependent launch.
    pub overlap: bool,
}

/// A kernel, ready to be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel.
    pub function: Function,
    /// As its text asks.
    pub launch: Launch,
    name: String,
}

impl Kernel {
    /// A kernel of a module, with the launch that the text declares for it.
    ///
    /// # Errors
    /// The module lacks the kernel or its launch, or the launch makes no sense.
    pub fn of(module: &Module, name: &str) -> Result<Self, CudaError> {
        let function = module.function(name)?;
        let bytes = module.global(&format!("{name}_launch"))?;
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        let refuse = |text: String| CudaError::Launch { kernel: name.into(), text };
        let [threads, per_thread, blocks_per_sm, shared_bytes, overlap] = words[..] else {
            return Err(refuse(format!("`{name}_launch` has {} bytes, LAUNCH makes 20", bytes.len())));
        };
        if threads == 0 || threads > 1024 || per_thread == 0 || blocks_per_sm > 64 || overlap > 1 {
            return Err(refuse(format!(
                "LAUNCH({name}, ...) asks for {threads} threads (1 to 1024), {per_thread} elements a thread \
                 (1 or more), {blocks_per_sm} blocks a multiprocessor (0 to 64), overlap {overlap} (0 or 1)"
            )));
        }
        if shared_bytes > 48 * 1024 {
            let asked = |error| {
                refuse(format!(
                    "LAUNCH({name}, ...) asks for {shared_bytes} bytes of dynamic shared memory a block: {error}"
                ))
            };
            function.allow_shared(shared_bytes).map_err(asked)?;
        }
        let launch = Launch { threads, per_thread, blocks_per_sm, shared_bytes, overlap: overlap == 1 };
        Ok(Self { function, launch, name: name.into() })
    }

    /// The grid for `len` elements on a card.
    ///
    /// # Errors
    /// More blocks than a grid can have.
    pub fn grid(&self, gpu: &Gpu, len: usize) -> Result<Grid, CudaError> {
        let Launch { threads, per_thread, blocks_per_sm, shared_bytes, overlap } = self.launch;
        let needed = len.div_ceil(threads as usize * per_thread as usize);
        let blocks = match blocks_per_sm {
            0 => needed,
            count => needed.min(gpu.card().sms as usize * count as usize),
        };
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks < 1 << 31);
        let text = || format!("{len} elements need more than the 2^31 - 1 blocks that a grid can have");
        let blocks = blocks.ok_or_else(|| CudaError::Launch { kernel: self.name.clone(), text: text() })?;
        // Kernels of the same stream overlap on Hopper and later; elsewhere the request is dropped.
        let overlap = overlap && gpu.card().capability >= (9, 0);
        Ok(Grid { blocks, threads, shared_bytes, overlap })
    }

    /// Queues the kernel over a weight; the result goes to `out`, an address on the card.
    ///
    /// # Errors
    /// A launch that the card refuses.
    pub fn run(&self, gpu: &Gpu, weight: &OnCard, out: u64) -> Result<(), CudaError> {
        self.launch(gpu, gpu.stream(), &weight.parts(), out)
    }
}

impl CardDequantizer for Kernel {
    fn check(&self, weight: &CardWeight) -> Result<(), String> {
        let is_fit = |size: usize| size.is_power_of_two() && (32..=4096).contains(&size);
        if !is_fit(weight.block_size) {
            let found = weight.block_size;
            return Err(format!("expected blocks of 32 to 4096 elements, a power of two, found {found}"));
        }
        match weight.nested {
            Some(nested) if !nested.is_power_of_two() => {
                Err(format!("expected groups of scales of a power of two, found {nested}"))
            }
            _ => Ok(()),
        }
    }

    fn launch(&self, gpu: &Gpu, stream: &Stream, weight: &CardWeight, out: u64) -> Result<(), CudaError> {
        let arguments = Arguments::new().raw(&argument(weight)).u64(out);
        gpu.launch_on(stream, &self.function, self.grid(gpu, weight.len)?, arguments)
    }
}

impl Callee for Attempt {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        None
    }

    fn card(&self) -> Option<&dyn CardCallee> {
        Some(self)
    }
}

impl CardCallee for Attempt {
    fn load(&self, gpu: &Gpu, element: Element) -> Result<Box<dyn CardDequantizer>, CudaError> {
        let defines = output_defines(element);
        let module = gpu.build(&source(self, &defines))?;
        Ok(Box::new(Kernel::of(&module, FASTEST)?))
    }
}

/// The kernel of the last step: what a plan calls.
pub const FASTEST: &str = "dequantize";

/// A weight in a card's memory.
#[derive(Debug)]
pub struct OnCard {
    /// Elements.
    pub len: usize,
    /// `(ceil(len / 2),)` codes from byte `shift` on.
    pub packed: Allocation,
    /// Where in `packed` the codes begin, in bytes.
    pub shift: usize,
    /// 8-bit scale codes of a double-quantised weight.
    pub codes: Option<Allocation>,
    /// The scales: of the second level, or all of them.
    pub scales: Allocation,
    /// What an 8-bit scale code stands for.
    pub code2: Option<Allocation>,
    /// Added to every double-quantised scale.
    pub offset: f32,
    /// Elements a block.
    pub block_size: usize,
    /// Scale codes a second-level block.
    pub nested_block_size: usize,
    /// What a code stands for.
    pub table: [f32; 16],
}

impl OnCard {
    /// Copies a weight to a card; its codes begin `shift` bytes off an aligned address.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn upload(gpu: &Gpu, weight: &Weight<'_>, shift: usize) -> Result<Self, CudaError> {
        let mut packed = gpu.reserve("packed codes", shift + weight.packed.len())?;
        packed.write(shift, weight.packed)?;
        let (codes, scales, code2, offset, nested_block_size) = match weight.absmax {
            Absmax::Single(scales) => (None, scales, None, 0.0, 256),
            Absmax::Double { codes, table, scales, block_size, offset } => {
                let codes = gpu.uploaded("scale codes", codes)?;
                let table = gpu.uploaded("scale table", &bytes(table))?;
                (Some(codes), scales, Some(table), offset, block_size)
            }
        };
        let scales = gpu.uploaded("scales", &bytes(scales))?;
        let (len, block_size, table) = (weight.len, weight.block_size, *weight.table);
        Ok(Self { len, packed, shift, codes, scales, code2, offset, block_size, nested_block_size, table })
    }

    /// Where its parts lie, and what a kernel takes by value.
    pub fn parts(&self) -> CardWeight {
        let address = |part: &Option<Allocation>| part.as_ref().map_or(0, Allocation::address);
        CardWeight {
            len: self.len,
            block_size: self.block_size,
            nested: Some(self.nested_block_size),
            packed: self.packed.address() + self.shift as u64,
            codes: address(&self.codes),
            scales: self.scales.address(),
            code2: address(&self.code2),
            offset: self.offset,
            table: self.table,
        }
    }

    /// The struct `Weight` of warpbook.cuh, as its bytes.
    pub fn argument(&self) -> [u8; WEIGHT_BYTES] {
        argument(&self.parts())
    }
}

/// The struct `Weight` of warpbook.cuh, as its bytes.
fn argument(weight: &CardWeight) -> [u8; WEIGHT_BYTES] {
    let mut bytes = [0; WEIGHT_BYTES]; // a struct with 64-bit members ends on 8 bytes: four of padding
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    for word in [weight.packed, weight.codes, weight.scales, weight.code2, weight.len as u64] {
        put(&word.to_ne_bytes());
    }
    put(&weight.offset.to_ne_bytes());
    put(&weight.block_size.trailing_zeros().to_ne_bytes());
    put(&weight.nested.unwrap_or(1).trailing_zeros().to_ne_bytes());
    weight.table.iter().for_each(|value| put(&value.to_ne_bytes()));
    bytes
}

/// Bytes of the struct `Weight` of warpbook.cuh.
const WEIGHT_BYTES: usize = 120;

/// The three-launch chain that the usual library runs, as kernels of `kernels/cu/baseline.cu`.
#[derive(Clone, Debug)]
pub struct Baseline {
    scales: Kernel,
    offset: Kernel,
    codes: Kernel,
}

impl Baseline {
    /// Compiled for a type.
    ///
    /// # Errors
    /// No compiler and no kept PTX.
    pub fn build(gpu: &Gpu, dtype: OutputDtype) -> Result<Self, CudaError> {
        let defines = Build::of(dtype).defines();
        let source = Source {
            name: "baseline.cu",
            text: kernels::cuda::BASELINE,
            headers: &[PRELUDE],
            defines: &defines,
        };
        let module = gpu.build(&source)?;
        Ok(Self {
            scales: Kernel::of(&module, "baseline_scales")?,
            offset: Kernel::of(&module, "baseline_offset")?,
            codes: Kernel::of(&module, "baseline_codes")?,
        })
    }

    /// Bytes of the buffer between the launches.
    pub fn buffer_bytes(weight: &OnCard) -> usize {
        weight.len.div_ceil(weight.block_size) * 4
    }

    /// Queues the three launches; `absmax` is the buffer between them.
    ///
    /// # Errors
    /// A launch that the card refuses.
    pub fn run(&self, gpu: &Gpu, weight: &OnCard, absmax: &Allocation, out: u64) -> Result<(), CudaError> {
        let arguments = || Arguments::new().raw(&weight.argument()).u64(absmax.address());
        gpu.launch(&self.scales.function, self.scales.grid(gpu, weight.len)?, arguments())?;
        gpu.launch(&self.offset.function, self.offset.grid(gpu, weight.len)?, arguments())?;
        gpu.launch(&self.codes.function, self.codes.grid(gpu, weight.len)?, arguments().u64(out))
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Bit patterns of an output that was copied to the host.
pub fn bits(dtype: OutputDtype, bytes: &[u8]) -> Vec<u32> {
    match dtype {
        OutputDtype::F16 | OutputDtype::Bf16 => {
            bytes.chunks_exact(2).map(|pair| u32::from(u16::from_ne_bytes([pair[0], pair[1]]))).collect()
        }
        OutputDtype::F32 => bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
            .collect(),
    }
}
