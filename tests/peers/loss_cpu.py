"""Times torch on the CPU on challenge E's timed problem, in turns with the chunked run.

    cargo build --release -p tests --bin chunked
    python3 tests/peers/loss_cpu.py [ROUNDS] [SIZE ...]

Needs torch. Hidden 512, vocabulary 32,000, 2,048 tokens, f32, mean cross entropy, forward and backward: torch's eager linear
layer with its cross entropy, against the workbook's solution with SIZE rows a chunk (192 takes less than a tenth of the
whole logits' bytes). Once with the weight trained, once with it frozen. Both get the same numbers, and have to agree
on the loss and on the gradients' norms first. Prints medians and the median of the ratios with its quartiles.
"""

import ctypes
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

ROWS, WIDTH, VOCAB = 2048, 512, 32_000
ROUNDS, SIZES = 9, [192, 512]
PROGRAM = pathlib.Path(__file__).parents[2] / "target" / "release" / "chunked"
PAUSE = 0.5  # threads that wait actively have gone to sleep


def write(folder, **tensors):
    """As they lie in memory."""
    for name, tensor in tensors.items():
        (folder / name).write_bytes(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))


class Chunked:
    """The solution, in a process of its own."""

    def __init__(self, folder, size, trained):
        arguments = [folder, ROWS, WIDTH, VOCAB, size, int(trained)]
        command = [PROGRAM, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self):
        """Milliseconds, and the loss with the gradients' norms."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        milliseconds, *found = map(float, self.process.stdout.readline().split())
        return milliseconds, found

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def eager(hidden, weight, labels, trained):
    """The same of torch."""
    hidden = hidden.clone().requires_grad_()
    weight = weight.clone().requires_grad_(trained)
    begin = time.perf_counter()
    loss = F.cross_entropy(F.linear(hidden, weight), labels)
    loss.backward()
    milliseconds = (time.perf_counter() - begin) * 1e3
    norms = [one.grad.double().norm().item() for one in ([hidden, weight] if trained else [hidden])]
    return milliseconds, [loss.item(), *norms]


def agree(ours, theirs):
    if len(ours) != len(theirs) or any(abs(a - b) > 1e-4 * abs(b) for a, b in zip(ours, theirs)):
        sys.exit(f"no agreement: {ours} here, {theirs} there")


def quartiles(samples):
    low, middle, high = statistics.quantiles(samples, n=4)
    return f"{middle:.2f}x [{low:.2f}, {high:.2f}]"


def compare(chunked, call, rounds):
    """Medians of both, and the ratios."""
    (_, ours), (_, theirs) = chunked.run(), call()
    agree(ours, theirs)
    pairs = []
    for _ in range(rounds):
        time.sleep(PAUSE)
        here = chunked.run()[0]
        time.sleep(PAUSE)
        pairs.append((here, call()[0]))
    here, there = (statistics.median(times) for times in zip(*pairs))
    return here, there, quartiles([there / here for here, there in pairs])


def main():
    numbers = [int(text) for text in sys.argv[1:]]
    rounds, sizes = numbers[0] if numbers else ROUNDS, numbers[1:] or SIZES
    torch.manual_seed(0)
    hidden, weight = torch.randn(ROWS, WIDTH), torch.randn(VOCAB, WIDTH) * 0.05
    labels = torch.randint(0, VOCAB, (ROWS,))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {rounds} rounds")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder, hidden=hidden, weight=weight, labels=labels.int())
        for trained in [True, False]:
            for size in sizes:
                chunked = Chunked(folder, size, trained)
                call = lambda: eager(hidden, weight, labels, trained)
                here, there, ratio = compare(chunked, call, rounds)
                chunked.end()
                what = "trained" if trained else "frozen"
                print(f"{what:<8} {size:5} rows: {here:7.0f} ms, torch {there:7.0f} ms, {ratio}")


if __name__ == "__main__":
    main()
