"""NumPy's files: arrays by name in an .npz or a folder of .npy, and a case as an .npz.

Nothing is ever unpickled, and no array is allocated before the sizes that its header claims were
compared with the bytes that are there.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ipot import files
from ipot.data.guard.archive import check_npy, npy_header, npz_headers
from ipot.data.guard.paths import refuse_leaving
from ipot.errors import DataError, RunError
from ipot.formats import case_tree as layout
from ipot.formats.fields import Case
from ipot.formats.limits import (
    BROKEN,
    check_memory,
    check_numbers,
    damaged,
    require_file,
    size_of,
    unwritable,
)
from ipot.memory import in_words
from ipot.safe_read import parse_json

TEXT = 2**20
"""Bytes of an array of text that is still read: names, and our own description of a case."""

DESCRIPTION = "ipot"
"""The array that tells an archive of a case from others."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, the array of an .npy file as `queries`, or those of a folder of
    .npy files by their names; never a pickle. An .npy file is mapped and not read."""
    if path.is_dir():
        listed = sorted(path.glob("*.npy"))
        for file in listed:
            refuse_leaving(path, file)
        found = {file.stem: read_arrays(file)["queries"] for file in listed}
        if not found:
            raise DataError(f"{path} holds no .npy file: points.npy and values.npy are expected")
        return found
    if path.suffix not in (".npz", ".npy"):
        raise DataError(f"{path}: expected a file that ends in .npz or .npy")
    require_file(path)
    try:
        if path.suffix == ".npz":
            headers(path)
        if path.suffix == ".npy":
            refuse_pickled(path)
            check_npy(path)
        mode = "r" if path.suffix == ".npy" else None
        content = np.load(path, mmap_mode=mode, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"queries": content}
        with content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError as error:
        raise DataError(f"{path} is not there") from error
    except BROKEN as error:
        raise DataError(f"{path} cannot be read as numpy arrays: {error}") from error


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """An .npz file, whole or not at all."""
    if path.suffix != ".npz":
        raise DataError(f"{path}: the answer is written as .npz")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    try:
        with files.atomic(path) as temporary:
            temporary.write_bytes(buffer.getvalue())
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def write_mapped(
    path: Path, shape: tuple[int, ...], fill: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """An .npy file that `fill` writes to in place, whole or not at all; mapped, for reading."""
    if min(shape) < 1:
        raise DataError(f"an answer of the shape {shape} holds nothing: ask for a query and a step")
    try:
        with files.atomic(path) as temporary:
            array = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
            # A mapped file that meets a full disk later on would end the process.
            if hasattr(os, "posix_fallocate"):
                with temporary.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, temporary.stat().st_size)
            fill(array)
            array.flush()
            del array
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    return np.load(path, mmap_mode="r")


@dataclass(frozen=True)
class Closed:
    """An array that is not opened: of objects, which are pickles, or of records."""

    shape: tuple[int, ...]
    dtype: np.dtype


def read_archive(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file: of numbers, and short ones of text; others stay closed."""
    try:
        if not zipfile.is_zipfile(path):
            raise DataError(
                f"{path} is no .npz archive of arrays: its content says otherwise, or it is cut "
                "short. Write it again with numpy.savez."
            )
        found = headers(path)
        with np.load(path, allow_pickle=False) as content:
            return {
                name: content[name] if _opens(shape, dtype) else Closed(shape, dtype)
                for name, (shape, dtype) in found.items()
            }
    except BROKEN as error:
        raise damaged(path, "an .npz archive", error) from error


def read_folder_of_arrays(path: Path) -> dict[str, np.ndarray]:
    """The .npy files of a folder by their names, mapped."""
    found = {}
    for file in sorted(path.glob("*.npy")):
        refuse_leaving(path, require_file(file))
        try:
            refuse_pickled(file)
            check_npy(file)
            found[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
        except BROKEN as error:
            raise damaged(file, "an .npy array", error) from error
    return found


def refuse_pickled(path: Path) -> None:
    """Refuse an .npy file of Python objects, and a pickle under its name, before it is opened."""
    with path.open("rb") as file:
        start = file.read(2)
        file.seek(0)
        pickled = start[:1] == b"\x80" and start[1:] in (b"\2", b"\3", b"\4", b"\5")
        if pickled or (start == b"\x93N" and npy_header(str(path), file)[1].hasobject):
            raise DataError(
                f"{path} holds Python objects, which are a pickle: that can run any code and is "
                "never opened. Save plain arrays of numbers with numpy.save; of arrays that differ "
                "in size, each case as a file of its own (numpy.savez) in a folder."
            )


def headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shapes and types of an archive, without its arrays; sizes that cannot be true are refused.

    What is not an archive has no headers here: an .npy file under another name, for one.
    """
    with path.open("rb") as file:
        start = file.read(6)
        if start == np.lib.format.MAGIC_PREFIX:
            file.seek(0)
            check_npy(path)
            return {}
        if not start.startswith(b"PK"):
            return {}
    try:
        found = npz_headers(path)
    except BROKEN as error:
        raise damaged(path, "numpy arrays", error) from error
    check_memory(f"{path}", sum(size_of(*header) for header in found.values()))
    return found


def is_case(content: Mapping[str, Any]) -> bool:
    """Whether an archive is one of `write_npz`."""
    told = content.get(DESCRIPTION)
    return told is not None and told.dtype.kind == "U" and told.shape == ()


def read_case(path: Path, content: Mapping[str, Any]) -> Case:
    """The case that `write_npz` wrote."""
    try:
        told = parse_json(str(content[DESCRIPTION]), path, error=DataError)
        if not isinstance(told, dict) or told.get("format") != layout.FORMAT:
            raise ValueError("its description is of another format")
    except (ValueError, DataError) as error:
        raise damaged(path, "a case of ours", error) from error
    layout.check_version(str(path), told.get("version"))
    arrays = {name: array for name, array in content.items() if name != DESCRIPTION}
    return layout.unpack(arrays, layout.texts(str(path), told.get("texts")), str(path))


def write_npz(path: Path, case: Case) -> None:
    """A case as an .npz file, whole or not at all."""
    arrays, texts = layout.pack(case)
    for name, array in arrays.items():
        check_numbers(f"{name} of {path}", array.dtype)
    _refuse_little_room(path, sum(array.nbytes for array in arrays.values()))
    told = json.dumps({"format": layout.FORMAT, "version": layout.VERSION, "texts": texts})
    content: dict[str, Any] = {DESCRIPTION: np.array(told), **arrays}
    try:
        with files.atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **content)
    except OSError as error:
        raise unwritable(path, error) from error


def _refuse_little_room(path: Path, needed: int) -> None:
    """Refuse what the disk cannot hold before it is filled: an archive is not compressed."""
    free = files.free_bytes(path.absolute())
    if needed > free:
        raise DataError(
            f"{path} would take {in_words(needed)}, and the disk has {in_words(free)} left: take "
            "fewer points or channels, or write it elsewhere"
        )


def _opens(shape: tuple[int, ...], dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" or (dtype.kind in "US" and size_of(shape, dtype) <= TEXT)
