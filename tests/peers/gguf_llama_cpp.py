"""Exported GGUF files in llama.cpp: the same tokens, the same features. Prints `book/src/results/gguf-llama-cpp.txt`.

    python3 -m pip download --no-binary llama-cpp-python --no-deps llama-cpp-python==0.3.36     # the source
    tar xf llama_cpp_python-0.3.36.tar.gz
    cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_OPENMP=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \\
        llama_cpp_python-0.3.36/vendor/llama.cpp
    cmake --build build -j 2 --target llama mtmd ggml-cpu
    python3 tests/peers/gguf_llama_cpp.py llama_cpp_python-0.3.36/vendor/llama.cpp build target/release/trainer GOLDEN

GOLDEN is the folder of the golden archives, unpacked: open-tiny-llama, open-sft, open-vlm, open-generate.json. Needs
cmake, a C++ compiler, numpy, safetensors and tokenizers.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent

#: Texts whose tokens are compared.
TEXTS = [
    "Hello there, how's it going?",
    "<|begin|><|role|>user\nWhat is 12345 + 678?<|end|>",
    "   spaces  and\ttabs\n\n\nnewlines ",
    "naïve café - 日本語 🙂🙂",
    "it's I'LL we've DON'T",
    "x" * 50,
    "a1b22c333d4444 3.14",
    "  leading",
    "trailing  ",
    "\n",
    "mixed<|end|>tokens<|pad|>in text",
    "the sorted letters stretch steers",
]


def run(*command):
    """A command's output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stderr}")
    return done.stdout


def compiled(name, source, build, work):
    """One of the two programs beside this file."""
    folders = ["include", "ggml/include", "tools/mtmd", "common", "vendor"]
    includes = [f"-I{source / folder}" for folder in folders]
    libraries = ["-lmtmd", "-lllama", "-lggml", "-lggml-base", "-lggml-cpu"]
    link = [f"-L{build / 'bin'}", f"-Wl,-rpath,{(build / 'bin').resolve()}", *libraries]
    run("g++", "-O1", "-std=c++17", *includes, HERE / f"{name}.cpp", "-o", work / name, *link)
    return work / name


def ids(text):
    """Numbers between commas."""
    return [int(number) for number in text.split(",")] if text.strip() else []


def joined(numbers):
    """Numbers with commas between."""
    return ",".join(str(number) for number in numbers)


def generated(trainer, model, adapter, prompt):
    """64 greedy tokens of the trainer."""
    flags = ["--adapter", adapter] if adapter else []
    flags += ["--ids", joined(prompt), "--ignore-eos", "--max-new-tokens", 64, "--json", "--device", "cpu"]
    return json.loads(run(trainer, "generate", model, *flags))["new_ids"]


def texts(trainer, greedy, golden, work):
    """A Llama in several types, alone and with adapters, prompt by prompt."""
    tiny, tokenizer = golden / "open-tiny-llama", golden / "open-sft/tokenizer"
    cases = json.loads((golden / "open-generate.json").read_text())["cases"]
    adapters = [None, tiny / "adapter-start", tiny / "adapter-end"]
    prompts = list(dict.fromkeys(tuple(case["prompt_ids"]) for case in cases))
    always = ["--gguf", "--overwrite", "--tokenizer", tokenizer]
    for kind in ["dense", "nf4"]:
        file = work / f"{kind}.gguf"
        run(trainer, "export", tiny / kind, file, *always, "--dtype", "float32")
        for adapter in adapters:
            given = ["--adapter", adapter] if adapter else []
            merged, alone = work / "merged.gguf", work / "alone.gguf"
            run(trainer, "export", tiny / kind, merged, *always, "--dtype", "float32", *given)
            ways = [("merged" if adapter else "alone", merged, "-")]
            if adapter:
                run(trainer, "export", tiny / kind, alone, *always, "--only-adapter", *given)
                ways.append(("beside it, a GGUF adapter", file, alone))
            wanted = [generated(trainer, tiny / kind, adapter, prompt) for prompt in prompts]
            for way, model, beside in ways:
                found = [ids(run(greedy, model, beside, 64, joined(prompt))) for prompt in prompts]
                same = sum(a == b for a, b in zip(found, wanted))
                name = f"{kind}, {adapter.name} {way}" if adapter else kind
                print(f"{name}: the same 64 tokens after {same} of {len(prompts)} prompts")
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    own = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    found = [ids(run(greedy, work / "dense.gguf", "-", "tokens", text)) for text in TEXTS]
    print(f"tokens of {sum(a == b for a, b in zip(own, found))} of {len(TEXTS)} texts as tokenizers has them")


def features(trainer, projector, greedy, golden, work):
    """Qwen2-VL's features of the golden pixels, and both files loaded."""
    model = golden / "open-vlm/qwen2vl"
    expected = load_file(golden / "open-vlm/qwen2vl-expected.safetensors")
    for dtype in ["float32", "float16"]:
        run(trainer, "export", model, work / "vlm.gguf", "--gguf", "--overwrite", "--dtype", dtype)
        run(greedy, work / "vlm.gguf", "-", 1, "40,41,42")
        at, found = 0, []
        for frames, rows, columns in expected["grid_thw"]:
            count = frames * rows * columns
            patches = expected["pixel_values"][at : at + count]
            patches = patches.reshape(rows // 2, columns // 2, 2, 2, 3, 2, 14, 14)
            images = [patches[:, :, :, :, :, time].transpose(0, 2, 5, 1, 3, 6, 4) for time in (0, 1)]
            numpy.stack(images).astype("<f4").tofile(work / "pixels")
            run(projector, work / "mmproj-vlm.gguf", work / "pixels", columns * 14, rows * 14, work / "out")
            found.append(numpy.fromfile(work / "out", "<f4").reshape(-1, 64))
            at += count
        want = expected["image_features"]
        apart = numpy.linalg.norm(numpy.concatenate(found) - want) / numpy.linalg.norm(want)
        print(f"qwen2vl in {dtype}: features of {len(found)} pairs of frames {apart:.1e} apart, relative")


def main():
    """Everything, in order."""
    source, build, trainer, golden = [pathlib.Path(path).resolve() for path in sys.argv[1:5]]
    work = pathlib.Path(tempfile.mkdtemp())
    greedy, projector = [compiled(name, source, build, work) for name in ("gguf_greedy", "gguf_projector")]
    texts(trainer, greedy, golden, work)
    features(trainer, projector, greedy, golden, work)
    shutil.rmtree(work)


main()
