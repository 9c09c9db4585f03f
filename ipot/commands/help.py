"""Help that fits on a screen, from the flags alone: nothing of the house is imported for it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import shutil
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

WIDTH = 100
WORDS = {str: "NAME", int: "N", float: "NUMBER", Path: "PATH"}


def first_screen(command: str, arguments: list[str]) -> str | None:
    """The help of a command; None where its first word names no task that it has."""
    module = importlib.import_module(f"ipot.commands.flags.{command}")
    if not isinstance(module.FLAGS, dict):
        return screen(module.FLAGS, command)
    if arguments[0] in module.FLAGS:
        return screen(module.FLAGS[arguments[0]], f"{command} {arguments[0]}")
    return inspect.cleandoc(module.ABOUT) if arguments[0].startswith("-") else None


def screen(kind: type, command: str) -> str:
    """Usage, what it does, an example, and the flags that people use, a line each."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 40)).columns)
    found = {flag.name: flag for flag in flags_of(kind)}
    shown = [found[name] for name in kind.usual]
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    usage = next((p for p in paragraphs if p.startswith("usage:")), None)
    example = next((p for p in paragraphs if p.startswith("    ")), "")
    if usage is None:
        words = [f.head for f in shown if f.needed or f.positional]
        usage = " ".join(["usage: ipot", command, *words, "[flags]"])
    heads = [*(flag.head for flag in shown), *(head for head, _ in getattr(kind, "settings", ()))]
    column = max(map(len, heads)) + 2
    lines = [
        f"  {f.head:<{column}}{_fitting(f.text, f.default, max(width - column - 2, 20))}"
        for f in shown
    ]
    lines += [f"  {head:<{column}}{text}" for head, text in getattr(kind, "settings", ())]
    rest = len(found) - len(shown)
    more = f"ipot {command} --help-all: " + (
        f"{rest} flags besides, and more about all" if rest else "more about all of these"
    )
    about = textwrap.fill(paragraphs[0].replace("\n", " "), width)
    parts = [usage.removesuffix(", for instance"), about, example.rstrip(), "\n".join(lines), more]
    return "\n\n".join(part for part in parts if part)


@dataclasses.dataclass(frozen=True)
class Flag:
    """What there is to say of one flag."""

    name: str
    spelt: str
    positional: bool
    needed: bool
    kind: Any
    """Its type, without what only the parser wants to know."""
    metavar: str
    default: str
    text: str

    @property
    def head(self) -> str:
        """The flag as it is written, with what stands for its value."""
        return self.metavar if self.positional else f"{self.spelt} {self.metavar}".rstrip()

    @property
    def meaning(self) -> str:
        """What it means in every command: the words before the first colon, semicolon or stop."""
        ends = [i for i in map((self.text + ". ").find, (": ", "; ", ". ", ":\n")) if i >= 0]
        return self.text[: min(ends)].rstrip(".")


def flags_of(kind: type) -> list[Flag]:
    """The flags of a dataclass, in its order."""
    hints, texts = get_type_hints(kind, include_extras=True), field_docs(kind)
    found = []
    for entry in dataclasses.fields(kind):
        hint, marks = hints[entry.name], []
        while get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            marks += more
        given = {name: getattr(mark, name, None) for mark in marks for name in ("metavar", "name")}
        positional = tyro.conf.Positional in marks or _is_positional(hints[entry.name])
        needed = entry.default is dataclasses.MISSING
        metavar = given.get("metavar") or _metavar(hint)
        found.append(
            Flag(
                name=entry.name,
                spelt="--" + (given.get("name") or entry.name.replace("_", "-")),
                positional=positional,
                needed=needed,
                kind=hint,
                metavar=entry.name.upper() if positional and metavar == "PATH" else metavar,
                default="" if needed else _default(entry.default),
                text=texts.get(entry.name, "").replace("\n", " "),
            )
        )
    return found


def _is_positional(hint: Any) -> bool:
    return "Positional" in repr(hint)


def _metavar(hint: Any) -> str:
    """What a value looks like: a word in capitals, or the choices."""
    parts = [part for part in get_args(hint) if part not in (type(None), Ellipsis)]
    if get_origin(hint) is Literal:
        return "{" + ",".join(map(str, parts)) + "}"
    if get_origin(hint) is tuple:
        return f"{_metavar(parts[0])} ..."
    if parts:  # or None
        return _metavar(parts[0])
    return "" if hint is bool else WORDS[hint]


def _default(value: Any) -> str:
    if value is None or value is False or value == ():
        return ""
    words = value if isinstance(value, tuple) else (value,)
    return " [" + " ".join(f"{w:g}" if isinstance(w, float) else str(w) for w in words) + "]"


def _fitting(text: str, default: str, room: int) -> str:
    """The first sentence, or the most of it that fits on a line and makes sense."""
    sentence = (text + " ").split(". ")[0].strip().rstrip(".")
    room -= len(default)
    if len(sentence) > room:
        for mark in (";", ":", ","):
            end = sentence.rfind(f"{mark} ", 0, room)
            if end > 0:
                return sentence[:end] + default
        sentence = textwrap.shorten(sentence, room, placeholder=" …")
    return sentence + default


def field_docs(kind: type) -> dict[str, str]:
    """What stands below each field of a dataclass and of those it derives from."""
    found: dict[str, str] = {}
    for owner in reversed([k for k in kind.__mro__ if dataclasses.is_dataclass(k)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for line, below in pairwise(lines):
            text = below.value if isinstance(below, ast.Expr) else None
            if (
                isinstance(line, ast.AnnAssign)
                and isinstance(line.target, ast.Name)
                and isinstance(text, ast.Constant)
                and isinstance(text.value, str)
            ):
                found[line.target.id] = inspect.cleandoc(text.value)
    return found
