//! Whether a job, and an attempt's chunks and graphs, are what they have to be.

use std::collections::BTreeMap;

use compiler::session::DeviceTensor;
use kernels::{Buffer, Device};
use reference::graph::{Dim, Dtype, Graph, Type};

use super::{Error, Job};
use crate::loss::Problem;
use crate::loss::problem::{ROWS, is_of_rows};

/// What is said of an output that keeps more of a chunk than what was asked for.
pub const NOT_ASKED: &str = "no such output: nobody asked for it";

/// What is said of an output of `seeds` that is none.
pub const ONLY_SEEDS: &str =
    "`seed.NAME` for each value and no other: what else comes out may take a second pass over the chunks";

/// Whether everything is there and fits.
pub fn job(device: &dyn Device, problem: &Problem, job: &Job<'_>) -> Result<(), Error> {
    let Problem { width, vocab, dtype, bias, loss, .. } = problem;
    let rows = job.counts.len();
    let hidden = job.hidden.buffer();
    if hidden.bytes() != rows * width * dtype.bytes() {
        let (got, need) = (format!("{} bytes", hidden.bytes()), format!("{dtype:?} ({rows}, {width})"));
        return Err(Error::Shape { name: "hidden".into(), got, need });
    }
    let is_given = |name: &str, ty: &Type| given(job.given, name, ty, rows);
    is_given("weight", &Type::new(*dtype, [*vocab, *width]))?;
    if *bias {
        is_given("bias", &Type::new(*dtype, [*vocab]))?;
    }
    loss.extras().try_for_each(|(name, ty)| is_given(name, ty))?;
    let is_labels = |(name, ty): &(&str, &Type)| *name == "labels" && ty.dtype == Dtype::I32;
    match loss.extras().find(is_labels) {
        Some((_, ty)) if ty.rank() == 1 && job.given["labels"].shape == [rows] => labels(device, job, *vocab),
        Some((name, ty)) => {
            let need = "a label for each row, i32 (N)".to_owned();
            Err(Error::Shape { name: name.to_owned(), got: ty.to_string(), need })
        }
        None => Ok(()),
    }
}

/// Whether a chunk's graph takes its inputs for what they are.
pub fn inputs(problem: &Problem, graph: &Graph, job: &Job<'_>) -> Result<(), Error> {
    for (name, id) in graph.inputs() {
        let ty = graph.ty(id);
        match own(problem, name) {
            Some(need) if need == *ty => {}
            Some(need) => {
                let (name, got, need) = (name.to_owned(), ty.to_string(), need.to_string());
                return Err(Error::Shape { name, got, need });
            }
            None => given(job.given, name, ty, job.counts.len())?,
        }
    }
    Ok(())
}

/// Whether what the seeds ask for beside values and what is upstream is given, for all rows.
pub fn whole(
    seeds: &Graph,
    problem: &Problem,
    all: &BTreeMap<String, DeviceTensor>,
    rows: usize,
) -> Result<(), Error> {
    let is_made = |name: &str| name == "upstream" || problem.loss.values().any(|value| value == name);
    let mut asked = seeds.inputs().filter(|(name, _)| !is_made(name));
    asked.try_for_each(|(name, id)| given(all, name, seeds.ty(id), rows))
}

/// The type of an input that is not given by its name: hidden states, sums and seeds.
fn own(problem: &Problem, name: &str) -> Option<Type> {
    let Problem { width, vocab, dtype, accumulate_dtype: sums, bias, trains, loss } = problem;
    let rows = || Dim::symbol(ROWS);
    match name {
        "hidden" => Some(Type::new(*dtype, [rows(), (*width).into()])),
        "weight.grad" if trains.weight => Some(Type::new(*sums, [*vocab, *width])),
        "bias.grad" if trains.bias && *bias => Some(Type::new(*sums, [*vocab])),
        name => {
            let of = name.strip_prefix("seed.")?;
            loss.values().any(|value| value == of).then(|| Type::new(Dtype::F32, [rows()]))
        }
    }
}

/// Whether a chunk's graph gives what is asked for, and adds up what chunks share.
pub fn outputs(problem: &Problem, graph: &Graph) -> Result<(), Error> {
    let Problem { width, vocab, dtype, accumulate_dtype: sums, bias, trains, loss } = problem;
    let rows = || Dim::symbol(ROWS);
    let mut need: Vec<(&str, Type)> =
        loss.values().map(|name| (name, Type::new(Dtype::F32, [rows()]))).collect();
    let gradients = [
        ("hidden.grad", trains.hidden, Type::new(*dtype, [rows(), (*width).into()])),
        ("weight.grad", trains.weight, Type::new(*sums, [*vocab, *width])),
        ("bias.grad", trains.bias && *bias, Type::new(*sums, [*vocab])),
    ];
    need.extend(gradients.into_iter().filter(|(_, wanted, _)| *wanted).map(|(name, _, ty)| (name, ty)));
    for (name, ty) in &need {
        let got = graph.find_output(name).map(|id| graph.ty(id));
        if got != Some(ty) {
            let got = got.map_or_else(|| "no output".to_owned(), Type::to_string);
            return Err(Error::Shape { name: (*name).to_owned(), got, need: ty.to_string() });
        }
        if is_of_rows(ty) || graph.find_input(name).is_some() {
            continue;
        }
        let (got, need) =
            ("what one chunk adds".into(), "an input of that name plus what the chunk adds".into());
        return Err(Error::Shape { name: (*name).to_owned(), got, need });
    }
    match graph.outputs().iter().find(|(name, _)| need.iter().all(|(known, _)| known != name)) {
        Some((name, _)) => {
            let (got, need) = ("an output".into(), NOT_ASKED.into());
            Err(Error::Shape { name: name.clone(), got, need })
        }
        None => Ok(()),
    }
}

/// Whether seeds are all that comes out: anything else may ask for values, and every chunk is computed twice for it.
pub fn seeds(problem: &Problem, seeds: &Graph) -> Result<(), Error> {
    let is_seed = |name: &str| {
        name.strip_prefix("seed.").is_some_and(|of| problem.loss.values().any(|value| value == of))
    };
    match seeds.outputs().iter().find(|(name, _)| !is_seed(name)) {
        Some((name, _)) => {
            let (got, need) = ("an output of `seeds`".into(), ONLY_SEEDS.into());
            Err(Error::Shape { name: name.clone(), got, need })
        }
        None => Ok(()),
    }
}

/// Whether there is a seed for each row.
pub fn seed(name: &str, seeds: Option<&Vec<f32>>, rows: usize) -> Result<(), Error> {
    let got = match seeds {
        Some(seeds) if seeds.len() == rows => return Ok(()),
        Some(seeds) => format!("{} numbers", seeds.len()),
        None => "no output of `seeds`".to_owned(),
    };
    Err(Error::Shape { name: format!("seed.{name}"), got, need: format!("{rows} numbers") })
}

/// What is upstream, for each number of the loss; 1 if `None`.
pub fn upstream(given: Option<&[f32]>, ty: &Type, rows: usize) -> Result<Vec<f32>, Error> {
    let count = if ty.rank() == 0 { 1 } else { rows };
    let all = given.map_or(vec![1.0; count], <[f32]>::to_vec);
    if all.len() == count {
        return Ok(all);
    }
    Err(Error::Shape {
        name: "upstream".into(),
        got: format!("{} numbers", all.len()),
        need: count.to_string(),
    })
}

/// A gradient so far, if it has so many bytes.
pub fn so_far(name: &str, buffer: Buffer, bytes: usize) -> Result<Buffer, Error> {
    if buffer.bytes() == bytes {
        return Ok(buffer);
    }
    let (got, need) = (format!("{} bytes", buffer.bytes()), format!("{bytes} bytes"));
    Err(Error::Shape { name: name.into(), got, need })
}

/// Whether an input is given with its type, for so many rows.
fn given(all: &BTreeMap<String, DeviceTensor>, name: &str, ty: &Type, rows: usize) -> Result<(), Error> {
    let given = all.get(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?;
    fits(given, name, ty, rows)
}

/// Whether a tensor has a type, for so many rows.
pub fn fits(given: &DeviceTensor, name: &str, ty: &Type, rows: usize) -> Result<(), Error> {
    let bound = BTreeMap::from([(ROWS.into(), rows as i64)]);
    let shape: Option<Vec<usize>> =
        ty.shape.iter().map(|dim| usize::try_from(dim.value(&bound).ok()?).ok()).collect();
    let bytes = given.shape.iter().product::<usize>() * ty.dtype.bytes();
    if shape.as_ref() == Some(&given.shape) && given.buffer.bytes() == bytes {
        return Ok(());
    }
    let got = format!("{:?} in {} bytes", given.shape, given.buffer.bytes());
    Err(Error::Shape { name: name.to_owned(), got, need: format!("{ty} with N = {rows}") })
}

/// Whether every row that counts has an entry of the vocabulary.
fn labels(device: &dyn Device, job: &Job<'_>, vocab: usize) -> Result<(), Error> {
    let mut bytes = vec![0; job.counts.len() * Dtype::I32.bytes()];
    device.download(&job.given["labels"].buffer, &mut bytes).map_err(super::error::device)?;
    let labels = bytes.as_chunks().0.iter().map(|four| i32::from_ne_bytes(*four));
    let is_entry = |label: i32| usize::try_from(label).is_ok_and(|label| label < vocab);
    match labels.enumerate().find(|(row, label)| job.counts[*row] && !is_entry(*label)) {
        Some((row, got)) => Err(Error::Label { row, got, vocab }),
        None => Ok(()),
    }
}

/// Whether the chunks are the rows that count, each once.
pub fn chunks(chunks: &[Vec<usize>], counts: &[bool]) -> Result<(), Error> {
    let mut left = counts.to_vec();
    for (number, chunk) in chunks.iter().enumerate() {
        if chunk.is_empty() {
            return Err(Error::Chunks { fault: format!("chunk {number} is empty") });
        }
        for row in chunk {
            match left.get_mut(*row) {
                Some(left) if *left => *left = false,
                _ => {
                    let fault = format!("row {row} of chunk {number} does not count, or was there before");
                    return Err(Error::Chunks { fault });
                }
            }
        }
    }
    match left.iter().position(|left| *left) {
        Some(row) => Err(Error::Chunks { fault: format!("row {row} counts, and no chunk has it") }),
        None => Ok(()),
    }
}
