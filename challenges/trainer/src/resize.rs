//! The embedding and the head of a checkpoint with more rows.
//!
//! A token more is a row more in the table that ids are looked up in, and in the matrix that gives logits. **A new row
//! is the mean of the old ones.** Random rows have logits of any size: one of them may be what a model says next,
//! always, and the first steps of training go into undoing that. With the mean e of the old rows, the new logit is the
//! mean of the old logits, so exp of it is at most the mean of their exps (Jensen): a new token is no likelier than an
//! old one is on average, and all else stays as it was. Source: J. Hewitt, "Initializing New Word Embeddings for
//! Pretrained Language Models" (2021).
//!
//! Files are copied through a buffer, whatever they weigh; of a tensor no more than a row of sums is in memory. Nothing
//! is written in place: the checkpoint goes to another folder, each file as a whole.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use half::{bf16, f16};
use reference::atomic_write;
use serde_json::{Map, Value as Json, json};

use super::files::{FileError, Problem, not_safetensors, read_json, write_json};

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Rows before.
    pub before: u64,
    /// Rows after.
    pub after: u64,
    /// The tensors that have them.
    pub tensors: Vec<String>,
}

/// How the names of the tables end that have a row for each token.
const TABLES: [&str; 6] = [
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
    "lm_head.weight",
    "lm_head.bias",
];
/// The first four of them are looked up in.
const LOOKED_UP: usize = 4;
const INDEX: &str = "model.safetensors.index.json";
const WHOLE: &str = "model.safetensors";
/// Bytes that are copied at once.
const BUFFER: usize = 1 << 20;
/// The format's own bound on its JSON, in bytes.
const MOST_HEADER: u64 = 100_000_000;

/// Copies the weights and the `config.json` of the folder `from` into the folder `to`, with at least `rows` rows in the
/// embedding and the head, and with a multiple of `pad` if there is one. Rows are never taken away.
///
/// Fails where there is no embedding of `vocab_size` rows, or where it is quantised: rows of codes and scales cannot be
/// added to, so a model is resized before it is quantised.
pub fn resize(from: &Path, to: &Path, rows: u64, pad: Option<u64>) -> Result<Resized, FileError> {
    let at = from.join("config.json");
    let mut config = read_json(&at)?.ok_or_else(|| Problem::Missing { need: "config.json" }.of(from))?;
    let before = vocabulary(&mut config).map_err(|problem| problem.of(&at))?.0;
    let after = padded(rows.max(before), pad.unwrap_or(1)).map_err(|problem| problem.of(&at))?;
    let sizes = Sizes { before, after };
    let names = files(from)?;
    let plans =
        names.iter().map(|name| Plan::read(&from.join(name), sizes)).collect::<Result<Vec<_>, _>>()?;
    let tensors: Vec<String> = plans.iter().flat_map(Plan::tables).collect();
    if !tensors.iter().any(|name| is_table(name).is_some_and(|at| at < LOOKED_UP)) {
        let what = format!(
            "no tensor is an embedding: none has {before} rows and a name that ends with one of {TABLES:?}"
        );
        return Err(Problem::Layout { what }.of(from));
    }
    for (name, plan) in names.iter().zip(&plans) {
        plan.write(&from.join(name), &to.join(name))?;
    }
    write_index(from, to, plans.iter().map(Plan::growth).sum())?;
    *vocabulary(&mut config).map_err(|problem| problem.of(&at))?.1 = json!(after);
    write_json(&to.join("config.json"), &config)?;
    Ok(Resized { before, after, tensors })
}

#[derive(Clone, Copy)]
struct Sizes {
    before: u64,
    after: u64,
}

fn padded(rows: u64, pad: u64) -> Result<u64, Problem> {
    let most = u64::from(u32::MAX);
    let padded = rows.checked_next_multiple_of(pad.max(1)).filter(|rows| *rows <= most);
    padded.ok_or_else(|| Problem::Entry {
        entry: "the number of rows".into(),
        got: rows.to_string(),
        need: "fewer than 2^32",
    })
}

/// `vocab_size`, of the model or of its part that reads text.
fn vocabulary(config: &mut Json) -> Result<(u64, &mut Json), Problem> {
    let inner = config.get("vocab_size").is_none() && config.get("text_config").is_some();
    let part = if inner { &mut config["text_config"] } else { config };
    let Json::Object(entries) = part else { return Err(Problem::entry("text_config", part, "an object")) };
    let size = entries.entry("vocab_size").or_insert(Json::Null);
    match size.as_u64().filter(|size| (1..=u64::from(u32::MAX)).contains(size)) {
        Some(number) => Ok((number, size)),
        None => Err(Problem::entry("vocab_size", size, "a number of tokens")),
    }
}

/// The names of the files with weights.
fn files(folder: &Path) -> Result<Vec<String>, FileError> {
    let Some(index) = read_json(&folder.join(INDEX))? else {
        let whole = folder.join(WHOLE).exists();
        let missing = Problem::Missing { need: "model.safetensors and no model.safetensors.index.json" };
        return if whole { Ok(vec![WHOLE.into()]) } else { Err(missing.of(folder)) };
    };
    let fail =
        |got: &Json| Problem::entry("weight_map", got, "an object of names of files").of(&folder.join(INDEX));
    let map = index["weight_map"].as_object().ok_or_else(|| fail(&index["weight_map"]))?;
    let mut names = Vec::new();
    for file in map.values() {
        let name = file.as_str().filter(|name| is_plain(name)).ok_or_else(|| fail(file))?;
        names.push(name.to_string());
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Whether a name leads to no other folder.
fn is_plain(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name) && !name.contains(['/', '\\', ':'])
}

fn write_index(from: &Path, to: &Path, growth: u64) -> Result<(), FileError> {
    let Some(mut index) = read_json(&from.join(INDEX))? else { return Ok(()) };
    if let Some(size) = index.pointer_mut("/metadata/total_size")
        && let Some(number) = size.as_u64()
    {
        *size = json!(number.saturating_add(growth));
    }
    write_json(&to.join(INDEX), &index)
}

fn is_table(name: &str) -> Option<usize> {
    TABLES
        .iter()
        .position(|end| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// The numbers of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    F32,
    F16,
    Bf16,
}

impl Number {
    fn of(name: &str) -> Option<Number> {
        match name {
            "F32" => Some(Number::F32),
            "F16" => Some(Number::F16),
            "BF16" => Some(Number::Bf16),
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        if self == Number::F32 { 4 } else { 2 }
    }

    fn read(self, bytes: &[u8]) -> f64 {
        match (self, bytes) {
            (Number::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).into(),
            (Number::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
            (Number::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
            _ => 0.0,
        }
    }

    /// The number as it is stored: rounded to f32, then to the type.
    fn write(self, number: f64, out: &mut Vec<u8>) {
        let number = number as f32;
        match self {
            Number::F32 => out.extend(number.to_le_bytes()),
            Number::F16 => out.extend(f16::from_f32(number).to_le_bytes()),
            Number::Bf16 => out.extend(bf16::from_f32(number).to_le_bytes()),
        }
    }
}

/// A tensor in a file: its bytes from the start of the data, and the rows that it gets if it is a table.
struct Stored {
    name: String,
    begin: u64,
    length: u64,
    table: Option<Table>,
}

#[derive(Clone, Copy)]
struct Table {
    number: Number,
    rows: u64,
    /// Numbers in a row.
    width: usize,
    added: u64,
}

impl Stored {
    fn growth(&self) -> u64 {
        self.table.map_or(0, |table| table.added * (table.width * table.number.bytes()) as u64)
    }
}

/// A file and what becomes of it.
struct Plan {
    header: Map<String, Json>,
    data: u64,
    /// In the order of their bytes.
    tensors: Vec<Stored>,
}

impl Plan {
    fn read(path: &Path, sizes: Sizes) -> Result<Plan, FileError> {
        Plan::parse(path, sizes).map_err(|problem| not_safetensors(path).unwrap_or(problem).of(path))
    }

    fn parse(path: &Path, sizes: Sizes) -> Result<Plan, Problem> {
        let mut file = File::open(path)?;
        let all = file.metadata()?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        if length > MOST_HEADER || length + 8 > all {
            return Err(layout(format!("a header of {length} bytes in a file of {all}")));
        }
        let mut text = vec![0; length as usize];
        file.read_exact(&mut text)?;
        let header: Map<String, Json> = serde_json::from_slice(&text)?;
        let entries = header.iter().filter(|(name, _)| *name != "__metadata__");
        let mut tensors =
            entries.map(|(name, entry)| stored(name, entry, sizes)).collect::<Result<Vec<_>, _>>()?;
        tensors.sort_by_key(|tensor| tensor.begin);
        let mut end = 0;
        for tensor in &tensors {
            if tensor.begin != end {
                return Err(layout(format!(
                    "{}: expected to begin at byte {end} of the data, found byte {}",
                    tensor.name, tensor.begin
                )));
            }
            end = tensor.begin.saturating_add(tensor.length);
        }
        let data = length + 8;
        if data.checked_add(end) != Some(all) {
            return Err(layout(format!(
                "a file of {all} bytes whose header tells of {}",
                data.saturating_add(end)
            )));
        }
        Ok(Plan { header, data, tensors })
    }

    fn tables(&self) -> impl Iterator<Item = String> {
        self.tensors.iter().filter(|tensor| tensor.table.is_some()).map(|tensor| tensor.name.clone())
    }

    fn growth(&self) -> u64 {
        self.tensors.iter().map(Stored::growth).sum()
    }

    fn write(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        if self.growth() == 0 {
            let copied = atomic_write::write_by(to, |out| {
                std::io::copy(&mut File::open(from)?, out)?;
                Ok::<(), std::io::Error>(())
            });
            return copied.map_err(|error| Problem::Io(error).of(to));
        }
        let header = self.new_header().map_err(|problem| problem.of(from))?;
        let written = atomic_write::write_by(to, |out| {
            out.write_all(&(header.len() as u64).to_le_bytes())?;
            out.write_all(&header)?;
            let mut file = BufReader::with_capacity(BUFFER, File::open(from)?);
            self.tensors.iter().try_for_each(|tensor| self.copy(&mut file, tensor, out))
        });
        written.map_err(|problem: Problem| problem.of(from))
    }

    /// The header with the new shapes and places, filled with spaces to a multiple of eight bytes.
    fn new_header(&self) -> Result<Vec<u8>, Problem> {
        let mut header = self.header.clone();
        let mut end = 0u64;
        for tensor in &self.tensors {
            let begin = end;
            end = begin + tensor.length + tensor.growth();
            let Some(entry) = header.get_mut(&tensor.name) else { continue };
            entry["data_offsets"] = json!([begin, end]);
            if let Some(table) = tensor.table {
                entry["shape"][0] = json!(table.rows + table.added);
            }
        }
        let mut text = serde_json::to_vec(&header)?;
        text.resize(text.len().next_multiple_of(8), b' ');
        Ok(text)
    }

    fn copy(&self, file: &mut BufReader<File>, tensor: &Stored, out: &mut impl Write) -> Result<(), Problem> {
        file.seek(SeekFrom::Start(self.data + tensor.begin))?;
        let Some(table) = tensor.table.filter(|table| table.added > 0) else {
            return copied(file, tensor.length, out, |_| ());
        };
        let mut sums = vec![0.0; table.width];
        let bytes = table.number.bytes();
        let mut column = 0;
        copied(file, tensor.length, out, |part| {
            for number in part.chunks_exact(bytes) {
                if let Some(sum) = sums.get_mut(column) {
                    *sum += table.number.read(number);
                }
                column = (column + 1) % table.width;
            }
        })?;
        let mut row = Vec::with_capacity(table.width * bytes);
        for sum in &sums {
            table.number.write(sum / table.rows as f64, &mut row);
        }
        (0..table.added).try_for_each(|_| Ok(out.write_all(&row)?))
    }
}

/// Copies bytes and shows them, a whole number of numbers at a time.
fn copied(
    file: &mut impl Read,
    length: u64,
    out: &mut impl Write,
    mut show: impl FnMut(&[u8]),
) -> Result<(), Problem> {
    let mut buffer = vec![0; BUFFER.min(usize::try_from(length).unwrap_or(BUFFER))];
    let mut left = length;
    while left > 0 {
        let count = buffer.len().min(usize::try_from(left).unwrap_or(BUFFER));
        let Some(part) = buffer.get_mut(..count) else { break };
        file.read_exact(part)?;
        show(part);
        out.write_all(part)?;
        left -= count as u64;
    }
    Ok(())
}

fn layout(what: String) -> Problem {
    Problem::Layout { what }
}

/// An entry of a header, and what it becomes.
fn stored(name: &str, entry: &Json, sizes: Sizes) -> Result<Stored, Problem> {
    let wrong = |part: &str, need| Problem::entry(format!("{name}.{part}"), &entry[part], need);
    let offset = |at: usize| entry["data_offsets"][at].as_u64();
    let (begin, end) = offset(0).zip(offset(1)).ok_or_else(|| wrong("data_offsets", "two places"))?;
    let length = end.checked_sub(begin).ok_or_else(|| wrong("data_offsets", "two places in order"))?;
    let table = if is_table(name).is_some() { Some(table(name, entry, length, sizes)?) } else { None };
    Ok(Stored { name: name.into(), begin, length, table })
}

fn table(name: &str, entry: &Json, length: u64, sizes: Sizes) -> Result<Table, Problem> {
    let wrong = |part: &str, need| Problem::entry(format!("{name}.{part}"), &entry[part], need);
    let number = entry["dtype"].as_str().and_then(Number::of);
    let number = number.ok_or_else(|| wrong("dtype", "F32, F16 or BF16 (resize before quantising)"))?;
    let shape: Option<Vec<u64>> =
        entry["shape"].as_array().and_then(|all| all.iter().map(Json::as_u64).collect());
    let (rows, width) = match shape.as_deref() {
        Some(&[rows]) => (rows, 1),
        Some(&[rows, width]) => (rows, width),
        _ => return Err(wrong("shape", "rows and columns")),
    };
    if rows != sizes.before || width == 0 {
        return Err(wrong("shape", "a row for each token of config.json's vocab_size"));
    }
    let need = rows.checked_mul(width).and_then(|count| count.checked_mul(number.bytes() as u64));
    if need != Some(length) {
        return Err(layout(format!("{name} has {length} bytes, its shape needs another number")));
    }
    let added = sizes.after - sizes.before;
    added
        .checked_mul(length / rows)
        .and_then(|more| more.checked_add(length))
        .ok_or_else(|| wrong("shape", "fewer columns"))?;
    Ok(Table { number, rows, width: width as usize, added })
}

/// Whether a folder holds nothing, or is not there.
pub fn is_free(folder: &Path) -> bool {
    fs::read_dir(folder)
        .map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |mut all| all.next().is_none())
}
