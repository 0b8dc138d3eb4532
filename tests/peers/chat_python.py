#!/usr/bin/env python3
"""Writes what Python, jinja2 and transformers answer where a check or a test of tool calling asks for the original.

    python3 tests/peers/chat_python.py            # rewrites the kept files; needs transformers, tokenizers and jinja2
    python3 tests/peers/chat_python.py --check    # says which lines would change

grader/lib/src/issues/chat/python.json: strings and floats (D.1), schemas and tools (D.4) and the dialect of JSON (D.7);
texts with broken tokens (D.3) too, which follow the trait's words: no library has such a step.
tests/tests/workbook/chat/written.jsonl: templates of a line or two, and what they write or which error they raise.
tests/tests/workbook/chat/spoken.jsonl: calls as the models' own documents write them and the project's templates do not.
book/src/results/chat-normalisers.txt: special tokens that are broken by a character of no width, after normalisers of
the library tokenizers.
The clock stands at 2026-01-05 09:07:03 UTC. Written with CPython 3.11.7, transformers 5.23.0, tokenizers 0.23.3 and
jinja2 3.1.6.
"""

import ast
import copy
import datetime
import json
import math
import os
import pathlib
import random
import struct
import sys
import time
from typing import Any, Literal, Optional

import jinja2
import regex
import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers
from transformers.utils import chat_template_utils, get_json_schema
from transformers.utils.chat_parsing import ResponseParser
from transformers.utils.chat_parsing.content_parsers import parse_content

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = ROOT / "grader" / "src" / "issues" / "chat" / "python.json"
WRITTEN = ROOT / "tests" / "tests" / "workbook" / "chat" / "written.jsonl"
RESPONSES = ROOT / "challenges" / "src" / "issues" / "chat" / "own" / "responses.json"
SPOKEN = ROOT / "tests" / "tests" / "workbook" / "chat" / "spoken.jsonl"
STRIPPED = ROOT / "book" / "src" / "results" / "chat-normalisers.txt"


os.environ["TZ"] = "UTC"
time.tzset()


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 5, 9, 7, 3)


# D.1

STRINGS = {
    "plain": [("", False), ("a b", True), ("/'&<>", True)],
    "short-escapes": [('"\\\n\r\t\b\f', False), ("a\\nb", True)],
    "control-characters": [(chr(code), ascii_) for code in range(0x20) for ascii_ in (False, True)],
    "not-ascii": [("é", False), ("日本\u2028", False), ("\x7f\x80😀", False)],
    "ensure-ascii": [
        ("é", True),
        ("日a", True),
        ("😀", True),
        ("~\x7f\x80", True),
        ("\uffff\U00010000\U0010ffff", True),
    ],
}
FLOATS = {
    "exponents": [
        1e22, 1.5e300, 1e16, 9999999999999998.0, 123456789012345.67, 0.0001, 0.00001, 0.00009999999999999999, 1.234e-7,
        5e-324, 1.7976931348623157e308, -2.5e-10,
    ],
    "whole-and-minus-zero": [0.0, -0.0, 1.0, -3.0, 3.0, 0.1, 1e15],
}  # fmt: skip
# Half-way between two that are as short: Python writes the one whose last digit is even. The last two are powers of two
# whose nearest number of so many digits reads back as another.
TIES = [
    12384.675903320312, 194196.74829101562, -8844.499633789062, 8796093022208.062, 2.9802322387695312e-08,
    5.960464477539063e-08, 6.189700196426902e26,
]  # fmt: skip
DOCUMENT = {"b": [1, 2.0, 1e16, None, True], "a": {"é\n": "<b>'", "none": {}, "empty": []}}
LAYOUTS = [{"ensure_ascii": False}, {"ensure_ascii": True, "sort_keys": True, "separators": [",", ":"]}]


def drawn_floats(count):
    draw = random.Random(1)
    while count:
        value = struct.unpack("<d", draw.randbytes(8))[0]
        if draw.random() < 0.5:
            value = (draw.random() - 0.5) * 10.0 ** draw.randrange(-20, 20)
        if math.isfinite(value):
            count -= 1
            yield value


def strings(rows):
    return [[text, ascii_, json.dumps(text, ensure_ascii=ascii_)] for text, ascii_ in rows]


# D.3: what the trait says, character by character

MARK = "\u2060"
DEFUSED = {
    "none": [("a <im_end> b", ["<im_start>", ""]), ("", ["a"]), ("a <im_end> b", [])],
    "one": [("x <end>é<end>", ["<end>"])],
    "inside-another": [("<<end>>", ["<<end>>", "<end>"])],
    "one-character": [("a§b<§>", ["§", "<§>"])],
    "repeated": [("aaaa", ["aa"])],
}


def defused(text, special):
    """Behind the first character of each token a mark; in its place where the character is a token itself."""
    begins = lambda at: [token for token in special if token and text.startswith(token, at)]
    mark = lambda at, c: MARK if c in begins(at) else c + MARK
    want = "".join(mark(at, c) if begins(at) else c for at, c in enumerate(text))
    assert not any(token and token in want for token in special)
    return [text, special, want]


# D.4: an annotation of Python, which names an `ArgumentType` in the check

ANNOTATIONS = {
    "simple-types": ["None", "bool", "int", "float", "str"],
    "choice": ["Literal['z', 'a']", "Optional[Literal['z', 'a']]"],
    "nested-types": [
        "Any", "Optional[Any]", "list[int]", "list[Any]", "tuple[str, list[str]]", "dict[str, int]",
        "Optional[list[Optional[int]]]", "Optional[Optional[int]]", "dict[str, Optional[list[bool]]]",
    ],
}  # fmt: skip
# Arguments of a function, as they stand in its signature.
FUNCTIONS = {
    "required": [
        ["city: int", "days: Optional[str] = None", "unit: int"],
        ["city: Optional[str]", "days: int = 1", "unit: Optional[str] = None"],
    ],
    "nothing-required": [["days: Optional[str] = None"], []],
    "order": [["z: int", "a: Optional[str] = None", "m: int"]],
}


def function(arguments):
    names = [argument.split(":")[0] for argument in arguments]
    about = "".join(f"\n        {name}: About {name}." for name in names)
    doc = "Does it." + (f"\n\n    Args:{about}\n    " if names else "")
    # what follows a default in the order of arguments needs one in Python; after `*` it does not
    star = "*, " if arguments else ""
    scope = {"Any": Any, "Literal": Literal, "Optional": Optional}
    exec(f'def f({star}{", ".join(arguments)}):\n    """{doc}"""\n', scope)  # the function is the text above
    return scope["f"]


def schema(annotation):
    tool = get_json_schema(function([f"x: {annotation}"]))
    of = tool["function"]["parameters"]["properties"]["x"]
    assert list(of)[-1] == "description"
    return {name: value for name, value in of.items() if name != "description"}


# D.7

QUOTE = '<|"|>'
DIALECTS = {
    "names": [
        ('{a:1,b_2:{ä:[c,d]},"e":2, f:3}', [], True),
        ('{a:1,b_2:{ä:["c"]},"e":2,f:3}', [], True),
        ("{e\u0301:1}", [], True),
        ('{a :1,²:2,:3,"b":"{c:4,d:5}"}', [], True),
    ],
    "strings": [(f"{{a:{QUOTE}x{QUOTE}}}", [[QUOTE, QUOTE]], True), (f"[{QUOTE}{QUOTE}]", [[QUOTE, QUOTE]], False)],
    "strings-hold-anything": [
        (f'{{a:{QUOTE}{{b:1,c:"\\\n\x010\x02}}{QUOTE},d:2}}', [[QUOTE, QUOTE]], True),
        (f'{{a:{QUOTE}{{b:1,c:"\\\n\x030\x04é\x7f}}{QUOTE},d:2}}', [[QUOTE, QUOTE]], True),
    ],
    "several-pairs": [
        ("{a:'x',b:«it's»,c:'y'}", [["«", "»"], ["'", "'"]], True),
        ("{a:'x«y',z:1»}", [["«", "»"], ["'", "'"]], True),
        ("{a:'x«y',z:1»}", [["'", "'"], ["«", "»"]], True),
    ],
    "without-an-end": [(f"{{a:{QUOTE}x}}", [[QUOTE, QUOTE]], True)],
    "json-stays-as-it-is": [
        ('{"a": [1, true, "b:c"]}', [], False),
        ("{a:1}", [[QUOTE, QUOTE]], False),
        ("", [[QUOTE, QUOTE]], True),
    ],
}


def rewritten(text, pairs, names):
    """The JSON of a dialect by pieces: a text is between strings, a tuple is one."""
    pieces = [text]
    for begin, end in pairs:
        between = regex.compile(regex.escape(begin) + "(.*?)" + regex.escape(end), regex.DOTALL)
        split = lambda piece: [(part,) if odd % 2 else part for odd, part in enumerate(between.split(piece))]
        pieces = [new for piece in pieces for new in ([piece] if isinstance(piece, tuple) else split(piece))]
    quoted = lambda piece: regex.sub(r"(?<=[{,])(\w+):", r'"\1":', piece) if names else piece
    return "".join(
        json.dumps(piece[0], ensure_ascii=False) if isinstance(piece, tuple) else quoted(piece) for piece in pieces
    )


def dialect(text, pairs, names):
    """A row: what comes in, the JSON, and what transformers reads of the same; null where it refuses."""
    want = rewritten(text, pairs, names)
    try:
        read = parse_content(text, "json", {"string_delims": pairs, "unquoted_keys": names})
    except ValueError as error:
        print(f"transformers refuses {text!r}: {error}".split("\n")[0], file=sys.stderr)
        read = None
    assert read is None or read == json.loads(want), text
    return {"text": text, "strings": pairs, "unquoted_keys": names, "json": want, "read": read}


def checks():
    floats = FLOATS | {"floats-drawn": TIES + list(drawn_floats(200))}
    return {
        "strings": {name: strings(rows) for name, rows in STRINGS.items()},
        "floats": {name: [[value, repr(value)] for value in values] for name, values in floats.items()},
        "defused": {name: [defused(*row) for row in rows] for name, rows in DEFUSED.items()},
        "documents": [[DOCUMENT, layout, json.dumps(DOCUMENT, **layout)] for layout in LAYOUTS],
        "schemas": {
            name: [[annotation, schema(annotation)] for annotation in all_] for name, all_ in ANNOTATIONS.items()
        },
        "tools": {
            name: [[arguments, get_json_schema(function(arguments))] for arguments in all_]
            for name, all_ in FUNCTIONS.items()
        },
        "dialects": {name: [dialect(*row) for row in rows] for name, rows in DIALECTS.items()},
    }


def laid_out(value, level=0):
    """A row a line, so that a change shows as one."""
    if level < 3 and isinstance(value, dict) and value:
        inner = (f"{json.dumps(name)}: {laid_out(it, level + 1)}" for name, it in value.items())
        return "{\n" + ",\n".join(inner) + "\n}"
    if level < 3 and isinstance(value, list) and value:
        return "[\n" + ",\n".join(json.dumps(it, ensure_ascii=True) for it in value) + "\n]"
    return json.dumps(value, ensure_ascii=True)


# Templates of a line or two: a test's name, a template, its variables.

COUNTER = "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"
CALLED = (
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ caller() }}{% endmacro %}{% call m(1, 2, 3) %}!{% endcall %}"
)
WALK = "{% for x in v recursive %}{{ loop.depth }}{% if x is sequence %}({{ loop(x) }}){% endif %}{% endfor %}"
SAYS = "{% macro m() %}{% generation %}GEN{% endgeneration %}{% endmacro %}"
TEMPLATES = {
    "json": [
        ("{{ v|tojson }}", {"v": {"b": [1, 2.0, 1e22, 1e-7, None, True], "a": 'é"\\\n\x1f\x7f🦥'}}),
        ("{{ v|tojson(ensure_ascii=true) }}", {"v": "é🦥\x7f"}),
        ("{{ v|tojson(indent=2) }}", {"v": {"a": [], "b": [1]}}),
        ("{{ v|tojson(separators=(',', ':'), sort_keys=true) }}", {"v": {"b": 1, "a": 2}}),
        ("{{ v|tojson(sort_keys=true) }}", {"v": {"z": 1, "a": -0.0}}),
        ("{{ v|map('upper')|tojson }}", {"v": ["a"]}),
    ],
    "values": [
        ("{{ v }}", {"v": [1, 2.5, None, True, "it's", {"k": "q\"'"}]}),
        ("{{ (1,) }}{{ () }}{{ {1: 'a'} }}{{ range(3) }}", {}),
        ("{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 70 }}", {}),
        ("{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e300 * 10 }}", {}),
        ("{{ 3.0 }} {{ none }} {{ '%02d' % 3 }} {{ [1, 2, 3][::-1] }} {{ 'a</think>b'.split('</think>')[-1] }}", {}),
        ("{{ dict({'a': 1}, **{'b': 2}) }}", {}),
    ],
    "errors": [
        ("{{ raise_exception('no') }}", {}),
        ("{% for x in none %}{% endfor %}", {}),
        ("{{ v.a.b }}", {"v": {}}),
        ("{{ 'a' + 1 }}", {}),
        ("{{ 'a' + v }}", {}),
        ("{{ [1].append(2) }}", {}),
        ("{{ ''.__class__.__mro__ }}", {}),
        ("{{ namespace(_x=1) }}", {}),
        ("{{ 1 // 0 }}", {}),
        ("{{ range(1000000) }}", {}),
        ("{{ x|nosuch }}", {}),
        ("{% if %}", {}),
        ("{% break %}", {}),
    ],
    "else-of-a-loop": [
        ("{% for x in v %}{% continue %}{% else %}ELSE{% endfor %}|{% for x in v %}{% break %}{% else %}ELSE{% endfor %}", {"v": [1]}),
        ("{% for x in v %}{% if x > 1 %}{% break %}{% endif %}{{ x }}{% else %}ELSE{% endfor %}", {"v": [1, 2]}),
        ("{% for x in v %}{% if x > 1 %}{% break %}{% endif %}{{ x }}{% else %}ELSE{% endfor %}", {"v": [2, 1]}),
        ("{% for x in v if x > 1 %}{% continue %}{% else %}ELSE{% endfor %}", {"v": [1, 2]}),
        ("{% for x in v %}{% if loop.last %}{% continue %}{% endif %}a{% else %}ELSE{% endfor %}", {"v": [1, 2]}),
        ("{% for z in [1, 2] %}{{ z }}{% for x in v %}{% continue %}{% else %}{% break %}{% endfor %}n{% endfor %}", {"v": [1]}),
        ("{% for z in [1, 2] %}{{ z }}{% for x in [] %}{% else %}{% continue %}{% endfor %}n{% endfor %}", {}),
        ("{% for x in v recursive %}{% if x is iterable %}<{{ loop(x) }}>{% else %}{% continue %}{% endif %}{% else %}E{% endfor %}", {"v": [[], [1]]}),
        ("{% for z in [1] %}{% for x in [1] recursive %}{% continue %}{% else %}{% break %}{% endfor %}{% endfor %}", {}),
        ("{% for m in v %}{% if m.role != 'system' %}{% continue %}{% endif %}SYS:{{ m.content }}\n{% else %}SYS:default\n{% endfor %}", {"v": [{"role": "user", "content": "hi"}]}),
    ],
    "blocks": [
        ("{% block a %}B{% endblock %}{{ self.a() }}{{ self is defined }}", {}),
        ("{{ self.a() }}{% set x = 1 %}{% block a %}[{{ x }}]{% endblock %}{% set x = 2 %}{{ self.a() }}", {"x": "given"}),
        ("{% for x in [1, 2] %}{% block a %}[{{ x }}]{% endblock %}{% endfor %}", {"x": "given"}),
        ("{% for x in [1, 2] %}{% block a scoped %}[{{ x }}]{% endblock %}{% endfor %}", {"x": "given"}),
        ("{% with x = 4 %}{% block a %}{{ x }}{% endblock %}{% endwith %}", {}),
        ("{% block a %}1{% block b %}2{% endblock %}3{% endblock %}{{ self.b() }}{{ self['a']()|upper }}{% set f = self.a %}{{ f() }}", {}),
        ("{% macro m() %}{{ self.a() }}{% endmacro %}{% block a %}A{{ varargs is defined }}{% endblock %}{{ m() }}", {}),
        ("{{ self }}{{ self.b is defined }}{{ self is callable }}{{ self is iterable }}{{ self is sequence }}", {}),
        ("{{ self is defined }}{% set self = 3 %}{{ self }}", {}),
        ("{{ self.b() }}", {}),
        ("{% block a %}{% endblock %}{{ self.a(1) }}", {}),
        ("{% block a %}1{% endblock %}{% block a %}2{% endblock %}", {}),
        ("{% block a required %}{% endblock %}", {}),
    ],
    "whole-numbers": [
        ("{{ a }} {{ x|tojson }} {{ x }} {{ [a, -b] }} {{ {a: b} }} {{ {b: 1}|tojson }}", {"a": 2**64, "b": 10**40, "x": {"wei": 10**20 + 1}}),
        ("{{ a + 1 }} {{ a - b }} {{ a * b }} {{ -a // 7 }} {{ -b % 7 }} {{ b // a }} {{ b % -a }} {{ a ** 3 }} {{ a|abs }} {{ -b|abs }}", {"a": 2**64, "b": 10**40}),
        ("{{ b / a }} {{ a / b }} {{ (2**53 + 1) / 1 }} {{ (2**2000) // (2**1990) }} {{ 10**400 / 10**390 }} {{ 18446744073709551617 / 3 }}", {"a": 2**64, "b": 10**40}),
        ("{{ a == 2.0**64 }} {{ 10**23 == 1e23 }} {{ 10**23 < 1e23 }} {{ b > 1e39 }} {{ -(2**127) == -(2.0**127) }} {{ {10**22: 1}[1e22] }} {{ b in [1, b] }} {{ [b, a, 1]|sort }} {{ [b, 1.5]|max }}", {"a": 2**64, "b": 10**40}),
        ("{{ '%d %x %X %o %e %.2f %s' % (b, b, b, a, b, b, b) }} {{ '{:,} {:_x} {:#b} {:e} {:>50}'.format(b, b, a, b, b) }} {{ '%d' % 1e40 }}", {"a": 2**64, "b": 10**40}),
        ("{{ '99999999999999999999999999999999999999999'|int }} {{ '0xffffffffffffffffffffffffffffffffffff'|int(base=16) }} {{ 1e40|int }} {{ '1e40'|int }} {{ ('9' * 4301)|int(7) }} {{ '0x1f'|int(base=0) }}", {}),
        ("{{ b|round(-38) }} {{ 25|round(-1) }} {{ 35|round(-1) }} {{ b is odd }} {{ b is integer }} {{ b is float }} {{ b.bit_length() }} {{ b|float }} {{ b|filesizeformat }}", {"b": 10**40 + 7 * 10**38}),
        ("{{ 340282366920938463463374607431768211456 }} {{ -0 }} {{ v|tojson }} {{ v[0] + 0 }} {{ 0 * -1 }} {{ -0.0 }}", {"v": [-0, 0, -0.0]}),
        ("{{ (2**14000)|string|length }} {{ (2**15000) % 1000 }} {{ 7**200 % 1000007 }}", {}),
        ("{{ (2**15000)|string }}", {}),
        ("{{ 2**1024 * 1.0 }}", {}),
        ("{{ (10**400)|float(3) }}", {}),
        ("{{ (10**400) / 1 }}", {}),
        ("{{ 10**30 // 0 }}", {}),
        ("{{ 10**30 + none }}", {}),
        ("{{ 10**30 < 'a' }}", {}),
        ("{{ '%c' % 10**30 }}", {}),
    ],
    "characters": [
        ("{{ '%a' % v }} {{ '{!a}'.format(v) }} {{ '%10a|%.3a' % (v, v) }} {{ '{!a:>12}'.format(v) }} {{ '%a' % [v] }}", {"v": "é"}),
        ("{{ '%a|%r' % (v, v) }}", {"v": "😀\n'é\"\x7f\u2028"}),
        ("{% for c in v %}{{ c.isnumeric() }}{{ c.isdigit() }}{{ c.isdecimal() }}{{ c.isalpha() }}{{ c.isalnum() }} {% endfor %}", {"v": ["一", "½", "²", "Ⅷ", "①", "١٢", "12", "a1", "é", "हिन्दी", "ไทย", "〇", "𝟘", "ⓐ", "_a", "", "ⅳ", "𐄇", "á"]}),
        ("{% for c in v %}{{ c|int(-1) }} {{ c|float(-1.5) }} {{ c|wordcount }} {% endfor %}", {"v": ["١٢", "٣.٥", "-٣", "१२", "１２", " 12 ", "1_0", "١_٢", "½", "²", "१e२", "हिन्दी शब्द"]}),
    ],
    "ranges": [
        ("{{ range(10)[2:5] }} {{ range(10)[::-1] }} {{ range(0, 10, 3)[1:] }} {{ range(5, -5, -3)[-3:] }} {{ range(10)[5:2] }} {{ range(10)[2:5][1:] }}", {}),
        ("{{ range(10)[2:5]|list }} {{ range(3)[1:] == range(1, 3) }} {{ range(3)[1:] == [1, 2] }} {{ range(10)[2:5].start }} {{ range(10)[::3].step }} {{ range(10)[2:5].index(3) }}", {}),
        ("{{ range(10**30, 10**30 + 3)|list }} {{ range(10)[2:5]|sum }}", {}),
        ("{{ range(3)[::0] }}", {}),
        ("{{ range(3)[1:]|tojson }}", {}),
    ],
    "sorting": [
        ("{{ v|sort(attribute='prio')|length }} {{ v|sort(attribute='prio,role') }} {{ v|unique(attribute='prio')|list }}", {"v": [{"role": "b"}, {"role": "a"}]}),
        ("{{ [none, none]|sort }} {{ [{}, {}]|sort }} {{ [x, x]|sort|length }} {{ v|sort(attribute='p')|length }}", {"v": [{"p": None}, {"p": None}]}),
        ("{{ v|sort(attribute='p') }}", {"v": [{"p": 1}, {"q": 1}]}),
        ("{{ v|groupby('p')|list }}", {"v": [{"q": 1}, {"q": 2}]}),
        ("{{ v|min(attribute='p') }}", {"v": [{"q": 1}, {"q": 2}]}),
        ("{{ v|max(attribute='p') }}", {"v": [{"q": 1}, {"q": 2}]}),
        ("{{ [none, 1]|sort }}", {}),
    ],
    "strftime": [
        ("{{ strftime_now('%G-W%V %s %^a %_d') }}", {}),
        ("{% for c in v %}[{{ strftime_now('%' ~ c) }}]{% endfor %}", {"v": list("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYZz%f")}),
        ("{% for f in v %}{% for c in 'aBcdejklpPsyYUZz%' %}[{{ strftime_now('%' ~ f ~ c) }}]{% endfor %}{% endfor %}", {"v": ["-", "_", "0", "^", "#", "5", "_5", "-5", "05", "^10", "#10", "^#", "E", "O"]}),
        ("{% for f in v %}[{{ strftime_now(f) }}]{% endfor %}", {"v": ["", "%", "a%", "%-", "%5", "%E", "%d%", "%%d", "%é", "%Q", "%300d", "%2000d", "%-d/%-m", "日%d", "%:z", "%+d", "%5%"]}),
    ],
    "pprint": [
        ("{{ v|pprint }} {{ [v]|pprint }} {{ ({'b': 1, 'a': 2},)|pprint }} {{ range(3)|pprint }} {{ x|pprint }}", {"v": {"z": 1, "a": [3, {"y": 2, "b": None}]}}),
    ],
    "names-with-an-underscore": [
        ("{% set _x = 1 %}{{ _x }}", {}),
        ("{{ v['_x'] }}", {"v": {"_x": 1}}),
        ("{{ v._x }}", {"v": {"_x": 1}}),
    ],
    "white-space": [
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", {}),
        ("a {%- if true -%} b {%- endif +%}\n c", {}),
        ("a\r\nb\rc\r\n", {}),
        ("{% raw %}{{ x }}{% endraw %}{# {{ #}{{ '}}' }}", {}),
        ("  {{ 1 }}\n  {%+ if true %}\nx{% endif %}", {}),
    ],
    "names": [
        ("{% set x = 1 %}{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x }}", {}),
        (COUNTER, {}),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", {}),
        (CALLED, {}),
        (WALK, {"v": [1, [2]]}),
    ],
    "markup": [
        ("{{ ('<b>'|safe) + '<' }}{{ '<'|e }}{{ '<' }}", {}),
        ("{% autoescape true %}{{ '<' }}{{ v }}{% endautoescape %}", {"v": "&"}),
    ],
    "clock": [("{{ strftime_now('%d %B %Y %H:%M %a %j %-d') }}", {})],
    "spans": [(SAYS + "{{ 'ab' ~ m() }}|{{ 'cd' + m() }}|{{ m() }}|{{ 'x' ~ ('y' ~ m()) }}", {})],
    "jinja's own": [
        ("{{ text | tojson }}", {"text": "1 < 2 & it's <b>"}),
        ('"{{ text | escape }}"', {"text": "1 < 2 & it's <b>"}),
        ("{{ arguments | tojson }}", {"arguments": {"name": "x", "args": [1, 2]}}),
    ],
}


def written():
    plain = jinja2.Environment()
    for name, rows in TEMPLATES.items():
        for source, context in rows:
            row = {"test": name, "template": source, "context": context}
            try:
                if name == "jinja's own":
                    row["text"] = plain.from_string(source).render(**context)
                else:
                    template = chat_template_utils._compile_jinja_template(source)
                    row["text"] = template.render(**copy.deepcopy(context))
                if "generation" in source:
                    given = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False}
                    text, spans = chat_template_utils._render_with_assistant_indices(template, **given)
                    assert text == row["text"]
                    row["spans"] = [list(span) for span in spans]
            except Exception as error:  # whatever Python raises is what is asked for
                row["error"] = "raise_exception" if type(error) is jinja2.TemplateError else type(error).__name__
            yield json.dumps(row, ensure_ascii=False)


# What a model may write in a format, by the documents of those who trained it: the text after the prompt.

CALL = '{"city": "Oslo"}'
CHANNEL = "<|channel|>commentary"
CONSTRAIN = "<|constrain|>json<|message|>"
BEGIN = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
END = "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
TEXTS = [
    # Llama 3.1 with an environment: the kind of call before the name.
    ("llama", '<|python_tag|>{"type": "function", "name": "weather", "parameters": ' + CALL + "}<|eom_id|>"),
    # The same laid out as in meta-llama/llama-models, llama_models/llama3_1/prompt_format.md.
    ("llama", '<|python_tag|>{\n    "type": "function",\n    "name": "weather",\n    "parameters": {\n        "city": "Oslo"\n    }\n}<|eom_id|>'),
    # Nous Hermes 2 Pro and 3, as their system prompt asks: arguments first.
    ("hermes", '<tool_call>\n{"arguments": ' + CALL + ', "name": "weather"}\n</tool_call><|im_end|>\n'),
    # The model cards of LFM2: texts in double quotes, words after the call.
    ("lfm", '<|tool_call_start|>[weather(city="Oslo")]<|tool_call_end|>Looking.<|im_end|>\n'),
    # The template of LFM2 writes what is nested as JSON.
    ("lfm", "<|tool_call_start|>[weather(city='Oslo', now=True, at={\"day\": null, \"dry\": true})]<|tool_call_end|><|im_end|>\n"),
    # openai/harmony, docs/format.md: the recipient in the role or in the channel, with <|constrain|> or without.
    ("gptoss", f" to=functions.weather{CHANNEL} json<|message|>{CALL}<|call|>"),
    ("gptoss", f" to=functions.weather{CHANNEL} {CONSTRAIN}{CALL}<|call|>"),
    ("gptoss", f"{ANALYSIS}{CHANNEL} to=functions.weather {CONSTRAIN}{CALL}<|call|>"),
    ("gptoss", f"{ANALYSIS}{CHANNEL}<|message|>A plan.<|end|><|start|>assistant{CHANNEL} to=functions.weather{CONSTRAIN}{CALL}<|call|>"),
    ("gptoss", f"{CHANNEL} to=functions.weather<|message|>{CALL}<|call|>"),
    # Mistral since its tokenizers v13 and v11, and DeepSeek V3.1: formats of their own, refused, refused and content.
    ("mistral", "[TOOL_CALLS]weather[ARGS]" + CALL + "</s>"),
    ("mistral", "[TOOL_CALLS]weather[CALL_ID]call00001[ARGS]" + CALL + "</s>"),
    ("deepseek", BEGIN + "weather<｜tool▁sep｜>" + CALL + END),
    # Where texts stand bare, what ends a call inside an argument ends it, and nothing is refused.
    ("glm", "<tool_call>save\n<arg_key>text</arg_key>\n<arg_value>a </tool_call> b</arg_value>\n</tool_call><|observation|>"),
]  # fmt: skip


def python_calls(text):
    """The message of a text with calls in Python, read by Python."""
    listed, after = text.removeprefix("<|tool_call_start|>").split("<|tool_call_end|>")
    names = {"true": True, "false": False, "null": None}  # of JSON, within what Python would read
    value = lambda node: eval(ast.unparse(node), {"__builtins__": {}}, names)
    calls = [
        {
            "type": "function",
            "function": {"name": call.func.id, "arguments": {it.arg: value(it.value) for it in call.keywords}},
        }
        for call in ast.parse(listed, mode="eval").body.elts
    ]
    content = after.removesuffix("<|im_end|>\n")
    return {"role": "assistant", "tool_calls": calls} | ({"content": content} if content else {})


def spoken():
    formats = json.loads(RESPONSES.read_text(encoding="utf-8"))
    for name, text in TEXTS:
        if name == "lfm":
            message = python_calls(text)
        else:
            try:
                parser = ResponseParser(formats[name]["response"], prefix="")
                parser.feed(text)
                message, _ = parser.finalize()
            except ValueError:
                message = None
        yield json.dumps({"format": name, "text": text, "message": message}, ensure_ascii=False)


# Behind a normaliser: is a special token that was broken one again?

TOKEN = "<|im_end|>"
MARKS = {
    "U+2060 word joiner": "\u2060",
    "U+200C non-joiner": "\u200c",
    "U+200D joiner": "\u200d",
    "U+200B space of no width": "\u200b",
}
NORMALIZERS = {
    "none": None,
    "NFKC": normalizers.NFKC(),
    "Nmt": normalizers.Nmt(),
    "BertNormalizer": normalizers.BertNormalizer(lowercase=False),
}


def stripped():
    width = max(map(len, MARKS))
    lines = [
        f"tokenizers {tokenizers.__version__}\n",
        f"{'':{width}}" + "".join(f"  {name:14}" for name in NORMALIZERS),
    ]
    for normalized in (False, True):
        lines.append(
            f"\nthe token is looked for {'after' if normalized else 'before'} the normaliser (normalized={normalized})"
        )
        for name, mark in MARKS.items():
            row = f"{name:{width}}"
            for normalizer in NORMALIZERS.values():
                tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
                if normalizer is not None:
                    tokenizer.normalizer = normalizer
                tokenizer.add_special_tokens([AddedToken(TOKEN, normalized=normalized, special=True)])
                ids = tokenizer.encode(TOKEN[0] + mark + TOKEN[1:]).ids
                row += f"  {'a token again' if tokenizer.token_to_id(TOKEN) in ids else 'text':14}"
            lines.append(row)
    return [line.rstrip() for line in lines]


def main():
    chat_template_utils.datetime = Frozen
    files = {
        CHECKS: laid_out(checks()) + "\n",
        WRITTEN: "\n".join(written()) + "\n",
        SPOKEN: "\n".join(spoken()) + "\n",
        STRIPPED: "\n".join(stripped()) + "\n",
    }
    changed = 0
    for path, new in files.items():
        if "--check" in sys.argv:
            old, new = path.read_text(encoding="utf-8").split("\n"), new.split("\n")
            differ = [line for line in old + new if (line in old) != (line in new)]
            changed += len(differ)
            print("\n".join(differ) or f"{path.name} is the same")
        else:
            path.write_bytes(new.encode("utf-8"))
    sys.exit(1 if changed else 0)


main()
