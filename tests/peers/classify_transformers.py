"""Runs of a sequence classifier with an adapter by transformers and peft.

    python tests/peers/classify_transformers.py TRAINER OUT.json
    python tests/peers/classify_transformers.py TRAINER --load

TRAINER is the program; its example (`train --example DIR --task-type SEQ_CLS`) is the model and the data, and the adapter
that it begins with is the run's. The first form makes a run of each of PROBLEMS by transformers' Trainer, in float32 and
in float64, whose rows are padded on the side that PADDED names; OUT.json has the logs and the versions of the libraries.
The second form trains the example, loads its adapter with peft, and compares what both answer to the held-out rows.

A step is one micro-batch: of several, transformers 5.24 adds up the means for a classifier and divides by nothing, since
`forward` takes the number of items and does not hand it to the loss.

Needs torch, transformers, peft and safetensors; no GPU.
"""

import argparse
import json
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

PROBLEMS = ["single_label_classification", "multi_label_classification", "regression"]
PADDED = {"single_label_classification": "right", "multi_label_classification": "left", "regression": "right"}
SETTINGS = {
    "max_steps": 12,
    "per_device_train_batch_size": 12,
    "learning_rate": 5e-3,
    "warmup_steps": 2,
    "weight_decay": 0.01,
    "train_sampling_strategy": "sequential",
}
NAMES = ["question", "exclamation", "statement"]


def label(row, problem):
    """What a row of the example is held against in a problem; the test beside OUT.json makes the same."""
    text, sign = row["text"], NAMES.index(row["label"])
    if problem == "multi_label_classification":
        return [float(sign == 0), float(" is " in text), float(len(text) > 26)]
    if problem == "regression":
        return [len(text) / 16 - 1.5]
    return sign


def train(program, config, **settings):
    given = [f"--set={key}={value}" for key, value in settings.items()]
    subprocess.run([program, "train", config, *given], check=True, capture_output=True)


def model(folder, adapter, outputs, problem, dtype, pad):
    """The example's model as a classifier with an adapter that is trained on."""
    base = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=outputs, problem_type=problem, pad_token_id=pad, dtype=torch.float32
    )
    return PeftModel.from_pretrained(base, adapter, is_trainable=True).to(dtype)


class Logged(Trainer):
    """One that keeps what it logs."""

    def log(self, logs, *more):
        if "loss" in logs:
            self.kept.append({key: logs[key] for key in ["loss", "grad_norm", "learning_rate"]})


def log(example, scratch, program, problem, dtype):
    """The log of a run."""
    rows = [json.loads(line) for line in (example / "data.jsonl").read_text().splitlines()]
    rows = [{"text": row["text"], "label": label(row, problem)} for row in rows]
    data, outputs = scratch / f"{problem}.jsonl", 1 if problem == "regression" else 3
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = scratch / f"{problem}-{dtype}"
    # the rate of the first step is 0, so its checkpoint is the adapter that the run begins with
    begin = {"max_steps": 1, "save_steps": 1, "eval_strategy": "no", "output_dir": out, "dataset_name": data}
    begin |= {"num_labels": outputs, "problem_type": problem}
    config = example / "config.toml"
    kept = [line for line in config.read_text().splitlines() if not line.startswith("id2label")]
    config.write_text("\n".join(kept) + "\n")
    train(program, config, **begin)
    tokenizer = AutoTokenizer.from_pretrained(example / "model", padding_side=PADDED[problem])
    tokenizer.pad_token = tokenizer.eos_token
    tuned = model(example / "model", out / "checkpoint-1", outputs, problem, dtype, tokenizer.pad_token_id)

    def collate(batch):
        batch = [dict(row) for row in batch]
        labels = [row.pop("label") for row in batch]
        made = tokenizer([row["text"] for row in batch], padding=True, return_tensors="pt")
        made.pop("token_type_ids", None)
        kind = torch.long if problem == "single_label_classification" else dtype
        return dict(made) | {"labels": torch.tensor(labels, dtype=kind)}

    args = TrainingArguments(
        output_dir=str(scratch / "unused"),
        remove_unused_columns=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        **SETTINGS,
    )
    trainer = Logged(model=tuned, args=args, train_dataset=rows, data_collator=collate)
    trainer.kept = []
    trainer.train()
    return trainer.kept


def load(example, program):
    """What peft answers to the held-out rows with an adapter that was trained, and what the trainer counted."""
    config = example / "config.toml"
    train(program, config)
    lines = (example / "out" / "metrics.jsonl").read_text().splitlines()
    counted = [json.loads(line) for line in lines if "eval_confusion" in line][-1]["eval_confusion"]
    tokenizer = AutoTokenizer.from_pretrained(example / "model")
    base = AutoModelForSequenceClassification.from_pretrained(example / "model", num_labels=3, dtype=torch.float32)
    tuned = PeftModel.from_pretrained(base, example / "out" / "adapter").eval()
    confusion = [[0] * 3 for _ in range(3)]
    for line in (example / "held-out.jsonl").read_text().splitlines():
        row = json.loads(line)
        made = tokenizer(row["text"], return_tensors="pt")
        made.pop("token_type_ids", None)
        with torch.no_grad():
            answer = tuned(**made).logits.argmax(-1).item()
        confusion[NAMES.index(row["label"])][answer] += 1
    print("alike" if confusion == counted else f"theirs {confusion}, ours {counted}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--load", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        example = scratch / "example"
        command = [given.program, "train", "--example", example, "--task-type", "SEQ_CLS"]
        subprocess.run(command, check=True, capture_output=True)
        if given.load:
            return load(example, given.program)
        dtypes = {"f32": torch.float32, "f64": torch.float64}
        of = lambda problem: {name: log(example, scratch, given.program, problem, dtype) for name, dtype in dtypes.items()}
        runs = {problem: of(problem) for problem in PROBLEMS}
        made = {library: version(library) for library in ["torch", "transformers", "peft"]}
        given.out.write_text(json.dumps({"versions": made, "settings": SETTINGS, "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
