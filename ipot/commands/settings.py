"""Flags for the settings of an experiment, whose types depend on the problem and model named."""

from __future__ import annotations

import sys
from dataclasses import field, make_dataclass, replace
from typing import Any

from ipot.commands.common import parse
from ipot.recipes.experiment import Data, Experiment
from ipot.training.settings import Training


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
        print(text, file=sys.stdout if helped else sys.stderr)
        raise SystemExit(0 if helped else 2)
    return names, arguments


def parse_with_settings(
    base: Experiment, flags: type, arguments: list[str], command: str
) -> tuple[Experiment, Any]:
    """`--problem.x`, `--model.x`, `--training.x`, `--count.x`, and the flags of the command.

    The defaults shown by --help are those of the preset.
    """
    parts = {
        "problem": (type(base.problem), base.problem),
        "model": (type(base.model), base.model),
        "training": (Training, base.training),
        "count": (Data, base.data),
    }
    combined = make_dataclass(
        flags.__name__,
        [(name, kind, field(default=value)) for name, (kind, value) in parts.items()],
        bases=(flags,),
        kw_only=True,
    )
    combined.__doc__ = flags.__doc__
    values = parse(combined, arguments, command)
    settings = replace(
        base,
        problem=values.problem,
        model=values.model,
        training=values.training,
        data=values.count,
    )
    return settings, values


def flag_value(arguments: list[str], name: str, default: str) -> str:
    """A flag that must be known before the others can be parsed (the preset)."""
    for place, word in enumerate(arguments):
        if word == name and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return default
