"""Times transformers' chat templates and response parser, in turns with the workbook's.

    cargo build --release -p tests --bin chat
    python3 tests/peers/chat.py render [ROUNDS]
    python3 tests/peers/chat.py parse [ROUNDS]

Needs transformers and jinja2, and the golden folder: WARPBOOK_GOLDEN, else ../shared/golden, with `chat` in it.

`render`: every conversation of `render-trl`, template by template, each compiled once by both. Python's is jinja2 in the
environment that transformers sets up; its variables are Python's, ours the engine's. The texts have to be the same, and
where one refuses the other has to; the clock is not frozen, so a template that writes the time may differ at midnight.
`parse`: for each family the clean answers of `parse-open`, joined to some 256 KiB, in pieces of 4 KiB and of 4 bytes. Python's
parser gets the pieces of 4 KiB only, of a text of 16 KiB. The messages of that text have to be the same, where Python's parser
gets it whole: of pieces it makes another message of one family's text (lfm2_2_5) than of the whole.

Prints microseconds a render and megabytes a second; the ratios are medians of rounds in turns. `render` ends with the geometric
mean over templates and the ratio of the totals.
"""

import collections
import gzip
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = pathlib.Path(os.environ.get("WARPBOOK_GOLDEN", ROOT.parent / "shared" / "golden")) / "chat"
PROGRAM = pathlib.Path(os.environ.get("CHAT", ROOT / "target" / "release" / "chat"))
REPEATS = 20  # of ours for one of Python's, so that a turn is not too short to time
MEGABYTE = 1e6


def rows(name):
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Ours:
    """The workbook's, in a process of its own."""

    def __init__(self, what, jobs, folder):
        file = pathlib.Path(folder) / f"{what}.jsonl"
        file.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
        command = [PROGRAM, what, file]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *numbers):
        self.process.stdin.write(" ".join(map(str, numbers)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else sys.exit("chat: the program has ended")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def theirs(template, conversations):
    """Seconds and texts of Python's; null where it refuses."""
    texts = []
    begin = time.perf_counter()
    for variables in conversations:
        try:
            texts.append(template.render(**variables))
        except Exception:  # whatever it raises is a refusal
            texts.append(None)
    return time.perf_counter() - begin, texts


def variables(row):
    given = ["messages", "tools", "documents", "add_generation_prompt"]
    return {name: row[name] for name in given} | row["special_tokens"] | row["kwargs"]


def render(rounds, folder):
    from transformers.utils import chat_template_utils

    conversations = collections.defaultdict(list)
    for row in rows("render-trl"):
        if row["messages"]:
            conversations[row["template_file"]].append(variables(row))
    sources = {name: (GOLDEN / "templates" / name).read_text(encoding="utf-8") for name in conversations}
    jobs = [{"source": sources[name], "conversations": all_} for name, all_ in conversations.items()]
    ours = Ours("render", jobs, folder)
    ratios, total, count = [], [0.0, 0.0], 0
    for at, (name, all_) in enumerate(conversations.items()):
        template = chat_template_utils._compile_jinja_template(sources[name])
        if ours.run(at, 1)["texts"] != theirs(template, all_)[1]:
            sys.exit(f"no agreement on {name}")
        samples = [
            (ours.run(at, REPEATS)["seconds"] / REPEATS, theirs(template, all_)[0]) for _ in range(rounds)
        ]
        ratio = statistics.median(there / here for here, there in samples)
        here, there = (statistics.median(side) for side in zip(*samples))
        total, count = [total[0] + here, total[1] + there], count + len(all_)
        ratios.append(ratio)
        print(f"{name:46} {here / len(all_) * 1e6:8.2f} us {there / len(all_) * 1e6:8.1f} us {ratio:6.1f}x", flush=True)
    ours.end()
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    here, there = (side / count * 1e6 for side in total)
    print(f"{len(ratios)} templates, {count} renders: {here:.2f} us, {there:.1f} us a render")
    print(f"geometric mean {mean:.1f}x, least {min(ratios):.1f}x, of the totals {there / here:.1f}x")


def joined(texts, size):
    """Texts one after the other, up to about `size` characters."""
    out, length = [], 0
    while length < size:
        for text in texts:
            out.append(text)
            length += len(text)
            if length >= size:
                break
    return "".join(out)


def their_message(template, text, size):
    """Seconds and the message of Python's parser; null where it refuses."""
    from transformers.utils import chat_parsing

    begin = time.perf_counter()
    try:
        parser = chat_parsing.ResponseParser(template, prefix="")
        for at in range(0, len(text), size):
            parser.feed(text[at : at + size])
        message, _ = parser.finalize()
    except Exception:  # whatever it raises is a refusal
        message = None
    return time.perf_counter() - begin, message


def parse(rounds, folder):
    templates = json.loads((GOLDEN / "response_templates.json").read_text(encoding="utf-8"))
    clean = collections.defaultdict(list)
    for row in rows("parse-open"):
        if row["kind"] == "clean" and "error" not in row:
            clean[row["family"]].append(row["text"])
    names = [name for name in templates if clean[name]]
    long = [{"template": templates[name], "text": joined(clean[name], 256 << 10)} for name in names]
    short = [{"template": templates[name], "text": joined(clean[name], 16 << 10)} for name in names]
    ours = Ours("parse", long + short, folder)
    for at, name in enumerate(names):
        _, message = their_message(templates[name], short[at]["text"], 16 << 20)
        agree = ours.run(len(names) + at, 4096, 1)["message"] == message
        if not agree:
            print(f"{name:24} no agreement: not timed")
            continue
        size = len(long[at]["text"].encode()) / MEGABYTE
        large, small, there = [], [], []
        for _ in range(rounds):
            large.append(size * REPEATS / ours.run(at, 4096, REPEATS)["seconds"])
            small.append(size * REPEATS / ours.run(at, 4, REPEATS)["seconds"])
            seconds, _ = their_message(templates[name], short[at]["text"], 4096)
            there.append(len(short[at]["text"].encode()) / MEGABYTE / seconds)
        figures = [statistics.median(figure) for figure in (large, small, there)]
        print("{:24} {:8.1f} MB/s at 4 KiB {:8.1f} at 4 B {:8.2f} theirs".format(name, *figures), flush=True)
    ours.end()


def main():
    what, *rest = sys.argv[1:] or ["render"]
    work = {"render": render, "parse": parse}.get(what) or sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        work(int(rest[0]) if rest else 5, folder)


if __name__ == "__main__":
    main()
