"""Times compiled flex attention on nine lengths, at torch's default recompile limit and above it.

    python3 tests/peers/flex_limit.py

Needs torch and a GPU. bf16, batch 1, 32 query heads over 8 key heads of 128, causal, forward. Each length is
compiled for itself (dynamic=False); milliseconds are the median of 20 calls, memory is the peak above what is there
before the call.
"""

import statistics

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

LENGTHS = [512 * i for i in range(1, 10)]


def causal(b, h, q, k):
    return q >= k


def timed(run):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times), (torch.cuda.max_memory_allocated() - before) / 2**20


@torch.no_grad()
def main():
    default = torch._dynamo.config.recompile_limit
    print(f"tests/peers/flex_limit.py, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for limit in (default, 64):
        torch._dynamo.reset()
        torch._dynamo.config.recompile_limit = limit
        flex = torch.compile(flex_attention, dynamic=False)
        print(f"recompile_limit {limit}{' (the default)' if limit == default else ''}")
        for length in LENGTHS:
            q, k, v = (torch.randn(1, h, length, 128, device="cuda", dtype=torch.bfloat16) for h in (32, 8, 8))
            mask = create_block_mask(causal, None, None, length, length, device="cuda")
            ms, mib = timed(lambda: flex(q, k, v, block_mask=mask, enable_gqa=True))
            print(f"  T = {length:5}  {ms:8.3f} ms  {mib:8.0f} MiB")


if __name__ == "__main__":
    main()
