"""Prompts and completions that are messages, as TRL's SFTTrainer tokenizes and masks them.

    python tests/peers/prompts_trl.py GOLDEN OUT.json

GOLDEN is the folder with open-sft.tgz, whose tokenizer is used. Rows are drawn from a seed: messages before and in the
completion, tools as a list and as text, calls and their results, variables for the template. Each is prepared under
three templates: the tokenizer's own; one with tools, calls and a variable; one that ends a prompt alone with an empty
thought, which a whole conversation lacks. OUT.json has the templates, the rows, and for each row and template the
tokens and which of them have a label: with the loss of the completion, and with that of the assistant's part of it.

Needs torch, transformers, trl and datasets; no GPU.
"""

import json
import platform
import random
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from datasets import load_dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

ROWS = 24
WORDS = "river stone ember north paper glass signal winter copper seven 12 é 𝛼β".split()

WITH_TOOLS = """{{ bos_token }}{% if style is defined %}<|role|>style
{{ style }}<|end|>
{% endif %}{% if tools %}<|role|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|end|>
{% endif %}{% for m in messages %}<|role|>{{ m['role'] }}
{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% for call in m['tool_calls'] or [] %}{{ call['function'] | tojson }}{% endfor %}<|end|>{% endgeneration %}{% else %}{{ m['content'] }}<|end|>{% endif %}

{% endfor %}{% if add_generation_prompt %}<|role|>assistant
{% endif %}"""

WITH_THOUGHT = """{{ bos_token }}{% for m in messages %}<|role|>{{ m['role'] }}
{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|end|>{% endgeneration %}{% else %}{{ m['content'] }}<|end|>{% endif %}
{% endfor %}{% if add_generation_prompt %}<|role|>assistant
think: end think
{% endif %}"""


def text(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 6))) + draw.choice([".", "?", "", "!"])


def message(draw, role):
    return {"role": role, "content": text(draw)}


def tool(name):
    parameters = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    return {"type": "function", "function": {"name": name, "description": "Finds a word.", "parameters": parameters}}


def call(draw):
    function = {"name": "find", "arguments": {"word": draw.choice(WORDS)}}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def row(draw):
    """A prompt that ends with a user's message or a tool's, and what follows it."""
    prompt = [message(draw, "system")] if draw.random() < 0.3 else []
    for _ in range(draw.randint(0, 1)):
        prompt += [message(draw, "user"), message(draw, "assistant")]
    prompt.append(message(draw, "user"))
    completion = [message(draw, "assistant")]
    kind = draw.randint(0, 3)
    if kind == 1:
        completion += [message(draw, "user"), message(draw, "assistant")]
    if kind == 2:
        completion = [call(draw), message(draw, "tool"), *completion]
    if kind == 3:
        prompt += [call(draw), message(draw, "tool")]
    row = {"prompt": prompt, "completion": completion}
    if kind >= 2 or draw.random() < 0.3:
        tools = [tool("find"), tool("count")][: draw.randint(1, 2)]
        row["tools"] = json.dumps(tools) if draw.random() < 0.5 else tools
    if draw.random() < 0.3:
        row["chat_template_kwargs"] = {"style": text(draw)}
    return row


def dataset(row, scratch):
    """A data set of one row: in one of several, datasets gives each object the keys of all others."""
    file = Path(scratch) / "row.jsonl"
    file.write_text(json.dumps(row) + "\n")
    return load_dataset("json", data_files=str(file), split="train", cache_dir=scratch)


def trainer(tokenizer, sample, assistant_only, scratch):
    config = LlamaConfig(
        vocab_size=512, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    args = SFTConfig(
        output_dir=scratch,
        assistant_only_loss=assistant_only,
        max_length=None,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    data = dataset(sample, scratch)
    return SFTTrainer(model=LlamaForCausalLM(config), args=args, train_dataset=data, processing_class=tokenizer)


def prepared(trainer, row, scratch):
    """The tokens, and as a string of 0 and 1 which have a label."""
    data = dataset(row, scratch)
    data = trainer._prepare_dataset(data, trainer.processing_class, trainer.args, False, None, "train")
    return data[0]["input_ids"], "".join(str(int(label != -100)) for label in data[0]["labels"])


def main():
    golden, out = map(Path, sys.argv[1:3])
    draw = random.Random(17)
    rows = [row(draw) for _ in range(ROWS)]
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(golden / "open-sft.tgz") as tar:
            tar.extractall(scratch, filter="data")
        tokenizer = AutoTokenizer.from_pretrained(Path(scratch) / "open-sft" / "tokenizer")
        templates = {"own": tokenizer.chat_template, "tools": WITH_TOOLS, "thought": WITH_THOUGHT}
        kept = {}
        for name, template in templates.items():
            tokenizer.chat_template = template
            ways = [trainer(tokenizer, rows[0], assistant_only, scratch) for assistant_only in [False, True]]
            kept[name] = []
            for one in rows:
                [whole, assistant] = [prepared(way, one, scratch) for way in ways]
                assert assistant[0] == whole[0]
                kept[name].append({"input_ids": whole[0], "completion": whole[1], "assistant": assistant[1]})
    libraries = ["torch", "transformers", "trl", "datasets"]
    made = {"python": platform.python_version(), **{library: version(library) for library in libraries}}
    lines = {"versions": made, "templates": templates, "rows": rows, "kept": kept}
    out.write_text(json.dumps(lines, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
