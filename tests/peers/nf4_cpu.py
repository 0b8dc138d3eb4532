"""Times bitsandbytes' own CPU entry points on the shapes of challenge A: the peer that the baseline stands for.

    python3 tests/peers/nf4_cpu.py PATH/libbitsandbytes_cpu.so [THREADS] [--without-avx-512] [--keep]

The library is the one inside the bitsandbytes wheel (0.50.x; unpack it, nothing else is needed). The calls go
round over several matrices, and no page is touched for the first time inside a timed call. Prints the medians
of the 8-bit pass, the 4-bit pass and both in milliseconds; the offset, which the library adds in a pass of its
own, is not in it. Run `cargo grader bench nf4 --attempt solution` beside it and compare with the column
"baseline".

The library has vector code for AVX-512 and scalar code for everything else. `--without-avx-512` has it take the
scalar code on a machine with AVX-512, by the answers that it keeps about the processor (found with `nm`); beside it
belongs `WARPBOOK_VECTOR=avx2 cargo grader bench nf4 --attempt solution`.

`--keep` writes the times to `.warpbook/nf4-library.json`. The grader then shows the library's ratio next to the
baseline's, on this machine and with the same vector instructions.
"""

import array
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SHAPES = [(2048, 8192, "fp16"), (1024, 4096, "bf16"), (4096, 14336, "bf16"), (4096, 14336, "fp16")]
CALLS = 24
ROTATION = 256 << 20  # bytes of inputs and outputs that the calls go round over, as the grader does
BLOCK, NESTED = 64, 256
CASES = {"fp16": "f16", "bf16": "bf16"}  # as the grader names them


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
    """Medians of the 8-bit pass, the 4-bit pass and both, over sets that no cache holds together."""
    count = rows * columns
    blocks = count // BLOCK
    sets = max(3, -(-ROTATION // (count * 5 // 2)))
    inputs = [(random_buffer(count // 2), random_buffer(blocks), buffer(count * 2)) for _ in range(sets)]
    table, scales, absmax = buffer(1024), buffer(blocks // NESTED * 4), buffer(blocks * 4)
    plain = (ctypes.c_float * blocks).from_buffer(array.array("f", [0.02]) * blocks)
    number = ctypes.c_longlong
    eight_bit = library.cdequantize_blockwise_cpu_fp32
    four_bit = getattr(library, f"cdequantize_blockwise_cpu_nf4_{dtype}")
    times = []
    for call in range(CALLS + sets):
        packed, codes, out = inputs[call % sets]
        eight = milliseconds(lambda: eight_bit(table, codes, scales, absmax, number(NESTED), number(blocks)))
        four = milliseconds(lambda: four_bit(packed, plain, out, number(BLOCK), number(rows), number(columns)))
        times.append((eight, four, eight + four))
    return [statistics.median(column) for column in zip(*times[sets:])]


def take_scalar_code(path):
    """Answers for the library, before it asks: the processor has no AVX-512."""
    with open("/proc/self/maps") as maps:
        base = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(os.path.realpath(path)))
    symbols = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    for line in symbols.splitlines():
        address, _, name = line.rpartition(" ")
        if "supported_avx512" in name:
            is_asked = name.startswith("_ZGV")  # whether the answer is there, or the answer
            ctypes.c_ubyte.from_address(base + int(address.split()[0], 16)).value = is_asked


def processor():
    """The processor's name, as the grader reads it."""
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else ""


def keep(library, is_vector, microseconds):
    folder = pathlib.Path(__file__).resolve().parents[2] / ".warpbook"
    folder.mkdir(exist_ok=True)
    version = pathlib.Path(library).resolve().parent.parent.glob("bitsandbytes-*.dist-info")
    names = [path.name.removesuffix(".dist-info").replace("-", " ") for path in version]
    written = {
        "library": names[0] if names else "bitsandbytes",
        "processor": processor(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())),
        "avx512": is_vector,
        "microseconds": microseconds,
    }
    path = folder / "nf4-library.json"
    path.write_text(json.dumps(written, indent=1) + "\n")
    print(f"written to {path}")


def main():
    flags = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    arguments = [argument for argument in sys.argv[1:] if argument not in flags]
    if not arguments or not {*flags} <= {"--without-avx-512", "--keep"}:
        sys.exit(__doc__)
    if len(arguments) > 1:
        os.environ["OMP_NUM_THREADS"] = arguments[1]
    library = ctypes.CDLL(arguments[0])
    if "--without-avx-512" in flags:
        take_scalar_code(arguments[0])
    is_vector = bool(library.has_avx512f_cpu())
    print("AVX-512:", "used" if is_vector else "not used")
    kept = {}
    print(f"{'shape':<20} {'8-bit':>8} {'4-bit':>8} {'both':>8}   ms, median of {CALLS}")
    for rows, columns, dtype in SHAPES:
        eight, four, both = measure(library, rows, columns, dtype)
        print(f"{rows} x {columns} {dtype:<6} {eight:8.3f} {four:8.3f} {both:8.3f}")
        kept[f"{rows}x{columns}.{CASES[dtype]}"] = round(both * 1e3, 3)
    if "--keep" in flags:
        keep(arguments[0], is_vector, kept)


if __name__ == "__main__":
    main()
