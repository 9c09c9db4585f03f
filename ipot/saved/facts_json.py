"""Frozen dataclasses of plain facts to JSON and back, exactly.

What comes back is checked against the types of its fields, since people edit such files: a name
that is not known, a number where a name belongs, or a NaN is refused with its place.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from ipot.errors import RunError
from ipot.spec import Spec
from ipot.typed_json import from_dict, from_value

__all__ = ["from_dict", "from_value", "plain", "spec_from_dict", "spec_to_dict", "to_dict"]

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
