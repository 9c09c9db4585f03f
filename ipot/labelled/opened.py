"""Files of fields with named dimensions: opened as one data set, and what is in them."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data import gridded
from ipot.errors import DataError
from ipot.formats.case import Inventory, Variable
from ipot.labelled.clock import find_clock, in_order, kind_of
from ipot.labelled.columns import find_columns
from ipot.labelled.frames import VERSIONS, Field
from ipot.labelled.named import as_field, axis_of, find_sample, find_time, xarray
from ipot.labelled.places import role_of

WHOLE = 64 << 20
"""Bytes of a variable up to which all of it is looked at."""
LOOKED_AT = 16
"""Frames of a larger one that are."""
TOO_LARGE = 1 << 30
"""Bytes of several files that are put together in memory, without dask."""


def open_series(where: Path | str) -> Any:
    """An xarray data set of a file, a folder or a pattern: netCDF, Zarr or GRIB, read lazily.

    Several files are put together along time, or where they have other variables side by side;
    larger ones need dask, which keeps that lazy.
    """
    xr, paths = xarray(), gridded.find(Path(where))
    parts = [_open(path) for path in paths]
    if len(parts) == 1:
        return parts[0]
    if importlib.util.find_spec("dask") is not None:
        parts = [part.chunk({}) for part in parts]
    elif (size := sum(part.nbytes for part in parts)) > TOO_LARGE:
        raise DataError(
            f"{where}: {len(parts)} files with {size / 1e9:.2g} GB are put together with dask, "
            "which is not installed: pip install dask"
        )
    try:
        # In the order of time; `combine_by_coords` would put unlike grids side by side.
        groups: dict[tuple[str, ...], list[Any]] = {}
        for part in parts:
            groups.setdefault(tuple(sorted(map(str, part.data_vars))), []).append(part)
        joined = [_along_time(xr, group) for group in groups.values()]
        return xr.merge(joined, join="exact", compat="override")
    except (ValueError, xr.AlignmentError) as error:
        names = ", ".join(p.name for p in paths[:4])
        raise DataError(
            f"{where}: {len(paths)} files do not go together "
            f"({names}{', ...' * (len(paths) > 4)}): {error}. Give those of one grid."
        ) from error


def inspect_series(where: Path | str) -> Inventory:
    """What is in the files: variables, dimensions, ranges, gaps in time, missing values."""
    data = open_series(where)
    paths = gridded.find(Path(where))
    numeric = [n for n, a in data.data_vars.items() if a.dtype.kind in "fiub" and a.dims]
    arrays = [data[n] for n in numeric]
    time = find_time(arrays, None) if arrays else None
    sample = find_sample(arrays, time, None) if arrays else None
    variables, notes, sizes, good = [], [], [], []
    for name in data.coords:
        variables.append(_coordinate(data[name]))
    for name in data.data_vars:
        if name not in numeric:
            variables.append(_plain(data[name], "left alone"))
            continue
        field = as_field(str(name), data[name], time, sample)
        if not field.space:
            variables.append(_plain(data[name], "parameter" if field.frame else "left alone"))
            continue
        found, note = _looked_at(field, data[name])
        variables.append(found)
        notes += note
        sizes.append(field.points)
        if field.frame and found.low is not None:
            good.append((str(name), field))
    if time is not None and good:
        notes = [*_times(data, good[0][1]), *notes]
    if good:
        notes += _where(good[0][1], time, sample)
    first = good[0][1] if good else None
    return Inventory(
        path=str(where),
        kind=" and ".join(sorted({gridded.kind_of(p) for p in paths}))
        + (f", {len(paths)} files" if len(paths) > 1 else ""),
        cases=first.frames if first is not None else 1,
        points=(min(sizes), max(sizes)) if sizes else None,
        variables=tuple(variables),
        notes=tuple(notes),
        suggestion=_suggestion(where, [n for n, _ in good], time),
    )


def _open(path: Path) -> Any:
    """One file; GRIB files with fields on unlike levels are opened part by part."""
    try:
        return gridded.open_file(path)
    except DataError as error:
        if "cannot be opened as GRIB" not in str(error):
            raise
        try:
            cfgrib = importlib.import_module("cfgrib")
            parts = cfgrib.open_datasets(str(path), backend_kwargs={"indexpath": ""})
            return xarray().merge(parts, compat="override", join="exact")
        except Exception:  # the first error says more
            raise error from None


def _along_time(xr: Any, parts: list[Any]) -> Any:
    """Files of the same variables, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    arrays = [a for a in parts[0].data_vars.values() if a.dtype.kind in "fiub"]
    time = find_time(arrays, None)
    if time is None:
        alone = [n for n in ("valid_time", "time") if all(n in p.coords for p in parts)]
        if not alone:
            raise ValueError("they have the same variables and no time to tell them apart")
        time = alone[0]
        parts = [p.expand_dims(time) for p in parts]
    parts = sorted(parts, key=lambda p: p[time].values.min())
    return xr.concat(
        parts, dim=time, data_vars="minimal", coords="minimal", compat="override", join="exact"
    )


def _looked_at(field: Field, array: Any) -> tuple[Variable, list[str]]:
    """A variable with its range, of some frames where there are many."""
    members = array.sizes[field.member] if field.member else 1
    count, notes = field.frames * members, []
    wanted = np.arange(count)
    if array.nbytes > WHOLE and count > LOOKED_AT:
        wanted = np.unique(np.linspace(0, count - 1, LOOKED_AT).round().astype(int))
        notes.append(f"{field.name}: ranges are those of {len(wanted)} of {count} frames")
    low, high, total, number, missing = np.inf, -np.inf, 0.0, 0, 0
    for _, frame in field.read(wanted):
        finite = frame[np.isfinite(frame)]
        missing += frame.size - finite.size
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total, number = total + float(finite.sum(dtype=np.float64)), number + finite.size
    seen = len(wanted) * field.points
    if missing == seen:
        notes.append(f"{field.name} has no value at all in what was looked at: leave it out")
    elif missing:
        notes.append(
            f"{field.name}: {100 * missing / seen:.2g} % of values are missing (NaN); such places "
            "are left out"
        )
    elif low == high:
        notes.append(f"{field.name} is {low:g} everywhere: there is nothing to learn from it")
    found = _plain(array, "input or target" if field.frame else "static input")
    found = replace(found, missing=missing)
    if number:
        found = replace(found, low=low, high=high, mean=total / number)
    return found, notes


def _plain(array: Any, role: str) -> Variable:
    shape = " x ".join(f"{n} {d}" for d, n in array.sizes.items()) or "one value"
    units = str(array.attrs.get("units", ""))
    return Variable(
        name=str(array.name), role=role, shape=shape, dtype=str(array.dtype), units=units
    )


def _coordinate(array: Any) -> Variable:
    role = role_of(array)
    known = {"time": "time", None: "left alone"}.get(role, "places")
    found = _plain(array, known)
    if known != "places" or array.size > WHOLE // 8 or not array.size:
        return found
    values = np.asarray(array.values, dtype=np.float64)
    missing = int((~np.isfinite(values)).sum())
    if missing == values.size:
        return replace(found, missing=missing)
    low, high, mean = np.nanmin(values), np.nanmax(values), np.nanmean(values)
    return replace(found, low=float(low), high=float(high), mean=float(mean), missing=missing)


def _times(data: Any, field: Field) -> list[str]:
    """From when to when, how far apart, and what is wrong with that."""
    axis = axis_of(data, field)
    if not axis.dated:
        return [f"{axis.name} has no coordinate: frames are counted"]
    try:
        kind_of(axis.times, axis.name)
        times = axis.times[in_order(axis.times, axis.name)]
        clock = find_clock(times, axis.name)
    except DataError as error:
        return [str(error)]
    said = f"{axis.name}: {len(times)} frames from {_stamp(times[0])} to {_stamp(times[-1])}"
    if len(times) < 2:
        return [said]
    notes = [f"{said}, {clock} apart"]
    steps = np.rint(clock.count(times, times[0])).astype(int)
    gaps = np.flatnonzero(np.diff(steps) > 1)
    if len(gaps):
        lost = int(steps[-1]) + 1 - len(times)
        notes.append(
            f"{axis.name} has {len(gaps)} gaps ({lost} frames missing), the first after "
            f"{_stamp(times[gaps[0]])}: windows do not reach across them"
        )
    if not np.array_equal(times, axis.times):
        notes.append(f"{axis.name} is not in order; it will be sorted")
    return notes


def _where(field: Field, time: str | None, sample: str | None) -> list[str]:
    try:
        columns = find_columns(
            field.array, [d for d in (time, sample, VERSIONS) if d], None, field.name
        )
    except DataError as error:
        return [str(error)]
    bare = [str(c.name) for c in columns if str(c.name) not in field.array.coords]
    if bare:
        return [f"{', '.join(bare)} has no coordinates: places are counted from 0"]
    return []


def _stamp(time: Any) -> str:
    return str(time).removesuffix(".000000000").replace("T", " ")


def _suggestion(where: Path | str, names: list[str], time: str | None) -> str:
    if not names:
        return ""
    path = shlex.quote(str(where))
    if time is None:
        target = names[-1]
        inputs = " ".join(n for n in names if n != target) or target
        return f"ipot fit {path} --inputs {inputs} --targets {target} --out model"
    return (
        f"ipot fit {path} --inputs {names[0]} --targets {names[0]} --history 4 --lead 4 --out model"
    )
