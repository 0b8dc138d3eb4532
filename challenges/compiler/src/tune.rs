//! Which way of cutting a product is fastest, found out by trying.
//!
//! Products of one shape, laid out alike, are one *question*; its answer is kept by a key that names all that matters:
//! the machine, its vector unit and the number of threads among it. What was found can be written to a file and read
//! back: a run that answers from the file times nothing, and makes the very same plan. The file is a cache: a line of it
//! that is no answer is passed over, and what it would have said is found out again.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use kernels::plan::{Cut, Memory, Plan, Product, Step, View};
use kernels::tile::Element;
use kernels::{Buffer, Cpu, Device, DeviceError, cpu};

use crate::contract::Compile;
use crate::ir::arena::LINE;

/// What was found out, and what it took.
#[derive(Clone, Debug, Default)]
pub struct Tuned {
    answers: BTreeMap<String, Cut>,
    /// Questions that were answered by trying.
    pub asked: usize,
    /// Questions whose answer was known.
    pub known: usize,
    /// Products that were run to find out.
    pub trials: usize,
    /// What that took.
    pub time: Duration,
}

/// A file of answers that cannot be written.
#[derive(Debug)]
pub struct Error {
    /// Its path.
    pub path: String,
    /// What the system says.
    pub source: std::io::Error,
}

/// Bytes of the largest file that is read: some hundred thousand answers.
pub const LARGEST: u64 = 16 << 20;

/// The name of a way to cut in a file.
fn name(cut: Cut) -> &'static str {
    match cut {
        Cut::Library => "library",
        Cut::Rows => "rows",
        Cut::Columns => "columns",
        Cut::Batch => "batch",
        Cut::Single => "single",
        Cut::Stretches => "stretches",
    }
}

/// The bytes of a regular file that is not too large.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let is_fit = |of: std::fs::Metadata| of.is_file() && of.len() <= LARGEST;
    if !std::fs::metadata(path).is_ok_and(is_fit) {
        return None; // a pipe would not end
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

impl Tuned {
    /// Reads answers that were written before. What is no answer is left out: a line of something else, one that was torn,
    /// all of a file that cannot be read or has more than [`LARGEST`] bytes.
    pub fn read(path: &Path) -> Self {
        let answer = |line: &str| {
            let (key, answer) = line.rsplit_once('\t')?;
            let cut = Cut::ALL.into_iter().find(|cut| name(*cut) == answer)?;
            Some((key.to_owned(), cut))
        };
        let bytes = contents(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        Self { answers: text.lines().filter_map(answer).collect(), ..Self::default() }
    }

    /// Writes all answers, a line each: the question, a tab, the way to cut. Whoever reads meanwhile finds the old file
    /// or the new one.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let line = |(key, cut): (&String, &Cut)| format!("{key}\t{}\n", name(*cut));
        let text: String = self.answers.iter().map(line).collect();
        reference::atomic_write::write(path, text.as_bytes())
            .map_err(|source| Error { path: path.display().to_string(), source })
    }

    /// The answers, by their questions.
    pub fn answers(&self) -> &BTreeMap<String, Cut> {
        &self.answers
    }

    /// How a product is cut best: as it is known, or as it is found out now.
    pub(super) fn cut(
        &mut self,
        passes: &dyn Compile,
        device: &Cpu,
        product: &Product,
    ) -> Result<Cut, DeviceError> {
        let (key, candidates) = (question(device, product), candidates(device, product));
        if let Some(cut) = self.answers.get(&key).filter(|cut| candidates.contains(cut)) {
            self.known += 1;
            return Ok(*cut);
        }
        let mut bench = Bench::new(device, product)?;
        let cut = passes.tune(&candidates, &mut |cut| bench.time(cut));
        if let Some(error) = bench.error {
            return Err(error);
        }
        self.asked += 1;
        self.trials += bench.trials;
        self.time += bench.spent;
        self.answers.insert(key, cut);
        Ok(cut)
    }
}

/// All that decides how fast a product is.
fn question(device: &Cpu, product: &Product) -> String {
    let Product { batch, m, n, k, a, b, elements, to, add, .. } = product;
    let (a, b, to) = (&a.strides, &b.strides, &to.strides);
    let add = if *add { " added" } else { "" };
    let elements = elements.map(element).join(" ");
    format!("{} | matmul {elements} {batch:?} {m} x {n} x {k} by {a:?} {b:?} {to:?}{add}", machine(device))
}

/// The machine as far as it decides how fast a product is: device, processor, vector unit, threads.
fn machine(device: &Cpu) -> String {
    static PROCESSOR: LazyLock<String> = LazyLock::new(|| words(&cpu::host().cpu));
    let threads = device.threads();
    format!("{} {} {} {threads} threads", device.name(), *PROCESSOR, device.vector())
}

/// A text on one line, with single spaces.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a factor or a result is made of, for a question.
fn element(element: Element) -> &'static str {
    match element {
        Element::F16 => "f16",
        Element::Bf16 => "bf16",
        Element::F32 => "f32",
        Element::U8 => "u8",
        Element::I32 => "i32",
    }
}

/// The ways to cut that differ from each other here.
fn candidates(device: &Cpu, product: &Product) -> Vec<Cut> {
    if product.elements != [Element::F32; 3] {
        return vec![Cut::Stretches];
    }
    let matrices: usize = product.batch.iter().product();
    let useful = |cut: &Cut| match cut {
        Cut::Library | Cut::Single | Cut::Stretches => true,
        Cut::Rows => product.m > 1,
        Cut::Columns => product.n > 1,
        Cut::Batch => matrices > 1,
    };
    let all = Cut::ALL.into_iter().filter(useful);
    if device.threads() == 1 { vec![Cut::Single, Cut::Stretches] } else { all.collect() }
}

/// A product on memory of its own.
struct Bench<'a> {
    device: &'a Cpu,
    product: Product,
    arena: Buffer,
    trials: usize,
    spent: Duration,
    error: Option<DeviceError>,
}

impl<'a> Bench<'a> {
    fn new(device: &'a Cpu, product: &Product) -> Result<Self, DeviceError> {
        let mut product = product.clone();
        let mut bytes = 0;
        for view in [&mut product.a, &mut product.b, &mut product.to] {
            let View { memory, bytes: own, .. } = view;
            *memory = Memory::Arena(bytes);
            bytes += own.div_ceil(LINE).max(1) * LINE;
        }
        let arena = device.alloc("tuning", bytes)?;
        Ok(Self { device, product, arena, trials: 0, spent: Duration::ZERO, error: None })
    }

    /// One run; without end, if it failed.
    fn time(&mut self, cut: Cut) -> Duration {
        match self.run(cut) {
            Ok(time) => time,
            Err(error) => {
                self.error.get_or_insert(error);
                Duration::MAX
            }
        }
    }

    fn run(&mut self, cut: Cut) -> Result<Duration, DeviceError> {
        let step = Step::Product(Product { cut, ..self.product.clone() });
        let plan = Plan {
            name: "tuning".into(),
            arena_bytes: self.arena.bytes(),
            given: Vec::new(),
            carried: Vec::new(),
            steps: vec![step],
        };
        let prepared = cpu::Prepared::new(plan)?;
        let before = self.device.clock();
        self.device.execute(&prepared, &mut self.arena, &[], &mut [], &[])?;
        let time = self.device.clock().saturating_sub(before);
        self.trials += 1;
        self.spent += time;
        Ok(time)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
