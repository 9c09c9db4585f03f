"""How much memory is free, and the refusal of what would take more, or claims to."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from ipot.errors import DataError

SMALL = 2**26
"""Bytes below which nothing is compared: so little can hurt nobody."""
SQUEEZED = 1100
"""How many bytes one byte of a compressed file can stand for; deflate cannot reach more."""

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)


@contextlib.contextmanager
def at_most(size: int) -> Iterator[None]:
    """Inside, no more than so many bytes count as free, whatever the machine has: what somebody
    sends to a server may not take all of it."""
    token = _allowed.set(size)
    try:
        yield
    finally:
        _allowed.reset(token)


def allowed() -> int | None:
    """What `at_most` says; None outside of it."""
    return _allowed.get()


def refuse_too_large(what: str, size: int, free: int | None) -> None:
    """Refuse what takes more bytes than are free; None where nothing tells how many are."""
    if free is not None and size > free:
        raise DataError(
            f"{what} takes {in_words(size)} and {in_words(free)} of memory are free. "
            "Take fewer cases or points, or single precision."
        )


def refuse_squeezed(what: str, claimed: int, held: int) -> None:
    """Refuse sizes that the bytes of a file cannot stand for: a bomb, or a damaged header."""
    if claimed > max(SMALL, SQUEEZED * held):
        raise DataError(
            f"{what} claims {in_words(claimed)} and the file holds {in_words(held)} of it, less "
            "than any compression explains. It is damaged, or made to exhaust memory: write it "
            "again."
        )


def in_words(size: int) -> str:
    """Bytes for a reader."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return (
                f"{size / scale:.3g} {unit}" if size < 1000 * scale else f"{size // scale} {unit}"
            )
    return f"{size} bytes"


def free_memory() -> int | None:
    """Bytes that can still be had; None where nothing tells."""
    found = [size for size in (machine_memory(), allowed()) if size is not None]
    return min(found, default=None)


def machine_memory() -> int | None:
    """Bytes that the machine or its container can still give; None where nothing tells."""
    found = []
    try:
        text = Path("/proc/meminfo").read_text()
        if line := re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE):
            found.append(int(line[1]) * 1024)
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        found.append(int(limit) - int(used))
    except (OSError, ValueError):  # not Linux, another layout, or no limit
        pass
    return min(found, default=None)
