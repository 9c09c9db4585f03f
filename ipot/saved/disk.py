"""A folder that appears under its name when all of it is written, and not before."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(target: Path, keep: tuple[str, ...] = ()) -> Iterator[Path]:
    """An empty folder beside `target` that takes its place when the block ends well.

    Of what was there, the entries that `keep` names go over to the new folder.

    A crash, a full disk or a kill leaves the old folder or the new one under the name, or for the
    moment between two renames none; never half of one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        yield folder
        _open_up(folder)
        _flush(folder)
        _take_place(folder, target, keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _open_up(folder: Path) -> None:
    """Let others read as the user's settings say: what is made for a moment is the user's alone."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    for path in folder.iterdir():
        path.chmod(0o666 & ~mask)


def _flush(folder: Path) -> None:
    """Have the disk hold what was written, before it gets its name."""
    for path in (*folder.iterdir(), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _take_place(folder: Path, target: Path, keep: tuple[str, ...]) -> None:
    """Rename a folder to its name; what is there steps aside first, and back if that fails."""
    if not target.exists():
        os.rename(folder, target)
        return
    aside = folder.with_suffix(".old")
    os.rename(target, aside)
    try:
        os.rename(folder, target)
    except BaseException:
        os.rename(aside, target)
        raise
    for name in keep:
        if (aside / name).exists():
            os.rename(aside / name, target / name)
    shutil.rmtree(aside, ignore_errors=True)
