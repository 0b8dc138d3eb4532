"""The runs of open-sft by TRL's SFTTrainer, on the checkpoint that is beside it.

    python tests/peers/trainer_trl.py GOLDEN OUT.json

GOLDEN is the folder with open-sft.tgz and open-tiny-llama.tgz. Each run has the config and the adapter of its `run.json`
and is made twice, in float32 and in float64, over the base's weights decoded to float32. OUT.json has the logs in the form
of `run.json`, by the runs' names, and the versions of the libraries.

Needs torch, transformers, trl, peft, datasets and safetensors; no GPU.
"""

import json
import platform
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from datasets import load_dataset
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

KEPT = ["step", "loss", "grad_norm", "learning_rate", "epoch", "num_tokens", "mean_token_accuracy", "entropy"]


def decoded(tensors, name):
    """A 4-bit weight in f32, by the format: code[i] * absmax[i // blocksize], where absmax is stored in 8 bits."""
    part = {key: value for key, value in tensors.items() if key.startswith(name)}
    state = json.loads(bytes(part[f"{name}.quant_state.bitsandbytes__nf4"].tolist()))
    codes = part[name].flatten()
    codes = torch.stack([codes >> 4, codes & 15], dim=1).flatten().long()
    absmax = part[f"{name}.absmax"]
    if absmax.dtype == torch.uint8:
        outer = part[f"{name}.nested_absmax"].repeat_interleave(state["nested_blocksize"])[: absmax.numel()]
        absmax = part[f"{name}.nested_quant_map"][absmax.long()] * outer + state["nested_offset"]
    scales = absmax.repeat_interleave(state["blocksize"])[: codes.numel()]
    return (part[f"{name}.quant_map"][codes] * scales).reshape(state["shape"])


def base(folder, dtype):
    """The model with each 4-bit weight decoded, in a dtype.

    bitsandbytes' own CPU kernel is not used: `dequantize_4bit` of 0.50.2 reads the absmax of element (row, column) at
    row * (columns // blocksize) + column // blocksize, which is another block's where the blocksize does not divide the
    columns, as in this checkpoint's down_proj (352 columns, blocks of 64).
    """
    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    config.dtype = torch.float32
    dense = AutoModelForCausalLM.from_config(config)
    tensors = load_file(folder / "model.safetensors")
    for name, parameter in dense.named_parameters():
        is_quantized = f"{name}.quant_state.bitsandbytes__nf4" in tensors
        parameter.data = decoded(tensors, name) if is_quantized else tensors[name].clone()
    return dense.to(dtype)


def log(sft, model, settings):
    """The log of a run of a model over the data of `sft`."""
    tokenizer = AutoTokenizer.from_pretrained(sft / "tokenizer")
    with tempfile.TemporaryDirectory() as out:
        args = SFTConfig(
            output_dir=out,
            assistant_only_loss=True,
            train_sampling_strategy="sequential",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            **settings,
        )
        data = load_dataset("json", data_files=str(sft / "data.jsonl"), split="train")
        trainer = SFTTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer)
        trainer.train()
        lines = [line for line in trainer.state.log_history if "grad_norm" in line]
    return [{key: float(line[key]) if key != "step" else line[key] for key in KEPT} for line in lines]


def settings(sft, name):
    """The arguments of a run."""
    return json.loads((sft / name / "run.json").read_text())["config"]["args"]


def run(sft, folder, name, dtype):
    """The log of a run by its name."""
    model = PeftModel.from_pretrained(base(folder, dtype), sft / name / "adapter-start", is_trainable=True)
    return log(sft, model.to(dtype), settings(sft, name))


def main():
    golden, out = map(Path, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as scratch:
        for archive in ["open-sft.tgz", "open-tiny-llama.tgz"]:
            with tarfile.open(golden / archive) as tar:
                tar.extractall(scratch, filter="data")
        sft, folder = Path(scratch) / "open-sft", Path(scratch) / "open-tiny-llama" / "nf4"
        dtypes = {"f32": torch.float32, "f64": torch.float64}
        names = sorted(path.parent.name for path in sft.glob("*/run.json"))
        runs = {name: {label: run(sft, folder, name, dtype) for label, dtype in dtypes.items()} for name in names}
    libraries = ["torch", "transformers", "trl", "peft"]
    made = {"python": platform.python_version(), **{library: version(library) for library in libraries}}
    out.write_text(json.dumps({"versions": made, "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
