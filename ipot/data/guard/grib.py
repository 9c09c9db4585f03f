"""Whether the messages of a GRIB file, and the sections of each, fill it from end to end.

eccodes goes from section to section by the lengths that are written there; one of 0 keeps it in the
same place for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipot.data.guard.paths import regular_file, shown
from ipot.errors import DataError

POINTS = 2**24
"""Values that a message of any size may claim: a constant field takes no bytes for them."""
SQUEEZED = 137
"""Values that one byte may stand for beyond those."""
LONG = 2**23
"""A message of the first edition as long as this has its length in other units."""
LEAST = {0: 8, 1: 28, 2: 6, 3: 6, 4: 11}
"""Bytes of a section of the first edition."""


def check(path: Path) -> None:
    """Go from message to message and from section to section; refuse what does not add up."""
    size, place = regular_file(path).st_size, 0
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            head = file.read(4096)
            if padding := len(head) - len(head.lstrip(b"\0")):
                place += padding
                continue
            second = head[7:8] == b"\2"
            length = int.from_bytes(head[8:16] if second else head[4:7], "big")
            if head.startswith(b"GRIB") and not second and length >= LONG and size >= LONG:
                return
            end = place + length
            file.seek(max(0, min(end, size) - 4))
            whole = length >= 20 and end <= size and file.read(4) == b"7777"
            if not head.startswith(b"GRIB") or head[7:8] not in (b"\1", b"\2") or not whole:
                raise DataError(
                    f"{shown(path)}: the GRIB message at byte {place} of {size} has no beginning "
                    "(GRIB) or no end (7777): the file is truncated or damaged. Download it again."
                )
            _Message(path, file, place, end).check(second)
            place = end


class _Message:
    """One message, from its first byte to behind its last."""

    def __init__(self, path: Path, file: Any, begin: int, end: int) -> None:
        self.path, self.file, self.begin, self.end = path, file, begin, end

    def check(self, second: bool) -> None:
        if second:
            self.second()
        else:
            self.first()

    def second(self) -> None:
        """Sections of the second edition say their length and their number."""
        place, last = self.begin + 16, 0
        while place < self.end - 4:
            head = self.bytes(place, 16)
            length, number = int.from_bytes(head[:4], "big"), head[4]
            if length < 5 or not 1 <= number <= 7 or place + length > self.end - 4:
                raise self.wrong(place, length)
            if number in (3, 5):
                at = 6 if number == 3 else 5
                self.count(int.from_bytes(head[at : at + 4], "big"))
            # Sections 2 to 7, 3 to 7 and 4 to 7 may be repeated.
            if number != last + 1 and not (number == 3 and last == 1) and not last == 7:
                raise self.wrong(place, length)
            place, last = place + length, number
        if place != self.end - 4 or last != 7:
            raise self.wrong(place, 0)

    def first(self) -> None:
        """Sections of the first edition are told by flags of the first of them."""
        flags = self.bytes(self.begin + 8, 8)[7]
        sections = [1, *([2] if flags & 128 else []), *([3] if flags & 64 else []), 4]
        place = self.begin + 8
        for number in sections:
            head = self.bytes(place, 10)
            length = int.from_bytes(head[:3], "big")
            if length < LEAST[number] or place + length > self.end - 4:
                raise self.wrong(place, length)
            if number == 2:
                wide, high = (int.from_bytes(head[i : i + 2], "big") for i in (6, 8))
                if 65535 not in (wide, high):
                    self.count(wide * high)
            place += length
        if place > self.end - 4:
            raise self.wrong(place, 0)

    def bytes(self, place: int, count: int) -> bytes:
        self.file.seek(place)
        found = self.file.read(min(count, max(0, self.end - place)))
        return found.ljust(count, b"\0")

    def count(self, points: int) -> None:
        if points > max(POINTS, SQUEEZED * (self.end - self.begin)):
            raise DataError(
                f"{shown(self.path)}: the GRIB message at byte {self.begin} claims {points} values "
                f"in {self.end - self.begin} bytes: it is damaged, or made to exhaust memory"
            )

    def wrong(self, place: int, length: int) -> DataError:
        return DataError(
            f"{shown(self.path)}: the GRIB message at byte {self.begin} has a section at byte "
            f"{place} with the length {length}, which does not lead to its end at {self.end}: the "
            "file is truncated or damaged. Download it again."
        )
