"""A QLoRA step by transformers, peft and bitsandbytes on the CPU, over the rows that `trainer train` is given.

    python tests/peers/trainer_step.py MODEL TOKENS.json ROWS STEPS DTYPE

MODEL is a dense Llama checkpoint, quantised to NF4 with nested scales while it is loaded. TOKENS.json is the list of rows
of `open-sft.tgz` (`input_ids`, `assistant_mask`); each step has the next ROWS of them, padded at their ends, and LoRA of
rank 16 beside every projection, without dropout: forward, backward, clipping and AdamW. DTYPE is float32 or bfloat16, that
of products and dense weights. Prints a line a step: its loss, seconds, and tokens a second (padding does not count).

`trainer train` does the same with `load_in_4bit`, `use_bnb_nested_quant`, `lora_target_modules = "all-linear"`,
`lora_dropout = 0`, `assistant_only_loss`, `train_sampling_strategy = "sequential"`, `per_device_train_batch_size = ROWS`.

Needs torch, transformers, peft, accelerate and bitsandbytes; no GPU.
"""

import json
import sys
import time
from importlib.metadata import version

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig


def batch(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full((len(rows), longest), -100)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        tokens = torch.tensor(row["input_ids"])
        trained = torch.tensor(row["assistant_mask"], dtype=torch.bool)
        ids[i, : len(tokens)] = tokens
        mask[i, : len(tokens)] = 1
        labels[i, : len(tokens)] = torch.where(trained, tokens, -100)
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def main(model, tokens, rows, steps, dtype):
    dtype, rows, steps = getattr(torch, dtype), int(rows), int(steps)
    quantized = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    begin = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(
        model, quantization_config=quantized, dtype=dtype, device_map="cpu", use_cache=False
    )
    torch.manual_seed(0)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, weight_decay=0.0)
    names = ["torch", "transformers", "peft", "bitsandbytes"]
    print(", ".join(f"{name} {version(name)}" for name in names), f"; {torch.get_num_threads()} threads")
    print(f"from the start to the first step: {time.perf_counter() - begin:.1f} s")
    data = json.load(open(tokens))
    for step in range(steps):
        inputs = batch(data[step * rows : (step + 1) * rows])
        begin = time.perf_counter()
        loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - begin
        count = int(inputs["attention_mask"].sum())
        print(f"step {step + 1}: loss {loss.item():.4f}, {seconds:.2f} s, {count / seconds:.1f} tokens a second", flush=True)


main(*sys.argv[1:])
