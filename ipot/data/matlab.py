"""The two formats of MATLAB's .mat files.

Files of MATLAB 5 to 7.2 are read by SciPy, those of 7.3 (HDF5 behind a block of 512 bytes) by
h5py, with their axes turned back into MATLAB's order. Errors are those of the libraries, but for
files whose reading cannot be tried twice.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ipot.data.guard import trial
from ipot.data.guard.hdf5 import READ
from ipot.data.guard.paths import shown
from ipot.errors import DataError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
USERBLOCK = 512
PRELOAD = ("scipy.io",)
# Text, offset of the subsystem's data (none), version 2.0, and the mark of little-endian order.
HEADER = b"MATLAB 7.3 MAT-file, written by ipot, HDF5 schema 1.00 .".ljust(116) + bytes(8)
HEADER += struct.pack("<H2s", 0x0200, b"IM")
# MATLAB's names for the types of numbers.
CLASSES = {"float64": "double", "float32": "single"}


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The arrays of a file and their shapes, without reading them."""
    if _is_hdf5(path):
        import h5py

        trial.tried("ipot.data.guard.hdf5:look", path)
        with h5py.File(path, "r") as file:
            arrays = {k: v for k, v in file.items() if isinstance(v, h5py.Dataset)}
            return {name: array.shape[::-1] for name, array in arrays.items()}
    from scipy.io import whosmat

    _check_length(path)
    trial.tried("ipot.data.matlab:look", path)
    return {name: tuple(shape) for name, shape, _ in whosmat(str(path), appendmat=False)}


def look(path: str) -> None:
    """Read a file of MATLAB 5 through, up to a bound; for a child process, since the sizes in it
    may be any."""
    budget, names = READ, []
    for name, shape in shapes(Path(path)).items():
        budget -= 8 * math.prod(shape)
        if budget > 0:
            names.append(name)
    _read_scipy(Path(path), names, None)


def load(path: Path, names: Sequence[str], rows: slice | None) -> dict[str, Any]:
    """Named arrays, or some rows of their first axis."""
    return (_read_hdf5 if _is_hdf5(path) else _read_scipy)(path, names, rows)


def save(path: Path, arrays: Mapping[str, np.ndarray], version: Literal["5", "7.3"]) -> None:
    """Arrays of two or more axes as a file of either format."""
    (_write_scipy if version == "5" else _write_hdf5)(path, arrays)


def _is_hdf5(path: Path) -> bool:
    """Whether the header says so: by MATLAB's version 2, or by the signature of bare HDF5."""
    with path.open("rb") as file:
        head = file.read(128)
    return head.startswith(SIGNATURE) or head[124:128] in (b"\x00\x02IM", b"\x02\x00MI")


def _check_length(path: Path) -> None:
    """Refuse a version 5 file that ends within an array: SciPy would silently leave that out."""
    size = path.stat().st_size
    with path.open("rb") as file:
        order = "<" if file.read(128)[126:128] == b"IM" else ">"
        place = 128
        while place < size:
            file.seek(place)
            _, length = struct.unpack(f"{order}2I", file.read(8))
            place += 8 + length
    if place > size:
        raise OSError(f"its arrays take {place} bytes or more")


def _read_hdf5(path: Path, names: Sequence[str], rows: slice | None) -> dict[str, Any]:
    import h5py

    trial.tried("ipot.data.guard.hdf5:look", path)
    with h5py.File(path, "r") as file:
        # Axes are reversed there, so that the first one of MATLAB is the last.
        return {name: file[name][..., rows or slice(None)].T for name in names}


def _read_scipy(path: Path, names: Sequence[str], rows: slice | None) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        found = loadmat(str(path), variable_names=list(names), appendmat=False)
    except UnboundLocalError as error:  # how SciPy fails on a class of arrays it does not know
        raise ValueError("an array is of a class that MATLAB does not have") from error
    except ZeroDivisionError as error:
        # A type of numbers that SciPy does not know has whatever size is in memory: another try may
        # crash, so that this one is believed, in a child process too.
        raise DataError(
            f"{shown(path)} is damaged: its numbers are of a type that MATLAB does not have. "
            "Write or fetch it again."
        ) from error
    return {name: found[name] if rows is None else found[name][rows] for name in names}


def _write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import h5py

    with h5py.File(path, "w", userblock_size=USERBLOCK) as file:
        for name, array in arrays.items():
            dataset = file.create_dataset(name, data=array.T)
            kind = CLASSES.get(array.dtype.name, array.dtype.name)
            dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    with path.open("r+b") as file:
        file.write(HEADER)


def _write_scipy(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    from scipy.io import savemat

    with path.open("wb") as file:
        savemat(file, dict(arrays), appendmat=False)
