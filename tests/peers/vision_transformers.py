"""Runs of a tiny Qwen2-VL with an adapter by transformers and peft: `tests/tests/workbook/vision_transformers.json`.

    python tests/peers/vision_transformers.py TRAINER MODEL TEMPLATE OUT.json

TRAINER is the program, MODEL the folder `qwen2vl` of the golden archive `open-vlm.tgz`, TEMPLATE
`challenges/src/issues/vision/template.jinja`. OUT.json has the images and the rows of the data, from which the test
makes the same files, the settings, and the logs of a run in float32 and one in float64: the loss before each update, the
mean over the assistant's tokens of the step, and the norm of the gradient before its bound.

The adapter that the trainer begins with is the run's, loaded by peft under the names that the trainer writes. Images go
through `Qwen2VLImageProcessor`; only the language model is trained.

Needs torch, torchvision, transformers, peft, pillow and safetensors; no GPU.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from peft import PeftModel
from PIL import Image
from transformers import AutoTokenizer, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

IMAGES = [("a.png", 60, 44), ("b.png", 90, 200), ("c.png", 31, 31), ("d.png", 140, 50)]
SETTINGS = {
    "max_steps": 20,
    "per_device_train_batch_size": 3,
    "learning_rate": 5e-3,
    "lr_scheduler_type": "constant",
    "weight_decay": 0.01,
    "train_sampling_strategy": "sequential",
    "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "lora_r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.0,
    "max_pixels": 12544,
}
IGNORED = -100


def row(answers, *questions):
    images = [part for question in questions for part in question if part.endswith(".png")]
    messages = []
    for question, answer in zip(questions, answers):
        part = lambda text: {"type": "image"} if text.endswith(".png") else {"type": "text", "text": text}
        content = [part(text) for text in question] if images else question[0]
        messages += [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
    return ({"images": images} if images else {}) | {"messages": messages}


ROWS = [
    row(["A disc."], ["a.png", "What is it?"]),
    row(["Indeed so."], ["No image here, only text."]),
    row(["Both are drawn.", "The second."], ["b.png", "a.png", "Compare them."], ["Which is wider?"]),
    row(["Tall."], ["And this: ", "d.png"]),
    row(["Small.", "A line."], ["c.png", "Size?"], ["b.png", "Now?"]),
    row(["Yes.", "No."], ["Is it so?"], ["Really?"]),
]


def drawn(number, count):
    state, values = number, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(state >> 56)
    return bytes(values)


def train(program, config, **settings):
    value = lambda value: json.dumps(value) if isinstance(value, (list, bool)) else str(value)
    given = [f"--set={key}={value(setting)}" for key, setting in settings.items()]
    subprocess.run([program, "train", config, *given], check=True)


def encoded(line, tokenizer, processor, folder):
    """Tokens, labels and images of a row."""
    images = [Image.open(folder / name).convert("RGB") for name in line.get("images", [])]
    made = processor(images=images, return_tensors="pt") if images else None
    text = tokenizer.apply_chat_template(line["messages"], tokenize=False)
    parts = text.split("<|image_pad|>")
    grids = made["image_grid_thw"].tolist() if images else []
    text = parts[0] + "".join("<|image_pad|>" * (t * h * w // 4) + part for (t, h, w), part in zip(grids, parts[1:]))
    spans, begin = [], 0
    while (begin := text.find("<|im_start|>assistant\n", begin)) >= 0:
        begin += len("<|im_start|>assistant\n")
        spans.append((begin, text.index("<|im_end|>", begin) + len("<|im_end|>")))
    tokens = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    kept = [any(begin <= a and b <= end for begin, end in spans) for a, b in tokens["offset_mapping"]]
    labels = [id if is_kept else IGNORED for id, is_kept in zip(tokens["input_ids"], kept)]
    return tokens["input_ids"], labels, made


def batch(rows, pad, image, dtype):
    length = max(len(ids) for ids, _, _ in rows)
    filled = lambda values, filling: torch.tensor([list(each) + [filling] * (length - len(each)) for each in values])
    ids = filled([ids for ids, _, _ in rows], pad)
    given = {"input_ids": ids, "attention_mask": filled([[1] * len(ids) for ids, _, _ in rows], 0)}
    given["mm_token_type_ids"] = (ids == image).int()
    seen = [made for _, _, made in rows if made is not None]
    if seen:
        given["pixel_values"] = torch.cat([made["pixel_values"] for made in seen]).to(dtype)
        given["image_grid_thw"] = torch.cat([made["image_grid_thw"] for made in seen])
    return given, filled([labels for _, labels, _ in rows], IGNORED)


def log(folder, adapter, dtype):
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    processor = Qwen2VLImageProcessor(size={"shortest_edge": 3136, "longest_edge": SETTINGS["max_pixels"]})
    base = Qwen2VLForConditionalGeneration.from_pretrained(folder / "model", dtype=torch.float32)
    model = PeftModel.from_pretrained(base, adapter, is_trainable=True).to(dtype)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=SETTINGS["learning_rate"], weight_decay=SETTINGS["weight_decay"])
    rows = [encoded(line, tokenizer, processor, folder) for line in ROWS]
    kept, size = [], SETTINGS["per_device_train_batch_size"]
    for step in range(SETTINGS["max_steps"]):
        first = step * size % len(ROWS)
        given, labels = batch(rows[first : first + size], 258, base.config.image_token_id, dtype)
        logits = model(**given).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        kept.append({"loss": loss.item(), "grad_norm": norm.item()})
    return kept


def main():
    parser = argparse.ArgumentParser()
    for name in ["program", "model", "template", "out"]:
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(given.model, folder / "model")
        shutil.copy(given.template, folder / "model" / "chat_template.jinja")
        for number, (name, height, width) in enumerate(IMAGES):
            Image.frombytes("RGB", (width, height), drawn(number, height * width * 3)).save(folder / name)
        (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ROWS))
        paths = {"model_name_or_path": "model", "dataset_name": "data.jsonl", "output_dir": "out"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in paths.items()]
        (folder / "config.toml").write_text("\n".join([*lines, "assistant_only_loss = true", "max_length = false", ""]))
        # the rate of the first step is 0, so its checkpoint is the adapter that the run begins with
        begin = {"max_steps": 1, "save_steps": 1, "warmup_steps": 2, "lr_scheduler_type": "linear"}
        train(given.program, folder / "config.toml", **(SETTINGS | begin))
        runs = {name: log(folder, folder / "out" / "checkpoint-1", dtype) for name, dtype in [("f32", torch.float32), ("f64", torch.float64)]}
    made = {library: version(library) for library in ["torch", "torchvision", "transformers", "peft"]}
    kept = {"versions": made, "settings": SETTINGS, "images": IMAGES, "rows": ROWS, "runs": runs}
    given.out.write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main()
