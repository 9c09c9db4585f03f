"""Frozen dataclasses of plain facts to JSON and back, exactly.

What comes back is checked against the types of its fields, since people edit such files: a name
that is not known, a number where a name belongs, or a NaN is refused with its place.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal

from ipot.errors import RunError
from ipot.spec import Spec

Words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
MOST_STEPS = 1_000_000
"""Steps of a rollout that a file may ask for."""


def to_dict(facts: Any) -> dict[str, Any]:
    """A dataclass as JSON values; members of an enumeration by their names, sets in order."""
    return {
        f.name: plain(getattr(facts, f.name), f.name, exact=True) for f in dataclasses.fields(facts)
    }


def plain(value: Any, where: str, *, exact: bool = False) -> Any:
    """Anything that reads like JSON as JSON; numpy's numbers among it.

    NaN and infinity, which JSON has none of, become null, or are refused where the value must come
    back `exact`.
    """
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{where}.{k}", exact=exact) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(v, where, exact=exact) for v in value)
    if isinstance(value, list | tuple):
        return [plain(v, f"{where}[{i}]", exact=exact) for i, v in enumerate(value)]
    if hasattr(value, "tolist"):  # a number or an array of numpy or torch
        return plain(value.tolist(), where, exact=exact)
    if isinstance(value, float) and not math.isfinite(value):
        if exact:
            raise RunError(f"{where} is {value}, and cannot be saved: it must be a finite number")
        return None
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RunError(f"{where} holds a {type(value).__name__}, which JSON cannot: give plain values")


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
    hints = typing.get_type_hints(kind)
    given = {n: from_value(hints.get(n, Any), v, f"{where}: {n}") for n, v in content.items()}
    try:
        return kind(**given)
    except Exception as error:  # what looks at settings has many ways to say that they do not fit
        raise RunError(f"{where}: {str(error) or type(error).__name__}") from error


def spec_to_dict(spec: Spec) -> dict[str, Any]:
    """The facts of a problem as JSON values."""
    return to_dict(spec)


def spec_from_dict(content: Any, where: str) -> Spec:
    """The same facts again, checked as far as a model could stumble over them."""
    spec = from_dict(Spec, content, where)
    if not spec.outputs or not spec.domain:
        raise RunError(f"{where}: outputs and domain must name at least one each")
    if not (spec.dt > 0 and 1 <= spec.steps <= MOST_STEPS):
        raise RunError(
            f"{where}: dt must be positive and steps between 1 and {MOST_STEPS}, got {spec.dt} "
            f"and {spec.steps}"
        )
    if not 0 <= spec.history * len(spec.outputs) <= len(spec.inputs):
        raise RunError(
            f"{where}: history is {spec.history} frames of {len(spec.outputs)} outputs, and there "
            f"are {len(spec.inputs)} inputs"
        )
    for name in ("domain", "query_domain"):
        for low, high in getattr(spec, name):
            if not low < high:
                raise RunError(f"{where}: {name} has a side from {low} to {high}")
    for name in ("periods", "query_periods"):
        if any(period is not None and period <= 0 for period in getattr(spec, name)):
            raise RunError(f"{where}: {name} must be positive, or null, got {getattr(spec, name)}")
    if spec.units and len(spec.units) != len(spec.outputs):
        raise RunError(
            f"{where}: units has {len(spec.units)} entries for {len(spec.outputs)} outputs"
        )
    return spec


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
        if isinstance(value, list):
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
        if type(value) is hint:
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


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
