"""Gridded fields in GRIB, netCDF and Zarr files, through xarray, under one face.

What a file is, its content says and not its name. Nothing is filled in: a file that is truncated,
or lacks a part, is refused by name.

xarray and what it reads with are the extra `weather`: they are imported when a file is opened.
"""

from __future__ import annotations

import glob
import importlib
import importlib.util
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipot.data.guard import grib, trial
from ipot.data.guard import zarr as stores
from ipot.data.guard.hdf5 import READ, but_for_memory
from ipot.data.guard.paths import file_or_folder, refuse_leaving, regular_file, shown
from ipot.errors import DataError

_READERS = {"GRIB": "cfgrib", "netCDF": "netCDF4", "Zarr": "zarr"}
_ZARR = ("zarr.json", ".zgroup", ".zmetadata")
PRELOAD = ("xarray", "netCDF4", "cfgrib", "zarr")
_SUFFIXES = (".grib", ".grib2", ".grb", ".grb2", ".nc", ".nc4", ".netcdf", ".zarr")


def find(where: Path) -> list[Path]:
    """The files that a path, a folder or a pattern like `data/*.grib` stands for."""
    there = file_or_folder(where) is not None
    if (there and where.is_file()) or _is_zarr(where):
        return [where]
    if there:
        folder = where
        found = [p for p in where.iterdir() if p.suffix.lower() in _SUFFIXES or _is_zarr(p)]
    else:
        fixed = itertools.takewhile(lambda part: not glob.has_magic(part), where.parts)
        folder = Path(*fixed)
        found = [Path(p) for p in glob.glob(str(where), recursive=True)]
    for path in found:
        refuse_leaving(folder, path)
    if not found:
        kind = "no GRIB, netCDF or Zarr file in this folder" if where.is_dir() else "no such file"
        raise DataError(
            f"{where}: {kind}. Give a file, a folder of files ({', '.join(_SUFFIXES)}) or a "
            "pattern."
        )
    return sorted(found)


def kind_of(path: Path) -> str:
    """GRIB, netCDF or Zarr, by content and not by name."""
    if _is_zarr(path):
        return "Zarr"
    if path.is_dir():
        raise DataError(f"{path}: a folder without {' or '.join(_ZARR)} is no Zarr store")
    regular_file(path)
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if start.startswith(b"GRIB"):
        return "GRIB"
    if start.startswith((b"CDF", b"\x89HDF\r\n\x1a\n")):
        return "netCDF"
    hint = "an archive: unpack it first" if start.startswith(b"PK") else f"it begins with {start!r}"
    raise DataError(f"{path}: expected GRIB, netCDF or Zarr, but {hint}.")


def open_file(path: Path, parameter: int | None = None) -> Any:
    """An xarray data set, lazily; of a GRIB file only what has this parameter number, if given."""
    kind = kind_of(path)
    missing = [n for n in ("xarray", _READERS[kind]) if importlib.util.find_spec(n) is None]
    if missing:
        raise DataError(
            f"{path}: {kind} files are read with {' and '.join(missing)}, which is not installed: "
            "pip install 'ipot[weather]'"
        )
    _check(path, kind, parameter)
    try:
        return _opened(path, kind, parameter)
    except Exception as error:  # every reader has errors of its own
        raise DataError(
            f"{path}: cannot be opened as {kind}, it may be truncated or damaged "
            f"({shown(error)}). "
            "Download it again."
        ) from error


def variable(data: Any, names: Sequence[str], parameter: int, about: str, where: object) -> Any:
    """The one variable with a known name, whatever its case, or with a GRIB parameter number."""
    found = [
        name
        for name, array in data.data_vars.items()
        if str(name).lower() in names or array.attrs.get("GRIB_paramId") == parameter
    ]
    if len(found) != 1:
        have = ", ".join(map(str, found or data.data_vars)) or "none that could be read"
        fault = "more than one variable looks like it" if found else "no variable is called so"
        raise DataError(
            f"{where}: expected the {about} ({', '.join(names)}), but {fault}; there is {have}."
        )
    return data[found[0]]


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and any((path / name).exists() for name in _ZARR)


def _check(path: Path, kind: str, parameter: int | None) -> None:
    """What must be true of a file before its library opens it, and a first reading."""
    if kind == "netCDF":
        trial.tried("ipot.data.guard.netcdf:look", path)
        # And as xarray reads it, which asks netCDF4 for other things than a plain reading does.
        trial.tried("ipot.data.gridded:look", path, kind, parameter)
        return
    size = None
    if kind == "GRIB":
        grib.check(path)
    else:
        size = stores.check(path)
    trial.tried("ipot.data.gridded:look", path, kind, parameter, size=size)


def _opened(path: Path, kind: str, parameter: int | None) -> Any:
    xarray = importlib.import_module("xarray")
    # A path from the root is never taken for an address (http://, file://...#mode=zarr).
    place: Any = os.path.abspath(path)
    options: dict[str, Any] = {"engine": _READERS[kind].lower()}
    if kind == "GRIB":
        only = {} if parameter is None else {"paramId": parameter}
        # No index file beside the data: their folder need not be ours to write to.
        options["backend_kwargs"] = {"indexpath": "", "errors": "raise", "filter_by_keys": only}
    if kind == "Zarr":
        place = importlib.import_module("zarr.storage").LocalStore(place, read_only=True)
        options["backend_kwargs"] = {"consolidated": False}
    return xarray.open_dataset(place, **options)


def look(path: str, kind: str, parameter: int | None) -> None:
    """Open a file as `open_file` does and read it through, up to a bound; for a child process."""
    try:
        parts = [_opened(Path(path), kind, parameter)]
    except MemoryError:
        raise
    except Exception:
        if kind != "GRIB":
            raise
        cfgrib = importlib.import_module("cfgrib")
        parts = cfgrib.open_datasets(path, backend_kwargs={"indexpath": ""})
    budget = READ
    for part in parts:
        for array in part.variables.values():
            budget -= array.nbytes
            if budget > 0:
                with but_for_memory():
                    array.to_numpy()
