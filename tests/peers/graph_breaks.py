"""Shows what Dynamo does where challenge C's recorder notes a break, and how many graphs a program with branches becomes.

    python3 tests/peers/graph_breaks.py > book/src/results/dynamo-breaks.txt

Needs torch and numpy; a CPU is enough. Each case is a line between two operations. It runs through `torch.compile`
with a backend that counts the graphs it is handed and runs them as they are, and once without the compiler:
results, the argument and the fields are compared. Reasons are Dynamo's own, the first line of each. `ANCHOR` marks
the lines that the book shows.
"""

import ctypes
import logging
import random
import re
import sys
import time
import warnings

import numpy as np
import torch
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

warnings.simplefilter("ignore")
LOG = logging.getLogger("peers")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False
LIBRARY = ctypes.CDLL(None)
LIBRARY.labs.restype = ctypes.c_long


class Fields:
    def __init__(self):
        self.dtype_seen, self.calls, self.cache = None, 0, torch.zeros(3)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@torch.library.custom_op("peers::double", mutates_args=())
def registered(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@registered.register_fake
def _(x):
    return torch.empty_like(x)


def scaled(x):
    y = x + 1
    z = y * y.sum().item()
    return z + 1


CASES = [
    ("reads a value", "y = x * x.sum().item()"),
    ("reads a value", "y = x * 2 if x.sum() > 0 else x + 1"),
    ("reads a value", "y = x * len(x.tolist())"),
    ("reads a value", "y = x[x > 0] * 2"),
    ("reads a value", "y = scaled(x)  # .item() in a function"),
    ("asks for an address", "y = x * 2 if x.data_ptr() % 16 == 0 else x + x"),
    ("calls a library", "y = x * LIBRARY.labs(-2)  # C, by ctypes"),
    ("calls a library", "y = x * ctypes.c_int32(64).value"),
    ("calls a library", "y = torch.from_numpy(x.numpy() * 2)"),
    ("calls a library", "y = Double.apply(x)  # an autograd.Function"),
    ("calls a library", "y = registered(x)  # torch.library.custom_op"),
    ("asks or tells the host", "y = x * (time.perf_counter() > 0)"),
    ("asks or tells the host", "torch.set_rng_state(torch.get_rng_state()); y = x"),
    ("asks or tells the host", "y = x * random.random()"),
    ("asks or tells the host", "y = x * torch.rand(())"),
    ("asks or tells the host", "print('y', file=sys.stderr); y = x"),
    ("asks or tells the host", "LOG.warning('y'); y = x  # logging"),
    ("asks or tells the host", "warnings.warn('y'); y = x"),
    ("sets a field", "m.dtype_seen = x.dtype; m.calls += 1; y = x"),
    ("overwrites a tensor", "y = x.add_(1)"),
    ("overwrites a tensor", "x[1:].mul_(3); y = x"),
    ("overwrites a tensor", "m.cache.copy_(x); y = m.cache"),
    ("overwrites a tensor", "x.data.copy_(x * 3); y = x"),
]


def start():
    torch._dynamo.reset()
    counters.clear()
    random.seed(3)
    torch.manual_seed(3)
    return Fields(), torch.tensor([1.0, -2.0, 4.0])


def between(line):
    """The case with an operation before it and one after it, so that a break in it is two graphs."""
    return defined(["def run(m, x):", "    z = x.sin()", f"    {line}", "    return y, z.cos()"])


def defined(lines):
    scope = dict(globals())
    exec("\n".join(lines), scope)
    return scope["run"]


def alike(a, b):
    return all(torch.equal(l, r) if isinstance(l, torch.Tensor) else l == r for l, r in zip(a, b, strict=True))


def first_line(text):
    return re.sub(r"\s+", " ", str(text).strip().splitlines()[0])


def refused(run, **flags):
    """Why fullgraph=True does not accept it; `None` if it does."""
    m, x = start()
    with torch._dynamo.config.patch(**flags):
        try:
            torch.compile(run, backend="eager", fullgraph=True)(m, x)
        except torch._dynamo.exc.TorchDynamoException as error:
            return first_line(error)
    return None


def judged(run):
    """Whether results and effects are those of eager, the graphs, and Dynamo's reasons for its breaks."""

    def after(run):
        m, x = start()
        return [*run(m, x), x, m.cache, m.dtype_seen, m.calls]

    want = after(run)
    counter = CompileCounter()
    same = alike(want, after(torch.compile(run, backend=counter)))
    return same, counter.frame_count, list(dict.fromkeys(map(first_line, counters["graph_break"])))


def questions(count):
    """Three programs that ask `count` independent questions, each answer another operation: about values of a tensor, in lines
    one after the other; the same in a loop; about numbers of the host."""
    asking = [f"    x = x * 2 if asked[{i}] > 0 else x + 1" for i in range(count)]
    lines = defined(["def run(x, asked):", *asking, "    return x"])

    def loop(x, asked):
        for i in range(count):
            x = x * 2 if asked[i] > 0 else x + 1
        return x

    return (lines, torch.tensor), (loop, torch.tensor), (lines, tuple)


def compiled_for(count, run, kind):
    """Graphs after the first call, and after a call for each combination of answers."""
    torch._dynamo.reset()
    counter = CompileCounter()
    with torch._dynamo.config.patch(recompile_limit=4096, accumulated_recompile_limit=4096):
        compiled = torch.compile(run, backend=counter, dynamic=False)
        first = None
        for answers in range(2**count):
            asked = kind([1.0 if answers >> i & 1 else -1.0 for i in range(count)])
            x = torch.ones(3)
            assert torch.equal(compiled(x, asked), run(x, asked))
            first = counter.frame_count if first is None else first
    return first, counter.frame_count


def limited(**flags):
    """Graphs after each of ten sizes of one function, and what Dynamo logs or raises."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(lambda x: x * 2 + 1, backend=counter, dynamic=False)
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append("logged: " + record.getMessage().splitlines()[0])
    log = logging.getLogger("torch._dynamo")
    log.addHandler(handler)
    log.propagate = False
    graphs = []
    with torch._dynamo.config.patch(**flags):
        for size in range(2, 12):
            try:
                compiled(torch.ones(size))
            except Exception as error:
                said.append(f"raised: {type(error).__name__}")
                break
            graphs.append(counter.frame_count)
    log.removeHandler(handler)
    return graphs, said


def main():
    config = torch._dynamo.config
    flags = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    print(f"tests/peers/graph_breaks.py, torch {torch.__version__}, Python {sys.version.split()[0]}, on a CPU.\n")
    print("graphs: handed to the backend by one call; a break makes two of one, 0 is a function that all runs uncompiled.")
    print("whole: fullgraph=True accepts it; flags: it does with capture_scalar_outputs and capture_dynamic_output_shape_ops.")
    print("same: results, argument and fields are those of the uncompiled function. Last, Dynamo's reason.\n")
    print(f"{'row':<23} {'case':<50} graphs whole flags same  reason")
    for row, line in CASES:
        run = between(line)
        same, graphs, reasons = judged(run)
        whole, flagged = refused(run), refused(run, **flags)
        answers = "".join(f" {'yes' if answer else 'no':<5}" for answer in (whole is None, flagged is None, same))
        print(f"{row:<23} {line:<50} {graphs:>6}{answers} {'; '.join(reasons) or whole or ''}".rstrip())
    print("\nANCHOR: questions\nn independent questions, each answer another operation:")
    print("graphs after the first call, and after all 2^n combinations of answers (without a recompile limit)")
    print(f"{'n':>3}   {'values, line by line':<22} {'values, in a loop':<22} numbers of the host")
    for count in range(1, 7):
        cells = ["{:>4} {:>4}".format(*compiled_for(count, *program)) for program in questions(count)]
        print(f"{count:>3}   {cells[0]:<22} {cells[1]:<22} {cells[2]}".rstrip())
    limits = f"recompile_limit {config.recompile_limit}, accumulated_recompile_limit {config.accumulated_recompile_limit}"
    print(f"ANCHOR_END: questions\n\n{limits}")
    for more in ({}, {"fail_on_recompile_limit_hit": True}):
        graphs, said = limited(**more)
        print(f"ten sizes of one function, dynamic=False{''.join(f', {k}={v}' for k, v in more.items())}: graphs so far {graphs}")
        for line in said:
            print(f"  {line}")


if __name__ == "__main__":
    main()
