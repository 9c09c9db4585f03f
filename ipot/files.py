"""Writing that never leaves half a file behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends well.

    A crash, a full disk or a kill at any moment leaves either the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def free_bytes(path: Path) -> int:
    """What the disk that will hold `path` has left."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
