"""What the format's public package reads in GGUF files, as JSON: `python3 tests/peers/gguf_package.py FILE ...`.

Of each file its keys, and of each tensor the sizes, the type and a CRC-32 of its numbers as little endian f32 after
dequantisation. Needs the package `gguf` from PyPI. Called by `tests/tests/workbook/gguf_export.rs`.
"""

import json
import sys
import zlib

import gguf
import numpy


def tensor(found):
    """A tensor's sizes, type and the checksum of its numbers."""
    numbers = gguf.quants.dequantize(found.data, found.tensor_type)
    numbers = numpy.ascontiguousarray(numbers, dtype="<f4")
    sizes = [int(size) for size in found.shape]
    return {"sizes": sizes, "type": found.tensor_type.name, "crc": zlib.crc32(numbers.tobytes())}


def keys(reader):
    """Every key but those that the package makes up of the file's front."""
    return {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}


def file(path):
    """Everything that is in a file."""
    reader = gguf.GGUFReader(path)
    return {"keys": keys(reader), "tensors": {one.name: tensor(one) for one in reader.tensors}}


print(json.dumps([file(path) for path in sys.argv[1:]]))
