"""A QLoRA step on a card: `trainer train` against transformers, peft and bitsandbytes, with and without their savings.

    python tests/peers/trainer_card.py --trainer target/release/trainer --checkpoints DIR --peers DIR
        [--shapes 1b,8b16] [--batches 1,4] [--columns whole,chunked,lean,hf,hf-ckpt,hf-liger,hf-both] [--steps 12]
        [--device cuda] [--set KEY=VALUE ...]

The folder of checkpoints has one for each shape by its name (`checkpoint DIR/1b 1b`); those of `--shapes` that are missing
are skipped with a line. The folder of peers has `t_hf.py`, which takes no shapes: a column of it is one run for all of them.

| column | what is run |
|---|---|
| whole | all logits at once, activations kept: as little as possible is computed twice |
| chunked | `loss_chunk_bytes = 1000000000` |
| lean | `loss_chunk_bytes = 25000000` a row of the batch, `gradient_checkpointing = true` |
| hf | `t_hf.py`; `-ckpt` with gradient checkpointing, `-liger` with Liger's kernels, `-both` with both |

Prints a line as each run ends. `step` is the median over the steps after the first three, and tokens/s are of it; `peak` is
the most memory of the card that was taken at once, weights included: of the trainer `device_peak_bytes`, of torch
`max_memory_allocated`. Of the trainer also the time of the first step, in which kernels are compiled, the first and the last
loss, and how far the losses are from those of `whole`, relative. Needs no packages itself.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

OWN = {
    "whole": {},
    "chunked": {"loss_chunk_bytes": "1000000000"},
    "lean": {"gradient_checkpointing": "true"},
}
PEERS = {"hf": {}, "hf-ckpt": {"CKPT": "1"}, "hf-liger": {"LIGER": "1"}, "hf-both": {"CKPT": "1", "LIGER": "1"}}
FIRST = 3  # steps in which something is compiled or captured
GIB = 2**30


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", type=pathlib.Path)
    parser.add_argument("--checkpoints", type=pathlib.Path)
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--shapes", default="1b,8b16")
    parser.add_argument("--batches", default="1,4")
    parser.add_argument("--columns", default=",".join([*OWN, *PEERS]))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    columns = given.columns.split(",")
    unknown = [column for column in columns if column not in OWN | PEERS]
    if unknown:
        parser.error(f"expected columns of {', '.join(OWN | PEERS)}, found {', '.join(unknown)}")
    if given.steps <= FIRST:
        parser.error(f"expected more than {FIRST} steps, found {given.steps}")
    own, peers = [column for column in columns if column in OWN], [column for column in columns if column in PEERS]
    if own and not (given.trainer and given.checkpoints):
        parser.error("expected --trainer and --checkpoints for the columns " + ", ".join(own))
    if peers and not given.peers:
        parser.error("expected --peers for the columns " + ", ".join(peers))
    print(f"{'shape':14} {'batch':>5} {'column':9} {'tokens/s':>9} {'step ms':>8} {'peak GiB':>9}  notes", flush=True)
    for shape in given.shapes.split(",") if own else []:
        folder = given.checkpoints / shape
        if not folder.exists():
            print(f"{shape}: skipped, there is no {folder}", flush=True)
            continue
        for batch in given.batches.split(","):
            whole = None
            for column in own:
                losses = train(given, folder, batch, column, whole)
                whole = losses if column == "whole" else whole
    for column in peers:
        peer(given.peers / "t_hf.py", column)


def row(shape, batch, column, speed, milliseconds, peak, notes=""):
    peak = "-" if peak is None else f"{peak:.2f}"
    print(f"{shape:14} {batch:>5} {column:9} {speed:9.0f} {milliseconds:8.1f} {peak:>9}  {notes}".rstrip(), flush=True)


def train(given, folder, batch, column, whole):
    """A run of the trainer and its row; the losses, or None if it failed."""
    with tempfile.TemporaryDirectory() as output:
        settings = {
            "device": given.device,
            "output_dir": output,
            "max_steps": str(given.steps),
            "per_device_train_batch_size": batch,
            "eval_strategy": "no",
            **OWN[column],
        }
        if column == "lean":  # more rows keep more beside their logits
            settings["loss_chunk_bytes"] = str(25_000_000 * int(batch))
        settings = [f"{key}={value}" for key, value in settings.items()] + given.set
        command = [given.trainer.resolve(), "train", folder / "train.toml"]
        for setting in settings:
            command += ["--set", setting]
        begin = time.perf_counter()
        ran = subprocess.run(command, capture_output=True, text=True)
        took = time.perf_counter() - begin
        if ran.returncode:
            print(f"{folder.name:14} {batch:>5} {column:9} failed: {ran.stderr.strip()[-400:]}", flush=True)
            return None
        lines = [json.loads(line) for line in open(pathlib.Path(output) / "metrics.jsonl")]
    tokens = [after["num_tokens"] - before for after, before in zip(lines, [0] + [line["num_tokens"] for line in lines])]
    seconds = [count / line["tokens_per_second"] for count, line in zip(tokens, lines)]
    step, losses = statistics.median(seconds[FIRST:]), [line["loss"] for line in lines]
    peak = lines[-1].get("device_peak_bytes")
    notes = f"first step {seconds[0]:.1f} s, all {took:.1f} s, loss {losses[0]:.4f} to {losses[-1]:.4f}"
    if whole:
        notes += f", {max(abs(own / other - 1) for own, other in zip(losses, whole)):.1e} from whole"
    row(folder.name, batch, column, tokens[-1] / step, 1e3 * step, peak and peak / GIB, notes)
    return losses


LINE = re.compile(r"^\s+(.*?)\s+batch (\d+):\s+(\d+) tokens/s\s+step\s+([\d.]+) ms\s+resident ([\d.]+) peak ([\d.]+) GiB")


def peer(script, column):
    """A run of the peer and its rows."""
    with tempfile.TemporaryFile("w+") as errors:
        ran = subprocess.Popen(
            [sys.executable, script], env=os.environ | PEERS[column], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        for line in ran.stdout:
            found = LINE.match(line)
            if found:
                shape, batch, speed, milliseconds, resident, peak = found.groups()
                row(shape, batch, column, float(speed), float(milliseconds), float(peak), f"resident {resident} GiB")
            elif line.strip():
                print(f"{column}: {line.strip()}", flush=True)
        if ran.wait():
            errors.seek(0)
            print(f"{column} failed: {errors.read().strip()[-400:]}", flush=True)


main()
