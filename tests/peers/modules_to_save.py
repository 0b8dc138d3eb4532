"""What is trained beside low-rank pairs, by TRL and peft: whole modules, and rows of tokens.

    python tests/peers/modules_to_save.py GOLDEN OUT.json
    python tests/peers/modules_to_save.py GOLDEN --adapter DIR --trainer PROGRAM

GOLDEN is the folder with open-sft.tgz and open-tiny-llama.tgz. The first form makes the run `published` with fewer
steps and a larger rate, once for each of VARIANTS, in float32 and in float64, over the base's weights decoded to float32;
what is trained beside A and B begins as the base's. OUT.json has the logs as `trainer_trl.json` has them. The second form
loads an adapter that `trainer train` wrote over `open-tiny-llama/nf4`, and compares what peft and `trainer generate` go
on with.

Needs what trainer_trl.py needs; no GPU.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

from trainer_trl import base, log, settings

# 2, 3 and 375 are among the data's tokens, 511 is not.
VARIANTS = {
    "whole": {"modules_to_save": ["embed_tokens", "lm_head"]},
    "head": {"modules_to_save": ["lm_head"]},
    "rows": {"trainable_token_indices": [375, 2, 511, 3]},
}
CHANGED = {"max_steps": 12, "learning_rate": 1e-3}
PROMPTS = [[1, 7, 300, 259, 5], [259, 259, 300], [511, 7, 8, 9, 10, 11, 12]]


def run(sft, folder, variant, dtype):
    """The log of a run."""
    start = sft / "published" / "adapter-start"
    config = LoraConfig.from_pretrained(start)
    for key, value in variant.items():
        setattr(config, key, value)
    config.inference_mode = False
    model = get_peft_model(base(folder, dtype), config)
    pairs = load_file(start / "adapter_model.safetensors")
    pairs = {name.replace(".weight", ".default.weight"): value for name, value in pairs.items()}
    assert not model.load_state_dict(pairs, strict=False).unexpected_keys
    return log(sft, model.to(dtype), settings(sft, "published") | CHANGED)


def logs(sft, folder, out):
    dtypes = {"f32": torch.float32, "f64": torch.float64}
    of = lambda variant: {label: run(sft, folder, variant, dtype) for label, dtype in dtypes.items()}
    runs = {name: of(variant) for name, variant in VARIANTS.items()}
    libraries = ["torch", "transformers", "trl", "peft"]
    made = {library: version(library) for library in libraries}
    out.write_text(json.dumps({"versions": made, "changed": CHANGED, "variants": VARIANTS, "runs": runs}) + "\n")


def compare(folder, adapter, program):
    """Whether both go on alike from every prompt."""
    model = PeftModel.from_pretrained(base(folder, torch.float32), adapter).eval()
    for prompt in PROMPTS:
        with torch.no_grad():
            ids = model.generate(
                input_ids=torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=None
            )
        theirs = ids[0, len(prompt):].tolist()
        command = [program, "--json", "generate", str(folder), "--adapter", str(adapter), "--ignore-eos"]
        command += ["--ids", ",".join(map(str, prompt)), "--max-new-tokens", "24"]
        answer = subprocess.run(command, capture_output=True, text=True)
        ours = json.loads(answer.stdout)["new_ids"] if answer.returncode == 0 else answer.stderr
        print(prompt, "alike" if ours == theirs else f"theirs {theirs}, ours {ours}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("golden", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--trainer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for archive in ["open-sft.tgz", "open-tiny-llama.tgz"]:
            with tarfile.open(given.golden / archive) as tar:
                tar.extractall(scratch, filter="data")
        sft, folder = Path(scratch) / "open-sft", Path(scratch) / "open-tiny-llama" / "nf4"
        if given.adapter:
            compare(folder, given.adapter, given.trainer)
        elif given.out:
            logs(sft, folder, given.out)
        else:
            sys.exit("expected OUT.json or --adapter")


if __name__ == "__main__":
    main()
