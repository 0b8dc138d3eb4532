"""The factor of torch's GradScaler over 10,000 steps, some of which overflow.

    python tests/peers/loss_scale.py OUT.json

The overflows are drawn with a fixed seed: a run of them at the start, then one every few hundred or few thousand steps,
so that the factor also grows. OUT.json has the steps that overflow, every step after which the factor is another one with
that factor, and torch's version.

Needs torch; no GPU.
"""

import json
import random
import sys

import torch

STEPS = 10_000


def overflows(draw):
    """The steps whose gradient is not finite, counted from 0."""
    steps = set(range(9))
    at = 9
    while at < STEPS:
        at += draw.choice([1, 2, 40, 700, 1999, 2000, 2001, 4100])
        steps.add(at)
    return steps


def main(out):
    parameter = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    of = overflows(random.Random(20261123))
    changes, last = [], scaler.get_scale()
    kept = {"torch": torch.__version__, "steps": STEPS, "first": last, "overflows": [], "changes": changes}
    scaler.scale(torch.zeros(1))  # makes the factor
    for step in range(STEPS):
        value = float("inf") if step in of else 1.0
        kept["overflows"] += [step] if step in of else []
        parameter.grad = torch.full((3,), value)
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() != last:
            last = scaler.get_scale()
            changes.append([step, last])
    with open(out, "w") as file:
        json.dump(kept, file)
        file.write("\n")


main(*sys.argv[1:])
