"""One process at a time in a folder.

The lock is one of the operating system, on a file in the folder: it ends with its process, however
that ends, and a file that a killed process has left behind blocks nobody. It is a record lock
(`fcntl`), which works on network file systems and does not pass to forked processes, such as the
workers of a data loader. Such locks do not hold between threads, so this module keeps a list of
its own for those.

Where a file system has no locks, a file that must not exist yet does the same. It says who made
it, and is taken away where that process ran on this machine and is no more.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipot import files
from ipot.errors import Busy, RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME = ".lock"
NAMES = (NAME, f"{NAME}-owner")
"""With locks of the operating system, and without them."""
UNSUPPORTED = {
    *(errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP),
}
"""What file systems without locks answer."""
PAUSES = (0.02, 0.5)
"""Seconds between two looks at a lock that somebody else has: at first, and at most."""

GONE = 2.0
"""Seconds for which a folder is made again that others take away."""

_log = logging.getLogger("ipot")
_Key = tuple[int, int, str]


@dataclass
class _Handle:
    """What is to be undone."""

    path: Path
    file: int | None
    """An open file whose lock goes with it; None where the file's existence is the lock."""

    def release(self) -> None:
        """Take the file away while it is still ours, then let go of it."""
        with contextlib.suppress(OSError):
            if self.file is None or os.path.samestat(os.fstat(self.file), os.stat(self.path)):
                self.path.unlink()
        if self.file is not None:
            os.close(self.file)


@dataclass
class _Held:
    """A lock that a thread of this process has; it may take it again inside."""

    key: _Key
    handle: _Handle
    thread: int
    owner: dict[str, Any]
    depth: int = 1


class _Taken(Exception):
    """Somebody else has the lock."""

    def __init__(self, owner: dict[str, Any], hint: str = "") -> None:
        super().__init__()
        self.owner, self.hint = owner, hint


_held: dict[_Key, _Held] = {}
_guard = threading.Lock()


def _forget() -> None:
    """A forked process has none of the locks of its parent."""
    global _guard
    _guard = threading.Lock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def locked(
    folder: Path,
    doing: str,
    *,
    name: str = NAME,
    wait: bool = False,
    patience: float | None = None,
) -> Iterator[None]:
    """Be the only one to work in a folder, which is made where it is not there.

    `doing` is what others are told: "training". Where somebody else has the lock, `Busy` names the
    process; with `wait` this one waits for it, at most `patience` seconds. The thread that has a
    lock may take it again.
    """
    made: list[Path] = []
    mine = None
    try:
        mine = _entered(folder, name) or _acquired(folder, name, doing, made, wait, patience)
        if name == NAME and mine.depth == 1:  # the folder is ours, and not only an entry of it
            files.sweep_folder(folder)
        yield
    finally:
        if mine is not None:
            _leave(mine)
        for path in made:
            with contextlib.suppress(OSError):  # something was made in it
                path.rmdir()


def sweep(folder: Path) -> None:
    """Remove what a killed process has left: temporary files, and its lock where nobody has it.

    For those who only read: whoever takes the lock does the same.
    """
    files.sweep_folder(folder)
    if any(os.path.lexists(folder / name) for name in NAMES):
        # Somebody is at work, or may write here and we may not: theirs to remove.
        with contextlib.suppress(Busy, RunError), locked(folder, "tidying up"):
            pass


def is_blank(folder: Path) -> bool:
    """True if a folder holds nothing but what a process leaves that is killed as it begins."""
    return all(p.name in NAMES or files.is_temporary(p.name) for p in folder.iterdir())


def _key(folder: Path, name: str) -> _Key:
    """A folder by its number, which stays when it is renamed."""
    found = folder.stat()
    return found.st_dev, found.st_ino, name


def _entered(folder: Path, name: str) -> _Held | None:
    """Take a lock again that this thread has."""
    with contextlib.suppress(OSError), _guard:
        mine = _held.get(_key(folder, name))
        if mine is not None and mine.thread == threading.get_ident():
            mine.depth += 1
            return mine
    return None


def _leave(mine: _Held) -> None:
    if mine.owner["pid"] != os.getpid():  # taken before a fork: it is the parent's
        return
    with _guard:
        mine.depth -= 1
        if not mine.depth:
            mine.handle.release()
            _held.pop(mine.key, None)


def _acquired(
    folder: Path, name: str, doing: str, made: list[Path], wait: bool, patience: float | None
) -> _Held:
    """Take a lock, waiting for it if told to; folders that were not there are added to `made`."""
    start, pause, told = time.monotonic(), PAUSES[0], False
    while True:
        try:
            made += files.make_folder(folder)
            return _try(folder, name, doing)
        except _Taken as taken:
            late = patience is not None and time.monotonic() - start > patience
            if not wait or late:
                raise Busy(
                    f"{folder} is in use by {_words(taken.owner)}. Wait until it has ended, or "
                    f"choose another folder.{taken.hint}"
                ) from None
            if not told:
                _log.warning("waiting for %s in %s%s", _words(taken.owner), folder, taken.hint)
                told = True
        except FileNotFoundError as error:
            # Whoever made the folder has taken it away again since: once more, though not for ever.
            if time.monotonic() - start > GONE:
                raise _cannot(folder, error) from error
        except OSError as error:
            raise _cannot(folder, error) from error
        time.sleep(pause)
        pause = min(2 * pause, PAUSES[1])


def _try(folder: Path, name: str, doing: str) -> _Held:
    owner = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "token": files.process_token(),
        "doing": doing,
        "since": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    key = _key(folder, name)
    with _guard:
        if key in _held:
            raise _Taken(_held[key].owner)
        try:
            handle = _by_system(folder / name, owner)
        except _NoLocks:
            handle = _by_file(folder / f"{name}-owner", owner)
        mine = _held[key] = _Held(key, handle, threading.get_ident(), owner)
        return mine


# ---- by the operating system


class _NoLocks(Exception):
    """The file system, or the operating system, has none."""


def _by_system(path: Path, owner: dict[str, Any]) -> _Handle:
    if fcntl is None:
        raise _NoLocks
    while True:
        # A link there would lead us to write into another file.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(path, flags, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
                    os.ftruncate(file, 0)
                    os.pwrite(file, json.dumps(owner).encode(), 0)
                return _Handle(path, file)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                os.close(file)
                path.unlink(missing_ok=True)
                raise _NoLocks from error
            if error.errno in (errno.EACCES, errno.EAGAIN):
                found = _read(os.pread(file, 4096, 0))
                os.close(file)
                raise _Taken(found) from None
            os.close(file)
            raise
        os.close(file)  # the one before us took it away when it had done: once more


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


# ---- without it


def _by_file(path: Path, owner: dict[str, Any]) -> _Handle:
    try:
        _create(path, owner)
    except FileExistsError:
        found = _read(path.read_bytes()) if path.exists() else {}
        if files.process_alive(str(found.get("token"))) is not False:
            hint = f" If there is no such process any more, remove {path}."
            raise _Taken(found, hint) from None
        # Its process is dead. Of several that see so, one can rename it.
        aside = path.with_name(f"{path.name}-{files.process_token()}")
        try:
            os.rename(path, aside)
            stale = _read(aside.read_bytes()) == found
            if not stale:  # somebody was quicker, and this is the new one
                os.rename(aside, path)
                raise _Taken({}) from None
            aside.unlink()
            _create(path, owner)
        except (FileNotFoundError, FileExistsError):
            raise _Taken({}) from None
    _log.warning("%s is on a file system without locks: %s stands for one", path.parent, path.name)
    return _Handle(path, None)


def _create(path: Path, owner: dict[str, Any]) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(file, json.dumps(owner).encode())
    finally:
        os.close(file)


# ---- words


def _read(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _words(owner: dict[str, Any]) -> str:
    """Who has a lock; what somebody else wrote is shortened, and never more than a line."""
    if not {"pid", "host", "doing", "since"} <= set(owner):
        return "another process"
    pid, host, doing, since = (
        "".join(c for c in str(owner[k])[:60] if c.isprintable())
        for k in ("pid", "host", "doing", "since")
    )
    if owner.get("token") == files.process_token():
        return f"another thread of this process ({doing} since {since})"
    return f"process {pid} on {host} ({doing} since {since})"


def _cannot(folder: Path, error: OSError) -> RunError:
    where = f" ({error.filename})" if error.filename not in (None, str(folder)) else ""
    return RunError(
        f"cannot write to {folder}: {error.strerror or error}{where}. Make it writable, or choose "
        "another folder (out=... or --out)."
    )
