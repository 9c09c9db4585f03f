"""Reading files that somebody else may have written.

Whatever the package opens by its name in a folder goes through here: it must be a regular file
(opening a pipe would wait for ever, a device may do anything) of a size that is known before it is
read. Symbolic links are followed, since caches of models consist of them; what they lead to must be
a regular file. JSON is refused where it is too deep, names an entry twice or holds text that has no
bytes, in one error that names the file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipot.errors import IpotError, RunError, shown

LARGEST = 1 << 24
"""Bytes of a JSON file beyond which it is not read."""
DEEPEST = 32
"""Objects and lists inside each other."""
LONGEST_LINE = 1 << 20
"""Bytes of one line of a file that is read line by line."""

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular_file(path: Path, *, error: type[IpotError] = RunError) -> int:
    """The size of a file, refused where it is none; `FileNotFoundError` where nothing is there."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as problem:  # ValueError: a path with a zero byte
        raise error(f"cannot read {path}: {_reason(problem)}") from problem
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise error(f"{path} is {kind}, and a regular file belongs there: replace it by the file")
    return found.st_size


def read_bytes(
    path: Path, *, most: int | None = None, error: type[IpotError] = RunError, advice: str = ""
) -> bytes:
    """All bytes of a regular file; one of more than `most` is refused before it is read."""
    most = LARGEST if most is None else most
    size = regular_file(path, error=error)
    if size > most:
        raise error(f"{path} is larger than {_amount(most)}: it has {size} bytes. {advice}".strip())
    try:
        # Without waiting, should a pipe have taken its place just now.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise error(f"{path} is no regular file: replace it by the file")
            content = file.read(most + 1)  # it may have grown since
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"cannot read {path}: {_reason(problem)}. {advice}".strip()) from problem
    if len(content) > most:
        raise error(f"{path} is larger than {_amount(most)}. {advice}".strip())
    return content


def read_json(
    path: Path, *, most: int | None = None, error: type[IpotError] = RunError, advice: str = ""
) -> Any:
    """What a JSON file holds; `FileNotFoundError` where nothing is there."""
    content = read_bytes(path, most=most, error=error, advice=advice)
    return parse_json(content, path, error=error, advice=advice)


def parse_json(
    content: bytes | str,
    where: Path | str,
    *,
    error: type[IpotError] = RunError,
    advice: str = "",
) -> Any:
    """JSON as Python values, refused with `where` it comes from.

    NaN and Infinity are let through: this package writes them for errors that are not known yet.
    Whoever takes a number out of a file says whether it may be one of them.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        found = json.loads(text, object_pairs_hook=_once)
    except RecursionError as problem:
        raise error(
            f"cannot read {where}: it has more than {DEEPEST} lists inside each other. {advice}"
        ) from problem
    except ValueError as problem:  # no JSON, no text, or a number of too many digits
        raise error(f"cannot read {where}: {_reason(problem)}. {advice}".strip()) from problem
    if odd := what_is_odd(found):
        raise error(f"{where}: {odd}. {advice}".strip())
    return found


def read_lines(path: Path, *, error: type[IpotError] = RunError) -> Iterator[bytes]:
    """The lines of a regular file one by one; none is longer than `LONGEST_LINE`."""
    regular_file(path, error=error)
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    raise error(f"{path} has a line of more than {_amount(LONGEST_LINE)}")
                yield line
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"cannot read {path}: {_reason(problem)}") from problem


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, refused where a name is there twice: readers differ in which one they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the name {shown(twice)} is there twice in one object")
    return found


def what_is_odd(content: Any) -> str:
    """What is wrong with a value: endless depth, or text that has no bytes; nothing where it will
    do. Goes by hand through what is nested, since recursion would exhaust the stack."""
    left: list[tuple[Any, Any, int]] = [(content, None, 0)]
    while left:
        value, link, depth = left.pop()
        if isinstance(value, dict | list):
            if depth > DEEPEST:
                return f"{_place(link)[:60]}... has more than {DEEPEST} lists inside each other"
            if isinstance(value, dict):
                for key, inner in value.items():
                    if not _encodes(key):
                        return f"a name in {_place(link) or 'it'} is no text ({shown(key)})"
                    left.append((inner, (link, f".{key}"), depth + 1))
            else:
                # Not the numbers of a long list: they cannot be odd, and would take memory.
                left += [
                    (inner, (link, f"[{i}]"), depth + 1)
                    for i, inner in enumerate(value)
                    if isinstance(inner, dict | list | str)
                ]
        elif isinstance(value, str) and not _encodes(value):
            return (
                f"{_place(link) or 'it'} is no text: it holds half of a character ({shown(value)})"
            )
    return ""


def _place(link: Any) -> str:
    """Where a value lies, as `model.config.bins[0]`."""
    parts = []
    while link is not None:
        link, part = link
        parts.append(part)
    return "".join(reversed(parts)).removeprefix(".")


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _reason(problem: Exception) -> str:
    said = " ".join(str(getattr(problem, "strerror", None) or problem).split())
    return (said if len(said) <= 200 else f"{said[:197]}...").rstrip(".") or type(problem).__name__


def _amount(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size} bytes"
