"""Shared by several commands: parsing, also of settings whose types depend on the problem and
model that are named, printing, and reporting of generated data.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import field, make_dataclass, replace
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ipot import registry
from ipot.data.store import Store
from ipot.errors import DataError
from ipot.recipes.experiment import Experiment, small
from ipot.report.tables import bytes_
from ipot.training.journal import Progress, duration

Flags = TypeVar("Flags")

Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


def parse(kind: type[Flags], arguments: Sequence[str], command: str) -> Flags:
    """The flags of a command from its dataclass; wrong usage exits with status 2."""
    return tyro.cli(
        kind,
        args=list(arguments),
        prog=f"ipot {command}",
    )


def without_old_input(arguments: Sequence[str], command: str) -> tuple[list[str], Path | None]:
    """Arguments without `--input DATA`, which is how the data behind the model were given before,
    and these data."""
    rest, old = list(arguments), None
    for place, word in enumerate(rest):
        name, is_joined, value = word.partition("=")
        if name == "--input" and (is_joined or place + 1 < len(rest)):
            old = Path(value if is_joined else rest[place + 1])
            del rest[place : place + (1 if is_joined else 2)]
            say(f"ipot {command}: --input is the old spelling of ipot {command} MODEL {old}")
            break
    return rest, old


def data_given(new: Path | None, old: Path | None) -> Path | None:
    """The data behind the model, given once, in the one spelling or the other."""
    if new is not None and old is not None:
        raise DataError(f"the data are given twice, as {new} and as --input {old}: give one")
    return old if new is None else new


def emit(content: Any) -> None:
    """JSON for a program to read; not-a-number becomes null, since JSON has none."""
    print(json.dumps(_plain(content), indent=2))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value != value:
        return None
    return value


def say(text: str) -> None:
    """A remark that is not the result: it goes to stderr, so that stdout can be piped."""
    print(text, file=sys.stderr, flush=True)


def show(table: Any) -> None:
    """A table, as wide as it needs to be."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(table)


def small_if_asked(base: Experiment, arguments: Sequence[str]) -> Experiment:
    """The sizes of a first look, where --small is among the flags; other flags change them."""
    return small(base) if "--small" in arguments else base


class Generation:
    """Says how large the data will be before the folder is filled, then how far it is."""

    def __init__(self, store: Store, *, quiet: bool = False) -> None:
        self.store, self.quiet = store, quiet
        self.progress = Progress(quiet=quiet, every=5.0)
        self._split = ""
        self._start, self._had = 0.0, 0

    def __call__(self, split: str, done: int, count: int, bytes_each: int) -> None:
        """Progress of one split, from before its first piece on."""
        if split != self._split:
            self._split, self._start, self._had = split, time.monotonic(), done
            if not self.quiet:
                size = bytes_((count - done) * bytes_each)
                missing = f"{count - done} {split} samples"
                say(f"generating {missing}, about {size}, into {self.store.root}")
        text = f"  {split}: {done} of {count}{self._left(done, count)}"
        self.progress.show(text, last=done == count)

    def _left(self, done: int, count: int) -> str:
        """The time that the rest will take if it goes on as since the start."""
        made = done - self._had
        if not made or done == count:
            return ""
        seconds = (time.monotonic() - self._start) / made * (count - done)
        return f", about {duration(seconds)} left"


def split_names(
    arguments: list[str], wanted: list[str], command: str, text: str | None
) -> tuple[dict[str, str], list[str]]:
    """The leading words of a command (its problem, its model), and the flags behind them."""
    words = []
    while arguments and not arguments[0].startswith("-") and len(words) < len(wanted):
        words.append(arguments[0])
        arguments = arguments[1:]
    names = dict(zip(wanted, words, strict=False))
    if not names:
        helped = bool({"-h", "--help"} & set(arguments))
        known = ", ".join(registry.names("problems"))
        more = f"The problem comes first: {known}. `ipot {command} PROBLEM --help` lists all flags."
        print(f"{cleandoc(text or '')}\n\n{more}", file=sys.stdout if helped else sys.stderr)
        raise SystemExit(0 if helped else 2)
    return names, arguments


FLAGS = {"problem": "problem", "model": "model", "training": "training", "data": "count"}
"""The parts of an experiment and what their flags begin with."""


def parse_with_settings(
    base: Experiment,
    flags: type,
    arguments: list[str],
    command: str,
    *,
    parts: tuple[str, ...] = tuple(FLAGS),
) -> tuple[Experiment, Any]:
    """`--problem.x`, `--model.x`, `--training.x`, `--count.x`, and the flags of the command.

    The defaults shown by --help are those of the preset.
    """
    values = {part: getattr(base, part) for part in parts}
    combined = make_dataclass(
        flags.__name__,
        [(FLAGS[part], type(value), field(default=value)) for part, value in values.items()],
        bases=(flags,),
        kw_only=True,
    )
    combined.__doc__ = flags.__doc__
    found = parse(combined, arguments, command)
    changes = {part: getattr(found, FLAGS[part]) for part in parts}
    return replace(base, **changes), found


def flag_value(arguments: list[str], name: str, default: str) -> str:
    """A flag that must be known before the others can be parsed (the preset)."""
    for place, word in enumerate(arguments):
        if word == name and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return default
