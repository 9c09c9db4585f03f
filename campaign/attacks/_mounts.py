"""Small disks in memory, which only the process that makes one (and its children) can see."""

from __future__ import annotations

import ctypes
import os
import tempfile
from functools import cache
from pathlib import Path

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
PRIVATE, REMOUNT = (1 << 18) | 16384, 32


@cache
def why_not() -> str | None:
    """Why this machine lets nobody mount; None where it does."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                mount(Path(folder))
                status = 0
                os._exit(0)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return "nothing can be mounted here" if status else None


def mount(folder: Path) -> None:
    """From now on this process has a small disk of its own at a folder."""
    user, group = os.getuid(), os.getgid()
    if _call("unshare", NEW_MOUNTS) and _call("unshare", NEW_MOUNTS | NEW_USER):
        raise OSError(ctypes.get_errno(), "no mounts of its own")
    if os.getuid() != user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    if _call("mount", b"none", b"/", None, PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mounts cannot be kept apart")
    if _call("mount", b"none", os.fsencode(folder), b"tmpfs", 0, b"size=64m"):
        raise OSError(ctypes.get_errno(), f"nothing can be mounted at {folder}")


def leave(folder: Path, size: int) -> None:
    """Make the disk as large as what is on it, and so many bytes."""
    about = os.statvfs(folder)
    used = (about.f_blocks - about.f_bfree) * about.f_frsize
    option = f"size={used + size}".encode()
    if _call("mount", b"none", os.fsencode(folder), b"tmpfs", REMOUNT, option):
        raise OSError(ctypes.get_errno(), f"the size of {folder} cannot be changed")


def read_only(folder: Path, *, on: bool) -> None:
    """Let nobody write to the disk, or let everybody again; nothing may be open for writing."""
    if _call("mount", b"none", os.fsencode(folder), b"tmpfs", REMOUNT | on, None):
        raise OSError(ctypes.get_errno(), f"{folder} cannot be made read-only, or writable again")


def _call(name: str, *given: object) -> int:
    return getattr(ctypes.CDLL(None, use_errno=True), name)(*given)
