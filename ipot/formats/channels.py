"""Channels by name: fields and their components, on points or on cells, and numbers of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from ipot.errors import DataError
from ipot.formats.case import Case
from ipot.formats.limits import check_channels
from ipot.formats.names import components, unknown

Where = Literal["points", "cells"]


def fields_of(
    case: Case, names: Sequence[str], what: str, where: Where
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Places, values (rows, channels) and names of channels of fields at one kind of place."""
    here = {"points": case.fields, "cells": case.cell_fields}
    other: Where = "cells" if where == "points" else "points"
    if not names:
        return case.points, np.empty((len(case.points), 0)), ()
    for place in (where, other):
        if all(_has(here[place], name) for name in names):
            found = [_channels(here[place], name) for name in names]
            labels = tuple(label for _, own in found for label in own)
            if len(set(labels)) != len(labels):
                raise DataError(f"{what}s name a channel twice: {', '.join(labels)}")
            places = case.points if place == "points" else case.centres()
            return places, np.concatenate([array for array, _ in found], axis=1), labels
    for name in names:
        if not any(_has(arrays, name) for arrays in here.values()):
            raise unknown(name, f"{what} field", source_of(case), all_names(case))
    at = {p: [n for n in names if _has(here[p], n)] for p in here}
    raise DataError(
        f"{source_of(case)}: {what}s must all be at points or all on cells; at points are "
        f"{', '.join(at['points'])}, on cells {', '.join(at['cells'])}. Bring them to one."
    )


def _has(arrays: Mapping[str, np.ndarray], name: str) -> bool:
    return name in arrays or _component(arrays, name) is not None


def _component(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    """One component of a field, asked for as name_x or name_0."""
    stem, _, last = name.rpartition("_")
    array = arrays.get(stem)
    if array is None or array.ndim != 2:
        return None
    width = array.shape[1]
    index = "xyz".find(last) if len(last) == 1 and width <= 3 else -1
    if last.isascii() and last.isdigit() and len(last) < 6:
        index = int(last)
    return array[:, index : index + 1] if 0 <= index < width else None


def _channels(arrays: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    if name not in arrays:
        found = _component(arrays, name)
        assert found is not None
        return found, (name,)
    array = arrays[name]
    array = array[:, None] if array.ndim == 1 else array
    check_channels(f"the field {name}", array.shape[1])
    return array, components(name, array.shape[1])


def scalars_of(case: Case, names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The numbers of a case with these names, and what they are called one by one."""
    found: list[np.ndarray] = []
    labels: list[str] = []
    for name in names:
        if name in case.parameters:
            array = np.atleast_1d(case.parameters[name])
            check_channels(f"the parameter {name} of {source_of(case)}", len(array))
            found.append(array)
            labels += [name] if len(array) == 1 else [f"{name}_{i}" for i in range(len(array))]
            continue
        arrays = next((a for a in (case.fields, case.cell_fields) if _has(a, name)), None)
        if arrays is None:
            raise unknown(name, "parameter", source_of(case), [*case.parameters, *all_names(case)])
        array, own = _channels(arrays, name)
        if not len(array) or not (array == array[:1]).all():
            raise DataError(
                f"{source_of(case)}: {name} differs from point to point and is no parameter of the "
                "case: give it as an input"
            )
        found.append(array[0])
        labels += own
    return np.concatenate(found) if found else np.empty(0), tuple(labels)


def all_names(case: Case) -> list[str]:
    """The fields of a case, for messages."""
    return [*case.fields, *(f"{name} (on cells)" for name in case.cell_fields)]


def source_of(case: Case, index: int | None = None) -> str:
    """What to call a case in messages."""
    return case.source or ("this case" if index is None else f"case {index}")
