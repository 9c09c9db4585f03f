"""Variables by name, with their dimensions sorted into time, samples and space."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipot.errors import DataError, shown
from ipot.labelled.arguments import listed
from ipot.labelled.frames import VERSIONS, Field
from ipot.labelled.places import MEMBERS, SAMPLES, STEPS, TIMES, role_named, role_of
from ipot.labelled.windows import Axis


def xarray() -> Any:
    """The package, or how to get it."""
    try:
        return importlib.import_module("xarray")
    except ImportError as error:
        raise DataError(
            "labelled arrays need xarray, which is not installed: pip install 'ipot[weather]'"
        ) from error


UNNAMED = "value"
"""What an array without a name is called."""


def as_dataset(given: Any, argument: str) -> Any:
    """An xarray data set of a data set, an array or a path."""
    xr = xarray()
    if isinstance(given, str | Path):
        from ipot.labelled.opened import open_series

        return open_series(given)
    if isinstance(given, xr.DataArray):
        return given.to_dataset(name=given.name or UNNAMED)
    if isinstance(given, xr.Dataset):
        return given
    raise DataError(
        f"{argument} must be an xarray Dataset or DataArray, or a path to a file of one; got "
        f"{type(given).__name__}"
    )


def names_of(argument: str, names: str | Sequence[str] | None, data: Any) -> tuple[str, ...]:
    """The variables that are named; the only one there is, where none are."""
    have = [str(n) for n, a in data.data_vars.items() if a.dtype.kind in "fiub" and a.dims]
    if names is None:
        if len(have) != 1:
            raise DataError(
                f"{argument} must name variables; there are {', '.join(have) or 'none'}"
            )
        return (have[0],)
    names = listed(argument, names)
    if len(set(names)) != len(names):
        raise DataError(f"{argument} names a variable twice: {', '.join(names)}")
    for name in names:
        if name not in data.variables:
            raise DataError(
                f"{argument} names {shown(name)}; there is {', '.join(have) or 'nothing'}"
            )
        if data[name].dtype.kind not in "fiub":
            raise DataError(f"{argument}: {name} must hold real numbers, got {data[name].dtype}")
    return names


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


def as_field(name: str, array: Any, time: str | None, sample: str | None) -> Field:
    """A variable with its dimensions sorted; those of length one that say no place are dropped."""
    if len(set(array.dims)) < len(array.dims):
        raise DataError(
            f"{name} has a dimension twice ({', '.join(map(str, array.dims))}): it is damaged or a "
            "matrix and no field. Leave it out, or give each of its dimensions a name of its own."
        )
    for dim in map(str, array.dims):
        if dim in (time, sample):
            continue
        along = {role_of(c) for c in array.coords.values() if dim in c.dims} | {role_named(dim)}
        if array.sizes[dim] == 1 and not along & {"longitude", "latitude", "x", "y"}:
            array = array.isel({dim: 0})
        elif _closes_circle(array, dim):
            array = array.isel({dim: slice(None, -1)})
    for dim in array.dims:
        if not array.sizes[dim]:
            raise DataError(f"{name} is empty: {dim} has no entries")
    time = time if time in array.dims else None
    sample = sample if sample in array.dims else None
    space = tuple(str(d) for d in array.dims if d not in (time, sample, VERSIONS))
    frame, member = (time, sample) if time else (sample, None)
    return Field(name, array, frame, member, space)


def _closes_circle(array: Any, dim: str) -> bool:
    """Whether the last meridian along a dimension is the first one again, as in some files."""
    if dim not in array.coords or role_of(array[dim]) != "longitude" or array.sizes[dim] < 3:
        return False
    if array[dim].dtype.kind not in "fiu":
        return False  # refused where places are made of it
    values = np.asarray(array[dim].values, dtype=np.float64)
    return bool(abs(abs(values[-1] - values[0]) - 360) < 1e-3)


def axis_of(data: Any, field: Field) -> Axis:
    """The times that the frames of a variable are valid for."""
    array, dim = field.array, field.frame
    for name in (n for n in ("valid_time", dim) if n in array.coords):
        if array[name].dims == (dim,):
            return Axis(str(name), np.asarray(array[name].values))
    return Axis(str(dim), np.arange(array.sizes[dim]), dated=False)
