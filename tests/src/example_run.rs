//! Runs of the trainer over its own example: a Llama that is trained in a second or two, from nothing but the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::gpu;
use crate::one_graph::card;
use crate::place;
use crate::program::{self, Ran};

/// The example in a folder of its own.
pub struct Example {
    program: PathBuf,
    folder: TempDir,
}

/// The keys of a line of the metrics that differ between two processes that run the same steps.
const PER_PROCESS_KEYS: [&str; 4] = ["tokens_per_second", "peak_bytes", "device_peak_bytes", "eval_runtime"];

impl Example {
    /// The example as `program` writes it, and `eval.jsonl` with 13 of its rows.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn new(program: &str) -> Self {
        let example = Self::of_task(program, "CAUSAL_LM");
        example.write_rows("eval.jsonl", 40..53);
        example
    }

    /// The example of a task as `program` writes it.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn of_task(program: &str, task: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let program = place::program(Path::new(program));
        let flags = ["train", "--example", "example", "--task-type", task];
        let written = program::run(&program, folder.path(), &flags);
        assert_eq!(written.code, 0, "{}", written.stderr);
        Self { program, folder }
    }

    /// A file or a folder of the example.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("example").join(name)
    }

    /// Writes some of the rows of its data as another file.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn write_rows(&self, name: &str, rows: std::ops::Range<usize>) {
        let data = fs::read_to_string(self.path("data.jsonl")).expect("data");
        let lines: Vec<&str> = data.lines().collect();
        fs::write(self.path(name), lines[rows].join("\n") + "\n").expect("it can be written");
    }

    /// A run into an output folder, with these settings; nothing of it is seen.
    pub fn command(&self, output: &Path, settings: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.path("")).args(["train", "config.toml", "--set"]);
        command.arg(format!("output_dir={}", output.display()));
        for setting in settings {
            command.args(["--set", setting]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// A run to its end.
    pub fn run(&self, output: &Path, settings: &[&str]) -> Ran {
        program::finish(self.command(output, settings).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// What `--plan` says of a run.
    pub fn plan(&self, settings: &[&str]) -> Ran {
        let mut command = self.command(&self.path("out"), settings);
        program::finish(command.arg("--plan").stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// A run that has to succeed, and the lines of its metrics.
    ///
    /// # Panics
    /// If it does not.
    pub fn metrics_of(&self, output: &Path, settings: &[&str]) -> Vec<Value> {
        let ran = self.run(output, settings);
        assert_eq!(ran.code, 0, "{settings:?}: {}{}", ran.stdout, ran.stderr);
        metrics(output)
    }
}

/// The settings of a run on each device that there is.
pub fn on_devices() -> Vec<&'static str> {
    ["device=cpu"].into_iter().chain(card().map(|_| "device=cuda")).collect()
}

/// The lines of the metrics of a run that ended.
///
/// # Panics
/// If a line is not JSON.
pub fn metrics(output: &Path) -> Vec<Value> {
    let text = fs::read_to_string(output.join("metrics.jsonl")).unwrap_or_default();
    let lines = complete_metrics(output);
    assert_eq!(lines.len(), text.lines().count(), "expected a JSON object per line:\n{text}");
    lines
}

/// The lines of the metrics that are complete; a run that goes on may have written half a line.
///
/// A run that used a GPU is noted, see [`gpu::note`].
pub fn complete_metrics(output: &Path) -> Vec<Value> {
    let text = fs::read_to_string(output.join("metrics.jsonl")).unwrap_or_default();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if lines.iter().any(|line| line["device_peak_bytes"].is_u64()) {
        gpu::note();
    }
    lines
}

/// Removes the keys whose values differ between two processes that run the same steps.
pub fn without_process(mut line: Value) -> Value {
    if let Some(line) = line.as_object_mut() {
        for key in PER_PROCESS_KEYS {
            line.shift_remove(key);
        }
    }
    line
}

/// Every file below a run's folder by its path, but for what depends on the process.
///
/// # Panics
/// If one cannot be read.
pub fn files(output: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![output.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(output).expect("below it").to_path_buf();
                files.insert(name, fs::read(entry.path()).expect("a file"));
            }
        }
    }
    let lines = metrics(output).into_iter().map(without_process);
    let lines: String = lines.flat_map(|line| [line.to_string(), "\n".to_owned()]).collect();
    files.insert("metrics.jsonl".into(), lines.into_bytes());
    files
}
