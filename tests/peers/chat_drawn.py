"""Draws templates, renders them with transformers' jinja2, and compares the workbook's engine with it.

    cargo build --release -p tests --bin chat
    python3 tests/peers/chat_drawn.py compare [COUNT] [SEED]
    python3 tests/peers/chat_drawn.py keep

Needs transformers and jinja2. `compare` prints the drawn templates on which both differ, shortest first. `keep` writes
tests/tests/workbook/chat/drawn.jsonl: the templates written by hand below and the first drawn ones, each with what jinja2 wrote
or the kind of its error. What the engine does not carry on purpose (its kind is `unsupported`) is neither compared nor kept.
"""

import copy
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import jinja2
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("CHAT", ROOT / "target" / "release" / "chat"))
KEPT = ROOT / "tests" / "tests" / "workbook" / "chat" / "drawn.jsonl"
KEPT_DRAWN = 1200
CONTEXT = {
    "s": "a <b> & 'c'",
    "e": "",
    "n": 3,
    "f": 2.5,
    "z": 0,
    "t": True,
    "nil": None,
    "l": [3, 1, 2],
    "w": ["x", "<y>", "Z"],
    "d": {"a": 1, "b": "<2>", "items": [1]},
    "m": [{"role": "user", "content": "hi <"}, {"role": "tool", "content": None}, {"role": "user", "content": "&"}],
}


class Noon(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 5, 9, 7, 3)


chat_template_utils.datetime = Noon
warnings.simplefilter("ignore", SyntaxWarning)


def kind(error):
    return "raise_exception" if type(error) is jinja2.exceptions.TemplateError else type(error).__name__


def theirs(template):
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        return {"expected": compiled.render(**copy.deepcopy(CONTEXT))}
    except Exception as error:  # whatever it raises has a kind
        return {"error": kind(error), "message": str(error)[:200]}


def ours(templates):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps({"template": it, "context": CONTEXT}) + "\n" for it in templates)
        file.flush()
        done = subprocess.run([PROGRAM, "rows", file.name], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


# What was found to differ once, and what a reader of Jinja's compiler would try.
BY_HAND = [
    # A filter or a test that nobody knows.
    "{{ s|nope }}",
    "{% if z %}{{ s|nope }}{% endif %}ok",
    "{% if t %}{{ s|nope }}{% endif %}ok",
    "{% if z %}a{% else %}{{ s|nope }}{% endif %}",
    "{% if t %}a{% else %}{{ s|nope }}{% endif %}",
    "{% if z %}a{% elif z|nope %}b{% endif %}",
    "{% if t %}a{% elif z|nope %}b{% endif %}",
    "{% if s is nope %}a{% endif %}",
    "{% if t or s is nope %}a{% endif %}",
    "{% if z %}{% for x in l %}{{ x|nope }}{% endfor %}{% endif %}",
    "{% if z %}{% for x in l|nope %}{{ x }}{% endfor %}{% endif %}ok",
    "{% if z %}{% for x in l if x is nope %}{{ x }}{% endfor %}{% endif %}",
    "{% if z %}{% for x in l %}{% else %}{{ s|nope }}{% endfor %}{% endif %}",
    "{% if z %}{% for x in l %}{% if x %}{{ x|nope }}{% endif %}{% endfor %}{% endif %}ok",
    "{% if z %}{% macro q(a) %}{{ a|nope }}{% endmacro %}{% endif %}ok",
    "{% if z %}{% macro q(a=s|nope) %}{{ a }}{% endmacro %}{% endif %}ok",
    "{% macro q(a) %}{% if a %}{{ a|nope }}{% endif %}{% endmacro %}{{ q(0) }}ok",
    "{% macro q(a) %}{{ a }}{{ caller() }}{% endmacro %}{% if z %}{% call q(s|nope) %}x{% endcall %}{% endif %}ok",
    "{% macro q(a) %}{{ caller() }}{% endmacro %}{% if z %}{% call q(1) %}{{ s|nope }}{% endcall %}{% endif %}ok",
    "{% if z %}{% set x = s|nope %}{% endif %}ok",
    "{% if z %}{% set x %}{{ s|nope }}{% endset %}{% endif %}ok",
    "{% if z %}{% set x | nope %}a{% endset %}{% endif %}ok",
    "{% if z %}{% filter nope %}a{% endfilter %}{% endif %}ok",
    "{% if z %}{% filter upper %}{{ s|nope }}{% endfilter %}{% endif %}ok",
    "{% if z %}{% with x = s|nope %}{{ x }}{% endwith %}{% endif %}ok",
    "{% if z %}{% with x = s %}{{ x|nope }}{% endwith %}{% endif %}ok",
    "{% if z %}{% generation %}{{ s|nope }}{% endgeneration %}{% endif %}ok",
    "{% if z %}{% autoescape s|nope %}{{ s }}{% endautoescape %}{% endif %}ok",
    "{% if z %}{% autoescape true %}{{ s|nope }}{% endautoescape %}{% endif %}ok",
    "{{ s|nope if z else 'ok' }}",
    "{{ 'ok' if t else s|nope }}",
    "{{ 'a' if s is nope else 'b' }}",
    "{{ [1, [s|nope]] if z else 'ok' }}",
    "{{ (s|nope if z else 'ok')|upper }}",
    "{{ ('ok' if t else 'no')|nope }}",
    "{{ 'a' ~ (s|nope if t else '') }}",
    "{{ false and s|nope }}",
    "{{ true or s is nope }}",
    "{{ true and false and s|nope }}",
    "{{ z and s|nope }}",
    "{{ true and s|nope }}",
    "{% if z %}{{ 1 / 0 }}{{ s|nope }}{% endif %}ok",
    "{% if t %}{{ (1 / z)|nope }}{% endif %}",
    "{% if t %}{{ s|nope(1 / z) }}{% endif %}",
    "{% if t %}{{ gone|nope }}{% endif %}",
    "{% if t %}{{ gone.x|nope }}{% endif %}",
    "{{ s|nope }}{% if %}",
    "{% if t %}{{ m|map('nope')|list }}{% endif %}",
    "{{ m|map('nope')|list }}",
    "{{ l|select('nope')|list }}",
    # Namespaces.
    "{{ namespace({1: 2}) }}",
    "{{ namespace({1: 2, true: 3, 'a': none}, b=[1]) }}",
    "{{ namespace({(1, 2): 2}).a }}",
    "{{ namespace({1: 2})[1] }}",
    "{{ namespace([(1, 2), ('a', 'b')]).a }}",
    "{{ namespace({'_a': 1}) }}",
    "{{ namespace({1: 2, '_a': 1}) }}",
    "{% set ns = namespace({1: 2}) %}{% set ns.a = 3 %}{{ ns }}",
    "{% set ns = namespace(a=1) %}{% set ns.a = 3 %}{{ ns }}{{ ns['a'] }}{{ ns.b }}",
    # Subscripts.
    "{{ l[] }}",
    "{{ d[] }}",
    "{{ s[] is defined }}",
    "{{ {(): 'empty'}[] }}",
    "{{ l[1,] }}",
    "{{ {(1, 2): 'pair'}[1, 2] }}",
    "{{ l[].x }}",
    "{{ gone[] }}",
    # Markup.
    "{{ '<' + (['x']|map('e')|first) }}",
    "{{ (['<']|map('e')|first) + '<' }}",
    "{{ '<' ~ (['x']|map('e')|first) }}",
    "{{ '<' + '<' + ('x'|e) + '<' }}",
    "{{ s|e }}{{ s|escape }}{{ s|forceescape }}{{ s|e|e }}{{ s|e|forceescape }}",
    "{{ ('<'|e).__class__ }}",
    "{{ ('<%s>'|safe) % s }}{{ ('%s %d'|safe) % ('<', 2) }}{{ ('%(a)s'|safe) % {'a': '<'} }}",
    "{{ ('<{}>'|safe).format(s) }}{{ ('{a}'|safe).format(a='<') }}",
    "{{ ('<'|safe).join(['<', '>'|safe]) }}{{ ['<', '<'|safe]|join('>') }}{{ ['<', '<']|join('>'|safe) }}",
    "{{ ('<a>'|safe).replace('a', '<') }}{{ ('<a>'|safe)|replace('a', '<') }}{{ '<a>'|replace('a', '<'|safe) }}",
    "{{ ('<'|safe) * 2 + '<' }}{{ (2 * ('<'|safe)) + '<' }}",
    "{{ (('<a'|safe).upper() + '<') }}{{ (('<a'|safe)|upper) + '<' }}{{ (('<a'|safe)|trim) + '<' }}",
    "{{ [('<'|safe), 'b']|tojson }}{{ {'<'|safe: 1}|tojson }}{{ ('<'|safe)|tojson + '<' }}",
    "{{ [('<'|safe), 'b'] }}{{ ('<'|safe)|list }}{{ ('<a'|safe)[0] + '<' }}{{ ('<a'|safe)[:1] + '<' }}",
    "{{ ('<a b'|safe).split() }}{{ (('<a b'|safe).split()[0]) + '<' }}{{ ('a<b'|safe).partition('<') }}",
    "{{ {'a': '<'}|xmlattr + '<' }}{{ ({'a': '<'}|xmlattr) ~ '<' }}",
    "{{ ('<b>x</b> &amp;'|striptags) + '<' }}{{ ('<b>x</b>'|safe).striptags() }}{{ ('&lt;'|safe).unescape() }}",
    "{{ ('<'|safe) == '<' }}{{ ('<'|safe) in ['<'] }}{{ {'<': 1}['<'|safe] }}{{ ('<'|safe) is string }}",
    "{{ ('<'|safe) is escaped }}{{ '<' is escaped }}{{ ('<'|e|string) is escaped }}",
    "{{ ('<'|safe)|default('x') ~ '' }}{{ ('<'|safe) + ('x' if t else 'y') }}",
    "{{ ('<'|safe)|format('x') }}{{ ('<%s'|safe)|format('<') }}{{ '<%s'|format('<'|safe) + '<' }}",
    "{{ ('a<b'|safe)|indent + '<' }}{{ ('a<b'|safe)|center(9) + '<' }}{{ ('a<b'|safe)|truncate(2) + '<' }}",
    "{{ ('a<b'|safe)|capitalize + '<' }}{{ ('a<b'|safe)|title + '<' }}{{ ('a<b'|safe)|lower + '<' }}",
    "{{ ('a<b'|safe)|reverse + '<' }}{{ ('a<b'|safe)|first + '<' }}{{ ('a<b'|safe)|last + '<' }}",
    "{{ ('<a'|safe)|wordwrap(3) + '<' }}{{ ('<'|safe)|string + '<' }}{{ ('1'|safe)|int + 1 }}",
    "{{ '<' + 1|e }}{{ 1|e + '<' }}{{ none|e + '<' }}{{ [1, '<']|e }}",
    "{{ (s|e)|replace('&', '<') }}{{ (s|e)|unique|join }}{{ ('<'|safe)|sort|join('<') }}",
    "{% set x = '<'|safe %}{{ x + '<' }}{% macro q(a) %}{{ a + '<' }}{% endmacro %}{{ q('>'|safe) }}{{ q('>') + '<' }}",
    "{% set x %}<{% endset %}{{ x + '<' }}{% filter e %}<{% endfilter %}",
    "{{ ['<'|safe, '<']|sum(start='') }}",
    "{{ ('<'|safe).__add__('<') }}",
    "{{ ('<'|safe).escape('<') }}{{ ('<'|safe).isalpha() }}{{ ('<'|safe).encode() }}",
]

TEXTS = ["'<'", "'a'", "'<b>'", "'x%sy'", "'{}-{}'", "'a b'", "''", "'1'", "s", "e", "w[1]", "d.b", "m[0].content", "'é&'"]
OTHERS = ["n", "f", "z", "t", "nil", "l", "w", "d", "m", "gone", "1", "-2", "0.5", "[1, '<']", "{'a': '<'}", "(1, 'x')", "d.gone"]
FILTERS = (
    "e escape safe forceescape string upper lower trim title capitalize length first last list reverse join join('<') "
    "join(w[1]) replace('<','>') replace('a','<'|safe) default('<') default('<'|e,true) int float abs round sort unique "
    "tojson striptags indent indent(2,true) center(7) truncate(3,true,'>') format('<') format(1) items map('e')|list "
    "map('upper')|list select|list reject|list map(attribute='content')|list selectattr('role','equalto','user')|list "
    "groupby('role')|list batch(2)|list slice(2)|list dictsort max min sum wordcount urlencode xmlattr attr('upper') nope"
).split()
TESTS = (
    "defined undefined none string number mapping sequence iterable escaped true false boolean integer float lower upper odd even "
    "eq('<') ne(1) in(w) sameas(none) divisibleby(2) callable filter test nope"
).split()
METHODS = (
    "upper() lower() strip() split() split('<') replace('<','>') format('<',1) join(w) startswith('<') endswith('>') title() "
    "capitalize() count('a') find('<') center(6) ljust(4,'<') zfill(5) partition('b') splitlines() items() keys() get('a') "
    "get('z','<') index(1) copy() swapcase() rstrip('>') lstrip('<') removeprefix('<') isdigit() gone() casefold() expandtabs()"
).split()
OPERATORS = ["+", "~", "+", "~", "*", "%", "-", "/", "//", "==", "!=", "<", ">=", "in", "not in", "and", "or"]


class Draw:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, items):
        return self.random.choice(items)

    def expression(self, depth=3):
        if depth == 0 or self.random.random() < 0.2:
            return self.pick(TEXTS if self.random.random() < 0.65 else OTHERS)
        form = self.random.randrange(11)
        inner = lambda: self.expression(depth - 1)
        if form < 4:
            return f"({inner()})|{self.pick(FILTERS)}" if self.random.random() < 0.4 else f"{inner()}|{self.pick(FILTERS)}"
        if form < 6:
            return f"({inner()} {self.pick(OPERATORS)} {inner()})"
        if form == 6:
            return f"({inner()}).{self.pick(METHODS)}"
        if form == 7:
            return f"({inner()} if {inner()}" + (f" else {inner()})" if self.random.random() < 0.7 else ")")
        if form == 8:
            return f"({inner()} is {self.pick(TESTS)})"
        if form == 9:
            return f"({inner()})[{self.pick(['0', '-1', '1:', ':1', '::-1', repr('a'), inner()])}]"
        return self.pick([f"[{inner()}, {inner()}]", f"{{'k': {inner()}}}", f"namespace(a={inner()})", f"q({inner()})"])

    def statement(self, depth=2):
        body = lambda: self.statement(depth - 1) if depth else "{{ " + self.expression(2) + " }}"
        form = self.random.randrange(9)
        if form < 4:
            return "{{ " + self.expression() + " }}"
        if form == 4:
            rest = self.pick(["", "{% else %}" + body(), "{% elif " + self.expression(1) + " %}" + body()])
            return "{% if " + self.expression(2) + " %}" + body() + rest + "{% endif %}"
        if form == 5:
            test = self.pick(["", " if " + self.expression(1)])
            return "{% for x in " + self.pick(["l", "w", "m", "d", self.expression(1)]) + test + " %}" + self.pick(
                ["{{ x }}", "{{ loop.index ~ x }}", body()]
            ) + self.pick(["", "{% else %}" + body()]) + "{% endfor %}"
        if form == 6:
            return "{% set v = " + self.expression(2) + " %}{{ v }}{{ v ~ '<' }}"
        if form == 7:
            return "{% set v %}" + body() + "{% endset %}{{ v + '<' }}"
        return self.pick(
            [
                "{% macro q(a, b='<') %}" + body() + "{{ a }}{{ b }}{% endmacro %}{{ q(" + self.expression(1) + ") }}",
                "{% filter " + self.pick(["upper", "e", "trim"]) + " %}" + body() + "{% endfilter %}",
                "{% with v = " + self.expression(1) + " %}" + body() + "{% endwith %}",
            ]
        )


def drawn(count, seed):
    draw = Draw(seed)
    return [draw.statement() for _ in range(count)]


def same(want, got):
    if want.get("error") == "RecursionError":
        return got.get("error") == "limit"
    if "text" in got:
        return want.get("expected") == got["text"]
    return want.get("error") == got["error"]


def stable(row):
    """Whether it is the same on every machine: no address, no order of a set."""
    return all(word not in row.get("expected", "").lower() for word in [" at 0x", "object", "generator"])


def compare(count, seed):
    templates = BY_HAND + drawn(count, seed)
    differing = []
    for template, got in zip(templates, ours(templates)):
        want = theirs(template)
        if got.get("error") != "unsupported" and not same(want, got) and stable(want):
            differing.append((template, want, got))
    differing.sort(key=lambda it: len(it[0]))
    for template, want, got in differing[:60]:
        print(template, "\n   jinja2:", want, "\n   ours:  ", {k: v for k, v in got.items() if k != "shown"})
    print(f"{len(differing)} of {len(templates)} differ")


def keep():
    templates = BY_HAND + drawn(KEPT_DRAWN, 1)
    with KEPT.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"context": CONTEXT}, ensure_ascii=False) + "\n")
        for at, (template, got) in enumerate(zip(templates, ours(templates))):
            want = theirs(template)
            if got.get("error") == "unsupported" or not stable(want) or want.get("error") == "RecursionError":
                continue
            name = f"hand.{at}" if at < len(BY_HAND) else f"drawn.{at - len(BY_HAND)}"
            want.pop("message", None)
            file.write(json.dumps({"id": name, "template": template} | want, ensure_ascii=False) + "\n")
            if not same(want, got):
                print(f"differs: {name} {template} jinja2: {want} ours: {got}")


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["compare"]
    if what == "keep":
        keep()
    else:
        compare(*[*map(int, numbers), *[4000, 0][len(numbers) :]])
