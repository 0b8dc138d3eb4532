//! Which way of cutting a product is fastest, found out by trying.
//!
//! Products of one shape, laid out alike, are one *question*; its answer is kept by a key that names all that matters,
//! the machine among it. What was found can be written to a file and read back: a run that answers from the file times
//! nothing, and makes the very same plan.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use kernels::plan::{Cut, Memory, Plan, Product, Step, View};
use kernels::tile::Element;
use kernels::{Buffer, Cpu, Device, DeviceError, cpu};

use super::Compile;
use super::memory::LINE;

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

/// A file of answers that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read or written.
    File {
        /// Its path.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line is no answer.
    Line {
        /// Its path.
        path: String,
        /// The line's number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

/// The names of the ways to cut, as a file has them.
const NAMES: [(&str, Cut); 6] = [
    ("library", Cut::Library),
    ("rows", Cut::Rows),
    ("columns", Cut::Columns),
    ("batch", Cut::Batch),
    ("single", Cut::Single),
    ("stretches", Cut::Stretches),
];

impl Tuned {
    /// Reads answers that were written before; none, if there is no such file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let named = || path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(Error::File { path: named(), source }),
        };
        let answer = |(number, line): (usize, &str)| {
            let found = line.rsplit_once('\t').and_then(|(key, name)| {
                let (_, cut) = NAMES.iter().find(|(one, _)| *one == name)?;
                Some((key.to_owned(), *cut))
            });
            found.ok_or_else(|| Error::Line { path: named(), line: number + 1, text: line.to_owned() })
        };
        let answers = text.lines().enumerate().map(answer).collect::<Result<_, _>>()?;
        Ok(Self { answers, ..Self::default() })
    }

    /// Writes all answers, a line each: the question, a tab, the way to cut.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = String::new();
        for (key, cut) in &self.answers {
            let name = NAMES.iter().find(|(_, one)| one == cut).map_or("library", |(name, _)| name);
            _ = writeln!(text, "{key}\t{name}");
        }
        std::fs::write(path, text).map_err(|source| Error::File { path: path.display().to_string(), source })
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
        let key = question(device, product);
        if let Some(cut) = self.answers.get(&key) {
            self.known += 1;
            return Ok(*cut);
        }
        let mut bench = Bench::new(device, product)?;
        let cut = passes.tune(&candidates(device, product), &mut |cut| bench.time(cut));
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
    format!("{} | matmul {elements} {batch:?} {m} x {n} x {k} by {a:?} {b:?} {to:?}{add}", device.name())
}

/// What a factor or a result is made of, for a question.
fn element(element: Element) -> &'static str {
    match element {
        Element::F16 => "f16",
        Element::Bf16 => "bf16",
        _ => "f32",
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
        match self {
            Error::File { path, source } => write!(f, "{path}: {source}"),
            Error::Line { path, line, text } => {
                write!(f, "{path}: line {line} is `{text}`, needed is a question, a tab and one of")?;
                NAMES.iter().try_for_each(|(name, _)| write!(f, " {name}"))
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { source, .. } => Some(source),
            Error::Line { .. } => None,
        }
    }
}
