"""Writing that never leaves half a file behind, nor loses a whole one when the power goes.

Temporary names say which process they belong to, so that what a killed one has left can be removed.
A process id alone is used again sooner or later. Together with the time at which the process was
started, counted since the machine was, it is unique; a clock that is set does not change it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipot.errors import GONE, DiskError

FULL = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    errno.EISDIR,
)
"""What a disk says that is full, beyond its quota, read-only, somebody else's or broken, or that
has a folder where a file is to be."""
DAY = 86400.0
"""Seconds after which a temporary file is removed whose process cannot be asked after."""
MANY = 256
"""Entries of a folder beyond which it is looked through only once."""
LONGEST = 160
"""Characters of a name that its temporary one repeats; names have 255 bytes at most."""

TOKEN = re.compile(r"([0-9a-f]{8})-(\d+)-(\d+)")
"""Machine, process id and start of a process: what `process_token` writes."""

_ENDING = re.compile(rf"\.(?:(?P<owner>{TOKEN.pattern})-[0-9a-f]{{8}}|[a-z0-9_]{{8}})\.(?:tmp|old)")
"""Of a temporary name; those of earlier releases do not say whose they are."""
_TEMPORARY = re.compile(rf"\..+{_ENDING.pattern}")
_swept: set[str] = set()


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends well.

    A crash, a full disk, a kill or a power cut at any moment leaves either the old file or the new
    one, and the new one for certain once this has returned. What a kill has left of an earlier
    attempt is removed. A disk that takes no more, or a folder that has gone, raises `DiskError`,
    which is an OSError as well.
    """
    temporary = None
    try:
        make_folder(path.parent)
        temporary = temporary_name(path)
        # With the permissions that the umask gives; nothing may be there already, nor a link.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        sweep(path, newest=temporary.stat().st_mtime)
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        # The block may miss another file than its own, which is not for us to explain.
        gone = error.errno in GONE and (temporary is None or not os.path.lexists(temporary))
        if isinstance(error, DiskError) or not (gone or error.errno in FULL):
            raise
        raise DiskError(error.errno, error.strerror, str(path)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those around it, to stay; returns the new ones, the innermost first."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    made = []
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:  # by somebody else, at the same time
            if not folder.is_dir():
                raise
            continue
        made.insert(0, folder)
        sync(folder.parent)
    return made


def sync(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder."""
    folder = path.is_dir()
    if folder and os.name == "nt":  # where folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY if folder or os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems have nothing to do for a folder, and say so by an error.
        if not folder or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(handle)


def free_bytes(path: Path) -> int:
    """What the disk that will hold `path` has left."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


# ---- temporary names


def temporary_name(path: Path) -> Path:
    """A name beside a path that nobody can guess, and that says which process it belongs to."""
    return path.with_name(f"{_beginning(path)}.{process_token()}-{secrets.token_hex(4)}.tmp")


def is_temporary(name: str) -> bool:
    """True if `atomic` or `temporary_name` made this name, now or before a kill."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep(path: Path, newest: float) -> None:
    """Remove temporary files of `path` whose processes have died."""
    folder = str(path.parent)
    if folder in _swept:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        there = list(entries)
        if len(there) > MANY:
            _swept.add(folder)
        for entry in there:
            if _is_left(entry, _beginning(path), newest) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):  # another process was quicker
                    os.unlink(entry.path)


def sweep_folder(folder: Path) -> None:
    """Remove temporary files of a folder whose processes have died, whatever they were to be.

    Only those of this machine: nothing else tells that nobody writes them any more.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            match = _TEMPORARY.fullmatch(entry.name)
            if match is None or not match["owner"] or process_alive(match["owner"]) is not False:
                continue
            if entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):  # another process was quicker
                    os.unlink(entry.path)


def left_behind(path: Path, *, alone: bool = False) -> list[Path]:
    """Temporary folders of `path` whose processes have died, the oldest first.

    Who is `alone` has a lock that all who make such folders take: no other process is at work.
    """
    newest = path.parent.stat().st_mtime
    with os.scandir(path.parent) as entries:
        found = [
            (entry.stat(follow_symlinks=False).st_mtime, Path(entry.path))
            for entry in entries
            if _is_left(entry, _beginning(path), newest, alone)
            and entry.is_dir(follow_symlinks=False)
        ]
    return [folder for _, folder in sorted(found)]


def _is_left(entry: os.DirEntry[str], beginning: str, newest: float, alone: bool = False) -> bool:
    if not entry.name.startswith(f"{beginning}."):
        return False
    match = _ENDING.fullmatch(entry.name[len(beginning) :])
    if match is None:
        return False
    living = process_alive(match["owner"]) if match["owner"] else None
    if living is None and not (alone and match["owner"]):
        # Of another machine, whose processes cannot be asked for. Both times are those that the
        # file system gave, so that a clock of ours that is wrong does not matter.
        return newest - entry.stat(follow_symlinks=False).st_mtime > DAY
    return not living


def _beginning(path: Path) -> str:
    name = path.name
    while len(os.fsencode(name)) > LONGEST:
        name = name[:-1]
    return f".{name}"


# ---- processes


def process_token(pid: int | None = None) -> str:
    """A process, this one by default, in few characters that are fit for the name of a file."""
    pid = os.getpid() if pid is None else pid
    return f"{machine()}-{pid}-{_began(pid) or 0}"


def process_alive(who: str) -> bool | None:
    """True if the process with this token still runs; None if that cannot be told from here."""
    match = TOKEN.fullmatch(who)
    if match is None or match[1] != machine() or os.name == "nt":  # where signal 0 is a real one
        return None
    pid, began = int(match[2]), int(match[3])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        pass
    found = _began(pid)
    # Where the system does not say when it was started, a process of this number is taken for it.
    return found is None or not began or found == began


@functools.cache
def machine() -> str:
    """This machine since its last start; containers with process ids of their own count as such."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def _began(pid: int) -> int | None:
    """Clock ticks from the machine's start to the process's; -1 of one that has ended already."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    ended = fields[0] in ("Z", "X")  # dead, and its parent has not asked for its status yet
    return -1 if ended else int(fields[19])
