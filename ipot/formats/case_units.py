"""Fields of cases in common units: those of the first case that says so, or those of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ipot.data.quantities import Agreement, Change, turned, unit_in_name
from ipot.formats.fields import Case, Trajectories
from ipot.formats.roles import components

_PARTS = ("fields", "cell_fields", "parameters")


def declared(case: Case, name: str) -> str:
    """The unit of a field or parameter, by its file or by a name like `T [K]`."""
    return case.units.get(name, "") or unit_in_name(name)[1]


def in_units(
    case: Case, names: Iterable[str], wanted: Mapping[str, str], agreed: Agreement, source: str
) -> Case:
    """A case whose fields of these names (or of which these are components) are in wanted units.

    A column that differs from a name in its unit alone, `T [degC]` for `T [K]`, is taken for it.
    """
    parts: dict[str, dict[str, np.ndarray]] = {p: dict(getattr(case, p)) for p in _PARTS}
    units, changed, seen = dict(case.units), False, set[str]()
    for name in names:
        key = _key(name, parts)
        if key is None or key in seen:
            continue
        seen.add(key)
        asked = key if unit_in_name(key)[0] != unit_in_name(name)[0] else name
        for part in parts.values():
            if key not in part:
                continue
            target = _wanted(asked, part[key], wanted)
            found = agreed.change(asked, declared(case, key), target, source=source)
            if found is None and key == asked:
                continue
            array = part.pop(key)
            part[asked] = array if found is None else turned(array, found)
            units[asked] = target or declared(case, key)
            changed = True
    if not changed:
        return case
    made: dict[str, Any] = {**parts, "units": units}
    return replace(case, **made)


def _key(name: str, parts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What the field of a name is called in this case."""
    there = [key for part in parts.values() for key in part]
    for key in (name, name.rpartition("_")[0]):
        if key in there:
            return key
    bare, own = unit_in_name(name)
    alike = [key for key in dict.fromkeys(there) if own and unit_in_name(key)[0] == bare]
    return alike[0] if len(alike) == 1 and unit_in_name(alike[0])[1] else None


def _wanted(name: str, array: np.ndarray, wanted: Mapping[str, str]) -> str:
    """The unit that a field is to be in, by its own name or that of its first component."""
    width = array.shape[-1] if array.ndim > 1 else 1
    first = components(name, width)[0]
    numbered = f"{name}_0"  # numbers of a case
    return (
        next((wanted[n] for n in (name, first, numbered) if wanted.get(n)), "")
        or (unit_in_name(name)[1])
    )


def learn(case: Case, names: Iterable[str], known: dict[str, str]) -> None:
    """Add the units that a case declares to those that are known already."""
    parts = {p: getattr(case, p) for p in _PARTS}
    for key in (_key(name, parts) for name in names):
        if key is not None and (unit := declared(case, key)):
            known.setdefault(key, unit)


def trajectories_in_units(
    source: Trajectories, wanted: Mapping[str, str], agreed: Agreement
) -> Trajectories:
    """Trajectories whose fields are in wanted units; they are converted as they are read."""
    fields, units = dict(source.fields), dict(source.units)
    for name, stored in source.fields.items():
        given, target = units.get(name, ""), wanted.get(name, "")
        found = agreed.change(name, given, target, source=source.source)
        if found is not None:
            read = partial(_converted, stored.pieces, found)
            fields[name] = replace(stored, pieces=read, dtype=np.dtype(np.float64))
            units[name] = target
    return replace(source, fields=fields, units=units)


def _converted(read: Any, change: Change, trajectory: int, times: slice) -> np.ndarray:
    return turned(read(trajectory, times), change)
