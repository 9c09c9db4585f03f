"""Flags for the settings of an experiment, whose types depend on the problem and model named."""

from __future__ import annotations

import sys
from dataclasses import field, make_dataclass, replace
from inspect import cleandoc
from typing import Any

from ipot import registry
from ipot.commands.common import parse
from ipot.recipes.experiment import Experiment


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
