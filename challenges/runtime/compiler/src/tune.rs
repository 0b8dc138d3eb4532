//! Which choice computes a product fastest, found out by trying.
//!
//! Products of one shape, laid out alike, are one *question*; its answer is kept by a key that names all that matters:
//! the machine, its vector unit and the number of threads among it. What was found can be written to a file and read
//! back: a run that answers from the file times nothing, and makes the very same plan. The file is a cache: a line of
//! it that is no answer is passed over, and what it would have said is found out again.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use kernels::plan::{Choice, Product};
use kernels::tile::Element;
use kernels::{Device, DeviceError, Trial};

use crate::contract::Compile;

/// What was found out, and what it took.
#[derive(Clone, Debug, Default)]
pub struct Tuned {
    answers: BTreeMap<String, Choice>,
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

/// The name of a choice in a file.
fn name(choice: Choice) -> String {
    match choice {
        Choice::Library => "library".into(),
        Choice::Rows => "rows".into(),
        Choice::Columns => "columns".into(),
        Choice::Batch => "batch".into(),
        Choice::Single => "single".into(),
        Choice::Packed => "packed".into(),
        Choice::Algorithm(algorithm) => format!("algorithm {algorithm}"),
    }
}

/// The choice of a name in a file.
fn named(text: &str) -> Option<Choice> {
    let algorithm = || Some(Choice::Algorithm(text.strip_prefix("algorithm ")?.parse().ok()?));
    Choice::ALL.into_iter().find(|choice| name(*choice) == text).or_else(algorithm)
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
    /// Reads answers that were written before. What is no answer is left out: a line of something else, one that was
    /// torn, all of a file that cannot be read or has more than [`LARGEST`] bytes.
    pub fn read(path: &Path) -> Self {
        let answer = |line: &str| {
            let (key, answer) = line.rsplit_once('\t')?;
            Some((key.to_owned(), named(answer)?))
        };
        let bytes = contents(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        Self { answers: text.lines().filter_map(answer).collect(), ..Self::default() }
    }

    /// Writes all answers, a line each: the question, a tab, the choice. Whoever reads meanwhile finds the old file
    /// or the new one.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let line = |(key, choice): (&String, &Choice)| format!("{key}\t{}\n", name(*choice));
        let text: String = self.answers.iter().map(line).collect();
        reference::atomic_write::write(path, text.as_bytes())
            .map_err(|source| Error { path: path.display().to_string(), source })
    }

    /// The answers, by their questions.
    pub fn answers(&self) -> &BTreeMap<String, Choice> {
        &self.answers
    }

    /// The best choice for a product: as it is known, or as it is found out now.
    pub(super) fn choice(
        &mut self,
        passes: &dyn Compile,
        device: &dyn Device,
        product: &Product,
    ) -> Result<Choice, DeviceError> {
        let (key, candidates) = (question(device, product), device.choices(product));
        if let Some(choice) = self.answers.get(&key).filter(|choice| candidates.contains(choice)) {
            self.known += 1;
            return Ok(*choice);
        }
        let trial = device.trial(product)?;
        let mut bench = Bench { trial, trials: 0, spent: Duration::ZERO, error: None };
        let choice = passes.tune(&candidates, &mut |choice| bench.time(choice));
        if let Some(error) = bench.error {
            return Err(error);
        }
        self.asked += 1;
        self.trials += bench.trials;
        self.time += bench.spent;
        self.answers.insert(key, choice);
        Ok(choice)
    }
}

/// All that decides how fast a product is.
fn question(device: &dyn Device, product: &Product) -> String {
    let Product { batch, m, n, k, a, b, elements, to, add, .. } = product;
    let (a, b, to) = (&a.strides, &b.strides, &to.strides);
    let add = if *add { " added" } else { "" };
    let elements = elements.map(element).join(" ");
    format!("{} | matmul {elements} {batch:?} {m} x {n} x {k} by {a:?} {b:?} {to:?}{add}", device.identity())
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

/// A product that is tried.
struct Bench<'a> {
    trial: Box<dyn Trial + 'a>,
    trials: usize,
    spent: Duration,
    error: Option<DeviceError>,
}

impl Bench<'_> {
    /// One run; without end, if it failed.
    fn time(&mut self, choice: Choice) -> Duration {
        match self.trial.time(choice) {
            Ok(time) => {
                self.trials += 1;
                self.spent += time;
                time
            }
            Err(error) => {
                self.error.get_or_insert(error);
                Duration::MAX
            }
        }
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
