"""Splits of published .mat files: which rows belong to which, read and written.

A published file says nothing of splits; its rows follow the habit of the papers, which train on the
first rows and test on the last (or on another file). A file written here may be of any length, so
it says itself which rows are whose: `rows_train` holds the first row and the one past the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from ipot.data import readers
from ipot.data.store import Fields
from ipot.errors import DataError

Shape = Sequence[int | None]


def folder(
    files: Path | str | None, problem: str, named: Sequence[str] = (), below: Sequence[str] = ()
) -> Path:
    """The folder of published files, which must have been given; or the first of those `below` it
    that has one of the files that are `named`."""
    if files is None:
        raise DataError(f"{problem} needs a folder to read from: give it with --problem.files")
    places = (Path(files) / place for place in below)
    there = (place for place in places if any((place / name).is_file() for name in named))
    return next(there, Path(files))


def first_and_last(total: int, sizes: Mapping[str, int]) -> dict[str, range]:
    """The habit: the first rows train, the last ones test, those between validate."""
    train, test = min(sizes["train"], total), max(total - sizes["test"], sizes["train"])
    return {
        "train": range(train),
        "validation": range(train, test),
        "test": range(test, total),
    }


def rows_beside(
    path: Path, split: str, order: Sequence[str], total: int, habit: Mapping[str, range]
) -> range:
    """The samples of a split as a file beside the arrays says, which has the first and the one
    past the last of each split in some order; or else by habit."""
    if not path.is_file():
        return habit[split]
    table = readers.read_npy(path)
    readers.expect_shape(path, "the array", table.shape, (len(order), 2))
    start, stop = table[order.index(split)].tolist()
    if not _within(start, stop, total):
        raise DataError(
            f"{path} must give samples of 0 to {total} to the {split} split, got {start} to "
            f"{stop}. It belongs to other files: remove it, or write all of them again."
        )
    return range(int(start), int(stop))


def shape(path: Path, name: str, expected: Shape) -> tuple[int, ...]:
    """The shape of an array, without reading it; None fits any size."""
    found = readers.expect_array(path, name, _shapes(path))
    return readers.expect_shape(path, name, found, expected)


def read(
    path: Path, split: str, count: int, arrays: Mapping[str, Shape], habit: Mapping[str, range]
) -> dict[str, np.ndarray]:
    """The first rows of a split of every named array, whose shapes are checked before."""
    total = {shape(path, name, expected)[0] for name, expected in arrays.items()}
    if len(total) != 1:
        lengths = ", ".join(f"{name} {shape(path, name, e)}" for name, e in arrays.items())
        raise DataError(f"the arrays of {path} must have the same number of rows, got {lengths}")
    chosen = take(path, split, count, _rows(path, split, habit, total.pop()))
    found = readers.read_mat(path, list(arrays), rows=chosen)
    return {
        name: readers.expect(path, name, array, (count, *arrays[name][1:]))
        for name, array in found.items()
    }


def take(path: Path, split: str, count: int, rows: range) -> slice:
    """The first `count` of the rows that belong to a split, which must be so many."""
    if count > len(rows):
        place = f" (from row {rows.start} on)" if rows else ""
        raise DataError(
            f"{path} has {len(rows)} samples for the {split} split{place}, {count} were asked "
            f"for. Ask for fewer with --count.{split}, or use a larger file."
        )
    return slice(rows.start, rows.start + count)


def join(
    splits: Mapping[str, Fields], order: Sequence[str]
) -> tuple[Fields, dict[str, np.ndarray]]:
    """Splits one after the other, and the arrays that say which rows are whose."""
    present = [name for name in order if name in splits]
    if not present:
        raise DataError(f"nothing to write: {' or '.join(order)} samples are needed")
    names = splits[present[0]]
    fields = {name: torch.cat([splits[s][name].cpu() for s in present]) for name in names}
    marks, start = {}, 0
    for split in order:
        length = len(next(iter(splits[split].values()))) if split in splits else 0
        marks[f"rows_{split}"] = np.array([[start, start + length]], dtype=np.int64)
        start += length
    return fields, marks


def _rows(path: Path, split: str, habit: Mapping[str, range], total: int) -> range:
    """The rows of a split as the file says, or else by habit."""
    mark = f"rows_{split}"
    if mark not in _shapes(path):
        return habit[split]
    found = readers.read_mat(path, [mark])[mark].ravel().tolist()
    start, stop = found if len(found) == 2 else (-1, -1)
    if not _within(start, stop, total):
        raise DataError(f"{mark} of {path} must be two rows within 0 and {total}, got {found}")
    return range(int(start), int(stop))


def _within(start: int | float, stop: int | float, total: int) -> bool:
    """True if these are the ends of some rows."""
    return 0 <= start <= stop <= total and not start % 1 and not stop % 1


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The arrays of a file, looked up once as long as it stays the same."""
    stamp = path.stat()
    return _looked_up(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=16)
def _looked_up(path: Path, changed: int, size: int) -> dict[str, tuple[int, ...]]:
    return readers.mat_shapes(path)
