"""What Pillow makes of image files of every kind: `tests/tests/workbook/vision_pillow.json`.

    pip install pillow==13.0.0
    python tests/peers/vision_pillow.py > tests/tests/workbook/vision_pillow.json

Each case is a file in hexadecimal digits and what transformers' `load_image` makes of it: the size (H, W) and the bytes
of red, green and blue, after `exif_transpose` and `convert("RGB")`; or the error.
"""

import io
import json
import struct
import zlib

from PIL import Image, ImageOps

SIZE = (11, 6)  # width, height


def drawn(mode):
    bands = {"1": 1, "L": 1, "LA": 2, "P": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    state, values = 5, bytearray()
    for _ in range(SIZE[0] * SIZE[1] * bands):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(state >> 56)
    if mode == "1":
        return Image.frombytes("L", SIZE, bytes(values)).convert("1")
    image = Image.frombytes(mode, SIZE, bytes(value % 7 if mode == "P" else value for value in values))
    if mode == "P":
        image.putpalette([(37 * i + 11) % 256 for i in range(7 * 3)])
    return image


def smooth():
    """What a JPEG keeps nearly as it is."""
    image = Image.new("RGB", (24, 16))
    image.putdata([(10 * x, 12 * y, 5 * (x + y)) for y in range(16) for x in range(24)])
    return image


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def png(width, height, bits, kind, rows):
    """A file by its parts, whatever they promise."""
    part = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def files():
    for mode in ["1", "L", "LA", "P", "RGB", "RGBA"]:
        yield f"png {mode}", saved(drawn(mode), "PNG")
    yield "png P with transparency", saved(drawn("P"), "PNG", transparency=3)
    yield "png RGB with transparency", saved(drawn("RGB"), "PNG", transparency=(1, 2, 3))
    for bits in [2, 4]:
        row = bytes([0]) + bytes(range(3, 3 + (8 * bits + 7) // 8))
        yield f"png of {bits} bits", png(8, 2, bits, 0, row * 2)
    for orientation in range(1, 9):
        yield f"png turned {orientation}", saved(drawn("RGB"), "PNG", exif=turned(orientation))
        yield f"jpeg turned {orientation}", saved(smooth(), "JPEG", quality=95, exif=turned(orientation))
    yield "jpeg", saved(smooth(), "JPEG", quality=95)
    yield "jpeg progressive", saved(smooth(), "JPEG", quality=95, progressive=True)
    yield "jpeg grey", saved(smooth().convert("L"), "JPEG", quality=95)
    yield "jpeg 4:4:4", saved(smooth(), "JPEG", quality=95, subsampling=0)
    yield "cmyk", saved(drawn("CMYK"), "JPEG")
    yield "16 bits", png(2, 2, 16, 2, (bytes([0]) + bytes(range(12))) * 2)
    yield "16 bits of grey", png(2, 2, 16, 0, (bytes([0]) + bytes(range(4))) * 2)
    yield "a long line", png(100000, 1, 8, 2, bytes(1 + 300000))
    yield "a promise", png(60000, 60000, 8, 2, bytes(100))
    yield "no pixels", png(0, 5, 8, 2, b"")
    yield "too few rows", png(5, 5, 8, 2, bytes(20))
    whole = {"png": saved(drawn("RGB"), "PNG"), "jpeg": saved(smooth(), "JPEG", quality=95)}
    for name, file in whole.items():
        for part in [0, 1, 7, 20, len(file) // 2, len(file) - 13, len(file) - 2]:
            yield f"{name} of {part} bytes", file[:part]
    yield "a gif", saved(drawn("P"), "GIF")
    yield "a text", b"no image at all"


def answer(file):
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB")
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".split(" at 0x")[0].split("<")[0]}
    if image.width * image.height > 10000:
        return {"size": [image.height, image.width]}
    return {"size": [image.height, image.width], "pixels": image.tobytes().hex()}


cases = [{"name": name, "file": file.hex(), **answer(file)} for name, file in files()]
print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")
