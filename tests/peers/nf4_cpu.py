"""Times bitsandbytes' own CPU entry points on the shapes of challenge A: the peer that the baseline stands for.

    python3 tests/peers/nf4_cpu.py PATH/libbitsandbytes_cpu.so [THREADS]

The library is the one inside the bitsandbytes wheel (0.50.x; unpack it, nothing else is needed). Buffers are
reused from call to call, so no page is touched for the first time inside a timed call. Prints the 8-bit pass,
the 4-bit pass and their sum in milliseconds, the fastest of 12 calls; run `cargo grader bench nf4 --attempt
solution` beside it and compare with the column "baseline".
"""

import array
import ctypes
import os
import sys
import time

SHAPES = [(2048, 8192, "fp16"), (1024, 4096, "bf16"), (4096, 14336, "bf16"), (4096, 14336, "fp16")]
CALLS = 12
BLOCK, NESTED = 64, 256


def buffer(size):
    memory = ctypes.create_string_buffer(size)
    ctypes.memset(memory, 1, size)
    return memory


def random_buffer(size):
    chunk = os.urandom(min(size, 1 << 20))
    return ctypes.create_string_buffer((chunk * (size // len(chunk) + 1))[:size], size)


def milliseconds(call):
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def measure(library, rows, columns, dtype):
    count = rows * columns
    blocks = count // BLOCK
    packed, codes = random_buffer(count // 2), random_buffer(blocks)
    table, scales, absmax, out = buffer(1024), buffer(blocks // NESTED * 4), buffer(blocks * 4), buffer(count * 2)
    plain = array.array("f", [0.02]) * blocks
    plain = (ctypes.c_float * blocks).from_buffer(plain)
    number = ctypes.c_longlong
    four_bit = getattr(library, f"cdequantize_blockwise_cpu_nf4_{dtype}")
    eight = lambda: library.cdequantize_blockwise_cpu_fp32(table, codes, scales, absmax, number(NESTED), number(blocks))
    four = lambda: four_bit(packed, plain, out, number(BLOCK), number(rows), number(columns))
    times = [(milliseconds(eight), milliseconds(four)) for _ in range(CALLS)]
    return min(t[0] for t in times), min(t[1] for t in times), min(sum(t) for t in times)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if len(sys.argv) > 2:
        os.environ["OMP_NUM_THREADS"] = sys.argv[2]
    library = ctypes.CDLL(sys.argv[1])
    print(f"{'shape':<20} {'8-bit':>8} {'4-bit':>8} {'both':>8}   ms, fastest of {CALLS}")
    for rows, columns, dtype in SHAPES:
        eight, four, both = measure(library, rows, columns, dtype)
        print(f"{rows} x {columns} {dtype:<6} {eight:8.3f} {four:8.3f} {both:8.3f}")


if __name__ == "__main__":
    main()
