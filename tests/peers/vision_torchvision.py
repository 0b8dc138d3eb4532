"""What torchvision makes of drawn images in other sizes: `tests/tests/workbook/vision_torchvision.json`.

    pip install torch==2.15.0 torchvision==0.29.2
    python tests/peers/vision_torchvision.py > tests/tests/workbook/vision_torchvision.json

Each case is the size of an image, the size that it is resized to, how its bytes are drawn, and the 64-bit FNV-1a hash
of the bytes (H, W, 3) that come out. Byte i is the upper 8 bits of the i-th state of Knuth's MMIX generator, begun at
the case's number; of "extremes" 255 if it is above 127, else 0. Sizes that torch itself fails on are left out.
"""

import json
import random

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional


def drawn(number, count, extremes):
    state, values = number, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        byte = state >> 56
        values.append((255 if byte > 127 else 0) if extremes else byte)
    return values


def fnv(values):
    state = 0xCBF29CE484222325
    for value in values:
        state = (state ^ value) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def edge():
    return random.choice([1, 2, 3, 14, random.randint(1, 40), random.randint(1, 120), random.randint(1, 120)])


random.seed(3407)
sizes = [[edge(), edge(), edge(), edge()] for _ in range(116)]
sizes += [[900, 2, 5, 3], [2, 900, 1, 9], [1, 1, 64, 64], [700, 1, 1, 1]]
cases = []
for number, (height, width, to_height, to_width) in enumerate(sizes):
    extremes = number % 2 == 1
    pixels = drawn(number, height * width * 3, extremes)
    image = torch.frombuffer(pixels, dtype=torch.uint8).reshape(height, width, 3).permute(2, 0, 1).contiguous()
    try:
        resized = functional.resize(
            image[None], [to_height, to_width], interpolation=InterpolationMode.BICUBIC, antialias=True
        )[0]
    except RuntimeError:  # an assertion of its own, for some images of a single column
        continue
    hashed = fnv(resized.permute(1, 2, 0).contiguous().numpy().tobytes())
    cases.append({"number": number, "from": [height, width], "to": [to_height, to_width], "extremes": extremes, "fnv": hashed})
print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")
