"""Zip archives and .npy headers, checked before anything in them is unpacked.

Python's zipfile believes the directory at the end of an archive. So that the sizes there bound what
is unpacked, members must lie one after the other, agree with their own headers, and be stored or
deflated: bzip2 and LZMA are unpacked by zipfile without a bound.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data.guard.paths import regular_file, shown
from ipot.errors import DataError
from ipot.memory import SMALL, refuse_squeezed

MOST = 100_000
"""Members of one archive."""
RATIO = 20
"""Members that unpack to more than `SMALL`, and to more than this times their size, are counted
through before memory is taken for them."""
_LOCAL = struct.Struct("<4s5H3I2H")
_PIECE = 2**20


Headers = dict[str, tuple[tuple[int, ...], np.dtype]]


def npz_headers(path: Path) -> Headers:
    """Shapes and types of the arrays of an .npz archive, whose sizes are then known to be true."""
    found: Headers = {}
    size = regular_file(path).st_size
    with zipfile.ZipFile(path) as archive:
        refuse_squeezed(shown(path), sum(info.file_size for info in archive.infolist()), size)
        check_archive(path, archive)
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            name = info.filename.removesuffix(".npy")
            what = f"{shown(name)} of {shown(path)}"
            refuse_squeezed(what, info.file_size, info.compress_size)
            with archive.open(info) as member:
                found[name] = npy_header(what, member)
            shape, dtype = found[name]
            needed = math.prod(int(n) for n in shape) * dtype.itemsize
            if not dtype.hasobject and needed > info.file_size:
                raise DataError(
                    f"{what} claims the shape {shown(shape)} and holds {info.file_size} bytes: it "
                    "is damaged; write it again"
                )
        check_unpacked(path, archive)
    return found


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse members that overlap, repeat a name, or are not what the directory says."""
    infos = archive.infolist()
    if len(infos) > MOST:
        raise DataError(f"{shown(path)} has {len(infos)} members; {MOST} are the most")
    names: set[str] = set()
    for info in infos:
        if info.filename in names:
            raise DataError(
                f"{shown(path)} holds two arrays with the name "
                f"{shown(info.filename.removesuffix('.npy'), 100)}: keep one of them"
            )
        names.add(info.filename)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _wrong(
                path, info, f"is packed by the method {info.compress_type}, not by deflate"
            )
        if info.flag_bits & 0x41:
            raise _wrong(path, info, "is encrypted")
        if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
            raise _wrong(path, info, "is stored and claims two sizes")
    with path.open("rb") as file:
        begin = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            if info.header_offset < begin:
                raise _wrong(path, info, "overlaps another one")
            begin = _end(path, file, info)
    if begin > archive.start_dir:
        raise DataError(f"{shown(path)} has members that overlap its directory: write it again")


def check_unpacked(path: Path, archive: zipfile.ZipFile) -> None:
    """Unpack in pieces what claims to unpack to very much, and refuse where less comes out."""
    for info in archive.infolist():
        if info.file_size <= max(SMALL, RATIO * info.compress_size):
            continue
        with archive.open(info) as member:
            found = 0
            while piece := member.read(_PIECE):
                found += len(piece)
        if found != info.file_size:
            raise _wrong(path, info, f"claims {info.file_size} bytes and holds {found}")


def npy_header(what: str, file: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type from the head of an .npy file."""
    version = np.lib.format.read_magic(file)
    try:
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise DataError(f"{what} is an array of records: store plain arrays of numbers")
    except (tokenize.TokenError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the header of {what} is damaged") from error
    if any(n < 0 or isinstance(n, bool) for n in shape) or len(shape) > 32:
        raise DataError(f"{what} claims the shape {shown(shape)}: it is damaged; write it again")
    return shape, dtype


def check_npy(path: Path) -> None:
    """Refuse an .npy file that is shorter than its header says; others than .npy pass."""
    size = regular_file(path).st_size
    with path.open("rb") as file:
        if file.read(6) != np.lib.format.MAGIC_PREFIX:
            return
        file.seek(0)
        shape, dtype = npy_header(shown(path), file)
        needed = math.prod(int(n) for n in shape) * dtype.itemsize
        if not dtype.hasobject and needed > size - file.tell():
            raise DataError(
                f"{shown(path)} claims the shape {shape} of {dtype}, {needed} bytes, and holds "
                f"{size - file.tell()}: it is cut short or damaged; fetch or write it again"
            )


def _end(path: Path, file: Any, info: zipfile.ZipInfo) -> int:
    """Where a member ends, by its own header, which must agree with the directory."""
    file.seek(info.header_offset)
    head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != b"PK\3\4":
        raise _wrong(path, info, "has no header where the directory says")
    _, _, flags, method, _, _, _, packed, size, name, extra = _LOCAL.unpack(head)
    later = bool(flags & 8) or 0xFFFFFFFF in (packed, size)  # told after it, or in 64 bits
    if method != info.compress_type or (
        not later and (packed, size) != (info.compress_size, info.file_size)
    ):
        raise _wrong(path, info, "has another size or method in its own header")
    # Otherwise an array whose name is damaged would be left out, and nobody told.
    own = file.read(name).decode("utf-8" if info.flag_bits & 0x800 else "cp437", "replace")
    if own != info.orig_filename:
        raise _wrong(path, info, f"has another name in its own header ({shown(own, 100)})")
    return info.header_offset + _LOCAL.size + name + extra + info.compress_size


def _wrong(path: Path, info: zipfile.ZipInfo, what: str) -> DataError:
    return DataError(
        f"{shown(path)}: {shown(info.filename, 100)} {what}. It is damaged, or made to exhaust "
        "memory: write it again with numpy.savez."
    )
