"""A folder that appears under its name when all of it is written, and not before."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ipot import files, lock
from ipot.errors import RunError


@contextmanager
def whole_folder(
    target: Path, keep: tuple[str, ...] = (), check: Callable[[], None] = lambda: None
) -> Iterator[Path]:
    """An empty folder beside `target` that takes its place when the block ends well.

    Of what was there, the entries that `keep` names go over to the new folder. Two processes that
    write the same folder do so one after the other; `check` is called when it is this one's turn,
    and may refuse what is there by then. One of the entries to keep in which somebody works, as
    `ipot.lock` tells, is not moved: `Busy` says so.

    A crash, a full disk, a kill or a power cut leaves the old folder or the new one under the name,
    never half of one, and never none where the system can exchange two names at once, as Linux
    can. What a kill leaves behind besides is a hidden folder beside it, `.name.*.tmp`, which the
    next one to write removes; entries to keep that had not gone over yet go over then.
    """
    with lock.locked(target.parent, "saving", name=f".{target.name}.lock", wait=True):
        recover(target, keep, alone=True)
        check()
        with ExitStack() as held:
            for name in keep:
                if (target / name).is_dir():
                    held.enter_context(lock.locked(target / name, "saving"))
            folder = files.temporary_name(target)
            folder.mkdir(0o700)
            try:
                yield folder
                _open_up(folder)
                _flush(folder)
                # Its name as well: what is to be kept must not go into a folder that has none yet.
                _sync(target.parent)
                _take_place(folder, target, keep)
                _sync(target)
                _sync(target.parent)
            finally:
                if not any((folder / name).exists() for name in keep):  # those are never removed
                    shutil.rmtree(folder, ignore_errors=True)


def recover(target: Path, keep: tuple[str, ...], *, alone: bool = False) -> None:
    """Put in order what killed processes have left of `target`, and remove what nobody needs.

    Who is `alone` has the lock. Others put in order what is left by processes that have certainly
    died; those before a restart of the machine cannot be asked after, and only the lock tells.
    """
    if not target.parent.is_dir():
        return
    for left in files.left_behind(target, alone=alone):
        with suppress(OSError):  # somebody else has done it, or may alone
            if left.suffix == ".old" and not target.exists():
                os.rename(left, target)
                continue
            for name in keep:
                if (left / name).exists() and target.is_dir() and not (target / name).exists():
                    os.rename(left / name, target / name)
                    _sync(target)  # before the folder goes that it came from
            if not any((left / name).exists() for name in keep):
                shutil.rmtree(left, ignore_errors=True)


def recover_run(target: Path, keep: tuple[str, ...]) -> None:
    """Recover a run folder that is about to be read, under its lock if that is free."""
    if not target.parent.is_dir() or all((target / name).exists() for name in keep):
        return
    try:
        with lock.locked(target.parent, "recovering", name=f".{target.name}.lock"):
            recover(target, keep, alone=True)
    except RunError:  # somebody saves there, or we may not write
        recover(target, keep)


def _open_up(folder: Path) -> None:
    """Let others read as the user's settings say: what is made for a moment is the user's alone."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _flush(folder: Path) -> None:
    """Have the disk hold what was written, before it gets its name."""
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: Path) -> None:
    files.sync(path)


def _take_place(folder: Path, target: Path, keep: tuple[str, ...]) -> None:
    """Give a folder its name; what was there has the temporary one afterwards."""
    if not target.exists():
        os.rename(folder, target)
        return
    if not _exchange(folder, target):
        _step_aside(folder, target)
    for name in keep:
        if (folder / name).exists():
            os.rename(folder / name, target / name)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; False where the system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _step_aside(folder: Path, target: Path) -> None:
    """Exchange two folders in three steps, the first of which is undone if the second fails."""
    aside = folder.with_suffix(".old")
    os.rename(target, aside)
    try:
        os.rename(folder, target)
    except BaseException:
        os.rename(aside, target)
        raise
    os.rename(aside, folder)
