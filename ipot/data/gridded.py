"""Gridded fields in GRIB, netCDF and Zarr files, through xarray, under one face.

What a file is, its content says and not its name. Nothing is filled in: a file that is truncated,
or lacks a part, is refused by name.

xarray and what it reads with are the extra `weather`: they are imported when a file is opened.
"""

from __future__ import annotations

import glob
import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipot.errors import DataError
from ipot.safe_read import regular_file

_READERS = {"GRIB": "cfgrib", "netCDF": "netCDF4", "Zarr": "zarr"}
_ZARR = ("zarr.json", ".zgroup", ".zmetadata")
_SUFFIXES = (".grib", ".grib2", ".grb", ".grb2", ".nc", ".nc4", ".netcdf", ".zarr")


def find(where: Path) -> list[Path]:
    """The files that a path, a folder or a pattern like `data/*.grib` stands for."""
    if where.is_file() or _is_zarr(where):
        return [where]
    if where.is_dir():
        found = [p for p in where.iterdir() if p.suffix.lower() in _SUFFIXES or _is_zarr(p)]
    else:
        found = [Path(p) for p in glob.glob(str(where), recursive=True)]
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
    try:
        regular_file(path, error=DataError)  # opening a pipe would wait for ever
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
    options: dict[str, Any] = {"engine": _READERS[kind].lower()}
    if kind == "GRIB":
        _refuse_damaged(path)
        only = {} if parameter is None else {"paramId": parameter}
        # No index file beside the data: their folder need not be ours to write to.
        options["backend_kwargs"] = {"indexpath": "", "errors": "raise", "filter_by_keys": only}
    if kind == "Zarr":
        _refuse_missing_chunks(path)
        options["backend_kwargs"] = {"consolidated": False}
    try:
        return importlib.import_module("xarray").open_dataset(path, **options)
    except Exception as error:  # every reader has errors of its own
        raise DataError(
            f"{path}: cannot be opened as {kind}, it may be truncated or damaged ({error}). "
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


def _refuse_damaged(path: Path) -> None:
    """Go from message to message of a GRIB file: a reader passes over what it does not know."""
    place, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            head = file.read(16)
            if padding := len(head) - len(head.lstrip(b"\0")):
                place += padding
                continue
            second = head[7:8] == b"\2"
            length = int.from_bytes(head[8:16] if second else head[4:7], "big")
            if not second and length >= 2**23:
                return  # so long a message of the first edition has its length elsewhere
            file.seek(place + max(length, 20) - 4)
            if not head.startswith(b"GRIB") or file.read(4) != b"7777":
                raise DataError(
                    f"{path}: the GRIB message at byte {place} of {size} has no beginning (GRIB) "
                    "or no end (7777): the file is truncated or damaged. Download it again."
                )
            place += length


def _refuse_missing_chunks(path: Path) -> None:
    """Zarr reads a chunk that is not there as a constant; here it is a gap."""
    zarr = importlib.import_module("zarr")
    try:
        arrays = dict(zarr.open_group(path, mode="r").arrays())
    except Exception as error:  # zarr has a dozen kinds, and JSON its own
        raise DataError(f"{path}: cannot be opened as Zarr ({error}). Copy it again.") from error
    for name, array in arrays.items():
        if array.ndim >= 3 and array.nchunks_initialized < array.nchunks:
            raise DataError(
                f"{path}: {array.nchunks - array.nchunks_initialized} of {array.nchunks} chunks "
                f"of {name} are missing. Copy or download the store again."
            )
