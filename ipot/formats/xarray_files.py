"""Files of fields with named dimensions, opened as one data set."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data import gridded
from ipot.data.argument_checks import listed
from ipot.errors import DataError, shown
from ipot.formats.detect import LABELLED
from ipot.formats.detect import kind_of as file_kind
from ipot.formats.limits import is_pattern, is_there, nothing_at
from ipot.formats.roles import (
    find_forecasts,
    find_time,
    is_steps,
    meant,
    role_of,
)

TOO_LARGE = 1 << 30
"""Bytes of several files that are put together in memory, without dask."""


def open_series(where: Path | str) -> Any:
    """An xarray data set of a file, a folder or a pattern: netCDF, Zarr or GRIB, read lazily.

    Several files are put together along time, or where they have other variables side by side;
    larger ones need dask, which keeps that lazy.
    """
    from ipot.formats.series.variables import agree

    xr, paths = xarray(), files_of(Path(where))
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
    parts = agree(parts, [path.name for path in paths])
    try:
        # In the order of time; `combine_by_coords` would put unlike grids side by side.
        groups: dict[tuple[str, ...], list[Any]] = {}
        for part in parts:
            groups.setdefault(tuple(sorted(map(str, part.data_vars))), []).append(part)
        joined = [_along_time(xr, group) for group in groups.values()]
        return xr.merge(joined, join="exact", compat="override")
    except (ValueError, TypeError, xr.AlignmentError) as error:  # times of unlike kinds
        names = ", ".join(p.name for p in paths[:4])
        raise DataError(
            f"{where}: {len(paths)} files do not go together "
            f"({names}{', ...' * (len(paths) > 4)}): {_apart(parts, paths) or error}. Give those "
            "of one grid."
        ) from error


def _apart(parts: Sequence[Any], paths: Sequence[Path]) -> str:
    """Which coordinate two files do not share, in words, and what mends longitudes that are
    counted in two ways."""
    first = parts[0]
    for part, path in zip(parts[1:], paths[1:], strict=True):
        for name in map(str, first.coords):
            if name not in part.coords or role_of(first[name]) in (None, "time"):
                continue
            one, other = values_of(first[name]), values_of(part[name])
            if np.array_equal(one, other) or not one.size or not other.size:
                continue
            said = [f"{len(v.ravel())} from {v.min():g} to {v.max():g}" for v in (one, other)]
            hint = ""
            around = role_of(first[name]) == "longitude" and one.shape == other.shape
            if around and np.allclose(np.sort(one % 360), np.sort(other % 360)):
                way = f'ds.assign_coords({name}=ds.{name} % 360).sortby("{name}")'
                hint = f", the same places counted in another way: save all by {way}"
            return f"{name} is {said[0]} in {paths[0].name} and {said[1]} in {path.name}{hint}"
    return ""


def files_of(where: Path) -> list[Path]:
    """The files that a path, a folder or a pattern stands for."""
    if is_there(where):
        return gridded.find(where)
    if not is_pattern(where):
        raise nothing_at(where)
    paths = gridded.find(where)
    for path in paths:
        if (kind := file_kind(path)) not in (*LABELLED, "hdf5"):
            raise DataError(
                f"{where}: a pattern stands for files of netCDF, GRIB or Zarr, and {path} is of "
                f"the kind {kind}. Give the folder {path.parent}, with one case in each file."
            )
    return paths


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
    """Files of the same variables, one after the other."""
    if len(parts) == 1:
        return parts[0]
    arrays = [a for a in parts[0].data_vars.values() if a.dtype.kind in "fiub"]
    forecasts = find_forecasts(arrays)
    time = forecasts[1] if forecasts else find_time(arrays)
    begun = all("time" in p.coords and p["time"].size == 1 for p in parts)
    if time is not None and time != "time" and begun and is_steps(parts[0], time):
        # A forecast in each file: they differ in when they begin. What a step is valid for, too.
        time = "time"
        parts = [p.drop_vars("valid_time", errors="ignore") for p in parts]
        parts = [p if time in p.dims else p.expand_dims(time) for p in parts]
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


def xarray() -> Any:
    """The package, or how to get it."""
    try:
        return importlib.import_module("xarray")
    except ImportError as error:
        raise DataError(
            "labelled arrays need xarray, which is not installed: pip install 'ipot[weather]'"
        ) from error


def is_labelled(source: Any) -> bool:
    """True for an object of xarray, which need not be installed to know it."""
    return type(source).__module__.split(".")[0] == "xarray"


UNNAMED = "value"
"""What an array without a name is called."""


def as_dataset(given: Any, argument: str) -> Any:
    """An xarray data set of a data set, an array or a path."""
    xr = xarray()
    if isinstance(given, str | Path):
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
                f"{argument} names {shown(name)}; there is {', '.join(have) or 'nothing'}."
                f"{meant(name, have)}"
            )
        if data[name].dtype.kind not in "fiub":
            raise DataError(f"{argument}: {name} must hold real numbers, got {data[name].dtype}")
    return names


def values_of(coordinate: Any) -> np.ndarray:
    """The values of a coordinate, which may be read from its file only now."""
    try:
        return np.asarray(coordinate.values)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # every reader has errors of its own
        raise DataError(
            f"the coordinate {shown(str(coordinate.name))} cannot be read; the file may be "
            f"truncated or damaged ({error})."
        ) from error
