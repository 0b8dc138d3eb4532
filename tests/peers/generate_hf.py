"""Greedy continuations by transformers, of the checkpoint that open-generate.json's prompts are given to.

    python tests/peers/generate_hf.py GOLDEN OUT.json

GOLDEN is the folder with open-sft.tgz, open-tiny-llama.tgz and open-generate.json. OUT.json has the form of the last one,
with its prompts and adapters, and the versions of the libraries; the base's weights are decoded to float32, and all that
follows is computed in float64. A step is a forward pass over the whole sequence, without a cache.

Needs what trainer_trl.py needs, which decodes the base; no GPU.
"""

import json
import platform
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from peft import PeftModel
from trainer_trl import base

NEW_TOKENS = 64


@torch.no_grad()
def continued(model, prompt):
    """The tokens after a prompt, and at each step the best logit minus the second."""
    ids, gaps = list(prompt), []
    for _ in range(NEW_TOKENS):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        best = logits.topk(2)
        ids.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 6))
    return ids[len(prompt) :], gaps


def main():
    golden, out = map(Path, sys.argv[1:3])
    asked = json.loads((golden / "open-generate.json").read_text())["cases"]
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        for archive in ["open-sft.tgz", "open-tiny-llama.tgz"]:
            with tarfile.open(golden / archive) as tar:
                tar.extractall(scratch, filter="data")
        folder = Path(scratch) / "open-tiny-llama" / "nf4"
        for adapter in dict.fromkeys(case["adapter"] for case in asked):
            model = base(folder, torch.float64).eval()
            if adapter:
                model = PeftModel.from_pretrained(model, Path(scratch) / "open-sft" / adapter).to(torch.float64).eval()
            for case in (case for case in asked if case["adapter"] == adapter):
                new, gaps = continued(model, case["prompt_ids"])
                kept = {key: case[key] for key in ["adapter", "row", "prompt_ids"]}
                cases.append({**kept, "new_ids": new, "gaps": gaps})
    libraries = ["torch", "transformers", "peft"]
    made = {"python": platform.python_version(), **{library: version(library) for library in libraries}}
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text(f'{{"versions": {json.dumps(made)}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
