"""JSON values as what type hints say, or a refusal that names their place.

People edit settings, and others send them: a number where a name belongs, a NaN, or true for a
number is refused before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from enum import Enum
from typing import Any, Literal

from ipot.errors import RunError, shown

Words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
MOST_ENTRIES = 100_000
"""Entries of a list in settings."""
LARGEST_NUMBER = 1 << 63
"""No whole number in settings reaches it: a seed may be any below."""


def from_dict(kind: type, content: Any, where: str) -> Any:
    """The dataclass again; an unknown, a missing or a mistyped entry is refused by its name."""
    if not isinstance(content, dict):
        raise RunError(f"{where} must be an object with names, got {shown(content)}")
    known = {f.name: f for f in dataclasses.fields(kind) if f.init}
    if unknown := sorted(set(content) - set(known)):
        raise RunError(f"{where}: unknown {', '.join(unknown)}; known: {', '.join(known)}")
    needed = [
        name
        for name, f in known.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing := [name for name in needed if name not in content]:
        raise RunError(f"{where}: {', '.join(missing)} missing")
    hints = hints_of(kind)
    given = {n: from_value(hints.get(n, Any), v, f"{where}: {n}") for n, v in content.items()}
    try:
        return kind(**given)
    except Exception as error:  # what looks at settings has many ways to say that they do not fit
        raise RunError(f"{where}: {str(error) or type(error).__name__}") from error


def hints_of(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; none where somebody's own class names what it cannot."""
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError, AttributeError):
        return {}


def from_value(hint: Any, value: Any, where: str) -> Any:
    """A JSON value as what a type hint says, or a refusal."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in options:
            try:
                return from_value(option, value, where)
            except RunError:
                continue
    elif origin is Literal:
        if value in options and type(value) in {type(o) for o in options}:
            return value
    elif origin in (tuple, frozenset):
        if isinstance(value, list) and len(value) <= MOST_ENTRIES:
            if origin is frozenset or options[-1] is Ellipsis:
                options = (options[0],) * len(value)
            if len(options) == len(value):
                pairs = zip(options, value, strict=True)
                return origin(from_value(o, v, f"{where}[{i}]") for i, (o, v) in enumerate(pairs))
    elif hint is types.NoneType:
        if value is None:
            return None
    elif isinstance(hint, type) and issubclass(hint, Enum):
        if isinstance(value, str) and value in hint.__members__:
            return hint[value]
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value):
            return float(value)
    elif hint in (bool, int, str):
        too_large = type(value) is int and abs(value) >= LARGEST_NUMBER
        if type(value) is hint and not too_large:
            return value
    else:  # a type of somebody's own model: its constructor knows
        return tuple(value) if isinstance(value, list) else value
    raise RunError(f"{where} must be {_words(hint)}, got {shown(value)}")


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float can be
        return False


def _words(hint: Any) -> str:
    """A type for people."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(repr(o) for o in options)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(o) for o in options)
    if origin in (tuple, frozenset):
        many = origin is frozenset or options[-1] is Ellipsis
        return f"a list of {_words(options[0])}" if many else f"a list of {len(options)}"
    if hint is types.NoneType:
        return "null"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(hint.__members__)}"
    return Words.get(hint, str(hint))
