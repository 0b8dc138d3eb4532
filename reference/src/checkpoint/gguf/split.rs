//! A model that is split into several files.
//!
//! ```text
//! model-00001-of-00003.gguf   split.no 0   split.count 3   all keys, and some tensors or none
//! model-00002-of-00003.gguf   split.no 1   split.count 3   tensors
//! model-00003-of-00003.gguf   split.no 2   split.count 3   tensors
//! ```
//!
//! `split.tensors.count`, where a file has it, is the number of tensors of all files.
//!
//! Source: `tools/gguf-split` and `llama-model-loader.cpp` of llama.cpp.

use std::path::Path;

use super::{Error, Gguf, Problem, Value};

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSORS: &str = "split.tensors.count";

/// The largest number that the format has room for.
const MOST_PARTS: u64 = u16::MAX as u64;

/// The model whose first part was opened, with its other parts; the same file if the model is not split.
///
/// Fails where the file is a later part, where a part is missing, and where a part says that it is a different one.
pub(super) fn joined(mut model: Gguf, path: &Path) -> Result<Gguf, Error> {
    let at = |problem: Problem, path: &Path| Error::from(problem).at(path);
    let count = model.count().map_err(|problem| at(problem, path))?;
    let number = model.number(count).map_err(|problem| at(problem, path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if number > 0 {
        let stem = name.strip_suffix(ending(number, count).as_str()).unwrap_or("*");
        let first = format!("{stem}{}", ending(0, count));
        return Err(at(Problem::LaterPart { part: number + 1, count, first }, path));
    }
    if count < 2 {
        return Ok(model);
    }
    let need = ending(0, count);
    let Some(stem) = name.strip_suffix(need.as_str()) else {
        return Err(at(Problem::PartName { count, need }, path));
    };
    for number in 1..count {
        let path = path.with_file_name(format!("{stem}{}", ending(number, count)));
        if !path.exists() {
            return Err(at(Problem::MissingPart { part: number + 1, count }, &path));
        }
        let part = Gguf::single(&path)?;
        part.is_part(number, count).map_err(|problem| at(problem, &path))?;
        model.add(part).map_err(|problem| at(problem, &path))?;
    }
    model.has_all().map_err(|problem| at(problem, path))?;
    Ok(model)
}

/// Returns the end of a part's name.
fn ending(number: usize, count: usize) -> String {
    format!("-{:05}-of-{count:05}.gguf", number + 1)
}

impl Gguf {
    /// Returns the number of parts that the model has; 1 if the file does not say.
    fn count(&self) -> Result<usize, Problem> {
        let need = || format!("an integer from 0 to {MOST_PARTS}");
        let Some(value) = self.value(COUNT) else { return Ok(1) };
        let count = value.whole().filter(|count| *count <= MOST_PARTS);
        count.map(|count| count.max(1) as usize).ok_or_else(|| wrong(COUNT, Some(value), need()))
    }

    /// Returns the number of the part that the file is, from 0.
    fn number(&self, count: usize) -> Result<usize, Problem> {
        let Some(value) = self.value(NUMBER) else { return Ok(0) };
        let number = value.whole().and_then(|number| usize::try_from(number).ok());
        let need = || format!("an integer below {count}, the {COUNT}");
        number.filter(|number| *number < count).ok_or_else(|| wrong(NUMBER, Some(value), need()))
    }

    /// Checks that a file is the part that its name says.
    fn is_part(&self, number: usize, count: usize) -> Result<(), Problem> {
        for (key, need) in [(COUNT, count), (NUMBER, number)] {
            let value = self.value(key);
            if value.and_then(Value::whole) != Some(need as u64) {
                return Err(wrong(key, value, need.to_string()));
            }
        }
        Ok(())
    }

    /// Adds the tensors of another part.
    fn add(&mut self, part: Gguf) -> Result<(), Problem> {
        for info in part.tensors {
            if self.by_name.insert(info.name.clone(), self.tensors.len()).is_some() {
                return Err(Problem::Twice { what: "tensor", name: info.name });
            }
            self.part_of.push(self.parts.len());
            self.tensors.push(info);
        }
        self.parts.extend(part.parts);
        Ok(())
    }

    /// Checks that the parts have as many tensors as the first one says.
    fn has_all(&self) -> Result<(), Problem> {
        let (value, need) = (self.value(TENSORS), self.tensors.len());
        match value {
            Some(got) if got.whole() != Some(need as u64) => {
                Err(wrong(TENSORS, value, format!("{need}, the number of tensors in all parts")))
            }
            _ => Ok(()),
        }
    }
}

fn wrong(key: &'static str, got: Option<&Value>, need: String) -> Problem {
    Problem::Split { key, got: got.map_or("none".into(), ToString::to_string), need }
}
