"""Times torch on the CPU on the step that challenge C is timed on: eager, and compiled by inductor.

    python3 tests/peers/graph_cpu.py [LENGTH]

Needs torch and a C++ compiler. One QLoRA step - 4 layers, hidden 512, 8 heads over 4 key heads, 1408 inside the MLP, 512
tokens in the vocabulary, NF4 weights in blocks of 64 with 8-bit scales, adapters of rank 8 on all seven projections, f32 -
forward to the loss and backward to the adapters, batch 1. Weights are dequantised by table look-up in torch, since bitsandbytes' own CPU code does not go through the
compiler. Prints the best and the median of the calls in milliseconds.
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HIDDEN, HEADS, KEY_HEADS, INSIDE, VOCAB, RANK, BLOCK, NESTED = 4, 512, 8, 4, 1408, 512, 8, 64, 256
CALLS = 15

TABLE = torch.linspace(-1, 1, 16)  # the values do not change the time
TABLE8 = torch.linspace(-1, 1, 256)


class Projection(nn.Module):
    """W x in NF4 plus B A x."""

    def __init__(self, inputs, outputs):
        super().__init__()
        count = inputs * outputs
        self.shape = (outputs, inputs)
        self.register_buffer("packed", torch.randint(0, 256, (count // 2,), dtype=torch.uint8))
        self.register_buffer("codes", torch.randint(0, 256, (count // BLOCK,), dtype=torch.uint8))
        self.register_buffer("scales", torch.full((-(-count // BLOCK // NESTED),), 0.02))
        self.a = nn.Parameter(torch.randn(RANK, inputs) * 0.01)
        self.b = nn.Parameter(torch.randn(outputs, RANK) * 0.01)

    def weight(self):
        absmax = TABLE8[self.codes.int()] * self.scales.repeat_interleave(NESTED)[: self.codes.numel()] + 0.05
        nibbles = torch.stack((self.packed >> 4, self.packed & 15), -1).view(-1, BLOCK)
        return (TABLE[nibbles.int()] * absmax[:, None]).view(self.shape)

    def forward(self, x):
        return x @ self.weight().t() + 2.0 * (x @ self.a.t() @ self.b.t())


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.ones(HIDDEN))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = Projection(HIDDEN, HIDDEN), Projection(HIDDEN, HIDDEN)
        self.k, self.v = (Projection(HIDDEN, HIDDEN // HEADS * KEY_HEADS) for _ in range(2))
        self.first, self.second = Norm(), Norm()
        self.gate, self.up, self.down = Projection(HIDDEN, INSIDE), Projection(HIDDEN, INSIDE), Projection(INSIDE, HIDDEN)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        y = self.first(x)
        depth = HIDDEN // HEADS
        q, k, v = (p(y).view(batch, length, -1, depth).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(batch, length, HIDDEN))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        self.register_buffer("embedding", torch.randn(VOCAB, HIDDEN))
        self.register_buffer("head", torch.randn(VOCAB, HIDDEN) * HIDDEN**-0.5)

    def forward(self, ids):
        half = HIDDEN // HEADS // 2
        angles = torch.outer(torch.arange(ids.shape[1]).float(), 1e4 ** (-torch.arange(half).float() / half))
        cos, sin = angles.cos(), angles.sin()
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.norm(x) @ self.head.t()
        return F.cross_entropy(logits[0, :-1], ids[0, 1:])


def timed(step):
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return min(times), statistics.median(times)


def main():
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    torch.manual_seed(0)
    stack = Stack()
    x = torch.randint(0, VOCAB, (1, length))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {LAYERS} layers, T = {length}")
    for name, run in (("eager", stack), ("compiled", torch.compile(stack, fullgraph=True))):
        begin = time.perf_counter()
        run(x).backward()
        first = time.perf_counter() - begin
        best, median = timed(lambda: run(x).backward())
        print(f"{name:9} best {best:8.1f} ms, median {median:8.1f} ms, first call {first:6.1f} s")


if __name__ == "__main__":
    main()
