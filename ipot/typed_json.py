"""The one codec for settings: frozen dataclasses to JSON and back, exactly.

What comes back is checked against the types of its fields, since people edit such files, and others
send them: a name that is not known, a number where a name belongs, true for a number, or a NaN is
refused with its place before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal

from ipot.errors import IpotError, RunError, shown

Words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
MOST_ENTRIES = 100_000
"""Entries of a list in settings."""
LARGEST_NUMBER = 1 << 63
"""No whole number in settings reaches it: a seed may be any below."""


def to_dict(facts: Any, *, infinite: bool = False) -> dict[str, Any]:
    """A dataclass as JSON values; members of an enumeration by their names, sets in order.

    A number that is not finite is refused, unless settings may be `infinite`: no limit at all.
    """
    return plain(facts, type(facts).__name__, exact=True, infinite=infinite)


def plain(value: Any, where: str, *, exact: bool = False, infinite: bool = False) -> Any:
    """Anything that reads like JSON as JSON; numpy's numbers among it.

    NaN and infinity, which JSON has none of, become null, or are refused where the value must come
    back `exact`; with `infinite` they stay, as Python writes and reads them.
    """
    keys = {"exact": exact, "infinite": infinite}
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: plain(getattr(value, f.name), f.name, **keys) for f in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{where}.{k}", **keys) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(v, where, **keys) for v in value)
    if isinstance(value, list | tuple):
        return [plain(v, f"{where}[{i}]", **keys) for i, v in enumerate(value)]
    if hasattr(value, "tolist"):  # a number or an array of numpy or torch
        return plain(value.tolist(), where, **keys)
    if isinstance(value, float) and not math.isfinite(value) and not infinite:
        if exact:
            raise RunError(f"{where} is {value}, and cannot be saved: it must be a finite number")
        return None
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RunError(f"{where} holds a {type(value).__name__}, which JSON cannot: give plain values")


def from_dict(
    kind: type, content: Any, where: str, part: str = "", *, infinite: bool = False
) -> Any:
    """The dataclass again; an unknown, a missing or a mistyped entry is refused by its name.

    `where` is the file, and `part` the entry in it that holds the settings.
    """
    place, inside = (f"{where}: {part}", f"{part}.") if part else (where, "")
    if not isinstance(content, dict):
        raise RunError(f"{place} must be an object with names, got {shown(content)}")
    known = {f.name: f for f in dataclasses.fields(kind) if f.init}
    if unknown := sorted(set(content) - set(known)):
        raise RunError(f"{place}: unknown settings {', '.join(unknown)}; known: {', '.join(known)}")
    needed = [
        name
        for name, f in known.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing := [name for name in needed if name not in content]:
        raise RunError(f"{place}: {', '.join(missing)} missing")
    hints, given = hints_of(kind), {}
    for name, value in content.items():
        hint = hints.get(name, Any)
        free = infinite and isinstance(value, float) and math.isinf(value)
        if free and float in (hint, *typing.get_args(hint)):
            given[name] = value
        else:
            given[name] = from_value(hint, value, f"{where}: {inside}{name}")
    try:
        return kind(**given)
    except IpotError as error:
        raise RunError(f"{where}: {error}") from error
    except Exception as error:  # what looks at settings has many ways to say that they do not fit
        raise RunError(f"{place}: {str(error) or type(error).__name__}") from error


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


def with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """A JSON value in which every value that is no list and no object is changed."""
    if isinstance(value, Mapping):
        return {name: with_leaves(inner, change) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_leaves(inner, change) for inner in value]
    return change(value)


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
