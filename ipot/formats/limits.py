"""What is checked before a file is trusted: that it is there, and that it fits into memory.

A header says how much to allocate. Whoever wrote it may have lied, so that every size is compared
with the bytes that are there and with the memory that is free before anything is allocated.
"""

from __future__ import annotations

import difflib
import math
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ipot.data.guard.paths import file_or_folder, shown
from ipot.errors import DataError
from ipot.memory import SMALL, free_memory, refuse_too_large

CHANNELS = 2**20
"""Channels of one array, or numbers of one parameter: each of them gets a name."""

BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, IndexError, OverflowError),
    *(NotImplementedError, RuntimeError, MemoryError, SyntaxError, struct.error, zlib.error),
    *(zipfile.BadZipFile, tokenize.TokenError),
)
"""What libraries raise on damaged files: none of them has one error of its own."""


def require_file(path: Path) -> Path:
    """The path, where a file or a folder with something in it is there."""
    found = file_or_folder(path)
    if found is None:
        raise nothing_at(path)
    if stat.S_ISDIR(found.st_mode):
        return path
    if found.st_size == 0:
        raise DataError(f"{path} is empty: it was not written to its end; write it again")
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise DataError(f"{shown(path)} cannot be opened: {_reason(error)}") from error


def is_there(path: Path) -> bool:
    """Whether a file or a folder is at a path; a path that nothing can be at is refused."""
    return file_or_folder(path) is not None


def is_pattern(path: Path | str) -> bool:
    """Whether it stands for several files, like `data/*.nc`."""
    return any(mark in str(path) for mark in "*?[")


def nothing_at(path: Path) -> DataError:
    """The refusal of a path where there is nothing, with what is there that is called alike."""
    known = "A file or folder of npz, npy, CSV, Parquet, HDF5, VTU, VTP, netCDF, Zarr or GRIB is"
    for folder in path.parents:
        if folder.is_dir():
            break
    else:
        return DataError(f"{shown(path)} is not there. {known} expected.")
    lost = path.relative_to(folder).parts[0]
    try:
        there = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    except OSError:
        return DataError(f"{path} is not there, and {folder} cannot be looked into.")
    near = difflib.get_close_matches(lost, there, 3, 0.6)
    near += [n for n in there if n not in near and Path(n).stem == Path(lost).stem]
    where = "the current folder" if str(folder) == "." else str(folder)
    if near:
        found = f"Near it are {', '.join(str(folder / name) for name in near[:5])}."
    elif there:
        more = f" and {len(there) - 5} more" if len(there) > 5 else ""
        found = f"In {where} are {', '.join(there[:5])}{more}."
    else:
        found = f"There is nothing in {where}."
    return DataError(f"{shown(path)} is not there. {found} {known} expected.")


def damaged(path: Path, kind: str, error: Exception) -> DataError:
    """The refusal of a file that a library could not read."""
    return DataError(
        f"{path} cannot be read as {kind}: {_reason(error)}. It is damaged, cut short or of "
        "another kind than its name says: write or fetch it again."
    )


def unwritable(path: Path, error: Exception) -> DataError:
    """The refusal of a place that cannot be written to."""
    return DataError(f"cannot write {path}: {_reason(error)}. Make room or choose another place.")


def check_memory(what: str, size: int) -> None:
    """Refuse what does not fit into the memory that is free."""
    if size > SMALL:
        refuse_too_large(what, size, free_memory())


def check_channels(what: str, count: int) -> None:
    """Refuse so many channels that their names alone would exhaust memory."""
    if count > CHANNELS:
        raise DataError(
            f"{what} has {count} channels; {CHANNELS} are the most. If its axes are in another "
            "order, write it with the channels last; of a compressed file, check that it is whole."
        )


def size_of(shape: Sequence[int], dtype: np.dtype) -> int:
    """Bytes of an array, in whole numbers: products of hostile shapes overflow others."""
    return math.prod(int(n) for n in shape) * dtype.itemsize


def check_numbers(what: str, dtype: np.dtype) -> None:
    """Refuse arrays of anything but real numbers."""
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return
    if dtype.kind == "c":
        hint = "store real and imaginary parts as two arrays"
    elif dtype.kind == "O":
        hint = "objects are pickles, which are never opened; store plain arrays of numbers"
    elif dtype.kind == "f":
        hint = "convert to float64"
    else:
        hint = "store numbers"
    raise DataError(f"{what} must hold real numbers, got {dtype}: {hint}")


def _reason(error: Exception) -> str:
    """What a library says, on one line and short."""
    said = str(getattr(error, "strerror", None) or error) or type(error).__name__
    said = " ".join(said.split())
    return (said if len(said) <= 200 else said[:197] + "...").rstrip(".")
