"""What names and attributes say: which array, column, coordinate or dimension is a place, a time, a
case.

Tables and arrays are known by their names alone. A coordinate of a labelled array is known by its
standard name, its units or its axis, or else by its own name. On a grid every dimension has a
coordinate of its own; scattered points (stations, cells of a mesh) have one dimension with several
coordinates along it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from ipot.errors import DataError, UnknownName, shown

WHOLE = ("points", "coords", "coordinates", "pos", "positions", "nodes", "vertices", "xyz", "xy")
"""What one array with all coordinates is called."""

AXES = (("x", "y", "z"), ("longitude", "latitude"), ("lon", "lat"))
"""What arrays or columns with one coordinate each are called; the first of a row must be there."""

CASES = ("case", "sample", "case_id", "sample_id", "id")
"""What the column is called that says which case a row belongs to."""


def axes_in(names: Iterable[str]) -> tuple[str, ...]:
    """The names among these that are coordinates, in their order, or none."""
    by_lower: dict[str, str] = {}
    for name in names:
        by_lower.setdefault(name.strip().lower(), name)
    for axes in AXES:
        found = tuple(by_lower[axis] for axis in axes if axis in by_lower)
        if axes[0] in by_lower and (axes == AXES[0] or len(found) == 2):
            # An x and a z without a y is a plane; the order stays.
            return found
    return ()


def whole_in(names: Iterable[str]) -> str | None:
    """The name among these that holds all coordinates."""
    by_lower = {name.strip().lower(): name for name in names}
    return next((by_lower[name] for name in WHOLE if name in by_lower), None)


def component_columns(names: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Columns that are the components of one field (`u:0`, `u:1`, ...), as ParaView writes them."""
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        stem, colon, number = name.rpartition(":")
        if colon and stem and number.isascii() and number.isdigit() and len(number) < 4:
            groups.setdefault(stem, {}).setdefault(int(number), name)
    whole = {
        stem: tuple(parts[i] for i in range(len(parts)))
        for stem, parts in groups.items()
        if len(parts) > 1 and sorted(parts) == list(range(len(parts))) and stem not in names
    }
    out: list[tuple[str, tuple[str, ...]]] = []
    for name in names:
        stem = name.rpartition(":")[0]
        if name not in whole.get(stem, ()):
            out.append((name, (name,)))
        elif name == whole[stem][0]:
            out.append((stem, whole[stem]))
    return out


def components(name: str, count: int) -> tuple[str, ...]:
    """What the components of a field are called as channels."""
    if count == 1:
        return (name,)
    letters = "xyz" if count <= 3 else ""
    return tuple(f"{name}_{letters[i] if letters else i}" for i in range(count))


def unknown(name: str, what: str, source: str, there: Iterable[str]) -> UnknownName:
    """The refusal of a name that is not there, with those that are."""
    found = list(there)
    some = ", ".join(found[:30]) + (f" and {len(found) - 30} more" if len(found) > 30 else "")
    hint = meant(name, [n.removesuffix(" (on cells)") for n in found])
    return UnknownName(f"{source} has no {what} {shown(name)}; it has {some or 'none'}.{hint}")


def meant(name: str, there: Iterable[str]) -> str:
    """A name that is like one that is not there, as the end of a message."""
    by_lower = {n.lower(): n for n in there}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.7)
    return f" Did you mean {by_lower[close[0]]}?" if close else ""


TIMES = ("time", "valid_time", "date", "datetime", "t")

STEPS = ("step", "lead_time", "leadtime", "prediction_timedelta", "forecast_period")
"""How far a forecast goes from its beginning."""

SAMPLES = ("sample", "case", "run", "trajectory", "simulation", "batch")

MEMBERS = ("member", "number", "ensemble", "realization")

_NAMES = {
    "longitude": ("longitude", "lon", "long", "nav_lon", "clon", "xlong"),
    "latitude": ("latitude", "lat", "nav_lat", "clat", "xlat"),
    "x": ("x", "easting", "projection_x_coordinate", "grid_longitude", "rlon"),
    "y": ("y", "northing", "projection_y_coordinate", "grid_latitude", "rlat"),
    "z": (
        "z",
        "level",
        "lev",
        "height",
        "depth",
        "plev",
        "altitude",
        "pressure_level",
        "elevation",
    ),
    "time": TIMES,
}

_UNITS = {
    "longitude": ("degrees_east", "degree_east", "degree_e", "degrees_e"),
    "latitude": ("degrees_north", "degree_north", "degree_n", "degrees_n"),
}

SCATTERED = ("station", "point", "node", "cell", "ncell", "site", "location", "obs", "id", "index")

_ORDER = ("longitude", "latitude", "x", "y", "z")


def case_column(names: Sequence[str]) -> str | None:
    """The column that tells cases apart."""
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in CASES if name in by_lower), None)


def role_of(coordinate: Any) -> str | None:
    """What a coordinate is: longitude, latitude, x, y, z, time, or nothing that is known."""
    units = str(coordinate.attrs.get("units", "")).lower()
    standard = str(coordinate.attrs.get("standard_name", "")).lower()
    axis = {"x": "x", "y": "y", "z": "z", "t": "time"}.get(
        str(coordinate.attrs.get("axis", "")).lower()
    )
    if coordinate.dtype.kind in "mM":
        return "time"
    for role, known in _UNITS.items():
        if units in known:
            return role
    return role_named(standard) or role_named(str(coordinate.name)) or axis


def role_named(name: str) -> str | None:
    """What a coordinate of this name is."""
    return next((role for role, known in _NAMES.items() if name.lower() in known), None)


def find_frames(
    arrays: Sequence[Any], time: str | None = None, sample: str | None = None
) -> tuple[str | None, str | None]:
    """The dimensions of time and of samples; of forecasts, how far they go and when they begin."""
    begun = find_forecasts(arrays) if sample is None else None
    if begun is not None and time in (None, begun[0]):
        if more := find_sample(arrays, begun[1], None):
            raise DataError(
                f"forecasts begin along {begun[1]}, go along {begun[0]} and come in several along "
                f"{more}: one dimension too many. Select in Python, like ds.isel({more}=0), and "
                "fit or save that."
            )
        return begun
    time = find_time(arrays, time, sample)
    return time, find_sample(arrays, time, sample)


def find_forecasts(arrays: Sequence[Any]) -> tuple[str, str] | None:
    """The steps of forecasts and their beginnings, where fields go along both."""
    steps, dates = set(), set()
    for array in arrays:
        for dim in (str(d) for d in array.dims if array.sizes[d] > 1):
            if is_steps(array, dim):
                steps.add(dim)
            elif dim in array.coords and array[dim].dtype.kind == "M":
                dates.add(dim)
    return (steps.pop(), dates.pop()) if len(steps) == len(dates) == 1 else None


def is_steps(array: Any, dim: str) -> bool:
    """Whether a dimension counts time from the beginning of a forecast."""
    return dim.lower() in STEPS or (dim in array.coords and array[dim].dtype.kind == "m")


def find_time(
    arrays: Sequence[Any], told: str | None = None, taken: str | None = None
) -> str | None:
    """The dimension of time, if there is one besides that which is taken for samples."""
    dims = list(dict.fromkeys(str(d) for a in arrays for d in a.dims if str(d) != taken))
    if told is not None:
        if told not in dims:
            raise DataError(f"time={shown(told)} is no dimension; there are {', '.join(dims)}")
        return told
    found = [d for d in dims if d.lower() in TIMES]
    for array in arrays:
        for dim in (d for d in map(str, array.dims) if d in dims):
            if dim not in found and dim in array.coords and role_of(array[dim]) == "time":
                found.append(dim)
    several = [d for d in found if any(a.sizes.get(d, 1) > 1 for a in arrays)]
    if len(several) > 1:
        raise DataError(
            f"time goes along several dimensions: {', '.join(several)}. Keep one: in Python select "
            f"with ds.isel({several[-1]}=0) and fit or save that, or name with time= the one in "
            "which frames follow one another and with sample= the one that tells samples apart."
        )
    return (several or found or [None])[0]


def find_sample(arrays: Sequence[Any], time: str | None, told: str | None) -> str | None:
    """The dimension of samples, if there is one."""
    dims = list(dict.fromkeys(str(d) for a in arrays for d in a.dims))
    if told is not None:
        if told not in dims:
            raise DataError(f"sample={shown(told)} is no dimension; there are {', '.join(dims)}")
        return told
    found = [d for d in dims if d.lower() in (*SAMPLES, *MEMBERS) and d != time]
    several = [d for d in found if any(a.sizes.get(d, 1) > 1 for a in arrays)]
    if len(several) > 1:
        raise DataError(f"samples go along {' and '.join(several)}: say which with sample=")
    return (several or ([] if time else found) or [None])[0]


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
