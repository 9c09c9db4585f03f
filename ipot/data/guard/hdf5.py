"""What an HDF5 file may not do: name other files, load plugins, claim sizes out of nothing.

HDF5 follows external links, external storage and virtual arrays by itself, in whichever library it
is built into (h5py, netCDF4, VTK). So the whole file is walked once with h5py's low-level calls,
which follow none of them, before any of these opens it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py

from ipot.data.guard.paths import regular_file, shown
from ipot.errors import DataError
from ipot.memory import SMALL, SQUEEZED, in_words

_low: Any = h5py
"""The low-level calls, which type checkers do not know."""
READ = 2**28
"""Bytes of arrays that `look` reads through."""
PIECE = 2**22
DEPTH = 16
"""Of types within types."""
LEAST = 8
"""Bytes that a link takes at the very least: a file cannot hold more of them."""

FILTERS = frozenset(
    (*range(1, 7), 32000, 305, 307, 32001, 32002, 32004, 32008, 32013, 32015, 32017, 32026)
)
"""Numbers of filters that are known: HDF5's own and registered compressors (LZO, bzip2, Blosc,
LZ4, Bitshuffle, ZFP, Zstandard, SZ, Blosc2). For any other HDF5 would look for a plugin."""


@contextlib.contextmanager
def but_for_memory() -> Iterator[None]:
    """Pass over errors of a library, which the caller will meet again, but not over exhausted
    memory: the file is refused for that."""
    try:
        yield
    except MemoryError:
        raise
    except Exception:
        return


def look(path: str) -> None:
    """Refuse what is not allowed, then read all attributes and arrays, up to `READ` bytes.

    For a child process (see `trial`): on damaged files the library may crash or not come back.
    """
    check(Path(path))
    budget = READ
    with but_for_memory(), h5py.File(path, "r") as file:
        for item in _objects(Path(path), file):
            with but_for_memory():
                dict(item.attrs)
            if isinstance(item, h5py.Dataset) and budget > 0:
                budget -= _read_through(item, budget)


def check(path: Path, *, tree: bool = False) -> None:
    """Walk the file once and refuse links out of it, foreign storage, filters and sizes.

    Groups of netCDF are a `tree`: one that is linked twice is refused, too.
    """
    size = regular_file(path).st_size
    try:
        with h5py.File(path, "r") as file:
            for item in _objects(path, file, tree=tree):
                if isinstance(item, h5py.Dataset):
                    _refuse_array(path, item)
                _refuse_types(path, item)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        raise DataError(
            f"{shown(path)} ({size} bytes) cannot be read as HDF5: "
            f"{' '.join(str(error).split())[:200]}. It is damaged, cut short, was never closed, or "
            "is of another kind than its name says: fetch or write it again."
        ) from error


def _objects(path: Path, file: Any, *, tree: bool = False) -> Any:
    """Every group, array and named type once, however many links lead to it.

    In a `tree`, one link leads to each group.
    """
    most = max(1000, regular_file(path).st_size // LEAST)
    seen: set[int] = set()
    todo = [file.id]
    soft: list[tuple[Any, bytes]] = []
    links = 0
    yield file
    while todo:
        group = todo.pop()
        found: list[tuple[bytes, int, Any]] = []

        def keep(name: bytes, info: Any, into: list[tuple[bytes, int, Any]] = found) -> None:
            into.append((name, info.type, info.u))  # h5py uses one `info` for all links

        group.links.iterate(keep, info=True)
        links += len(found)
        if links > most:
            raise DataError(
                f"{shown(path)} claims more than {most} links, which do not fit into it: it is "
                "damaged; write or fetch it again"
            )
        for name, kind, address in found:
            if kind == _low.h5l.TYPE_SOFT:
                # Leads to a place in this file, or through a link that is refused.
                soft.append((group, name))
                continue
            if kind != _low.h5l.TYPE_HARD:
                raise _outside(path, name, _target(group, name, kind))
            if address in seen and not tree:
                continue
            opened = _low.h5o.open(group, name)
            if address in seen:
                _refuse_group(path, name, opened)
                continue
            seen.add(address)
            if isinstance(opened, h5py.h5g.GroupID):
                todo.append(opened)
                yield h5py.Group(opened)
            elif isinstance(opened, h5py.h5d.DatasetID):
                yield h5py.Dataset(opened)
            else:
                yield h5py.Datatype(opened)
    # Followed only now, when no link to another file is left that one of them could go through.
    for group, name in soft if tree else ():
        with contextlib.suppress(KeyError, OSError, RuntimeError, ValueError):  # leads nowhere
            _refuse_group(path, name, _low.h5o.open(group, name))


def _refuse_group(path: Path, name: bytes, opened: Any) -> None:
    """Refuse what a second link leads to, where that is a group."""
    if isinstance(opened, h5py.h5g.GroupID):
        raise DataError(
            f"{shown(path)}: the group {shown(name.decode(errors='replace'))} is in the file "
            "twice, and a library for netCDF would go around in it: the file is damaged or no "
            "netCDF; write or fetch it again"
        )


def _target(group: Any, name: bytes, kind: int) -> str:
    if kind != _low.h5l.TYPE_EXTERNAL:
        return f"a link of the user-defined type {kind}"
    try:
        file, inside = (shown(part.decode()) for part in group.links.get_val(name))
        return f"a link to {file} ({inside})"
    except (ValueError, KeyError, RuntimeError, TypeError):
        return "a link to another file"


def _outside(path: Path, name: bytes | str, what: str) -> DataError:
    name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return DataError(
        f"{shown(path)}: {shown(name)} is {what}. Other files are not opened, since their names "
        "came with the data: store the array itself."
    )


def _refuse_array(path: Path, array: Any) -> None:
    plan = array.id.get_create_plist()
    what, size = f"{shown(array.name)} of {shown(path)}", regular_file(path).st_size
    if plan.get_external_count():
        raise DataError(
            f"{what} keeps its numbers in other files ({_name(plan)}), which are not opened: copy "
            "them into it"
        )
    layout = plan.get_layout()
    if layout == h5py.h5d.VIRTUAL:
        raise DataError(f"{what} keeps its numbers in other files, which are not opened: copy them")
    for i in range(plan.get_nfilters()):
        number = plan.get_filter(i)[0]
        if number not in FILTERS:
            raise DataError(
                f"{what} is packed by the filter {number}, which is not known here and would be "
                "loaded as a plugin: write it again with gzip"
            )
    each = max(1, array.id.get_type().get_size())
    if layout == h5py.h5d.CHUNKED:
        _refuse_size(f"a chunk of {what}", each * math.prod(plan.get_chunk()), size, size)
    claimed = each * math.prod(array.id.shape or ())
    _refuse_size(what, claimed, size, min(size, array.id.get_storage_size()))


def _name(plan: Any) -> str:
    return shown(plan.get_external(0)[0].decode("utf-8", "replace"))


def _refuse_size(what: str, claimed: int, size: int, held: int) -> None:
    if claimed > max(SMALL, SQUEEZED * size):
        raise DataError(
            f"{what} claims {in_words(claimed)} and the file holds {in_words(held)} of it, less "
            "than any compression explains. It is damaged, was never written, or is made to "
            "exhaust memory."
        )


def _refuse_types(path: Path, item: Any) -> None:
    """Refuse references of HDF5's newer kind, which can name other files."""
    kinds = [item.id.get_type()] if isinstance(item, h5py.Dataset) else []
    for i in range(h5py.h5a.get_num_attrs(item.id)):
        kinds.append(h5py.h5a.open(item.id, index=i).get_type())
    for kind in kinds:
        if _foreign(kind, DEPTH):
            raise DataError(
                f"{shown(path)}: {shown(item.name)} holds references that may lead to other files: "
                "they are not followed; store the array itself"
            )


def _foreign(kind: Any, depth: int) -> bool:
    if depth == 0:
        return True
    if isinstance(kind, h5py.h5t.TypeReferenceID):
        own = (h5py.h5t.STD_REF_OBJ, h5py.h5t.STD_REF_DSETREG)
        return not any(kind.equal(one) for one in own)
    if isinstance(kind, h5py.h5t.TypeCompoundID):
        members = range(kind.get_nmembers())
        return any(_foreign(kind.get_member_type(i), depth - 1) for i in members)
    if isinstance(kind, h5py.h5t.TypeVlenID | h5py.h5t.TypeArrayID):
        return _foreign(kind.get_super(), depth - 1)
    return False


def _read_through(array: Any, budget: int) -> int:
    """Read an array in pieces; returns how many bytes that were."""
    each = max(1, array.id.get_type().get_size())
    rows = array.shape or ()
    if not rows or not all(rows):
        with but_for_memory():
            array[()]
        return each
    row = each * math.prod(rows[1:])
    step, done = max(1, PIECE // row), 0
    if row > budget:
        return 0
    for start in range(0, rows[0], step):
        if done + row * step > budget:
            break
        with but_for_memory():
            array[start : start + step]
        done += row * min(step, rows[0] - start)
    return done
