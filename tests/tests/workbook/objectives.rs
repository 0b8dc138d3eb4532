//! `trainer train` with an objective: the runs of TRL's trainers number for number, those of an oracle in f64, runs
//! that are stopped and go on, bad data and configs.
//!
//! As with [`sft`](crate::sft), `open-dpo.tgz` is made over another base than the checkpoint that it names: what does
//! not depend on weights is held to the set's logs always, the rest where the oracle finds its first log-probabilities.
//! The same runs by TRL over the checkpoint itself, and those of its other trainers, are kept in `objectives_trl.json`
//! (`tests/peers/objectives_trl.py`).

mod oracle;

use std::fs;
use std::path::{Path, PathBuf};

use reference::lora::Adapter;
use reference::loss::{
    Clip, Compared, Judged, Kto, Orpo, PairKind, PairLoss, Policy, SimPo, Tokens, kto_baseline,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::example_run::{Example, files, on_devices};
use tests::golden;
use tests::program::Ran;
use trainer::train::data::{Encoder, Row};

use crate::sft::{Sft, metrics, train};
use oracle::{Objective, Oracle};

const KEPT: &str = include_str!("objectives_trl.json");
const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");
const REWARD: &str = env!("CARGO_BIN_EXE_reward");

/// The golden runs, their base and its tokenizer.
struct Golden {
    sft: Sft,
    folder: TempDir,
}

impl Golden {
    fn find() -> Option<Self> {
        Some(Self { sft: Sft::find()?, folder: golden::find_archive("open-dpo.tgz")? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("open-dpo").join(name)
    }

    /// The runs by their names.
    fn runs(&self) -> Vec<(String, Value)> {
        let entries = fs::read_dir(self.path("")).expect("a folder").flatten().map(|entry| entry.path());
        let mut runs: Vec<(String, Value)> = entries
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .map(|path| {
                let name = path.file_stem().expect("a name").to_str().expect("letters").to_owned();
                (name, serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON"))
            })
            .collect();
        runs.sort_by(|a, b| a.0.cmp(&b.0));
        runs
    }

    /// A run's config with the trainer's keys.
    fn config(&self, objective: &str, args: &Value, data: &Path, output: &Path) -> String {
        let text = |path: &Path| Value::from(path.to_str().expect("a path"));
        let mut keys = json!({
            "objective": objective,
            "model_name_or_path": text(&self.sft.base.path("nf4")),
            "tokenizer_name_or_path": text(&self.sft.path("tokenizer")),
            "adapter_name_or_path": text(&self.path("adapter-start")),
            "dataset_name": text(data),
            "output_dir": text(output),
            "train_sampling_strategy": "sequential",
        });
        let keys = keys.as_object_mut().expect("an object");
        keys.extend(args.as_object().expect("settings").clone());
        let lines: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        lines.join("\n") // such JSON is TOML
    }

    fn adapter(&self) -> Adapter {
        Adapter::open(self.path("adapter-start"), &self.sft.base.open("nf4").config).expect("an adapter")
    }

    fn oracle(&self) -> Oracle {
        Oracle::new(self.sft.base.open("nf4"), &self.adapter())
    }

    /// An oracle that starts from the adapter of a config, if it names one.
    fn oracle_of(&self, args: &Value) -> Oracle {
        let llama = self.sft.base.open("nf4");
        let named = args["adapter_name_or_path"].as_str();
        let adapter = named.map(|folder| Adapter::open(folder, &llama.config).expect("an adapter"));
        Oracle::new(llama, &adapter.unwrap_or_else(|| self.adapter()))
    }

    fn encoder(&self) -> Encoder<'static> {
        let vocab = self.sft.base.open("nf4").config.vocab;
        Encoder::open(&self.sft.path("tokenizer"), vocab, false).expect("a tokenizer")
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("data.jsonl")).expect("data");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The mean log-probability of the chosen answers of the first step, by the oracle.
    fn first_log_p(&self, args: &Value) -> f64 {
        let size = |key: &str| args[key].as_u64().unwrap_or(1) as usize;
        let pairs = size("per_device_train_batch_size") * size("gradient_accumulation_steps");
        let rows = rows(self, &self.lines()[..pairs], "chosen");
        let oracle = self.oracle();
        rows.iter().map(|row| oracle.log_p(row, false).iter().sum::<f64>()).sum::<f64>() / pairs as f64
    }
}

/// Prompts with one of their answers, as rows.
fn rows(golden: &Golden, lines: &[Value], key: &str) -> Vec<Row> {
    let folder = TempDir::new().expect("a folder");
    let lines = lines.iter().map(|line| json!({"prompt": line["prompt"], "completion": line[key]}));
    let file = written(folder.path(), "rows.jsonl", lines);
    golden.encoder().rows(&file, None).expect("rows").rows
}

/// A file of JSON lines.
fn written(folder: &Path, name: &str, lines: impl Iterator<Item = Value>) -> PathBuf {
    let path = folder.join(name);
    let lines: Vec<String> = lines.map(|line| line.to_string()).collect();
    fs::write(&path, lines.join("\n") + "\n").expect("it can be written");
    path
}

/// The largest difference of a key, relative to the number where that is above 1.
fn apart(key: &str, log: &[Value], own: &[Value]) -> f64 {
    let number = |line: &Value| line[key].as_f64().unwrap_or(f64::NAN);
    let each = log.iter().zip(own).map(|(want, got)| (number(want), number(got)));
    each.map(|(want, got)| (want - got).abs() / want.abs().max(1.0))
        .fold(0.0, |a: f64, b| if b.is_nan() { b } else { a.max(b) })
}

#[track_caller]
fn close(run: &str, keys: &[&str], log: &[Value], own: &[Value], most: f64) {
    assert_eq!(own.len(), log.len(), "{run}: steps");
    for key in keys {
        let apart = apart(key, log, own);
        assert!(apart <= most, "{run}: {key}: {apart:.1e} apart, expected at most {most:.1e}");
    }
}

#[track_caller]
fn ran(ran: &Ran, what: &str) {
    assert_eq!(ran.code, 0, "{what}: {}{}", ran.stdout, ran.stderr);
}

/// A run of TRL's: its keys in all steps, but for `not`.
fn as_logged(name: &str, log: &[Value], own: &[Value], not: &[&str]) {
    let keys = log[0].as_object().expect("a line").keys().map(String::as_str);
    let keys: Vec<&str> = keys.filter(|key| !not.contains(key)).collect();
    let ever: Vec<&str> =
        keys.iter().copied().filter(|key| log.iter().all(|line| line.get(key).is_some())).collect();
    assert!(ever.len() > 8, "{name}: {ever:?}");
    close(name, &ever, log, own, 1e-5);
}

#[test]
fn dpo_is_the_librarys_number_for_number() {
    let Some(golden) = Golden::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    for (name, given) in golden.runs() {
        let args = &given["config"]["args"];
        let log = given["log"]["f64"].as_array().expect("a log");
        let again = kept["runs"][&name]["log"].as_array().filter(|_| kept["runs"][&name]["config"] == *args);
        let first = golden.first_log_p(args);
        let fits = |log: &[Value]| {
            (first - log[0]["logps/chosen"].as_f64().expect("a number")).abs() < 1e-5 * first.abs()
        };
        let chunks = "loss_chunk_bytes=60000";
        let alone = on_devices().into_iter().map(|device| vec![device]);
        let ranks = ["ranks=2", "ranks=3", "mesh=tp=2", "mesh=pp=2"].map(|mesh| vec![mesh]);
        for settings in alone.chain(ranks).flat_map(|own| [own.clone(), [own, vec![chunks]].concat()]) {
            let folder = TempDir::new().expect("a folder");
            let output = folder.path().join("out");
            let config = golden.config("dpo", args, &golden.path("data.jsonl"), &output);
            ran(&train(folder.path(), &config, &settings), &name);
            let own = metrics(&output);
            close(&name, &["step", "num_tokens", "learning_rate", "epoch"], log, &own, 1e-12);
            for log in [Some(log), again].into_iter().flatten().filter(|log| fits(log)) {
                as_logged(&format!("{name} with {settings:?}"), log, &own, &[]);
            }
        }
        if !fits(log) {
            println!("not measured: {name}: the set's log is of another base than its checkpoint");
        }
    }
}

/// What TRL means over padding, too, and what it says of a term that is left out.
const NOT_COMPARED: [&str; 3] = ["logits/chosen", "logits/rejected", "nll_loss"];

#[test]
fn every_objective_is_the_librarys_number_for_number() {
    let Some(golden) = Golden::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let first = kept["runs"]["sigmoid"]["log"][0]["logps/chosen"].as_f64().expect("a number");
    let own_first = golden.first_log_p(&kept["runs"]["sigmoid"]["config"]);
    if (first - own_first).abs() > 1e-5 * first.abs() {
        println!("not measured: the kept logs are of another base");
        return;
    }
    for (name, run) in kept["runs"].as_object().expect("runs") {
        let objective = run["objective"].as_str().expect("an objective");
        let folder = TempDir::new().expect("a folder");
        let data = match objective {
            "dpo" => golden.path("data.jsonl"),
            "simpo" => written(folder.path(), "data.jsonl", lines_of(&kept, "orpo")),
            other => written(folder.path(), "data.jsonl", lines_of(&kept, other)),
        };
        for device in on_devices().into_iter().chain(["ranks=2", "ranks=3"]) {
            let output = folder.path().join(device);
            let config = golden.config(objective, &run["config"], &data, &output);
            ran(&train(folder.path(), &config, &[device]), name);
            let is_padded = ["orpo", "simpo"].contains(&objective);
            let not = if is_padded { &NOT_COMPARED[..] } else { &[] };
            as_logged(name, run["log"].as_array().expect("a log"), &metrics(&output), not);
        }
    }
}

fn lines_of(kept: &Value, objective: &str) -> impl Iterator<Item = Value> {
    kept["data"][objective].as_array().expect("lines").clone().into_iter()
}

/// What all runs against the oracle have: three examples twice a step, ten steps.
const STEPS: usize = 10;
const BATCH: usize = 3;

fn shared(more: &Value) -> Value {
    let mut args = json!({
        "max_steps": STEPS, "learning_rate": 1e-3, "warmup_steps": 1, "weight_decay": 0.01,
        "per_device_train_batch_size": BATCH, "gradient_accumulation_steps": 2, "device": "cpu",
    });
    args.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    args
}

/// A run against the oracle: `parts` are the rows of a step's micro-batches.
fn against_the_oracle(
    golden: &Golden,
    (name, args): (&str, &Value),
    data: &Path,
    rows: &[Row],
    parts: &dyn Fn(usize) -> Vec<Vec<usize>>,
    objective: &Objective<'_>,
) {
    let folder = TempDir::new().expect("a folder");
    let output = folder.path().join("out");
    ran(&train(folder.path(), &golden.config(name, args, data, &output), &[]), name);
    let own = metrics(&output);
    assert_eq!(own.len(), STEPS, "{name}");
    let mut oracle = golden.oracle_of(args);
    for (step, line) in own.iter().enumerate() {
        let rate = line["learning_rate"].as_f64().expect("a rate");
        let (loss, norm) = oracle.step(rows, &parts(step), objective, rate, 0.01);
        for (key, want, most) in [("loss", loss, 5e-6), ("grad_norm", norm, 5e-5)] {
            let got = line[key].as_f64().expect("a number");
            assert!(
                (got - want).abs() <= most * want.abs().max(0.1),
                "{name}: step {step}: {key}: {got}, the oracle {want}"
            );
        }
    }
}

/// The examples of a step's micro-batches.
fn examples(step: usize, all: usize) -> Vec<Vec<usize>> {
    (0..2).map(|part| (0..BATCH).map(|i| (step * 2 * BATCH + part * BATCH + i) % all).collect()).collect()
}

/// Chosen rows of examples, then rejected ones, where each example has two rows.
fn halves(examples: &[usize]) -> Vec<usize> {
    examples.iter().map(|i| 2 * i).chain(examples.iter().map(|i| 2 * i + 1)).collect()
}

/// Chosen and rejected rows in turn.
fn pairs(golden: &Golden) -> Vec<Row> {
    let [chosen, rejected] = ["chosen", "rejected"].map(|key| rows(golden, &golden.lines(), key));
    chosen.into_iter().zip(rejected).flat_map(|(chosen, rejected)| [chosen, rejected]).collect()
}

fn sums(log_p: &[Vec<f64>]) -> Vec<f64> {
    log_p.iter().map(|row| row.iter().sum()).collect()
}

fn spread(log_p: &[Vec<f64>], slope: impl Fn(usize) -> f64) -> Vec<Vec<f64>> {
    log_p.iter().enumerate().map(|(row, tokens)| vec![slope(row); tokens.len()]).collect()
}

/// A loss of pairs held against the start, in steps of two micro-batches.
fn dpo(pair: PairLoss) -> Box<Objective<'static>> {
    Box::new(move |_: &[usize], policy: &[Vec<f64>], start: &[Vec<f64>]| {
        let count = |row: usize| if pair.kind == PairKind::Ipo { policy[row].len() as f64 } else { 1.0 };
        let moved: Vec<f64> = sums(policy).iter().zip(sums(start)).map(|(own, start)| own - start).collect();
        let pairs = moved.len() / 2;
        let apart = |i: usize| moved[i] / count(i) - moved[pairs + i] / count(pairs + i);
        let exact = pair.exact(&(0..pairs).map(apart).collect::<Vec<f64>>()).expect("a loss");
        let share = 1.0 / (2 * pairs) as f64;
        let slope = |row: usize| {
            let sign = if row < pairs { 1.0 } else { -1.0 };
            sign * exact.gradient[row % pairs] * share / count(row)
        };
        (exact.values.iter().sum::<f64>() * share, spread(policy, slope))
    })
}

#[test]
fn dpo_is_the_oracles() {
    let Some(golden) = Golden::find() else { return };
    let rows = pairs(&golden);
    let parts = |step| examples(step, rows.len() / 2).iter().map(|part| halves(part)).collect();
    let losses = [
        ("sigmoid", PairKind::Sigmoid, 0.4),
        ("ipo", PairKind::Ipo, 0.3),
        ("hinge", PairKind::Hinge, 0.9),
        ("robust", PairKind::Robust(0.2), 0.5),
    ];
    for (loss, kind, beta) in losses {
        let objective = dpo(PairLoss { kind, beta });
        let smoothing =
            if let PairKind::Robust(e) = kind { json!({"label_smoothing": e}) } else { json!({}) };
        let mut args = shared(&json!({"beta": beta, "loss_type": loss}));
        args.as_object_mut().expect("an object").extend(smoothing.as_object().expect("an object").clone());
        against_the_oracle(&golden, ("dpo", &args), &golden.path("data.jsonl"), &rows, &parts, &*objective);
    }
}

/// The reference model has the output layer and the embedding that it began with, too.
#[test]
fn dpo_with_whole_modules_is_the_oracles() {
    let Some(golden) = Golden::find() else { return };
    let (rows, objective) = (pairs(&golden), dpo(PairLoss { kind: PairKind::Sigmoid, beta: 0.5 }));
    let parts = |step| examples(step, rows.len() / 2).iter().map(|part| halves(part)).collect();
    let llama = golden.sft.base.open("nf4");
    for modules in
        [json!({"modules_to_save": ["lm_head", "embed_tokens"]}), json!({"trainable_token_indices": [3, 2]})]
    {
        let folder = TempDir::new().expect("a folder");
        let start = crate::modules::start(&golden.sft, &llama, &modules, folder.path());
        let args = shared(&json!({"beta": 0.5, "adapter_name_or_path": start.to_str().expect("a path")}));
        let data = golden.path("data.jsonl");
        against_the_oracle(&golden, ("dpo", &args), &data, &rows, &parts, &*objective);
    }
}

#[test]
fn simpo_is_the_oracles() {
    let Some(golden) = Golden::find() else { return };
    let rows = pairs(&golden);
    let parts = |step| examples(step, rows.len() / 2).iter().map(|part| halves(part)).collect();
    let simpo = SimPo { beta: 2.5, gamma: 0.8, label_smoothing: 0.1 };
    let objective = |_: &[usize], policy: &[Vec<f64>], _: &[Vec<f64>]| {
        let means: Vec<f64> = policy.iter().map(|row| row.iter().sum::<f64>() / row.len() as f64).collect();
        let compared = Compared::halves(&means).expect("pairs");
        let exact = simpo.exact(compared).expect("a loss");
        let share = 1.0 / policy.len() as f64;
        let slopes = reference::loss::Exact::as_halves(&exact.gradient);
        let slope = |row: usize| slopes[row] * share / policy[row].len() as f64;
        (exact.values.iter().sum::<f64>() * share, spread(policy, slope))
    };
    let args = shared(&json!({"beta": 2.5, "simpo_gamma": 0.8, "label_smoothing": 0.1}));
    against_the_oracle(&golden, ("simpo", &args), &golden.path("data.jsonl"), &rows, &parts, &objective);
}

/// The likelihood is of the chosen texts with their prompts, the odds are of the answers alone.
#[test]
fn orpo_is_the_oracles() {
    let Some(golden) = Golden::find() else { return };
    let mut rows = pairs(&golden);
    let answers: Vec<usize> = rows.iter().map(Row::counted).collect();
    rows.iter_mut().step_by(2).for_each(|row| row.trained.fill(true));
    let parts = |step| examples(step, rows.len() / 2).iter().map(|part| halves(part)).collect();
    let orpo = Orpo { beta: 0.3 };
    let objective = |part: &[usize], policy: &[Vec<f64>], _: &[Vec<f64>]| {
        let first = |row: usize| policy[row].len() - answers[part[row]];
        let mean = |row: usize| policy[row][first(row)..].iter().sum::<f64>() / answers[part[row]] as f64;
        let means: Vec<f64> = (0..part.len()).map(mean).collect();
        let exact = orpo.exact(Compared::halves(&means).expect("pairs")).expect("a loss");
        let (share, slopes) = (1.0 / part.len() as f64, reference::loss::Exact::as_halves(&exact.gradient));
        let pairs = part.len() / 2;
        let chosen: usize = policy[..pairs].iter().map(Vec::len).sum();
        let likelihood: f64 = -sums(&policy[..pairs]).iter().sum::<f64>() / chosen as f64;
        let slope = |row: usize, token: usize| {
            let odds =
                if token >= first(row) { slopes[row] * share / answers[part[row]] as f64 } else { 0.0 };
            odds - if row < pairs { 0.5 / chosen as f64 } else { 0.0 }
        };
        let slopes = policy.iter().enumerate();
        let slopes = slopes.map(|(row, tokens)| (0..tokens.len()).map(|token| slope(row, token)).collect());
        (exact.values.iter().sum::<f64>() * share + 0.5 * likelihood, slopes.collect())
    };
    let args = shared(&json!({"beta": 0.3}));
    against_the_oracle(&golden, ("orpo", &args), &golden.path("data.jsonl"), &rows, &parts, &objective);
}

/// The baseline is of each prompt with the answer before it in its micro-batch.
#[test]
fn kto_is_the_oracles() {
    let Some(golden) = Golden::find() else { return };
    let is_good = |i: usize| i % 3 != 1;
    let folder = TempDir::new().expect("a folder");
    let lines: Vec<Value> = golden
        .lines()
        .iter()
        .enumerate()
        .map(|(i, line)| {
            let answer = &line[if is_good(i) { "chosen" } else { "rejected" }];
            json!({"prompt": line["prompt"], "completion": answer, "label": is_good(i)})
        })
        .collect();
    let data = written(folder.path(), "data.jsonl", lines.iter().cloned());
    let own = rows(&golden, &lines, "completion");
    let count = own.len();
    let prompt = |row: &Row| row.trained.iter().position(|trained| *trained).expect("an answer");
    let other = |i: usize| if i % BATCH == 0 { i + BATCH - 1 } else { i - 1 };
    let mismatched = (0..count).map(|i| {
        let (row, other) = (&own[i], &own[other(i)]);
        let ids = [&row.ids[..prompt(row)], &other.ids[prompt(other)..]].concat();
        Row {
            trained: (0..ids.len()).map(|token| token >= prompt(row)).collect(),
            documents: vec![ids.len()],
            ids,
            ..Row::default()
        }
    });
    let all: Vec<Row> = own.iter().cloned().chain(mismatched).collect();
    let parts = |step| {
        let both = |part: &Vec<usize>| part.iter().copied().chain(part.iter().map(|i| count + i)).collect();
        examples(step, count).iter().map(both).collect()
    };
    let kto = Kto { beta: 0.4, desirable_weight: 1.2, undesirable_weight: 0.7 };
    let objective = |part: &[usize], policy: &[Vec<f64>], start: &[Vec<f64>]| {
        let (policy_sums, start_sums) = (sums(policy), sums(start));
        let z = kto_baseline(&policy_sums[BATCH..], &start_sums[BATCH..]).expect("a number");
        let desirable: Vec<f64> = part[..BATCH].iter().map(|i| f64::from(u8::from(is_good(*i)))).collect();
        let judged = Judged {
            policy: &policy_sums[..BATCH],
            reference: &start_sums[..BATCH],
            desirable: &desirable[..],
        };
        let exact = kto.exact(judged, z).expect("a loss");
        let share = 0.5 / BATCH as f64;
        let slope = |row: usize| if row < BATCH { exact.gradient[row] * share } else { 0.0 };
        (exact.values.iter().sum::<f64>() * share, spread(policy, slope))
    };
    let args = shared(&json!({"beta": 0.4, "desirable_weight": 1.2, "undesirable_weight": 0.7}));
    against_the_oracle(&golden, ("kto", &args), &data, &all, &parts, &objective);
}

/// A long prompt with the long answer to another one is cut as rows are, and reads no further than the context.
#[test]
fn kto_cuts_the_answers_that_it_borrows() {
    let small = Small::new();
    let long = |text: &str| text.repeat(150);
    let lines = [(long("a"), "b".to_owned()), ("a".to_owned(), long("b")), (long("c"), long("d"))];
    let lines = lines.iter().zip([true, false, true]);
    let lines = lines.map(
        |((prompt, completion), label)| json!({"prompt": prompt, "completion": completion, "label": label}),
    );
    small.write("long.jsonl", lines);
    for length in ["max_length=256", "max_length=160"] {
        let settings = ["max_steps=3", "per_device_train_batch_size=3", "device=cpu", length];
        ran(&small.run(&small.example.path(length), "kto", "long.jsonl", &settings), length);
    }
}

/// Logged completions with the log-probabilities that they were sampled with, so that ratios are held.
#[test]
fn grpo_over_logged_ratios_is_the_oracles() {
    let Some(golden) = Golden::find() else { return };
    let folder = TempDir::new().expect("a folder");
    let plain: Vec<Value> = golden
        .lines()
        .iter()
        .map(|line| {
            let text = |key: &str| line[key][0]["content"].clone();
            json!({"prompt": text("prompt"), "chosen": text("chosen"), "rejected": text("rejected")})
        })
        .collect();
    let [chosen, rejected] = ["chosen", "rejected"].map(|key| self::rows(&golden, &plain, key));
    let rows: Vec<Row> = chosen.into_iter().zip(rejected).flat_map(<[Row; 2]>::from).collect();
    let oracle = golden.oracle();
    let old: Vec<Vec<f64>> = rows
        .iter()
        .enumerate()
        .map(|(i, row)| {
            let noise = |token: usize| f64::from(((i * 7 + token * 5) % 9) as i32 - 4) * 0.08;
            let log_p = oracle.log_p(row, true);
            log_p.iter().enumerate().map(|(token, log_p)| (log_p + noise(token)).min(0.0)).collect()
        })
        .collect();
    let rewards = |i: usize| [0.2 * (i % 4) as f64, 0.5 - 0.3 * (i % 3) as f64];
    let lines = plain.iter().enumerate().map(|(i, line)| {
        let completions = [&line["chosen"], &line["rejected"]];
        let old = [&old[2 * i], &old[2 * i + 1]];
        json!({"prompt": line["prompt"], "completions": completions, "rewards": rewards(i), "old_logps": old})
    });
    let data = written(folder.path(), "data.jsonl", lines);
    let clip = Clip { low: 0.1, high: 0.2, delta: Some(1.25) };
    let advantage = |row: usize| {
        let [own, other] = if row % 2 == 0 {
            rewards(row / 2)
        } else {
            let [a, b] = rewards(row / 2);
            [b, a]
        };
        let half = (own - other) / 2.0;
        half / ((2.0 * half * half).sqrt() + 1e-4)
    };
    // a step has three groups of two, in two micro-batches of three rows
    let parts = |step: usize| {
        let all = (0..6).map(|i| (step * 6 + i) % rows.len()).collect::<Vec<usize>>();
        all.chunks(3).map(<[usize]>::to_vec).collect()
    };
    let objective = |part: &[usize], policy: &[Vec<f64>], start: &[Vec<f64>]| {
        let length = policy.iter().map(Vec::len).max().expect("rows");
        let group = part[0] / 6 * 6;
        let items: usize = (group..group + 6).map(|row| rows[row].counted()).sum();
        let padded = |all: &[Vec<f64>]| {
            all.iter()
                .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, length - row.len())))
                .collect::<Vec<f64>>()
        };
        let ones: Vec<Vec<f64>> = policy.iter().map(|row| vec![1.0; row.len()]).collect();
        let olds: Vec<Vec<f64>> = part.iter().map(|row| old[*row].clone()).collect();
        let (log_p, old, reference, mask) = (padded(policy), padded(&olds), padded(start), padded(&ones));
        let advantages: Vec<f64> = part.iter().map(|row| advantage(*row)).collect();
        let tokens = Tokens {
            log_p: &log_p[..],
            old: Some(&old[..]),
            reference: Some(&reference[..]),
            advantages: &advantages[..],
            mask: &mask[..],
        };
        let exact = Policy::dapo(0.1, clip, items as f64).exact(&tokens, length).expect("a loss");
        let share = 1.0 / items as f64;
        let slopes = exact.gradient.chunks(length).zip(policy);
        let slopes = slopes.map(|(row, own)| row[..own.len()].iter().map(|slope| slope * share).collect());
        (exact.values.iter().sum::<f64>() * share, slopes.collect())
    };
    let args = shared(&json!({
        "beta": 0.1, "epsilon": 0.1, "epsilon_high": 0.2, "delta": 1.25, "use_bias_correction_kl": false,
        "max_completion_length": 60,
    }));
    against_the_oracle(&golden, ("grpo", &args), &data, &rows, &parts, &objective);
}

/// The example with data for an objective: six examples, fewer tokens than its context.
struct Small {
    example: Example,
}

/// What the example's config states and an objective has not.
const OFF: [&str; 2] = ["assistant_only_loss=false", "max_length=false"];

impl Small {
    fn new() -> Self {
        let small = Self { example: Example::new(TRAINER) };
        let ask = |i: usize| format!("How much is {i} and {}?", i % 4);
        let say = |i: usize| format!("{i} and {} make {}.", i % 4, i + i % 4);
        let pair = |i: usize| json!({"prompt": ask(i), "chosen": say(i), "rejected": if i % 2 == 0 { "No." } else { "Who knows?" }});
        let judged = |i: usize| json!({"prompt": ask(i), "completion": say(i), "label": i % 3 != 0});
        let logged = |i: usize| {
            let completions = [say(i), "No.".to_owned(), say(i + 1)];
            json!({"prompt": ask(i), "completions": completions, "rewards": [1.0, 0.1 * i as f64, -0.5]})
        };
        let asked = |i: usize| json!({"prompt": [{"role": "user", "content": ask(i)}], "bonus": i});
        small.write("pairs.jsonl", (0..6).map(pair));
        small.write("judged.jsonl", (0..6).map(judged));
        small.write("logged.jsonl", (0..6).map(logged));
        small.write("asked.jsonl", (0..6).map(asked));
        small
    }

    fn write(&self, name: &str, lines: impl Iterator<Item = Value>) {
        written(&self.example.path(""), name, lines);
    }

    /// A run of an objective over a file of the example.
    fn run(&self, output: &Path, objective: &str, data: &str, more: &[&str]) -> Ran {
        let own = [format!("objective={objective}"), format!("dataset_name={data}")];
        let own: Vec<&str> = own.iter().map(String::as_str).chain(OFF).chain(more.iter().copied()).collect();
        self.example.run(output, &own)
    }
}

/// Objectives with their data and settings of a small run.
fn small_runs() -> Vec<(&'static str, &'static str, Vec<String>)> {
    let batch = |rows: usize| vec![format!("per_device_train_batch_size={rows}"), "device=cpu".to_owned()];
    let with = |rows: usize, more: &[&str]| {
        batch(rows).into_iter().chain(more.iter().map(|text| (*text).to_owned())).collect::<Vec<String>>()
    };
    let program = rewarded("");
    let drawn = ["num_generations=4", "max_completion_length=6", "beta=0.1", &program];
    vec![
        ("dpo", "pairs.jsonl", with(2, &["loss_type=ipo"])),
        ("orpo", "pairs.jsonl", batch(2)),
        ("simpo", "pairs.jsonl", with(4, &["lora_modules_to_save=[\"lm_head\"]"])),
        ("kto", "judged.jsonl", with(4, &["train_sampling_strategy=random"])),
        ("grpo", "logged.jsonl", with(2, &["gradient_accumulation_steps=3", "beta=0.2"])),
        ("grpo", "asked.jsonl", with(4, &drawn)),
    ]
}

#[test]
fn a_run_that_goes_on_has_every_bit_of_one_that_was_left_alone() {
    let small = Small::new();
    for (objective, data, settings) in small_runs() {
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let settings = [&settings[..], &["max_steps=6", "save_steps=2"]].concat();
        let [whole, parted] =
            ["whole", "parted"].map(|name| small.example.path(&format!("{objective}-{data}-{name}")));
        ran(&small.run(&whole, objective, data, &settings), objective);
        ran(&small.run(&parted, objective, data, &settings), objective);
        for later in ["checkpoint-4", "checkpoint-6", "adapter"] {
            fs::remove_dir_all(parted.join(later)).expect("it was written");
        }
        let again = [&settings[..], &["resume_from_checkpoint=true"]].concat();
        ran(&small.run(&parted, objective, data, &again), objective);
        assert!(files(&whole) == files(&parted), "{objective} over {data}: another file");
    }
}

#[test]
fn small_runs_on_ranks_equal_one_rank() {
    let small = Small::new();
    let settings_of_all = ["max_steps=4", "gradient_accumulation_steps=3", "save_steps=2"];
    for (objective, data, settings) in small_runs() {
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let evaluated = format!("eval_dataset_name={data}");
        let mut settings = [&settings[..], &settings_of_all].concat();
        if data != "asked.jsonl" {
            settings.extend([
                &*evaluated,
                "eval_strategy=steps",
                "eval_steps=4",
                "per_device_eval_batch_size=2",
            ]);
        }
        let output = |name: &str| small.example.path(&format!("{objective}-{data}-{name}"));
        let run = |name: &str, more: &[&str]| {
            ran(&small.run(&output(name), objective, data, &[&settings[..], more].concat()), objective);
            metrics(&output(name))
        };
        let one = run("one", &[]);
        let same = |name: &str, more: &[&str]| {
            let several = run(name, more);
            assert_eq!(several.len(), one.len());
            for (found, expected) in several.iter().zip(&one) {
                for (key, expected) in expected.as_object().expect("an object") {
                    if ["peak_bytes", "tokens_per_second", "eval_runtime"].contains(&key.as_str()) {
                        continue;
                    }
                    let (found, expected) = (found[key].as_f64(), expected.as_f64());
                    let (found, expected) = (found.unwrap_or(f64::NAN), expected.unwrap_or(f64::NAN));
                    let distance = (found - expected).abs() / expected.abs().max(1.0);
                    assert!(distance < 3e-5, "{objective} over {data}, {name}: {key} {found} {expected}");
                }
            }
        };
        same("two", &["ranks=2"]);
        same("three-in-chunks", &["ranks=3", "loss_chunk_bytes=60000"]);
        same("shared", &["mesh=tp=2"]);
        same("stages", &["mesh=pp=2"]);
        let moved = output("two");
        for later in ["checkpoint-4", "adapter"] {
            fs::remove_dir_all(moved.join(later)).expect("it was written");
        }
        same("two", &["ranks=1", "resume_from_checkpoint=true"]);
    }
}

/// A loss in chunks, and one evaluated, is the loss.
#[test]
fn small_runs_are_the_same_in_chunks_and_may_be_evaluated() {
    let small = Small::new();
    for (objective, data, settings) in small_runs() {
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let run = |name: &str, more: &[&str]| {
            let output = small.example.path(&format!("{objective}-{data}-{name}"));
            ran(
                &small.run(&output, objective, data, &[&settings[..], &["max_steps=4"], more].concat()),
                objective,
            );
            metrics(&output)
        };
        let whole = run("whole", &[]);
        let chunked = run("chunked", &["loss_chunk_bytes=60000", "gradient_checkpointing=true"]);
        close(&format!("{objective} over {data}"), &["loss", "grad_norm", "entropy"], &whole, &chunked, 1e-5);
        if data == "asked.jsonl" {
            continue; // nothing of it is logged
        }
        let file = format!("eval_dataset_name={data}");
        let evaluated =
            run("evaluated", &[&file, "eval_strategy=steps", "eval_steps=2", "per_device_eval_batch_size=3"]);
        let (evaluations, steps): (Vec<Value>, Vec<Value>) =
            evaluated.into_iter().partition(|line| line.get("eval_loss").is_some());
        assert_eq!(steps, whole, "{objective}: an evaluation changes nothing");
        assert_eq!(evaluations.len(), 2, "{objective}");
        for line in evaluations {
            let is_number = |key: &str| line[key].as_f64().is_some_and(f64::is_finite);
            let key = if objective == "grpo" { "eval_reward" } else { "eval_rewards/chosen" };
            assert!(is_number("eval_loss") && is_number(key), "{objective}: {line}");
        }
    }
}

/// What decides the reference model or the loss is what the run began with.
#[test]
fn a_run_of_another_objective_or_reference_is_refused() {
    let small = Small::new();
    let output = small.example.path("out");
    ran(&small.run(&output, "dpo", "pairs.jsonl", &["max_steps=2", "save_steps=1", "device=cpu"]), "dpo");
    let refused = |more: &[&str], says: &str| {
        let again = ["max_steps=3", "resume_from_checkpoint=true", "device=cpu"];
        let ran = small.run(&output, "dpo", "pairs.jsonl", &[&again[..], more].concat());
        assert!(ran.code == 2 && ran.stderr.contains(says), "{more:?}: {}", ran.stderr);
    };
    refused(&["beta=0.2"], "beta: expected 0.1, as it was trained, found 0.2");
    refused(&["loss_type=hinge"], "loss_type: expected \"sigmoid\", as it was trained, found \"hinge\"");
    let start = format!("adapter_name_or_path={}", output.join("checkpoint-2").display());
    refused(&[&start], "adapter_name_or_path: expected the adapter that the run began with");
    let other = small.run(&output, "simpo", "pairs.jsonl", &["resume_from_checkpoint=true", "device=cpu"]);
    assert!(other.code == 2 && other.stderr.contains("objective: expected \"dpo\""), "{}", other.stderr);
    let stated = ["max_steps=3", "resume_from_checkpoint=true", "beta=0.1", "device=cpu"];
    ran(&small.run(&output, "dpo", "pairs.jsonl", &stated), "a default that is stated is the default");
}

#[test]
fn data_that_is_no_example_is_refused_with_its_line() {
    let small = Small::new();
    let refused = |objective: &str, line: Value, more: &[&str], says: &str| {
        let good = fs::read_to_string(small.example.path(match objective {
            "kto" => "judged.jsonl",
            "grpo" => "logged.jsonl",
            _ => "pairs.jsonl",
        }));
        let first = good.expect("data").lines().next().expect("a line").to_owned();
        fs::write(small.example.path("bad.jsonl"), format!("{first}\n{line}\n")).expect("it can be written");
        let output = small.example.path("refused");
        let ran = small.run(&output, objective, "bad.jsonl", more);
        assert!(
            ran.code == 2 && ran.stderr.contains(&format!("bad.jsonl: line 2: {says}")),
            "{line}: {}",
            ran.stderr
        );
        assert!(!output.exists(), "{line}");
    };
    let message = json!([{"role": "user", "content": "x"}]);
    refused("dpo", json!({"prompt": "a", "chosen": "b"}), &[], "expected the key rejected");
    refused(
        "orpo",
        json!({"prompt": "a", "chosen": "b", "rejected": message}),
        &[],
        "rejected: expected a text",
    );
    refused(
        "simpo",
        json!({"prompt": message, "chosen": "b", "rejected": message}),
        &[],
        "chosen: expected a list",
    );
    refused(
        "dpo",
        json!({"prompt": 3, "chosen": "b", "rejected": "c"}),
        &[],
        "prompt: expected a text or a list",
    );
    refused(
        "dpo",
        json!({"chosen": "b", "rejected": message}),
        &[],
        "chosen, rejected: expected two texts or two",
    );
    refused("dpo", json!(["a"]), &[], "expected a JSON object");
    refused(
        "kto",
        json!({"prompt": "a", "completion": "b", "label": 1}),
        &[],
        "label: expected true or false, found 1",
    );
    refused("kto", json!({"prompt": "a", "completion": "b"}), &[], "expected the key label");
    let group = |completions: Value, rewards: Value| json!({"prompt": "a", "completions": completions, "rewards": rewards});
    refused(
        "grpo",
        group(json!(["b", "c", "d"]), json!([1, 2])),
        &[],
        "rewards: expected one for each of 3 completions, found 2",
    );
    refused(
        "grpo",
        group(json!(["b", "c", "d"]), json!([1, 2, "x"])),
        &[],
        "rewards[2]: expected a number, found \"x\"",
    );
    refused(
        "grpo",
        group(json!(["b", "c"]), json!([1, 2])),
        &[],
        "completions: expected 3, as the lines before have, found 2",
    );
    refused("grpo", group(json!("b"), json!([1])), &[], "completions: expected a list");
    refused(
        "grpo",
        json!({"prompt": "a"}),
        &[],
        "expected the keys completions and rewards, or a reward_program",
    );
    let old = json!({"prompt": "a", "completions": ["b", "c", "d"], "rewards": [1, 2, 3], "old_logps": [[], [], []]});
    refused("grpo", old, &[], "old_logps: expected on every line or on none");
}

#[test]
fn keys_and_settings_that_do_not_fit_are_refused() {
    let small = Small::new();
    let refused = |objective: &str, data: &str, more: &[&str], says: &str| {
        let output = small.example.path("refused");
        let ran = small.run(&output, objective, data, more);
        assert!(ran.code == 2 && ran.stderr.contains(says), "{objective} {more:?}: {}", ran.stderr);
        assert!(!output.join("metrics.jsonl").exists(), "{objective} {more:?}");
    };
    refused(
        "dpo",
        "pairs.jsonl",
        &["packing=true"],
        "packing is of objective sft, found objective = \"dpo\"",
    );
    refused("dpo", "pairs.jsonl", &["simpo_gamma=1"], "simpo_gamma is of objective simpo");
    refused("sft", "data.jsonl", &["beta=0.1"], "beta is of objective dpo, orpo, kto, simpo or grpo");
    refused(
        "grpo",
        "logged.jsonl",
        &["max_length=64"],
        "max_length is of objective sft, dpo, orpo, kto or simpo",
    );
    refused(
        "dpo",
        "pairs.jsonl",
        &["loss_type=dapo"],
        "loss_type: expected sigmoid, ipo, hinge or robust, found \"dapo\"",
    );
    refused("dpo", "pairs.jsonl", &["beta=0"], "beta: expected a number above 0, found 0");
    refused(
        "dpo",
        "pairs.jsonl",
        &["loss_type=robust", "label_smoothing=0.5"],
        "label_smoothing: expected a number from 0",
    );
    refused("dpo", "pairs.jsonl", &["lora_dropout=0.1"], "lora_dropout: expected 0 with objective = \"dpo\"");
    refused(
        "dpo",
        "pairs.jsonl",
        &["objective=ppo"],
        "objective: expected sft, dpo, orpo, kto, simpo or grpo",
    );
    refused("dpo", "pairs.jsonl", &["max_prompt_length=8"], "max_length cuts prompt and answer");
    refused("dpo", "pairs.jsonl", &["max_length=3"], "no line has a trained token");
    refused(
        "grpo",
        "logged.jsonl",
        &["per_device_train_batch_size=4"],
        "expected a step of whole groups of 3 completions",
    );
    refused(
        "grpo",
        "logged.jsonl",
        &["num_generations=4"],
        "line 1: completions: expected 4, as num_generations says, found 3",
    );
    refused(
        "grpo",
        "asked.jsonl",
        &["reward_program="],
        "reward_program: expected a text that is not empty, found",
    );
    let program = rewarded("");
    refused(
        "grpo",
        "logged.jsonl",
        &[&program],
        "line 1: completions: expected a prompt alone beside reward_program",
    );
    refused(
        "grpo",
        "asked.jsonl",
        &[&program, "max_completion_length=4000"],
        "max_completion_length: expected at most",
    );
    let plan = small.example.plan(&["objective=dpo", "dataset_name=pairs.jsonl", OFF[0], OFF[1]]);
    assert!(
        plan.code == 2 && plan.stderr.contains("--plan: expected objective = \"sft\", found dpo"),
        "{}",
        plan.stderr
    );
}

/// A program that does not judge ends the run with what it did instead.
/// The setting of the tests' program with an argument; it may lie in a folder with a blank in its name.
fn rewarded(argument: &str) -> String {
    format!("reward_program='\"{REWARD}\" {argument}'")
}

#[test]
fn a_reward_program_that_fails_ends_the_run_with_its_reason() {
    let small = Small::new();
    let own = [
        "num_generations=4",
        "max_completion_length=4",
        "per_device_train_batch_size=4",
        "device=cpu",
        "max_steps=2",
    ];
    let code = if cfg!(windows) { "exit code" } else { "exit status" };
    let fails = format!("expected exit code 0, found {code}: 3: the judge is ill");
    for (wrong, says) in [
        ("slow", "expected an answer within 0.3 s (reward_timeout), found none"),
        ("short", "expected 4 numbers, one a line, found 3 lines"),
        ("word", "line 2: expected a finite number, found \"good\""),
        ("infinite", "line 2: expected a finite number, found \"inf\""),
        ("fails", &fails),
        ("unread", "expected 4 numbers, one a line, found 0 lines"),
    ] {
        let program = rewarded(wrong);
        let limit = if wrong == "slow" { "reward_timeout=0.3" } else { "reward_timeout=30" };
        let output = small.example.path(wrong);
        let ran = small.run(&output, "grpo", "asked.jsonl", &[&own[..], &[&program, limit]].concat());
        assert!(
            ran.code == 2 && ran.stderr.contains(&format!("reward_program: {says}")),
            "{wrong}: {}",
            ran.stderr
        );
    }
    let output = small.example.path("none");
    let ran =
        small.run(&output, "grpo", "asked.jsonl", &[&own[..], &["reward_program=no-such-judge"]].concat());
    assert!(ran.code == 2 && ran.stderr.contains("\"no-such-judge\" cannot be started"), "{}", ran.stderr);
}

/// What is generated is judged, and what is worth more becomes likelier.
#[test]
fn a_policy_learns_what_a_program_rewards() {
    let small = Small::new();
    let output = small.example.path("learns");
    let program = rewarded("");
    small.write("plain.jsonl", (0..6).map(|i| json!({"prompt": format!("{i}:")})));
    let settings = [
        "num_generations=8",
        "max_completion_length=8",
        "per_device_train_batch_size=16",
        "device=cpu",
        "max_steps=40",
        "learning_rate=0.03",
        &program,
    ];
    ran(&small.run(&output, "grpo", "plain.jsonl", &settings), "grpo");
    let rewards: Vec<f64> =
        metrics(&output).iter().map(|line| line["reward"].as_f64().expect("a number")).collect();
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    assert!(mean(&rewards[30..]) > 2.0 * mean(&rewards[..5]), "{rewards:?}");
}

/// An answer that both share is the prompt, and of an example none is cut away in silence.
#[test]
fn pairs_without_a_prompt_begin_where_they_part() {
    let Some(golden) = Golden::find() else { return };
    let folder = TempDir::new().expect("a folder");
    let whole = |line: &Value, key: &str| {
        let both = [&line["prompt"], &line[key]].map(|part| part.as_array().expect("messages").clone());
        Value::from(both.concat())
    };
    let run = |name: &str, lines: Vec<Value>| {
        let data = written(folder.path(), name, lines.into_iter());
        let output = folder.path().join(format!("{name}.out"));
        let args = shared(&json!({"max_steps": 3}));
        let ran = train(folder.path(), &golden.config("dpo", &args, &data, &output), &[]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        metrics(&output)
    };
    let explicit = run("explicit", golden.lines());
    let implicit = golden
        .lines()
        .iter()
        .map(|line| json!({"chosen": whole(line, "chosen"), "rejected": whole(line, "rejected")}))
        .collect();
    assert_eq!(run("implicit", implicit), explicit);
    let texts = |prompt: &str| {
        let line = move |i: usize| {
            let answers = [format!("Yes {i}."), format!("No {i}.")];
            if prompt.is_empty() {
                let [chosen, rejected] = answers.map(|answer| format!("Is it {i}? {answer}"));
                json!({"chosen": chosen, "rejected": rejected})
            } else {
                let [chosen, rejected] = answers.map(|answer| format!(" {answer}"));
                json!({"prompt": format!("{prompt} {i}?"), "chosen": chosen, "rejected": rejected})
            }
        };
        (0..6).map(line).collect::<Vec<Value>>()
    };
    assert_eq!(run("implicit-text", texts("")), run("explicit-text", texts("Is it")));
}
