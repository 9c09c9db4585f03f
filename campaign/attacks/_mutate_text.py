"""Changes to text that means something: JSON, XML and tables."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from campaign.attacks._mutate import Around, Inapplicable, Tree, content, file_mutator, mutator
from campaign.attacks._mutate import pick_file as pick

CANARY = "campaign_canary.module"
"""A module that no file may cause to be imported."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, 1e-320),
    *(float("nan"), float("inf"), "", "0", "x", "x" * 5000, "\0", "\ud800", "ä\u202e\U0001f600"),
    *("../../x", "/etc/passwd", CANARY, [], {}, [[]], [None], [1, 2, 3], {"name": CANARY}),
)
TEXTS = (".json", ".jsonl", ".zattrs", ".zgroup", ".zarray", ".zmetadata")
Slot = tuple[Any, Any]


def slots(value: Any) -> list[Slot]:
    """Every place of a value in an object or a list, however deep."""
    found: list[Slot] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def changed_json(text: str, random: Random) -> str:
    """JSON that is still JSON, with something other in it; at times not even that."""
    value = json.loads(text)
    places = slots(value)
    if not places:
        raise Inapplicable
    holder, key = random.choice(places)
    kind = random.choice(_KINDS)
    if kind == "drop":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[random.choice((f"{key}_", "", key.upper(), key[:-1], "name"))] = holder.pop(key)
    elif kind == "swap":
        other, name = random.choice(places)
        holder[key], other[name] = other[name], holder[key]
    elif kind == "near":
        holder[key] = _near(holder[key], random)
    elif kind == "text":
        return _changed_text(text, value, holder, key, random)
    elif kind == "canary":
        texts = [(h, k) for h, k in places if isinstance(h[k], str)] or places
        # What is imported by its name is called so.
        names = [(h, k) for h, k in texts if k == "name"] or texts
        holder, key = random.choice(random.choice((names, texts)))
        holder[key] = CANARY
    else:
        holder[key] = random.choice(ODD)
    return json.dumps(value)


_KINDS = ("drop", "rename", "swap", "near", "near", "text", "canary", "odd", "odd", "odd")


def _near(value: Any, random: Random) -> Any:
    """Something of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return random.choice((value + 1, value - 1, -value, value * 1000, value / 2, value * 2))
    if isinstance(value, str):
        return random.choice((value + "x", value[1:], value.upper(), value[::-1], value * 50))
    if isinstance(value, list):
        return random.choice((value + value, value[1:], value[::-1], [value], value * 100))
    return random.choice(({**value, "more": 1}, [value], {}))


def _changed_text(text: str, value: Any, holder: Any, key: Any, random: Random) -> str:
    """What cannot be said by values: keys that stand twice, depth, digits, other text around."""
    kind = random.randrange(6)
    mark = "@@here@@"
    holder[key] = mark
    text = json.dumps(value)
    if kind == 0:
        depth = random.choice((50, 2000, 100_000))
        return text.replace(f'"{mark}"', "[" * depth + "]" * depth)
    if kind == 1:
        return text.replace(f'"{mark}"', random.choice(("1" * 5000, "1e999", "-1e999", "1e-999")))
    if kind == 2 and isinstance(holder, dict):
        again = f"{json.dumps(key)}: {json.dumps(random.choice(ODD))}, "
        return text.replace(f'{json.dumps(key)}: "{mark}"', f"{again}{json.dumps(key)}: 1")
    if kind == 3:
        return text.replace(f'"{mark}"', "0") + random.choice(("{}", "]", "\0", "//"))
    if kind == 4:
        return text.replace(f'"{mark}"', random.choice(("NaN", "-Infinity", "tru", "'x'", "0x1")))
    return text.replace(f'"{mark}"', '"\\ud83d"')


@mutator("json")
def _json(tree: Tree, random: Random, around: Around) -> None:
    name = pick(tree, random, *TEXTS)
    lines = content(tree, name).decode().splitlines()
    if not name.endswith(".jsonl"):
        tree[name] = changed_json("\n".join(lines), random).encode(errors="surrogatepass")
        return
    which = random.randrange(len(lines))
    lines[which] = changed_json(lines[which], random)
    tree[name] = ("\n".join(lines) + "\n").encode(errors="surrogatepass")


@mutator("json written otherwise", neutral=True)
def _rewritten(tree: Tree, random: Random, around: Around) -> None:
    name = pick(tree, random, *(t for t in TEXTS if t != ".jsonl"))
    value = json.loads(content(tree, name))
    indent = random.choice((None, 1, 8))
    tree[name] = json.dumps(value, indent=indent, ensure_ascii=random.random() < 0.5).encode()


@file_mutator("json encoding", *TEXTS)
def _encoding(data: bytes, random: Random, around: Around) -> bytes:
    text = data.decode()
    ways = ("utf-16", "utf-32", "utf-8-sig", "utf-16-le", "cp037")
    return text.encode(random.choice(ways))


ATTRIBUTE = re.compile(rb'([\w:]+)="([^"]*)"')
VALUES = (
    *(b"", b"0", b"-1", b"1", b"3", b"7", b"255", b"2147483648", b"9223372036854775807", b"1e3"),
    *(b"99999999999999999999", b"nan", b"Float32", b"Float64", b"Int8", b"UInt64", b"String"),
    *(b"ascii", b"binary", b"appended", b"raw", b"base64", b"BigEndian", b"UInt32", b"x" * 3000),
    *(b"vtkZLibDataCompressor", b"vtkLZ4DataCompressor", b"PolyData", b"&lt;", b"&bad;", b"\xff"),
)
LAUGHS = b'<!DOCTYPE x [<!ENTITY a "ha">' + b"".join(
    b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9)
)
LAUGHS += b"]>"


@file_mutator("xml attribute")
def _attribute(data: bytes, random: Random, around: Around) -> bytes:
    found = random.choice(list(ATTRIBUTE.finditer(data)))
    name, value = found.groups()
    kind = random.randrange(5)
    if kind == 0:
        made = b""
    elif kind == 1:
        made = found[0] + b" " + found[0]
    elif kind == 2 and value.lstrip(b"-").isdigit():
        other = int(value) + random.choice((-1, 1, 1000, 10**9, 10**18, -(10**9)))
        made = b'%s="%d"' % (name, other)
    else:
        made = b'%s="%s"' % (name, random.choice(VALUES))
    return data[: found.start()] + made + data[found.end() :]


@file_mutator("xml piece elsewhere")
def _piece(data: bytes, random: Random, around: Around) -> bytes:
    """Another file's name where the file names one, or where it could."""
    named = [m for m in ATTRIBUTE.finditer(data) if m[1].lower() in (b"source", b"file")]
    name = random.choice(("secret.vtu", "secret.vtp", "secret.vti"))
    secret = around.secret(random, name).encode()
    if not named:
        return re.sub(rb"<Piece ", b'<Piece Source="%s" ' % secret, data, count=1)
    found = random.choice(named)
    return data[: found.start()] + b'%s="%s"' % (found[1], secret) + data[found.end() :]


@file_mutator("xml entities")
def _entities(data: bytes, random: Random, around: Around) -> bytes:
    end = data.find(b"?>") + 2 if data.startswith(b"<?xml") else 0
    outside = f'<!DOCTYPE x [<!ENTITY a SYSTEM "{around.secret(random, "secret.txt")}">]>'.encode()
    used = random.choice((b"&a;", b"&j;"))
    body = data[end:]
    places = [m.end() for m in re.finditer(rb">", body)]
    place = random.choice(places) if places else 0
    return data[:end] + random.choice((LAUGHS, outside)) + body[:place] + used + body[place:]


@file_mutator("xml element")
def _element(data: bytes, random: Random, around: Around) -> bytes:
    found = random.choice(list(re.finditer(rb"<[^>]{1,400}>", data)))
    tag, kind = found[0], random.randrange(5)
    made = (
        *(b"", tag * 2, tag * 5000, tag.replace(b"</", b"<"), b"<!-- " + tag),
        *(b"<![CDATA[" + tag + b"]]>",),
    )[random.randrange(6) if kind else 0]
    return data[: found.start()] + made + data[found.end() :]


@file_mutator("xml number")
def _number(data: bytes, random: Random, around: Around) -> bytes:
    found = random.choice(list(re.finditer(rb"(?<=[\s>])-?\d[\d.e+-]*(?=[\s<])", data)))
    odd = (b"nan", b"inf", b"1e999", b"-1", b"1e-400", b"", b"0x10", b"1,5", b"1_0", b"9" * 400)
    return data[: found.start()] + random.choice(odd) + data[found.end() :]


@file_mutator("words of a text")
def _words(data: bytes, random: Random, around: Around) -> bytes:
    """A word of a text that another one takes the place of, or a line that comes again or goes."""
    found = random.choice(list(re.finditer(rb"[^\s(){};]+", data)))
    odd = (
        *(b"0", b"-1", b"1e999", b"99999999999", b"nan", b"(", b"}", b"$x", b"\xff", b"x" * 5000),
        *(b"binary", b"property", b"#include", around.secret(random, "secret.txt").encode()),
    )
    others = [m[0] for m in re.finditer(rb"[^\s(){};]+", data)]
    kind = random.randrange(4)
    if kind == 0:
        made = random.choice(others)
    elif kind == 1:
        made = b""
    else:
        made = random.choice(odd)
    return data[: found.start()] + made + data[found.end() :]


@file_mutator("xml encoding")
def _xml_encoding(data: bytes, random: Random, around: Around) -> bytes:
    name = random.choice(("utf-16", "utf-7", "cp037", "latin-1", "utf-32", "no-such"))
    head = f'<?xml version="1.0" encoding="{name}"?>'
    body = re.sub(rb"^<\?xml[^>]*\?>", b"", data)
    if name == "no-such" or random.random() < 0.5:
        return head.encode() + body
    return (head + body.decode("latin-1")).encode(name, errors="replace")


@file_mutator("table cell", ".csv", ".tsv", ".txt")
def _cell(data: bytes, random: Random, around: Around) -> bytes:
    cut = b"\t" if b"\t" in data.split(b"\n")[0] else b","
    lines = data.split(b"\n")
    row = random.randrange(len(lines))
    cells = lines[row].split(cut)
    odd = (
        *(b"", b"nan", b"inf", b"1e999", b"1,5", b'"1\n2"', b'"', b"\0", b"x" * 200_000, b"1_000"),
        *(b"\xff\xfe", b"0x1F", b"1e5000", b" 1 ", b"=1+1", b"9" * 400, b"None", b"True", b"-"),
    )
    kind = random.randrange(4)
    if kind == 0:
        cells.insert(random.randrange(len(cells) + 1), random.choice(odd))
    elif kind == 1:
        del cells[random.randrange(len(cells))]
    else:
        cells[random.randrange(len(cells))] = random.choice(odd)
    lines[row] = cut.join(cells)
    return b"\n".join(lines)


@file_mutator("table whole", ".csv", ".tsv", ".txt")
def _table(data: bytes, random: Random, around: Around) -> bytes:
    text, lines = data.decode(errors="replace"), data.split(b"\n")
    ways = (
        lambda: text.encode(random.choice(("utf-16", "utf-32", "utf-8-sig", "cp037"))),
        lambda: data.replace(b",", random.choice((b";", b"\t", b"|", b" ", b",,"))),
        lambda: data.replace(b".", b","),
        lambda: data.replace(b"\n", random.choice((b"\r", b"\r\n", b"\n\n", b"\0\n"))),
        lambda: b"\n".join(lines[1:]),
        lambda: b"\n".join([lines[0], *lines]),
        lambda: lines[0] + b"," + lines[0] + b"\n" + b"\n".join(lines[1:]),
        lambda: b",".join([lines[0], *(b"c%d" % i for i in range(5000))]) + b"\n" + lines[1],
        lambda: b"\n".join([*lines[:2], *reversed(lines[2:])]),
        lambda: b"# a remark\n" * random.choice((1, 1000)) + data,
        lambda: lines[0],
    )
    return random.choice(ways)()


@file_mutator("table ends of lines", ".csv", ".tsv", neutral=True)
def _line_ends(data: bytes, random: Random, around: Around) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
