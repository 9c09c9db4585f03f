"""What a netCDF file must be: HDF5 that names no other file, or a netCDF-3 header that adds up.

The header of netCDF-3 says how long every dimension is and where every variable begins. In a
damaged one these are absurd, and a library believes them. They are compared with the file's size.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ipot.data.guard import hdf5
from ipot.data.guard.paths import regular_file, shown
from ipot.errors import DataError
from ipot.memory import SMALL

PRELOAD = ("h5py", "netCDF4")
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
"""Bytes of a value, by netCDF-3's number of its type."""
DIMENSIONS, VARIABLES, ATTRIBUTES = 10, 11, 12
MOST = 1024
"""Dimensions of one variable."""


def look(path: str) -> None:
    """Check a file, then read its variables through netCDF4; for a child process."""
    check(Path(path))
    with hdf5.but_for_memory():
        import netCDF4

        with netCDF4.Dataset(path) as data:
            # Scaled numbers would take several times the memory, and none is needed here.
            data.set_auto_maskandscale(False)
            _read_group(data, hdf5.READ)


def check(path: Path) -> None:
    """Refuse a file that is not netCDF, names other files, or has a header that cannot be true."""
    size = regular_file(path).st_size
    with path.open("rb") as file:
        start = file.read(4)
        if start[:3] == b"CDF" and start[3:] in (b"\x01", b"\x02", b"\x05"):
            _Header(path, file, size, start[3]).check()
            return
    hdf5.check(path, tree=True)


class _Header:
    """Goes through a netCDF-3 header; nothing is kept but lengths."""

    def __init__(self, path: Path, file: Any, size: int, version: int) -> None:
        self.path, self.file, self.size = path, file, size
        self.count = 8 if version == 5 else 4
        self.offset = 4 if version == 1 else 8

    def check(self) -> None:
        records = self.number(self.count)
        streaming = records == 2 ** (8 * self.count) - 1
        lengths = []
        for _ in self.listed(DIMENSIONS):
            self.name()
            lengths.append(self.number(self.count))
        self.attributes()
        if lengths.count(0) > 1:
            raise self.wrong("it has more than one dimension of no fixed length")
        fixed: list[tuple[int, int]] = []
        moving: list[tuple[int, int]] = []
        for _ in self.listed(VARIABLES):
            begin, shape, each = self.variable(lengths)
            record = bool(shape) and shape[0] == 0
            held = each * math.prod(shape[1:] if record else shape)
            (moving if record else fixed).append((begin, held))
        header = self.file.tell()
        step = sum(_padded(held) for _, held in moving) if len(moving) > 1 else 0
        step = step or sum(held for _, held in moving)
        ends = [begin + held for begin, held in fixed]
        if records and not streaming:
            ends += [begin + (records - 1) * step + held for begin, held in moving]
        if any(begin < header for begin, held in (*fixed, *moving) if held):
            raise self.wrong("a variable begins within its header")
        if max(ends, default=0) > self.size:
            raise self.wrong(f"its variables reach to byte {max(ends)}")
        if records > self.size and not streaming:
            raise self.wrong(f"it claims {records} records")
        if max(lengths, default=0) > max(self.size, SMALL):
            raise self.wrong(f"a dimension has the length {max(lengths)}")

    def variable(self, lengths: list[int]) -> tuple[int, list[int], int]:
        self.name()
        rank = self.number(self.count)
        if rank > MOST:
            raise self.wrong(f"a variable has {rank} dimensions")
        places = [self.number(self.count) for _ in range(rank)]
        if any(place >= len(lengths) for place in places):
            raise self.wrong(f"a variable has a dimension that is none of the {len(lengths)}")
        self.attributes()
        each = SIZES.get(self.number(4))
        if each is None:
            raise self.wrong("a variable is of an unknown type")
        self.number(self.count)  # its size, which follows from the shape
        shape = [lengths[place] for place in places]
        if 0 in shape[1:]:
            raise self.wrong("a variable has the unlimited dimension behind another one")
        return self.number(self.offset), shape, each

    def attributes(self) -> None:
        for _ in self.listed(ATTRIBUTES):
            self.name()
            each = SIZES.get(self.number(4))
            if each is None:
                raise self.wrong("an attribute is of an unknown type")
            self.skip(each * self.number(self.count))

    def listed(self, tag: int) -> range:
        """As many entries as a list claims, where that many fit into the file."""
        found, count = self.number(4), self.number(self.count)
        if found not in (0, tag) or (found == 0 and count):
            raise self.wrong(f"a list in its header begins with {found}, not with {tag}")
        if 8 * count > self.size:
            raise self.wrong(f"a list in its header claims {count} entries")
        return range(count)

    def name(self) -> None:
        self.skip(self.number(self.count))

    def skip(self, length: int) -> None:
        place = self.file.tell() + _padded(length)
        if place > self.size:
            raise self.wrong("its header goes on behind its end")
        self.file.seek(place)

    def number(self, width: int) -> int:
        found = self.file.read(width)
        if len(found) < width:
            raise self.wrong("its header goes on behind its end")
        return int.from_bytes(found, "big")

    def wrong(self, what: str) -> DataError:
        return DataError(
            f"{shown(self.path)}: it cannot be opened as netCDF: {what}, and it has {self.size} "
            "bytes. It is truncated or damaged: download or write it again."
        )


def _padded(length: int) -> int:
    return -(-length // 4) * 4


def _read_group(group: Any, budget: int) -> int:
    """Read attributes and variables piece by piece; returns what is left of the budget."""
    with hdf5.but_for_memory():
        [group.getncattr(name) for name in group.ncattrs()]
    for variable in group.variables.values():
        with hdf5.but_for_memory():
            [variable.getncattr(name) for name in variable.ncattrs()]
            each = getattr(variable.dtype, "itemsize", 64)
            row = max(1, each * math.prod(variable.shape[1:]))
            if not variable.shape:
                variable[...]
                continue
            step = max(1, hdf5.PIECE // row)
            for start in range(0, variable.shape[0], step):
                if row * step > budget:
                    break
                variable[start : start + step]
                budget -= row * min(step, variable.shape[0] - start)
    for inner in group.groups.values():
        budget = _read_group(inner, budget)
    return budget
