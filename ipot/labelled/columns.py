"""Which coordinates say where the values of an array are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipot.errors import DataError, shown
from ipot.labelled.places import Places, role_of

SCATTERED = ("station", "point", "node", "cell", "ncell", "site", "location", "obs", "id", "index")
_ORDER = ("longitude", "latitude", "x", "y", "z")


def find_columns(array: Any, frames: Sequence[str], space: Sequence[str] | None, what: str) -> list:
    """The coordinates that say where an array's values are, longitude and latitude first.

    `frames` are the dimensions of time and samples; `space` names the coordinates, where told.
    """
    dims = [str(d) for d in array.dims if d not in frames]
    if not dims:
        return []
    known = [
        c
        for c in array.coords.values()
        if c.dims and set(c.dims) <= set(dims) and c.dtype.kind in "fiu"
    ]
    if space is not None:
        chosen = []
        for name in space:
            if name not in array.coords and name not in dims:
                have = ", ".join(str(c.name) for c in known) or "none"
                raise DataError(f"space names {shown(name)}; {what} has the coordinates {have}")
            chosen.append(array[name])
        return _globe_first(_covering(chosen, dims, what))
    roles = {str(c.name): role_of(c) for c in known}
    pair = [[c for c in known if roles[str(c.name)] == r] for r in ("longitude", "latitude")]
    chosen = [_preferred(found) for found in pair] if all(pair) else []
    left = [d for d in dims if not any(d in c.dims for c in chosen)]
    for dim in left:
        own = [c for c in known if c.name == dim]
        beside = [
            c
            for c in known
            if dim in c.dims and c.name != dim and roles[str(c.name)] in ("x", "y", "z")
        ]
        if own and (roles[dim] is not None or not beside):
            chosen += own
        elif beside:
            chosen += [c for c in beside if not any(c is b for b in chosen)]
        elif {dim.lower(), dim.lower().rstrip("s")} & set(SCATTERED):
            raise DataError(
                f"{what} has the dimension {dim} and no coordinates along it that say where its "
                "points are: give it longitude and latitude, or x and y (ds.assign_coords)."
            )
        else:
            chosen.append(array[dim])  # no coordinate: xarray counts from 0
    return _globe_first(chosen)


def assemble(columns: Sequence[Any], dims: Sequence[str], others: Any, what: str) -> Places:
    """Places from coordinates; `others` is where more is known along their dimensions."""
    for c in columns:
        _refuse_no_numbers(c, what)
    columns = [_degrees(c) for c in columns]
    roles = [role_of(c) for c in columns]
    geographic = roles[:2] == ["longitude", "latitude"]
    if geographic:
        _refuse_off_globe(columns, what)
    dims = [str(d) for d in dims]
    if geographic:  # rows of latitude, as maps have them
        pair = [d for c in (columns[1], columns[0]) for d in map(str, c.dims)]
        dims = [d for d in dims if d not in pair] + list(dict.fromkeys(pair))
    sizes = {str(d): n for c in columns for d, n in zip(c.dims, c.shape, strict=True)}
    coordinates = {}
    for c in columns:
        values = np.asarray(c.values, dtype=np.float64)
        if not np.isfinite(values).all():
            raise DataError(
                f"{what}: the coordinate {c.name} holds {int((~np.isfinite(values)).sum())} values "
                "that are not finite. Drop those points."
            )
        coordinates[str(c.name)] = (tuple(map(str, c.dims)), values, _plain(c.attrs))
    for name, c in getattr(others, "coords", {}).items():
        if str(name) not in coordinates and c.dims and {str(d) for d in c.dims} <= set(dims):
            coordinates[str(name)] = (tuple(map(str, c.dims)), np.asarray(c.values), {})
    return Places(
        dims=tuple(dims),
        shape=tuple(sizes[d] for d in dims),
        names=tuple(str(c.name) for c in columns),
        coordinates=coordinates,
        geographic=geographic,
    )


def _preferred(found: list) -> Any:
    """Of several, the one that is a dimension, or the first."""
    return next((c for c in found if c.name in c.dims), found[0])


def _globe_first(columns: list) -> list:
    roles = [role_of(c) for c in columns]
    if {"longitude", "latitude"} <= set(roles):
        first = [roles.index("longitude"), roles.index("latitude")]
        return [columns[i] for i in (*first, *(i for i in range(len(columns)) if i not in first))]
    scattered = len({c.dims for c in columns}) < len(columns)
    if scattered and all(r in _ORDER for r in roles):
        return sorted(columns, key=lambda c: _ORDER.index(role_of(c)))
    return columns


def _covering(chosen: list, dims: Sequence[str], what: str) -> list:
    covered = {str(d) for c in chosen for d in c.dims}
    if missing := [d for d in dims if d not in covered]:
        raise DataError(
            f"space names no coordinate along {', '.join(missing)} of {what}: select one place of "
            "it, or name its coordinate too."
        )
    return chosen


def _degrees(coordinate: Any) -> Any:
    """Longitudes and latitudes in radians, as some models write them, in degrees."""
    unit = str(coordinate.attrs.get("units", "")).lower()
    if unit.startswith("rad") and role_of(coordinate) in ("longitude", "latitude"):
        attrs = {**coordinate.attrs, "units": "degrees"}
        return np.rad2deg(coordinate).assign_attrs(attrs)
    return coordinate


def _refuse_no_numbers(coordinate: Any, what: str) -> None:
    if coordinate.dtype.kind not in "fiu":
        name = coordinate.name
        raise DataError(
            f"{what}: the coordinate {name} is {coordinate.dtype} and not numbers, so it says no "
            f"place. Select one with ds.sel({name}=...), or split it into variables."
        )


def _refuse_off_globe(columns: Sequence[Any], what: str) -> None:
    for c, low, high in ((columns[0], -360.0, 720.0), (columns[1], -90.0, 90.0)):
        values = np.asarray(c.values, dtype=np.float64)
        values = values[np.isfinite(values)]
        if values.size and (values.min() < low - 1e-3 or values.max() > high + 1e-3):
            raise DataError(
                f"{what}: {c.name} runs from {values.min():g} to {values.max():g}; "
                f"expected degrees between {low:g} and {high:g}. If it is no {role_of(c)}, rename "
                "it (x and y are plain coordinates)."
            )


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that JSON can keep."""
    kept = ("units", "standard_name", "long_name", "axis", "positive", "calendar")
    return {k: str(v) for k, v in attrs.items() if k in kept}
