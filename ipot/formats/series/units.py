"""Variables and coordinates of labelled arrays in the units that others of them are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ipot.data.quantities import Agreement, is_said
from ipot.formats.roles import role_of
from ipot.formats.series.variables import Variables
from ipot.formats.xarray_files import values_of


def declared(array: Any) -> str:
    """The unit of a variable or a coordinate, where it says one that is none of time."""
    unit = str(array.attrs.get("units", ""))
    if array.dtype.kind not in "fiu" or " since " in unit or not is_said(unit):
        return ""
    return unit


def units_in(data: Any, names: Iterable[str]) -> dict[str, str]:
    """What variables and coordinates of these names declare."""
    return {n: unit for n in names if n in data.variables and (unit := declared(data[n]))}


def agree(parts: Sequence[Any], sources: Sequence[str]) -> list[Any]:
    """Data sets with every variable in the unit of the first that declares one."""
    found, units = [], dict[str, str]()
    for part, source in zip(parts, sources, strict=True):
        agreed = Agreement("the files before it")
        part = coordinates_in_units(part, units, agreed, source, like=found[:1])
        for name in part.data_vars:
            change = agreed.change(name, declared(part[name]), units.get(name, ""), source=source)
            if change is not None:
                attrs = {**part[name].attrs, "units": units[name]}
                part = part.assign({name: change.apply(part[name]).assign_attrs(attrs)})
        agreed.say(stacklevel=3)
        units = {**units_in(part, map(str, part.variables)), **units}
        found.append(part)
    return found


def coordinates_in_units(
    data: Any, wanted: Mapping[str, str], agreed: Agreement, source: str, like: Sequence[Any] = ()
) -> Any:
    """A data set with coordinates in wanted units; where `like` has the same but for rounding, its
    own. Longitude and latitude are left alone: in degrees is how they are taken anyway."""
    for name in map(str, data.coords):
        if role_of(data[name]) in ("longitude", "latitude") and not like:
            continue
        change = agreed.change(name, declared(data[name]), wanted.get(name, ""), source=source)
        if change is None:
            continue
        values = change.apply(values_of(data[name]).astype(np.float64))
        for other in like:
            same = values_of(other[name]) if name in other.coords else np.empty(0)
            if same.shape == values.shape and np.allclose(same, values, rtol=1e-5, atol=1e-5):
                values = same
        attrs = {**data[name].attrs, "units": wanted[name]}
        data = data.assign_coords({name: (data[name].dims, values, attrs)})
    return data


def fields_in_units(
    side: Variables, wanted: Mapping[str, str], agreed: Agreement, source: str
) -> Variables:
    """Variables that are converted as they are read."""
    made: dict[str, Any] = {}
    for kind in ("moving", "still", "scalars"):
        fields = []
        for f in getattr(side, kind):
            given = declared(f.array)
            change = agreed.change(f.name, given, wanted.get(f.name, ""), source=source)
            fields.append(replace(f, change=change))
        made[kind] = tuple(fields)
    return replace(side, **made)
