//! Runs of the trainer that end where nobody asked them to: killed at any moment, or by a full disk. What is left goes
//! on to the files of a run that was never stopped, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use reference::philox::philox4x32_10;
use tempfile::TempDir;
use tests::example_run::{Example, files};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// Steps, evaluations and checkpoints in turn, rows in a drawn order, dropout.
const SETTINGS: [&str; 6] = [
    "max_steps=24",
    "save_steps=2",
    "eval_strategy=steps",
    "eval_steps=3",
    "eval_dataset_name=eval.jsonl",
    "lora_dropout=0.1",
];

fn resumed<'a>(settings: &[&'a str]) -> Vec<&'a str> {
    [settings, &["resume_from_checkpoint=true"]].concat()
}

/// What a kill met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    BeforeACheckpoint,
    BetweenCheckpoints,
    WhileWriting,
    AfterTheEnd,
}

fn names(output: &Path) -> Vec<String> {
    let entries = fs::read_dir(output).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The steps of the newest checkpoint.
fn newest(output: &Path) -> Option<u64> {
    let step = |name: &String| name.strip_prefix("checkpoint-")?.parse().ok();
    names(output).iter().filter_map(step).max()
}

/// What a run was doing when it was killed, by what it left.
fn met(output: &Path) -> Met {
    let is_partial = |name: &String| name.starts_with('.') && name != ".lock";
    match names(output) {
        names if names.iter().any(is_partial) => Met::WhileWriting,
        _ if newest(output).is_none() => Met::BeforeACheckpoint,
        _ => Met::BetweenCheckpoints,
    }
}

/// Starts a run and kills it after some time; what the kill met.
fn killed(example: &Example, output: &Path, settings: &[&str], after: Duration) -> Met {
    let mut child = example.command(output, settings).spawn().expect("it starts");
    std::thread::sleep(after);
    child.kill().expect("it can be killed"); // SIGKILL
    let ended = child.wait().expect("it ends");
    if ended.success() { Met::AfterTheEnd } else { met(output) }
}

/// `KILLS` says how many runs are killed.
#[test]
fn a_run_killed_at_any_moment_goes_on_to_the_same_files() {
    killed_at_any_moment(&SETTINGS, 6);
}

/// The same on ranks, each of which writes its part of a checkpoint.
#[test]
fn a_run_on_ranks_killed_at_any_moment_goes_on_to_the_same_files() {
    killed_at_any_moment(&[&SETTINGS[..], &["ranks=2", "gradient_accumulation_steps=3"]].concat(), 4);
}

fn killed_at_any_moment(settings: &[&str], kills: u32) {
    let kills = std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(kills);
    let example = Example::new(TRAINER);
    let (folder, begin) = (TempDir::new().expect("a folder"), Instant::now());
    let whole = folder.path().join("whole");
    let ran = example.run(&whole, settings);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let (length, whole) = (begin.elapsed(), files(&whole));
    let mut counts: BTreeMap<Met, usize> = BTreeMap::new();
    for kill in 0..kills {
        let output = folder.path().join(format!("out-{kill}"));
        let [drawn, ..] = philox4x32_10([kill, 0, 0, 0], [18, 0]);
        let met = killed(&example, &output, settings, length.mul_f64(f64::from(drawn) / 2_f64.powi(32)));
        *counts.entry(met).or_default() += 1;
        let kept = newest(&output);
        let ran = example.run(&output, &resumed(settings));
        assert_eq!(ran.code, 0, "kill {kill}, {met:?}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stderr, "", "kill {kill}, {met:?}: no checkpoint is refused");
        let made = kept.map(|step| format!("; {step} are made\n"));
        let is_said =
            made.as_ref().map_or(!ran.stdout.contains("are made"), |made| ran.stdout.contains(made));
        assert!(is_said, "kill {kill}, {met:?}: expected {made:?} in {}", ran.stdout);
        same_files(&format!("kill {kill}, {met:?}"), &files(&output), &whole);
        fs::remove_dir_all(&output).expect("it can be removed");
    }
    println!("{kills} runs of {length:.1?} were killed: {counts:?}");
}

#[track_caller]
fn same_files(what: &str, own: &BTreeMap<PathBuf, Vec<u8>>, want: &BTreeMap<PathBuf, Vec<u8>>) {
    // A run that begins at step 1 again keeps the metrics of the run before it.
    let is_kept = |name: &&PathBuf| name.to_string_lossy().starts_with("metrics-");
    let own_names: Vec<&PathBuf> = own.keys().filter(|name| !is_kept(name)).collect();
    assert!(
        own_names.iter().copied().eq(want.keys()),
        "{what}: expected {:?}, found {own_names:?}",
        want.keys()
    );
    for (name, want) in want {
        assert!(own[name] == *want, "{what}: {} differs", name.display());
    }
}

/// A file system of so many bytes in memory, as long as it is held.
struct Disk(TempDir);

impl Disk {
    /// `None` where none can be mounted: only root may, and only on Linux.
    fn of(kib: u32) -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        let options = format!("size={kib}k");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path());
        let is_there = mount.output().is_ok_and(|ran| ran.status.success());
        is_there.then_some(Self(folder))
    }

    fn grow(&self, kib: u32) {
        let options = format!("remount,size={kib}k");
        let ran =
            Command::new("mount").args(["-o", &options]).arg(self.0.path()).output().expect("mount runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

/// A disk becomes full while the metrics are written (4 KiB), in a checkpoint's adapter, in its moments, between files.
#[test]
fn a_full_disk_is_named_and_costs_no_checkpoint() {
    let example = Example::new(TRAINER);
    let folder = TempDir::new().expect("a folder");
    let settings = [&SETTINGS[..], &["save_total_limit=3"]].concat();
    let all = folder.path().join("all");
    assert_eq!(example.run(&all, &SETTINGS).code, 0);
    let all = files(&all); // every checkpoint
    let whole = folder.path().join("whole");
    assert_eq!(example.run(&whole, &settings).code, 0);
    let whole = files(&whole);
    for (kib, file) in [
        (4, "metrics.jsonl"),
        (100, "adapter_model.safetensors"),
        (300, "optimizer-00001-of-00001.safetensors"),
        (700, "checkpoint-4"),
        (1150, "checkpoint-6"),
    ] {
        let Some(disk) = Disk::of(kib) else {
            println!("not measured: no file system can be mounted here");
            return;
        };
        let output = disk.0.path().join("out");
        let late = ["save_steps=1000"];
        let settings = if kib == 4 { [&settings[..], &late].concat() } else { settings.clone() };
        for settings in [settings.clone(), resumed(&settings)] {
            let ran = example.run(&output, &settings);
            assert_eq!(ran.code, 6, "{kib} KiB: {}{}", ran.stdout, ran.stderr);
            assert!(
                ran.stderr.contains(file) && ran.stderr.contains("No space left on device"),
                "{kib} KiB: expected {file} in {}",
                ran.stderr
            );
        }
        let left = names(&output);
        assert!(left.iter().all(|name| name == ".lock" || !name.starts_with('.')), "{kib} KiB: {left:?}");
        for (name, bytes) in whole_checkpoints(&output) {
            assert!(bytes == all[&name], "{kib} KiB: {} differs", name.display());
        }
        disk.grow(64 << 10);
        let ran = example.run(&output, &resumed(&settings));
        assert_eq!(ran.code, 0, "{kib} KiB: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stderr, "", "{kib} KiB: no checkpoint is refused");
        if kib > 4 {
            same_files(&format!("{kib} KiB"), &files(&output), &whole);
        }
    }
}

/// The files of every checkpoint; the last line of the metrics may be half of one.
fn whole_checkpoints(output: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in names(output).iter().filter(|name| name.starts_with("checkpoint-")) {
        let of_one = files(&output.join(name)).into_iter();
        let of_one = of_one.filter(|(file, _)| *file != Path::new("metrics.jsonl"));
        all.extend(of_one.map(|(file, bytes)| (Path::new(name).join(file), bytes)));
    }
    all
}

/// Another run would begin anew and take the metrics away.
#[test]
fn a_checkpoint_of_another_adapter_is_refused() {
    let example = Example::new(TRAINER);
    let folder = TempDir::new().expect("a folder");
    let output = folder.path().join("out");
    assert_eq!(example.run(&output, &["max_steps=3", "save_steps=2"]).code, 0);
    let before = files(&output);
    let ran = example.run(&output, &resumed(&["max_steps=5", "lora_r=4"]));
    assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("checkpoint-3: its adapter is another one: lora_r: expected 16, found 4"),
        "{}",
        ran.stderr
    );
    same_files("a refused run", &files(&output), &before);
}
