"""The adapter of a run of the trainer, loaded by peft over the same checkpoint: its loss against the run's own evaluation.

    python tests/peers/trainer_peft.py MODEL OUTPUT_DIR ROWS.jsonl [BATCH] [DEVICE]

MODEL is a folder that `checkpoint` wrote (`cargo run --release -p tests --bin checkpoint`), OUTPUT_DIR that of
`trainer train MODEL/train.toml`, and ROWS.jsonl what its `eval_dataset_name` names, MODEL/eval.jsonl. The run's last line
with an `eval_loss` was made with the adapter as it was saved at the end. The base is loaded as it is stored, in 4 bits, and
computes in bf16; the loss is the mean over batches of BATCH rows (4, that of `per_device_eval_batch_size`), each weighed by
its rows. DEVICE is `cpu`, or `cuda` by default where there is one.

Prints one JSON object: `trainer`, the loss that the run logged; `peft`, that of peft; `difference`, relative; `base`, the
loss without the adapter; `tensors`, the adapter's tensors in its file; `missing` and `unexpected`, keys that the model has
and the file lacks, and the other way round. Exits with 1 where a key is missing or unexpected, a tensor has another value
in the model than in the file, or the losses differ by more than 0.2 %, what two orders of rounding to bf16 may cost.

Needs torch, transformers, peft, accelerate, bitsandbytes and safetensors.
"""

import json
import pathlib
import sys

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TOLERANCE = 2e-3


def rows(path):
    for line in open(path):
        yield [int(token) for token in json.loads(line)["text"].split()]  # a token of these models is its number


@torch.no_grad()
def loss(model, ids, batch):
    total = 0.0
    for part in ids.split(batch):
        total += model(input_ids=part, labels=part).loss.item() * len(part)
    return total / len(ids)


def main(model, output, data, batch="4", device="cuda" if torch.cuda.is_available() else "cpu"):
    folder = pathlib.Path(output) / "adapter"
    lines = [json.loads(line) for line in open(pathlib.Path(output) / "metrics.jsonl")]
    logged = [line["eval_loss"] for line in lines if "eval_loss" in line]
    if not logged:
        sys.exit(f"{output}: expected an eval_loss in metrics.jsonl, found none; eval_strategy = \"steps\" logs it")
    ids = torch.tensor(list(rows(data)), device=device)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, device_map=device, use_cache=False).eval()
    plain = loss(base, ids, int(batch))
    adapted = PeftModel.from_pretrained(base, folder).eval()
    stored = load_file(folder / "adapter_model.safetensors")
    own = get_peft_model_state_dict(adapted)
    with_adapter = loss(adapted, ids, int(batch))
    shared = stored.keys() & own.keys()
    changed = [key for key in shared if not torch.equal(stored[key].float(), own[key].float().cpu())]
    report = {
        "trainer": logged[-1],
        "peft": with_adapter,
        "difference": with_adapter / logged[-1] - 1,
        "base": plain,
        "tensors": len(stored),
        "missing": sorted(own.keys() - stored.keys()),
        "unexpected": sorted(stored.keys() - own.keys()),
        "changed": changed,
    }
    print(json.dumps(report))
    is_loaded = not (report["missing"] or report["unexpected"] or changed)
    sys.exit(0 if is_loaded and abs(report["difference"]) <= TOLERANCE else 1)


main(*sys.argv[1:])
