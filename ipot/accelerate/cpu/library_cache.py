"""Compiled libraries in the user's cache: nobody else's, whole, or not loaded.

Loading a library runs it, and one that is cut short ends the process. So the folder and the file
must belong to this user and be writable by nobody else, and the file ends in the hash of what is
before it. What is checked is what is loaded: both are opened once, and no name is looked up again.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipot import files
from ipot.errors import RunError

MARK = b"ipot sha256 "
"""Before the hash, at the end of the file. A loader reads what headers point to, and not this."""
TRAILER = len(MARK) + hashlib.sha256().digest_size
WORKSHOP = "build"
OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Refused(RunError):
    """A folder or a library that others may have written."""


def prepare(folder: Path) -> None:
    """Make the folder for this user alone; refused where others may write to it or around it."""
    with contextlib.suppress(FileExistsError):
        files.make_folder(folder.parent)
        folder.mkdir(mode=0o700)
    if os.name == "nt":  # where a user's cache is the user's by other means
        return
    for around in (folder.parent.parent, folder.parent):
        _refuse_foreign(around, os.stat(around))
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{folder} is no folder but a link or a file: remove it")
    if found.st_uid != os.geteuid():
        raise Refused(f"{folder} belongs to another user (number {found.st_uid}): remove it")
    _refuse_foreign(folder, found)
    if stat.S_IMODE(found.st_mode) != 0o700:  # as earlier releases made it
        os.chmod(folder, 0o700)
        if os.lstat(folder).st_mode & OTHERS:
            raise Refused(f"{folder} can be written by others, and that cannot be changed")


def _refuse_foreign(folder: Path, found: os.stat_result) -> None:
    """Refuse a folder whose entries others may replace. A group may be the user's own, and what
    members of another one put in the place of ours is not loaded, since it is theirs."""
    if found.st_uid not in (os.geteuid(), 0):
        raise Refused(f"{folder} belongs to another user (number {found.st_uid})")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise Refused(f"{folder} can be written by everybody: chmod o-w {folder}")


def load(path: Path, names: Sequence[str]) -> ctypes.CDLL:
    """A library that is ours and whole, and has these functions; OSError where it is not."""
    with _opened(path) as (folder, file):
        _refuse_damaged(path, file)
        # By the number of the open folder, which nobody can exchange for another, and in which
        # nobody else can write. The number stays in use: a loader takes a name that it has met
        # before for the library that it met.
        inside = "" if folder < 0 else f"/proc/self/fd/{os.dup(folder)}/{path.name}"
        found = ctypes.CDLL(inside if os.path.exists(inside) else str(path))
    lacking = [name for name in names if not hasattr(found, name)]
    if lacking:
        raise OSError(f"{path} lacks {', '.join(lacking)}")
    return found


def is_whole(path: Path) -> bool:
    """True if a library is there that may be loaded."""
    try:
        with _opened(path) as (_, file):
            _refuse_damaged(path, file)
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """The folder and the file, open; links are not followed."""
    with contextlib.ExitStack() as opened:

        def keep_open(handle: int) -> int:
            opened.callback(os.close, handle)
            return handle

        if os.name == "nt":
            yield -1, keep_open(os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)))
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = keep_open(os.open(path.parent, flags | os.O_DIRECTORY))
        _refuse_others(path.parent, os.fstat(folder))
        yield folder, keep_open(os.open(path.name, flags | os.O_NONBLOCK, dir_fd=folder))


def _refuse_others(path: Path, found: os.stat_result) -> None:
    if os.name != "nt" and (found.st_uid != os.geteuid() or found.st_mode & OTHERS):
        raise OSError(f"{path} belongs to another user, or can be written by others")


def _refuse_damaged(path: Path, file: int) -> None:
    """Refuse what is not a file of ours that ends in the hash of the rest."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is no plain file")
    _refuse_others(path, found)
    with os.fdopen(os.dup(file), "rb") as stream:
        stream.seek(0)
        content = stream.read()
    body, end = content[:-TRAILER], content[-TRAILER:]
    if len(content) <= TRAILER or end != MARK + hashlib.sha256(body).digest():
        raise OSError(f"{path} is damaged, or was not made here")


def keep(made: Path, target: Path) -> None:
    """Seal what was compiled and give it its name, which is on disk then."""
    body = made.read_bytes()
    sealed = made.with_suffix(".sealed")
    file = os.open(sealed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(file, "wb") as stream:
        stream.write(body + MARK + hashlib.sha256(body).digest())
    files.sync(sealed)
    if target.is_dir() and not target.is_symlink():
        raise Refused(f"{target} is a folder: remove it")
    os.replace(sealed, target)
    files.sync(target.parent)


@contextlib.contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A folder of this process in which to compile; those of processes that died are removed."""
    sweep(folder)
    here = files.temporary_name(folder / WORKSHOP)
    here.mkdir(mode=0o700)
    try:
        yield here
    finally:
        shutil.rmtree(here, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove the workshops of processes that died, though their compilers may still be at work."""
    place = folder / WORKSHOP
    with contextlib.suppress(OSError):
        for left in files.left_behind(place):
            # First out of the sight of its compilers: they can make nothing in it any more.
            aside = files.temporary_name(place)
            with contextlib.suppress(OSError):  # somebody else was quicker
                os.rename(left, aside)
                shutil.rmtree(aside, ignore_errors=True)
