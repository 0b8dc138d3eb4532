"""Counts the outputs of NF4 with double quantisation that a fused multiply-add in the scale changes.

    python3 tests/peers/nf4_fused.py

Weights are normal with the deviations below, 32 Mi of each, quantised in blocks of 64 and 256 with this repository's
tables. The scale is computed with two roundings and with one; what differs then goes through product and rounding.
Needs numpy.
"""

import pathlib
import re

import numpy as np

TABLE = pathlib.Path(__file__).parents[2] / "reference/src/nf4/table.rs"
BLOCKS = 1 << 19
DEVIATIONS = [0.005, 0.01, 0.02, 0.03, 0.05, 0.1]


def table(name):
    body = TABLE.read_text().split(f"const {name}: ")[1].split("= [")[1].split("]")[0]
    return np.array([int(word, 16) for word in re.findall(r"0x[0-9a-f]{8}", body)], dtype=np.uint32).view(np.float32)


def nearest(levels, values):
    middles = (levels[1:].astype(np.float64) + levels[:-1]) / 2
    return np.searchsorted(middles, values.ravel()).reshape(values.shape)


def bf16(values):
    bits = values.view(np.uint32)
    return (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16


def flips(nf4, code2, deviation, random):
    weights = random.standard_normal((BLOCKS, 64), dtype=np.float32) * np.float32(deviation)
    absmax = np.abs(weights).max(1)
    codes = nearest(nf4, weights / absmax[:, None])
    offset = np.float32(absmax.mean(dtype=np.float64))
    groups = (absmax - offset).reshape(-1, 256)
    scales = np.abs(groups).max(1)
    entries = code2[nearest(code2, groups / scales[:, None])].ravel()
    scales = np.repeat(scales, 256)
    two = entries * scales + offset
    one = (entries.astype(np.float64) * scales + np.float64(offset)).astype(np.float32)  # the product is exact
    differ = np.nonzero(two != one)[0]
    values = nf4[codes[differ]]
    a, b = values * two[differ, None], values * one[differ, None]
    counts = [(a != b).sum(), (a.astype(np.float16) != b.astype(np.float16)).sum(), (bf16(a) != bf16(b)).sum()]
    return len(differ), counts


def main():
    nf4, above = table("NF4_BITS"), table("CODE2_ABOVE_ZERO")
    code2 = np.concatenate([-above[::-1], np.zeros(1, np.float32), above, np.ones(1, np.float32)])
    random = np.random.default_rng(3407)
    total = np.zeros(3)
    print("deviation  scales that differ   outputs that differ, in a million:   f32    f16   bf16")
    for deviation in DEVIATIONS:
        scales, counts = flips(nf4, code2, deviation, random)
        total += counts
        f32, f16, b16 = np.array(counts) / (BLOCKS * 64) * 1e6
        print(f"{deviation:9}  {scales / BLOCKS:16.2%}  {f32:43.0f} {f16:6.2f} {b16:6.2f}", flush=True)
    f32, f16, b16 = total / (BLOCKS * 64 * len(DEVIATIONS)) * 1e6
    print(f"      all  {f32:61.0f} {f16:6.2f} {b16:6.2f}")


if __name__ == "__main__":
    main()
