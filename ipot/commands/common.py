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
from typing import Any, TypeVar, get_type_hints

import tyro

from ipot import files, registry
from ipot.commands.help import screen
from ipot.data.store import Store
from ipot.errors import DataError, Unsupported
from ipot.recipes.experiment import Experiment, small
from ipot.report.tables import bytes_
from ipot.training.journal import Progress, duration
from ipot.training.settings import Training

Flags = TypeVar("Flags")


def parse(kind: type[Flags], arguments: Sequence[str], command: str) -> Flags:
    """The flags of a command from its dataclass; wrong usage exits with status 2."""
    if "--help-all" in arguments:
        print(cleandoc(kind.__doc__ or "") + "\n")
        arguments = ["--help"]
    return tyro.cli(kind, args=list(arguments), prog=f"ipot {command}", description="")


def emit(content: Any) -> None:
    """JSON for a program to read; not-a-number becomes null, since JSON has none."""
    print(json.dumps(_plain(content), indent=2))


def is_emitted(content: Any, flags: Any) -> bool:
    """Write a result to --out and print it with --json, where asked; True if it is printed."""
    if flags.out is not None:
        files.write_json(flags.out, _plain(content))
    if flags.json:
        emit(content)
    return flags.json


def refuse_there(out: Path | None, *, overwrite: bool) -> None:
    """Refuse to write over a file, or into a folder with something in it, that is there already."""
    if out is None or overwrite or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    raise DataError(
        f"--out {out} is there already: choose another, or add --overwrite to write over it"
    )


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
    arguments: list[str], wanted: list[str], kind: type, command: str
) -> tuple[dict[str, str], list[str]]:
    """The leading words of a command (its problem, its model), and the flags behind them."""
    words = []
    while arguments and not arguments[0].startswith("-") and len(words) < len(wanted):
        words.append(arguments[0])
        arguments = arguments[1:]
    names = dict(zip(wanted, words, strict=False))
    if not names:
        if "--help-all" in arguments:
            parse(kind, arguments, command)
        known = ", ".join(registry.names("problems"))
        more = f"The problem comes first: {known}."
        print(f"{screen(kind, command)}\n\n{more}", file=sys.stderr)
        raise SystemExit(2)
    return names, arguments


FLAGS = {"problem": "problem", "model": "model", "training": "training", "data": "count"}
"""The parts of an experiment and what their flags begin with."""
SHORT = ("minutes", "epochs", "augment", "seed")
"""Flags of a command that are short for those of the training."""


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
    entries = [(FLAGS[part], type(value), field(default=value)) for part, value in values.items()]
    if "training" in parts:
        hints = get_type_hints(Training)
        entries += [(n, hints[n], field(default=getattr(base.training, n))) for n in SHORT]
    combined = make_dataclass(flags.__name__, entries, bases=(flags,), kw_only=True)
    combined.__doc__ = flags.__doc__
    found = parse(combined, arguments, command)
    changes = {part: getattr(found, FLAGS[part]) for part in parts}
    if "training" in parts:
        changes["training"] = _with_short(base.training, changes["training"], found)
    return replace(base, **changes), found


def _with_short(base: Training, said: Training, found: Any) -> Training:
    """The settings of the training, where some may have been said by their short flags."""
    for name in SHORT:
        short, long, unsaid = getattr(found, name), getattr(said, name), getattr(base, name)
        if short == unsaid:
            continue
        if long not in (unsaid, short):
            raise Unsupported(
                f"--{name} {short} and --training.{name} {long} are the same setting: leave one of "
                "them out"
            )
        said = replace(said, **{name: short})
    return said


def flag_value(arguments: list[str], name: str, default: str) -> str:
    """A flag that must be known before the others can be parsed (the preset)."""
    for place, word in enumerate(arguments):
        if word == name and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return default
