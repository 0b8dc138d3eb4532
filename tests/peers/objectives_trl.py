"""The objectives of `trainer train` by TRL's trainers, on the preference data of `open-dpo.tgz`.

    python tests/peers/objectives_trl.py GOLDEN OUT.json

GOLDEN is the folder with open-dpo.tgz, open-sft.tgz and open-tiny-llama.tgz. The four runs of open-dpo and those of RUNS
are made in float64 over the base's weights decoded to float32, from the adapter that is beside the data. OUT.json has for
each run the lines of its data, its config by the trainer's keys, and its log; and the versions of the libraries.

Data of texts are those of the golden data as its chat template writes them, so that no trainer adds a token. GRPO reads
its completions through `rollout_func`, as TRL does not train on logged ones by itself.

Needs torch, transformers, trl, peft, datasets and safetensors; no GPU.
"""

import json
import os
import platform
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
import trl.trainer.grpo_trainer
from datasets import Dataset
from peft import PeftModel
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from trainer_trl import base

SHARED = {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 1, "weight_decay": 0.01, "max_steps": 10}
BATCH = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
GROUPS = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 4}
GROUPS |= {"max_completion_length": 12}
RUNS = {
    "robust": ("dpo", BATCH | {"beta": 0.4, "loss_type": "robust", "label_smoothing": 0.15, "max_length": 30}),
    "orpo": ("orpo", BATCH | {"beta": 0.3, "max_length": 128}),
    "simpo": ("simpo", BATCH | {"beta": 2.0, "simpo_gamma": 0.7, "max_length": 128}),
    "simpo_nll": ("simpo", BATCH | {"beta": 2.0, "label_smoothing": 0.1, "cpo_alpha": 0.5, "max_length": 128}),
    "kto": ("kto", BATCH | {"beta": 0.3, "desirable_weight": 1.3, "undesirable_weight": 0.8, "max_length": 128}),
    "dapo": ("grpo", GROUPS),
    "grpo": ("grpo", GROUPS | {"loss_type": "grpo", "beta": 0.2, "scale_rewards": "batch", "temperature": 0.7}),
    "bnpo": ("grpo", GROUPS | {"loss_type": "bnpo", "scale_rewards": "none", "beta": 0.1, "use_bias_correction_kl": False}),
    "dr_grpo": ("grpo", GROUPS | {"loss_type": "dr_grpo", "max_completion_length": 5, "mask_truncated_completions": True}),
    "gspo": ("grpo", GROUPS | {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.05}),
}


# Completions of a step stay in the order of the data: which of them share a micro-batch decides its means.
trl.trainer.grpo_trainer.shuffle_sequence_dict = lambda sequences: sequences


def golden_runs(dpo):
    """The runs of open-dpo."""
    runs = {}
    for path in sorted(dpo.glob("*.json")):
        runs[path.stem] = ("dpo", json.loads(path.read_text())["config"]["args"])
    return runs


def texts(lines):
    """Pairs of messages as texts."""
    pair = []
    for line in lines:
        prompt = "".join(f"<|role|>{m['role']}\n{m['content']}<|end|>\n" for m in line["prompt"])
        answers = {key: line[key][0]["content"] + "<|end|>" for key in ("chosen", "rejected")}
        pair.append({"prompt": f"<|begin|>{prompt}<|role|>assistant\n", **answers})
    return pair


def data(objective, lines):
    """The lines of an objective's data."""
    if objective == "dpo":
        return lines
    pairs = texts(lines)
    if objective in ("orpo", "simpo"):
        return pairs
    if objective == "kto":
        good = lambda i: i % 5 in (0, 1, 3)
        answer = lambda i, pair: pair["chosen" if good(i) else "rejected"]
        return [
            {"prompt": pair["prompt"], "completion": answer(i, pair), "label": good(i)} for i, pair in enumerate(pairs)
        ]
    groups = []
    for i, pair in enumerate(pairs):
        others = [pairs[(i + 7) % len(pairs)]["rejected"], pairs[(i + 3) % len(pairs)]["chosen"]]
        completions = [pair["chosen"], pair["rejected"], *others]
        rewards = [0.5, 0.5, 0.5, 0.5] if i % 6 == 5 else [1.0, -0.25 * (i % 3), 0.1 * i % 0.7, 0.0]
        groups.append({"prompt": pair["prompt"], "completions": completions, "rewards": rewards})
    return groups


def logged(lines, tokenizer, most):
    """What GRPO generates and what that is worth, from the lines: completions follow the prompts that are asked for."""
    seen = {}

    def rollout(prompts, trainer):
        encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
        prompt_ids, completion_ids, seen["rewards"] = [], [], []
        counts = {}
        by_prompt = {line["prompt"]: line for line in lines}
        for prompt in prompts:
            line, number = by_prompt[prompt], counts.get(prompt, 0)
            counts[prompt] = number + 1
            prompt_ids.append(encode(prompt))
            completion_ids.append(encode(line["completions"][number])[:most])
            seen["rewards"].append(line["rewards"][number])
        return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}

    return rollout, lambda completions, **_: seen["rewards"]


def trainer_of(objective, model, tokenizer, lines, settings, out):
    """TRL's trainer for a run."""
    shared = dict(output_dir=out, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=False)
    shared |= {"gradient_checkpointing": False, **settings}
    sequential = {"train_sampling_strategy": "sequential"}
    given = {"model": model, "processing_class": tokenizer, "train_dataset": Dataset.from_list(lines)}
    match objective:
        case "dpo":
            return DPOTrainer(args=DPOConfig(**shared, **sequential), **given)
        case "orpo":
            return ORPOTrainer(args=ORPOConfig(**shared, **sequential), **given)
        case "simpo":
            alpha = {"cpo_alpha": 0.0} | shared
            return CPOTrainer(args=CPOConfig(**alpha, **sequential, loss_type="simpo"), **given)
        case "kto":
            return KTOTrainer(args=KTOConfig(**shared), **given)
        case "grpo":
            rollout, reward = logged(lines, tokenizer, settings["max_completion_length"])
            given["train_dataset"] = Dataset.from_list([{"prompt": line["prompt"]} for line in lines])
            args = GRPOConfig(**shared, shuffle_dataset=False, disable_dropout=True)
            return GRPOTrainer(args=args, rollout_func=rollout, reward_funcs=reward, **given)


def log(objective, model, tokenizer, lines, settings):
    """The log of a run."""
    with tempfile.TemporaryDirectory() as out:
        trainer = trainer_of(objective, model, tokenizer, lines, settings, out)
        trainer.train()
        kept = [line for line in trainer.state.log_history if "grad_norm" in line]
    clock = ("step_time", "sampling/", "profiling/")
    lines = [{key: value for key, value in line.items() if not key.startswith(clock)} for line in kept]
    return [{key: value for key, value in line.items() if "<lambda>" not in key} for line in lines]


def main():
    golden, out = map(Path, sys.argv[1:3])
    chosen = sys.argv[3:]
    with tempfile.TemporaryDirectory() as scratch:
        for archive in ["open-dpo.tgz", "open-sft.tgz", "open-tiny-llama.tgz"]:
            with tarfile.open(golden / archive) as tar:
                tar.extractall(scratch, filter="data")
        dpo, folder = Path(scratch) / "open-dpo", Path(scratch) / "open-tiny-llama" / "nf4"
        tokenizer = AutoTokenizer.from_pretrained(Path(scratch) / "open-sft" / "tokenizer")
        lines = [json.loads(line) for line in (dpo / "data.jsonl").read_text().splitlines()]
        runs = {}
        for name, (objective, settings) in (golden_runs(dpo) | RUNS).items():
            if chosen and name not in chosen:
                continue
            own = settings if objective == "dpo" and "max_steps" in settings else SHARED | settings
            model = PeftModel.from_pretrained(base(folder, torch.float64), dpo / "adapter-start", is_trainable=True)
            made = log(objective, model.to(torch.float64), tokenizer, data(objective, lines), own)
            runs[name] = {"objective": objective, "config": own, "log": made}
            print(name, made[0], made[-1]["loss"], flush=True)
    libraries = ["torch", "transformers", "trl", "peft"]
    versions = {"python": platform.python_version(), **{library: version(library) for library in libraries}}
    of = {objective: data(objective, lines) for objective in ("orpo", "kto", "grpo")}
    out.write_text(json.dumps({"versions": versions, "data": of, "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
