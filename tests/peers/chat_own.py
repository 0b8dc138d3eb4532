#!/usr/bin/env python3
"""Renders the project's own chat templates with its own conversations by transformers, and writes what comes out.

    python3 tests/peers/chat_own.py            # rewrites expected.jsonl; needs transformers and jinja2
    python3 tests/peers/chat_own.py --check    # says which rows would change
    python3 tests/peers/chat_own.py --parse    # reads them back by transformers and by the workbook: where do they differ?

One line a template and conversation: the text and the assistant's spans in characters, or the kind of the error.
The clock stands at 2026-01-05 09:07:03. Written with transformers 5.23.0 and jinja2 3.1.6.
--parse needs `cargo build --release -p tests --bin chat`. What only the workbook's parser knows, calls in Python, is left out.
"""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jinja2
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_parsing, chat_template_utils

OWN = pathlib.Path(__file__).resolve().parents[2] / "challenges/chat/src/own"
PROGRAM = pathlib.Path(os.environ.get("CHAT", OWN.parents[4] / "target" / "release" / "chat"))
NOON = datetime.datetime(2026, 1, 5, 9, 7, 3)


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOON


def kind(error):
    # raise_exception raises the base class itself
    return "raise_exception" if type(error) is jinja2.TemplateError else type(error).__name__


def render(tokenizer, source, conversation, tools, variables):
    named = conversation.get("tools")
    given = {
        "tools": [tools[name] for name in named] if named else None,
        "documents": conversation.get("documents"),
        "chat_template": source,
        "add_generation_prompt": conversation.get("add_generation_prompt", False),
    } | variables
    messages = conversation["messages"]
    if conversation.get("continue_final_message"):  # not to be had together with spans
        text = tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True, **given)
        return {"text": text}
    text = tokenizer.apply_chat_template(messages, tokenize=False, **given)
    kept = [{key: value for key, value in message.items() if value is not None} for message in messages]
    texts, spans = chat_template_utils.render_jinja_template([kept], return_assistant_tokens_mask=True, **given)
    assert texts == [text]
    return {"text": text, "spans": [list(span) for span in spans[0]]}


def rows():
    given = json.loads((OWN / "conversations.json").read_text(encoding="utf-8"))
    tools = {tool["function"]["name"]: tool for tool in given["tools"]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    for name, format in json.loads((OWN / "responses.json").read_text(encoding="utf-8")).items():
        source = (OWN / f"{name}.jinja").read_bytes().decode("utf-8")
        refused = set()
        for conversation in given["conversations"]:
            row = {"template": name, "conversation": conversation["name"]}
            variables = format["tokens"] | conversation.get("variables", {})
            try:
                row |= render(tokenizer, source, conversation, tools, variables)
            except Exception as error:  # whatever Python raises is what is asked for
                if (why := f"{type(error).__name__}: {error}") in refused:
                    continue  # the same refusal again teaches nothing
                refused.add(why)
                print(f"{name} {conversation['name']}: {why}", file=sys.stderr)
                row["error"] = kind(error)
            yield json.dumps(row, ensure_ascii=False)


def theirs(job):
    """The message by transformers; null where it refuses."""
    try:
        parser = chat_parsing.ResponseParser(job["template"], prefix=job["prefix"])
        parser.feed(job["text"])
        return parser.finalize()[0]
    except Exception as error:  # whatever Python raises is a refusal
        print(f"transformers refuses {job['name']}: {error}", file=sys.stderr)


def ours(jobs):
    """The messages by the workbook's parser, of pieces of seven bytes; null where it refuses."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("".join(json.dumps(job) + "\n" for job in jobs))
        file.flush()
        orders = "".join(f"{at} 7 1\n" for at in range(len(jobs)))
        ran = subprocess.run([PROGRAM, "parse", file.name], input=orders, check=True, text=True, stdout=subprocess.PIPE)
    return [json.loads(line)["message"] for line in ran.stdout.strip("\n").split("\n")]


def parse():
    formats = json.loads((OWN / "responses.json").read_text(encoding="utf-8"))
    expected = [json.loads(line) for line in (OWN / "expected.jsonl").open(encoding="utf-8")]
    jobs = []
    for row in expected:
        template = formats[row["template"]]["response"]
        if "python-calls" in json.dumps(template):
            continue
        for start, end in row.get("spans") or []:
            name = f"{row['template']} {row['conversation']}"
            texts = {"prefix": row["text"][:start], "text": row["text"][start:end]}
            jobs.append({"name": name, "template": template} | texts)
    differ = [job["name"] for job, message in zip(jobs, ours(jobs)) if message != theirs(job)]
    print(f"{len(jobs) - len(differ)} of {len(jobs)} messages are the same", *differ, sep="\n  ")


def main():
    if "--parse" in sys.argv:
        return parse()
    chat_template_utils.datetime = Frozen
    path, new = OWN / "expected.jsonl", list(rows())
    if "--check" in sys.argv:
        old = path.read_text(encoding="utf-8").strip("\n").split("\n")
        changed = [line for line in old + new if (line in old) != (line in new)]
        print("\n".join(changed) or f"all {len(new)} rows are the same")
        sys.exit(1 if changed else 0)
    path.write_bytes("".join(line + "\n" for line in new).encode("utf-8"))


main()
