"""Published files as arrays: MATLAB's .mat in both of its formats, and NumPy's .npy.

An array of a .mat file has its axes in MATLAB's order, whatever the format: u(n, x, y, t) has the
shape (N, X, Y, T). Every refusal is a `DataError` that names the file, what was expected and what
came.

MATLAB files of versions 5 to 7.2 are read by SciPy, those of 7.3 (HDF5 behind a block of 512 bytes)
by h5py, with their axes turned back into MATLAB's order. Errors are those of the libraries, but for
files whose reading cannot be tried twice.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ipot import files
from ipot.data.guard import trial
from ipot.data.guard.archive import check_npy
from ipot.data.guard.hdf5 import READ
from ipot.data.guard.paths import file_or_folder, shown
from ipot.errors import DataError

LARGE = 2**26
"""Bytes from which an .npy file is mapped into memory and not read."""

# What the libraries raise on damaged files: none of them has one error of its own.
BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, IndexError, OverflowError),
    *(NotImplementedError, RuntimeError, MemoryError, SyntaxError, struct.error, zlib.error),
    *(tokenize.TokenError, zipfile.BadZipFile),
)


def require(path: Path, *others: str) -> Path:
    """The file, or one in its folder with another of the names it is known by."""
    for candidate in (path, *(path.parent / name for name in others)):
        if file_or_folder(candidate) is not None and candidate.is_file():
            return candidate
    if not path.parent.is_dir():
        raise DataError(
            f"the folder {path.parent}, where {path.name} should be, is not there. "
            "Give the folder that holds the published files with --problem.files."
        )
    found = sorted(p.name for p in path.parent.iterdir())
    there = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
    names = " or ".join((path.name, *others))
    raise DataError(
        f"{path.parent} has no file {names}; it holds {there or 'nothing'}. "
        "Give the folder that holds it with --problem.files, or put it there."
    )


def mat_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The arrays of a .mat file and their shapes, without reading them."""
    path = require(path)
    try:
        return shapes(path)
    except _broken() as error:
        raise _damaged(path, error) from error


def read_mat(path: Path, names: Sequence[str], rows: slice | None = None) -> dict[str, np.ndarray]:
    """The named arrays of a .mat file, or some rows of their first axis."""
    path, there = require(path), mat_shapes(path)
    for name in names:
        expect_array(path, name, there)
    try:
        arrays = load(path, names, rows)
    except _broken() as error:
        raise _damaged(path, error) from error
    return {name: _numbers(path, name, array) for name, array in arrays.items()}


def write_mat(
    path: Path, arrays: Mapping[str, np.ndarray], version: Literal["5", "7.3"] = "5"
) -> Path:
    """Arrays as a .mat file, whole or not at all."""
    arrays = {name: np.atleast_2d(array) for name, array in arrays.items()}
    large = [name for name, array in arrays.items() if array.nbytes >= 2**31]
    if version == "5" and large:
        raise DataError(
            f"cannot write {path}: {', '.join(large)} takes 2 GiB or more, which MATLAB's format "
            'of version 5 cannot hold. Write fewer samples, or version "7.3".'
        )
    try:
        with files.atomic(path) as temporary:
            save(temporary, arrays, version)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def read_npy(path: Path) -> np.ndarray:
    """The array of an .npy file; a large one is mapped, so that only what is used is read."""
    path = require(path)
    large = path.stat().st_size >= LARGE
    try:
        check_npy(path)
        # Copy on write: torch warns of tensors over memory that cannot be written to.
        array = np.load(path, mmap_mode="c" if large else None, allow_pickle=False)
    except BROKEN as error:
        raise _damaged(path, error) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(f"{path} is an archive of arrays (.npz): one array (.npy) was expected")
    return _numbers(path, "the array", array)


def write_npy(path: Path, array: np.ndarray) -> Path:
    """An array as an .npy file, whole or not at all."""
    try:
        with files.atomic(path) as temporary, temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def expect(
    path: Path, name: str, array: np.ndarray, shape: Sequence[int | None], finite: bool = True
) -> np.ndarray:
    """The array, where it has the shape (None fits any size) and holds finite numbers."""
    expect_shape(path, name, array.shape, shape)
    if finite:
        expect_finite(path, name, array)
    return array


def expect_array(path: Path, name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of an array that a file must have."""
    if name not in shapes:
        found = ", ".join(f"{other} {shape}" for other, shape in shapes.items())
        raise DataError(
            f"{path} has no array {name}; it holds {found or 'no arrays'}. "
            "It must be the published file of that name, or one written in its layout."
        )
    return shapes[name]


def expect_shape(
    path: Path, name: str, found: Sequence[int], shape: Sequence[int | None]
) -> tuple[int, ...]:
    """The shape found, where it is the one expected; None fits any size."""
    sizes = zip(found, shape, strict=False)
    if len(found) != len(shape) or any(e is not None and f != e for f, e in sizes):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise DataError(
            f"{name} of {path} must have the shape ({wanted}), got {tuple(found)}. "
            "It must be the published file of that name, or one written in its layout."
        )
    return tuple(found)


def expect_finite(path: Path, name: str, array: np.ndarray) -> None:
    """Refuse NaN, infinity and what becomes infinite in float32, which samples are held in, and
    say where the first of them stands."""
    if not np.issubdtype(array.dtype, np.inexact) or not array.size:
        return
    # Pieces as they lie in memory: arrays of MATLAB vary fastest along their first axis.
    slowest = int(np.argmax(array.strides))
    pieces = np.moveaxis(array, slowest, 0)
    step = max(1, LARGE // pieces[0].nbytes)
    for start in range(0, len(pieces), step):
        held = _held(pieces[start : start + step])
        if not held.all():
            row, *others = (int(i) for i in np.argwhere(~held)[0])
            place = (*others[:slowest], start + row, *others[slowest:])
            raise DataError(
                f"{name} of {path} holds a value that is not finite in float32 ({array[place]}) at "
                f"index {place} of shape {array.shape}. The file is damaged: fetch or write it "
                "again."
            )


def _held(array: np.ndarray) -> np.ndarray:
    """Which numbers float32 can hold."""
    with np.errstate(over="ignore"):
        return np.isfinite(array.astype(np.float32, copy=False))


def _numbers(path: Path, name: str, array: Any) -> np.ndarray:
    """The array in the machine's byte order, where it holds real numbers."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise DataError(f"{name} of {path} must be an array of real numbers, got {kind}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _broken() -> tuple[type[Exception], ...]:
    from scipy.io.matlab import MatReadError

    return (*BROKEN, MatReadError)


def _damaged(path: Path, error: Exception) -> DataError:
    size = f"{path.stat().st_size} bytes"
    return DataError(
        f"{path} ({size}) cannot be read: {error}. It is damaged, cut short or of another kind "
        "than its name says: fetch or write it again."
    )


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write {path}: {error.strerror or error}. Make room or choose another folder."
    )


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
    trial.tried("ipot.data.readers:look", path)
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
