"""HDF5 files: our own layout of cases, and arrays by name at the root.

Our layout has the root attributes `format` = "ipot-cases" and `version`, and a group for each case
under `cases`, with the tree of `case_tree`. Units are attributes `units` of the arrays.

A file may point at other files (external links, external storage, virtual arrays): that is refused,
so that a file that came from elsewhere can read nothing but itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ipot import files
from ipot.data.guard import trial
from ipot.errors import DataError
from ipot.formats import case_tree as layout
from ipot.formats.case_tree import read_back, written
from ipot.formats.fields import Arrays, Case, CaseReader
from ipot.formats.limits import (
    BROKEN,
    check_memory,
    check_numbers,
    damaged,
    size_of,
    unwritable,
)
from ipot.formats.named_arrays import NAMES, sorted_out
from ipot.memory import refuse_squeezed

MOST = 1_000_000
"""Entries of one group."""


@dataclass(frozen=True)
class Stored:
    """An array in a file that is opened for each piece that is read."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    units: str = ""

    def __getitem__(self, key: Any) -> np.ndarray:
        with opened(self.path) as file:
            array = array_at(self.path, file, self.name)
            whole = key is Ellipsis
            check_memory(
                f"{self.name} of {self.path}",
                size_of(array.shape if whole else array.shape[1:], array.dtype),
            )
            return np.asarray(array[key])


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """The file, for reading; what the library raises is a refusal that names it."""
    trial.tried("ipot.data.guard.hdf5:look", path)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except BROKEN as error:
        raise damaged(path, "HDF5", error) from error


def read_hdf5(path: Path, *, one: bool = False) -> CaseReader | Arrays:
    """The cases of a file of our own layout, or of arrays by name."""
    with opened(path) as file:
        if text(file.attrs.get("format")) == layout.FORMAT:
            layout.check_version(str(path), file.attrs.get("version"))
            return _own(path, file)
        kinds = {name: file.get(name, getclass=True) for name in children(path, file)}
        found = _arrays(path, file, [n for n, kind in kinds.items() if kind is h5py.Dataset])
        groups = [n for n, kind in kinds.items() if kind is h5py.Group]
    if not found:
        raise DataError(
            f"{path} is no HDF5 file of cases: its root holds no arrays"
            f"{' but the groups ' + ', '.join(groups[:10]) if groups else ''}. Put `points`, "
            "`values`, `targets` at its root, or write it with ipot.formats.write_cases."
        )
    out = sorted_out(found, str(path), "HDF5 arrays", one=one)
    if groups and isinstance(out, CaseReader):
        out.notes += (f"the groups {', '.join(groups[:10])} were left alone",)
    return out


def write_cases(path: Path, cases: Sequence[Case], names: Sequence[str] | None = None) -> None:
    """Cases in our own layout, whole or not at all; their names are numbers unless given."""
    names = [str(i) for i in range(len(cases))] if names is None else list(names)
    if len(set(names)) != len(cases):
        raise DataError(f"{len(cases)} cases need as many different names, got {len(set(names))}")
    try:
        with files.atomic(path) as temporary, h5py.File(temporary, "w") as file:
            file.attrs["format"], file.attrs["version"] = layout.FORMAT, layout.VERSION
            root = file.create_group("cases", track_order=True)
            for name, case in zip(names, cases, strict=True):
                _write(root.create_group(written(name), track_order=True), case, path)
    except BROKEN as error:
        raise unwritable(path, error) from error


def children(path: Path, group: Any) -> list[str]:
    """The names in a group; links to anything outside it are refused."""
    if len(group) > MOST:
        raise DataError(f"{path}: {group.name} has {len(group)} entries; {MOST} are the most")
    names = list(group)
    for name in names:
        _refuse_link(path, group, name)
    return names


def group_at(path: Path, parent: Any, name: str) -> Any:
    """A group of a group, or None where there is none."""
    if name not in parent:
        return None
    _refuse_link(path, parent, name)
    found = parent[name]
    if not isinstance(found, h5py.Group):
        raise DataError(f"{path}: {found.name} must be a group, and is an array")
    return found


def array_at(path: Path, parent: Any, name: str, *, numbers: bool = True) -> h5py.Dataset:
    """An array whose data lie in this file and can be as large as it claims."""
    _refuse_link(path, parent, name)
    array = parent[name]
    if not isinstance(array, h5py.Dataset):
        raise DataError(f"{path}: {array.name} must be an array, and is a group")
    what = f"{array.name} of {path}"
    if array.is_virtual or array.external:
        raise DataError(f"{what} keeps its numbers in other files, which are not opened: copy them")
    if array.shape is None:
        raise DataError(f"{what} is empty: store an array of numbers")
    if numbers:
        check_numbers(what, array.dtype)
        held = min(array.id.get_storage_size(), path.stat().st_size)
        refuse_squeezed(what, size_of(array.shape, array.dtype), held)
        check_memory(f"a piece of {what}", size_of(array.chunks or (), array.dtype))
    return array


def _refuse_link(path: Path, group: Any, name: str) -> None:
    if not isinstance(link := group.get(name, getlink=True), h5py.HardLink):
        to = getattr(link, "filename", None) or getattr(link, "path", "")
        raise DataError(
            f"{path}: {name} is a link to {to}. Links are not followed: store the array itself."
        )


def text(value: Any) -> str:
    """An attribute as text, whatever wrote it."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if isinstance(value, str) else ""


def _arrays(path: Path, file: h5py.File, names: Sequence[str]) -> dict[str, Any]:
    """Arrays at the root, to be read later; those of names are read."""
    found: dict[str, Any] = {}
    for name in names:
        array = array_at(path, file, name, numbers=False)
        if name in NAMES and h5py.check_string_dtype(array.dtype) and (array.size or 0) <= MOST:
            found[name] = np.array(array.asstr()[()], np.str_)
        else:
            units = text(array.attrs.get("units"))
            found[name] = Stored(path, name, array.shape, array.dtype, units)
    return found


def _own(path: Path, file: h5py.File) -> CaseReader:
    root = group_at(path, file, "cases")
    keys = [] if root is None else children(path, root)
    if not keys:
        raise DataError(f"{path} is of our layout and holds no case: write it again")

    names = [read_back(key) for key in keys]

    def read(i: int) -> Case:
        with opened(path) as again:
            found = _read(path, group_at(path, group_at(path, again, "cases"), keys[i]))
        return found if len(keys) == 1 else replace(found, source=f"{path}, case {names[i]}")

    return CaseReader(read, names, kind="HDF5 file of cases")


def _read(path: Path, group: Any) -> Case:
    arrays: dict[str, np.ndarray] = {}
    texts: dict[str, str] = {}
    held = 0

    def take(parent: Any, name: str, key: str, of: str) -> None:
        nonlocal held
        array = array_at(path, parent, name)
        held += size_of(array.shape, array.dtype)
        check_memory(f"a case of {path}", held)
        arrays[key] = array[()] if array.shape else np.asarray(array[()])
        if unit := text(array.attrs.get("units")):
            texts[f"units/{of}"] = unit

    for name in children(path, group):
        if name == "points":
            take(group, name, name, name)
        elif inner := group_at(path, group, name):
            for key in children(path, inner):
                take(inner, key, f"{name}/{key}", key)
            if kind := text(inner.attrs.get("kind")):
                texts[f"{name}/kind"] = kind
    for key, value in group.attrs.items():
        if key.startswith("units/"):
            texts[key] = text(value)
    return layout.unpack(arrays, texts, str(path))


def _write(group: Any, case: Case, path: Path) -> None:
    arrays, texts = layout.pack(case)
    units = {key.partition("/")[2]: v for key, v in texts.items() if key.startswith("units/")}
    for key, array in arrays.items():
        check_numbers(f"{key} of {path}", array.dtype)
        parent, _, name = key.rpartition("/")
        if parent and parent not in group:
            group.create_group(parent, track_order=True)
        stored = (group[parent] if parent else group).create_dataset(name, data=array)
        if parent != "mesh" and (unit := units.get(name)):
            stored.attrs["units"] = unit
    # Units of what is no array of its own, and empty ones, which an attribute of one cannot tell.
    names = {key.rpartition("/")[2] for key in arrays if not key.startswith("mesh/")}
    for name, unit in units.items():
        if name not in names or not unit:
            group.attrs[f"units/{name}"] = unit
    if case.mesh is not None:
        group["mesh"].attrs["kind"] = texts["mesh/kind"]
