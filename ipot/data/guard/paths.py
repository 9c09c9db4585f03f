"""Which paths are opened: regular files, and what stays inside the folder it was found in.

A path that a user gives is taken at its word, symbolic links included. A link that lies in a
folder, and a piece that a file names, came with the data: they must not leave their folder, unless
`IPOT_FOLLOW_OUTSIDE=1` says that the data are trusted.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ipot.errors import DataError
from ipot.safe_read import KINDS

FOLLOW = "IPOT_FOLLOW_OUTSIDE"
"""Set to 1, pieces and links may lie outside of the folder that names them."""


def shown(path: object, most: int = 300) -> str:
    """A path for a message: on one line, short, and in characters that can be printed."""
    text = str(path).encode("utf-8", "backslashreplace").decode()
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def file_or_folder(path: Path) -> os.stat_result | None:
    """What is at a path, None where nothing is; pipes, sockets and devices are refused.

    Nothing is opened, since to open a named pipe is to wait for whoever writes to it.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a zero byte
        return None
    except OSError as error:  # a loop of links, a name that is too long
        said = error.strerror or error
        raise DataError(f"{shown(path)} cannot be opened: {said}. Check the path.") from error
    kind = KINDS.get(stat.S_IFMT(found.st_mode))
    if kind is not None and not stat.S_ISDIR(found.st_mode):
        raise DataError(f"{shown(path)} is {kind}, and a regular file is expected: copy it to one")
    return found


def regular_file(path: Path) -> os.stat_result:
    """The facts of a file that is there and is one."""
    found = file_or_folder(path)
    if found is None:
        raise DataError(f"{shown(path)} is not there. Check the path.")
    if stat.S_ISDIR(found.st_mode):
        raise DataError(f"{shown(path)} is a folder, and a file is expected: name one in it")
    return found


def follows_outside() -> bool:
    """Whether the user said that links and pieces may lead out of their folder."""
    return os.environ.get(FOLLOW) == "1"


def refuse_leaving(folder: Path, entry: Path) -> None:
    """Refuse an entry of a folder that is, or lies behind, a symbolic link out of it."""
    if follows_outside():
        return
    try:
        root, target = os.path.realpath(folder), os.path.realpath(entry)
    except (OSError, ValueError) as error:
        raise DataError(f"{shown(entry)} cannot be followed: {error}") from error
    if target != root and not target.startswith(root.rstrip(os.sep) + os.sep):
        raise DataError(
            f"{shown(entry)} leads out of its folder, to {shown(target)}: it is not followed, "
            f"since it came with the data. Copy it there, or set {FOLLOW}=1 if you trust the data."
        )


def piece_inside(owner: Path, name: str) -> Path:
    """The file that `owner` names as a piece of itself, where it stays in the owner's folder."""
    piece = owner.parent / name
    if follows_outside():
        return piece
    parts = name.replace("\\", "/").split("/")
    odd = "\0" in name or "://" in name or name.startswith(("/", "\\", "~")) or name[1:2] == ":"
    if odd or ".." in parts or not name.strip():
        raise DataError(
            f"{shown(owner)} names the piece {shown(name)!r}, which is not a relative path inside "
            f"its folder: it is not opened. Put all pieces beside the file, or set {FOLLOW}=1 if "
            "you trust it."
        )
    refuse_leaving(owner.parent, piece)
    return piece
