//! `trainer train` on several ranks: the losses of one, evaluations, checkpoints in shards that any number goes on
//! from,
//! signals, and what is refused.

use std::fs;
use std::path::Path;

use reference::checkpoint::Checkpoint;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tests::example_run::{Example, files, metrics};

use crate::sft::close;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// Three micro-batches a step: a number of ranks that divides it, and one that does not. All are on the CPU, as ranks
/// are, so that one rank is another number of the same thing.
const SETTINGS: [&str; 7] = [
    "device=cpu",
    "max_steps=6",
    "save_steps=3",
    "per_device_train_batch_size=2",
    "gradient_accumulation_steps=3",
    "lora_dropout=0.0",
    "save_total_limit=2",
];

#[track_caller]
fn same_losses(what: &str, found: &[Value], expected: &[Value]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for key in ["step", "num_tokens", "learning_rate", "epoch"] {
        close(what, key, expected, found, 0.0);
    }
    close(what, "loss", expected, found, 5e-6);
    close(what, "entropy", expected, found, 5e-6);
    close(what, "mean_token_accuracy", expected, found, 1e-6);
    close(what, "grad_norm", expected, found, 2e-5);
}

#[test]
fn ranks_have_the_losses_of_one() {
    let example = Example::new(TRAINER);
    let of = |name: &str, settings: &[&str]| {
        example.metrics_of(&example.path(name), &[&SETTINGS[..], settings].concat())
    };
    let dense = of("dense", &[]);
    let meshes = ["ranks=2", "ranks=4", "mesh=tp=2", "mesh=pp=2", "mesh=fsdp=2,tp=2", "mesh=pp=2,fsdp=2"];
    for (number, mesh) in meshes.iter().enumerate() {
        same_losses(mesh, &of(&format!("dense-{number}"), &[mesh]), &dense);
    }
    let shapes: [&[&str]; 7] = [
        &["load_in_4bit=true"],
        &["load_in_4bit=true", "use_bnb_nested_quant=true"],
        &["packing=true", "max_length=70"],
        &["lora_dropout=0.3"],
        &["lora_dropout=0.3", "per_device_train_batch_size=7", "max_steps=5"], // an epoch ends with a smaller batch
        &["lora_modules_to_save=[\"embed_tokens\"]"],
        &["trainable_token_indices=[3, 97, 98]"],
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        let one = of(&format!("shape-{number}"), shape);
        let several = of(&format!("shape-{number}-2"), &[shape, &["ranks=2"]].concat());
        same_losses(&format!("{shape:?}"), &several, &one);
    }
    for schedule in ["GPipe", "ZB-H1", "Fill"] {
        let set = format!("pipeline_parallel_schedule={schedule}");
        same_losses(schedule, &of(&format!("dense-{schedule}"), &["mesh=pp=2", &set]), &dense);
    }
    let nested = ["load_in_4bit=true", "use_bnb_nested_quant=true"];
    let staged = of("nested-pp", &[&nested[..], &["mesh=pp=2"]].concat());
    same_losses("nested scales, stages", &staged, &metrics(&example.path("shape-1")));
}

#[test]
fn chunked_losses_on_ranks_equal_one_rank() {
    let example = Example::new(TRAINER);
    let of = |name: &str, settings: &[&str]| {
        let chunks = ["loss_chunk_bytes=40000"]; // some 30 rows of logits
        example.metrics_of(&example.path(name), &[&SETTINGS[..], &chunks, settings].concat())
    };
    let dense = of("dense", &[]);
    same_losses("whole", &example.metrics_of(&example.path("whole"), &SETTINGS), &dense);
    let meshes = ["ranks=2", "ranks=4", "mesh=tp=2", "mesh=pp=2", "mesh=fsdp=2,tp=2", "mesh=pp=2,fsdp=2"];
    for (number, mesh) in meshes.iter().enumerate() {
        same_losses(mesh, &of(&format!("dense-{number}"), &[mesh]), &dense);
    }
    for schedule in ["ZB-H1", "Fill"] {
        let set = format!("pipeline_parallel_schedule={schedule}");
        same_losses(schedule, &of(&format!("dense-{schedule}"), &["mesh=pp=2", &set]), &dense);
    }
    let shapes: [(&[&str], &[&str]); 6] = [
        (&["load_in_4bit=true", "use_bnb_nested_quant=true"], &["ranks=2", "mesh=pp=2"]),
        (&["packing=true", "max_length=64"], &["ranks=2", "ranks=3", "mesh=tp=2"]),
        (&["lora_modules_to_save=[\"lm_head\"]"], &["ranks=2", "ranks=4", "mesh=tp=2"]),
        (&["lora_modules_to_save=[\"embed_tokens\", \"lm_head\"]"], &["ranks=2", "mesh=pp=2"]),
        (&["trainable_token_indices=[3, 97, 98]"], &["ranks=2", "mesh=tp=2"]),
        (&["lora_dropout=0.3", "per_device_train_batch_size=7", "max_steps=5"], &["ranks=2"]),
    ];
    for (number, (shape, meshes)) in shapes.into_iter().enumerate() {
        let one = of(&format!("shape-{number}"), shape);
        for mesh in meshes {
            let several = of(&format!("shape-{number}-{mesh}"), &[shape, &[mesh]].concat());
            same_losses(&format!("{shape:?}, {mesh}"), &several, &one);
        }
    }
}

#[test]
fn chunked_runs_resume_on_any_number_of_ranks() {
    let example = Example::new(TRAINER);
    let settings = [&SETTINGS[..], &["loss_chunk_bytes=40000"]].concat();
    let whole = example.metrics_of(&example.path("whole"), &settings);
    for (number, (from, to)) in
        [("ranks=1", "ranks=2"), ("ranks=3", "ranks=1"), ("ranks=2", "mesh=pp=2")].into_iter().enumerate()
    {
        let output = example.path(&format!("moved-{number}"));
        example.metrics_of(&output, &[&settings[..], &[from]].concat());
        fs::remove_dir_all(output.join("checkpoint-6")).expect("a checkpoint");
        fs::remove_dir_all(output.join("adapter")).expect("an adapter");
        let ran = example.run(&output, &[&settings[..], &[to, "resume_from_checkpoint=true"]].concat());
        assert_eq!(ran.code, 0, "{from} to {to}: {}{}", ran.stdout, ran.stderr);
        same_losses(&format!("{from} to {to}"), &metrics(&output), &whole);
    }
}

#[test]
fn evaluations_are_those_of_one_rank() {
    let example = Example::new(TRAINER);
    let settings = [
        &SETTINGS[..],
        &["eval_strategy=steps", "eval_steps=2", "eval_dataset_name=eval.jsonl"],
        &["per_device_eval_batch_size=3", "lora_dropout=0.3"],
    ]
    .concat();
    let evaluations = |ranks: &str| {
        let own: Vec<&str> = ranks.split(' ').collect();
        let lines = example.metrics_of(&example.path(ranks), &[&settings[..], &own].concat());
        lines.into_iter().filter(|line| line.get("eval_loss").is_some()).collect::<Vec<_>>()
    };
    let one = evaluations("ranks=1");
    assert_eq!(one.len(), 3);
    for ranks in ["ranks=2", "ranks=3", "mesh=pp=2", "ranks=2 loss_chunk_bytes=40000"] {
        let several = evaluations(ranks);
        assert_eq!(several.len(), 3, "{ranks}");
        for key in ["eval_loss", "eval_entropy", "eval_mean_token_accuracy", "eval_num_tokens", "epoch"] {
            close(ranks, key, &one, &several, 2e-5);
        }
    }
}

/// Half of a run on some ranks and the other half on others has the losses of one that stays; on the same number, every
/// file is the same.
#[test]
fn any_number_of_ranks_goes_on_from_any_other() {
    let example = Example::new(TRAINER);
    let whole = example.metrics_of(&example.path("whole"), &SETTINGS);
    let moves = [
        ("ranks=1", "ranks=2"),
        ("ranks=2", "ranks=3"),
        ("ranks=3", "ranks=1"),
        ("ranks=2", "ranks=2"),
        ("mesh=fsdp=2,tp=2", "mesh=pp=2"),
        ("mesh=pp=2", "mesh=tp=2"),
    ];
    for (number, (from, to)) in moves.into_iter().enumerate() {
        let output = example.path(&format!("moved-{number}"));
        example.metrics_of(&output, &[&SETTINGS[..], &[from]].concat());
        let before = files(&output);
        fs::remove_dir_all(output.join("checkpoint-6")).expect("a checkpoint");
        fs::remove_dir_all(output.join("adapter")).expect("an adapter");
        let resumed = [&SETTINGS[..], &[to, "resume_from_checkpoint=true"]].concat();
        let ran = example.run(&output, &resumed);
        assert_eq!(ran.code, 0, "{from} to {to}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.is_empty() && ran.stdout.contains("3 are made"), "{}{}", ran.stdout, ran.stderr);
        same_losses(&format!("{from} to {to}"), &metrics(&output), &whole);
        if from == to {
            assert!(
                files(&output) == before,
                "{from}: a run that goes on has the files of one that did not stop"
            );
        }
    }
}

/// The only copies of the moments are each rank's own.
#[test]
fn a_checkpoint_has_every_element_of_the_moments_once() {
    let example = Example::new(TRAINER);
    let elements = |name: &str, ranks: usize| {
        let of = format!("ranks={ranks}");
        let settings = [&SETTINGS[..], &["max_steps=1", &of]].concat();
        example.metrics_of(&example.path(name), &settings);
        let file = |rank: usize| format!("checkpoint-1/optimizer-{rank:05}-of-{ranks:05}.safetensors");
        let count = |rank: usize| {
            let file = Checkpoint::open(example.path(name).join(file(rank))).expect("a file of moments");
            let bytes = |name: &str| file.tensor(name).expect("a tensor").bytes.len();
            file.names().map(bytes).sum::<usize>()
        };
        (1..=ranks).map(count).collect::<Vec<usize>>()
    };
    let whole = elements("one", 1)[0];
    for ranks in [2, 3] {
        let shards = elements(&format!("of-{ranks}"), ranks);
        assert_eq!(shards.iter().sum::<usize>(), whole, "{ranks} ranks");
        assert!(shards.iter().all(|shard| shard * ranks < whole + whole / 4), "{shards:?} of {whole}");
    }
}

/// A run on two ranks of which checkpoints 3 and 6 are left.
fn begun(example: &Example, output: &Path) {
    example.metrics_of(output, &[&SETTINGS[..], &["ranks=2"]].concat());
    fs::remove_dir_all(output.join("adapter")).expect("an adapter");
}

/// Rewrites a shard's tensor names and gives the state its new hash.
fn forge(checkpoint: &Path, file: &str, from: &str, to: &str) {
    assert_eq!(from.len(), to.len(), "offsets stay");
    let path = checkpoint.join(file);
    let bytes = fs::read(&path).expect("a shard");
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect("the name");
    let forged = [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat();
    let digest: String =
        Sha256::digest(&forged).iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex).collect();
    fs::write(&path, forged).expect("it can be written");
    let path = checkpoint.join("trainer_state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&path).expect("a state")).expect("JSON");
    state["sha256"][file] = digest.into();
    fs::write(path, state.to_string()).expect("it can be written");
}

#[test]
fn a_forged_shard_is_refused_by_name() {
    let example = Example::new(TRAINER);
    let second = "optimizer-00002-of-00002.safetensors";
    let table = [
        ("q_proj.lora_A.weight[8:16,", "q_proj.lora_A.weight[0:08,", "expected each element once"),
        ("q_proj.lora_A.weight[8:16,", "q_proj.lora_A.weight[9:17,", "expected a part of 16 by 64"),
        ("q_proj.lora_A.weight[8:16,", "q_proj.lora_A.weight[8:15,", "in f32 of [7, 64]"),
        ("q_proj.lora_A.weight[8:16,", "q_proj.lora_A.weight[8:-6,", "expected NAME[A:B,C:D]"),
        ("q_proj.lora_A.weight[8:16,", "x_proj.lora_A.weight[8:16,", "expected moments of the adapter"),
    ];
    for (number, (from, to, says)) in table.into_iter().enumerate() {
        let output = example.path(&format!("out-{number}"));
        begun(&example, &output);
        forge(&output.join("checkpoint-6"), second, from, to);
        let ran =
            example.run(&output, &[&SETTINGS[..], &["ranks=2", "resume_from_checkpoint=true"]].concat());
        assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(second) && ran.stderr.contains(says), "{says}: {}", ran.stderr);
    }
}

#[test]
fn steps_that_overflow_are_left_out_on_all_ranks() {
    let example = Example::new(TRAINER);
    let settings = |ranks: &'static str| {
        ["dtype=float16", "save_steps=1", "max_steps=20", "gradient_accumulation_steps=2", ranks]
    };
    let numbers = |lines: &[Value], key: &str| {
        lines.iter().map(|line| line[key].as_f64()).collect::<Vec<Option<f64>>>()
    };
    let begun = |ranks: &'static str| {
        let output = example.path(ranks);
        example.metrics_of(&output, &settings(ranks));
        for step in (1..=20).filter(|step| *step != 2) {
            fs::remove_dir_all(output.join(format!("checkpoint-{step}"))).expect("a checkpoint");
        }
        let path = output.join("checkpoint-2/trainer_state.json");
        let mut state: Value = serde_json::from_slice(&fs::read(&path).expect("a state")).expect("JSON");
        state["loss_scale"] = serde_json::json!({"scale": 2.0_f64.powi(34), "growth_tracker": 7});
        fs::write(path, state.to_string()).expect("it can be written");
        example.metrics_of(&output, &[&settings(ranks)[..], &["resume_from_checkpoint=true"]].concat())
    };
    let skipped = |lines: &[Value]| lines.iter().map(|line| line["grad_norm"].is_null()).collect::<Vec<_>>();
    let two = begun("ranks=2");
    assert!(two.last().expect("lines")["skipped_steps"].as_u64() > Some(3), "{two:?}");
    let three = begun("ranks=3");
    for key in ["loss_scale", "skipped_steps", "learning_rate"] {
        assert_eq!(numbers(&three, key), numbers(&two, key), "{key}");
    }
    assert_eq!(skipped(&three), skipped(&two));
}

#[test]
fn what_ranks_cannot_do_is_named() {
    let example = Example::new(TRAINER);
    let output = example.path("out");
    let table: [(&[&str], &str); 11] = [
        (&["ranks=0"], "ranks: expected a whole number above 0, found 0"),
        (&["ranks=4096"], "ranks: expected at most 1024, threads of one process, found 4096"),
        (&["ranks=3", "mesh=fsdp=2,tp=2"], "ranks: expected the 4 of mesh = \"fsdp=2,tp=2\", found 3"),
        (&["mesh=dp=2"], "mesh: expected axes of fsdp, tp and pp"),
        (&["mesh=fsdp=0"], "mesh: expected axes of fsdp, tp and pp"),
        (&["mesh=fsdp=2,fsdp=2"], "mesh: expected axes of fsdp, tp and pp"),
        (&["mesh=tp=3", "lora_dropout=0.0"], "expected the number of heads to be a multiple of 3, found 4"),
        (&["mesh=tp=2"], "expected lora_dropout = 0 where 2 ranks share a layer"),
        (
            &["mesh=tp=2", "lora_dropout=0.0", "load_in_4bit=true"],
            "on each of 2 ranks to be a multiple of 64, found 32",
        ),
        (
            &["mesh=pp=2", "trainable_token_indices=[3, 97, 98]"],
            "expected a trained parameter that one stage of pp reads, found one that two read",
        ),
        (&["mesh=pp=3"], "expected at least a layer for each of 3 stages, found 2 layers"),
    ];
    for (settings, says) in table {
        let ran = example.run(&output, settings);
        assert_eq!(ran.code, 2, "{settings:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(says), "{settings:?}: expected {says:?} in {}", ran.stderr);
        assert!(!output.join("metrics.jsonl").exists(), "{settings:?}");
    }
}

/// A plan of a run on ranks has a column for each stage, and what is sent along each axis.
#[test]
fn a_plan_of_ranks_says_what_each_stage_takes_and_sends() {
    let example = Example::new(TRAINER);
    let plan = example.plan(&["mesh=pp=2,fsdp=2", "gradient_accumulation_steps=4"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    for says in [
        "4 ranks, pp 2 x fsdp 2; a step has 4 micro-batches of 8 rows of ",
        "MiB on a rank at its fullest:",
        "stage 0   stage 1",
        "  weights  ",
        "stage 1: a step gathers ",
        " MiB of whole parts, and a rank sends, in MiB: fsdp ",
        ", pp ",
        "ranks of the pipeline wait 33.3 % of a step",
        "the whole context fits into 24.0 GiB a rank",
    ] {
        assert!(plan.stdout.contains(says), "expected {says:?} in {}", plan.stdout);
    }
    for (schedule, says) in
        [("GPipe", "wait 33.3 % of a step (simulated: GPipe"), ("Fill", "wait 23.5 % of a step")]
    {
        let set = format!("pipeline_parallel_schedule={schedule}");
        let plan = example.plan(&["mesh=pp=2,fsdp=2", "gradient_accumulation_steps=4", &set]);
        assert!(plan.stdout.contains(says), "{schedule}: {}{}", plan.stdout, plan.stderr);
    }
    let whole = "the whole context fits into 24.0 GiB a rank: 256 tokens";
    for ranks in ["ranks=2", "mesh=pp=2"] {
        let plan = example.plan(&[ranks]); // its rows are joined in shorter ones
        assert!(plan.stdout.contains(whole), "{ranks}: {}{}", plan.stdout, plan.stderr);
    }
    let plan = example.plan(&["ranks=2", "loss_chunk_bytes=60000", "per_device_train_batch_size=16"]);
    let says = "the longest context that fits into 24.0 GiB a rank"; // more rows than the budget holds numbers of
    assert!(plan.code == 0 && plan.stdout.contains(says), "{}{}", plan.stdout, plan.stderr);
    let refused = example.plan(&["ranks=2", "pipeline_parallel_schedule=Fill"]);
    let says = "pipeline_parallel_schedule: expected a mesh with pp for Fill, found none";
    assert!(refused.code == 2 && refused.stderr.contains(says), "{}", refused.stderr);
}

#[test]
fn ranks_stop_after_the_same_step() {
    if cfg!(windows) {
        println!("not measured: no other process can interrupt one here");
        return;
    }
    let example = Example::new(TRAINER);
    let output = TempDir::new().expect("a folder");
    let output = output.path().join("out");
    let settings = ["max_steps=100000", "save_steps=1000000", "gradient_accumulation_steps=2", "ranks=3"];
    let mut child = example.command(&output, &settings).spawn().expect("it starts");
    while metrics_so_far(&output) < 3 {
        assert!(child.try_wait().expect("a child").is_none(), "it runs");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let asked = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(asked.expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    let last = metrics(&output).len();
    let checkpoint = output.join(format!("checkpoint-{last}"));
    for rank in 1..=3 {
        assert!(checkpoint.join(format!("optimizer-{rank:05}-of-00003.safetensors")).exists(), "rank {rank}");
    }
}

/// Whole lines of a run that is running.
fn metrics_so_far(output: &Path) -> usize {
    fs::read_to_string(output.join("metrics.jsonl")).unwrap_or_default().matches('\n').count()
}

/// A digit of a hash.
fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0')
}
