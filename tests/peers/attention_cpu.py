"""Times torch's scaled_dot_product_attention on the CPU: what `attend`, the workbook's program, times.

    python3 tests/peers/attention_cpu.py [THREADS]

f32, batch 1, 8 heads of 64, causal, 2048 tokens: forward, and forward with backward. Medians of 15 runs.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HEADS, TOKENS, DEPTH, RUNS = 8, 2048, 64, 15


def median(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, TOKENS, DEPTH, requires_grad=True) for _ in range(3))
    grad = torch.randn(1, HEADS, TOKENS, DEPTH)

    def forward():
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(grad)

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, causal, {TOKENS} tokens: "
          f"forward {median(forward):.1f} ms, with gradients {median(both):.1f} ms")


if __name__ == "__main__":
    main()
