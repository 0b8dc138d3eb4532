"""A QLoRA step under torch's FSDP2 on two processes of the CPU, over gloo, on the rows of `trainer train --ranks 2`.

    python tests/peers/fsdp_gloo.py MODEL TOKENS.json ROWS MICRO_BATCHES STEPS [--checkpointing]

MODEL is a dense Llama checkpoint. Its projections are quantised to NF4 in blocks of 64 while it is loaded, without a
second level of scales; codes, as float32, and scales are frozen parameters, LoRA of rank 64 stands beside each, and
`fully_shard` is applied to each layer and to the model, so a layer is gathered in 4 bits and dequantised by
bitsandbytes in its forward. TOKENS.json is the list of rows of `open-sft.tgz` (`input_ids`, `assistant_mask`). A step
has MICRO_BATCHES of ROWS rows, dealt out to the ranks in turn; the loss is the mean over the step's trained tokens;
gradients are in float32, clipped to 1, AdamW. Each process has one thread. Prints a line a step: its loss, and the
seconds of the slowest rank.

`trainer train` does the same with `ranks = 2`, `load_in_4bit`, `lora_r = 64`, `lora_alpha = 128`,
`lora_target_modules = "all-linear"`, `lora_dropout = 0`, `assistant_only_loss`, `train_sampling_strategy =
"sequential"`, `per_device_train_batch_size = ROWS`, `gradient_accumulation_steps = MICRO_BATCHES`; the adapters are
drawn differently, so only the loss of the first step is the same, but for the second level of scales.

Needs torch, transformers and bitsandbytes; no GPU.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from bitsandbytes.functional import quantize_4bit
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

RANKS, LORA_RANK, ALPHA, BLOCK = 2, 64, 128.0, 64


class Projection(torch.nn.Module):
    def __init__(self, dense):
        super().__init__()
        self.shape = list(dense.weight.shape)
        packed, state = quantize_4bit(dense.weight.data.float(), blocksize=BLOCK, quant_type="nf4")
        rows, columns = self.shape
        codes = packed.flatten().view(torch.float32)  # `fully_shard` of torch 2.11 refuses integers
        self.codes = torch.nn.Parameter(codes, requires_grad=False)
        self.absmax = torch.nn.Parameter(state.absmax.flatten(), requires_grad=False)
        self.a = torch.nn.Parameter(torch.randn(LORA_RANK, columns) / columns**0.5)
        self.b = torch.nn.Parameter(torch.zeros(rows, LORA_RANK))

    def forward(self, x):
        weight = torch.ops.bitsandbytes.dequantize_4bit(
            self.codes.view(torch.uint8).reshape(-1, 1), self.absmax, BLOCK, "nf4", self.shape, x.dtype
        )
        return F.linear(x, weight) + F.linear(F.linear(x, self.a), self.b) * (ALPHA / LORA_RANK)


def quantized(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, use_cache=False)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, child in list(part.named_children()):
                if isinstance(child, torch.nn.Linear):
                    setattr(part, name, Projection(child))
    return model


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
    return ids, mask, labels


def work(rank, path, tokens, rows, count, steps, checkpointing):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, mesh = quantized(path), init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        if checkpointing:
            own = layer.forward
            layer.forward = lambda *args, own=own, **kwargs: checkpoint(own, *args, use_reentrant=False, **kwargs)
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0)
    data = json.load(open(tokens))
    if rank == 0:
        print(f"torch {torch.__version__}, {RANKS} processes of a thread, checkpointing: {checkpointing}")
    for step in range(steps):
        own = data[step * rows * count : (step + 1) * rows * count]
        batches = [batch(own[i : i + rows]) for i in range(0, len(own), rows)]
        items = sum(int((labels[:, 1:] != -100).sum()) for _, _, labels in batches)
        dist.barrier()
        begin, total = time.perf_counter(), torch.zeros(())
        for ids, mask, labels in batches[rank::RANKS]:
            logits = model(input_ids=ids, attention_mask=mask).logits
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum") / items
            (loss * RANKS).backward()  # FSDP2 takes the mean over ranks
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = torch.tensor(time.perf_counter() - begin)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step + 1}: loss {total.item():.4f}, {seconds.item():.2f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    path, tokens, *numbers = given
    mp.spawn(work, (path, tokens, *map(int, numbers), "--checkpointing" in sys.argv), nprocs=RANKS)
