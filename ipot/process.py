"""Who a process is, so that others can tell later whether it still lives.

A process id alone is used again sooner or later. Together with the time at which the process was
started, counted since the machine was, it is used once; a clock that is set does not change it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
from pathlib import Path

TOKEN = re.compile(r"([0-9a-f]{8})-(\d+)-(\d+)")
"""Machine, process id and start of a process: what `token` writes."""


def token(pid: int | None = None) -> str:
    """A process, this one unless said, in few characters that are fit for the name of a file."""
    pid = os.getpid() if pid is None else pid
    return f"{machine()}-{pid}-{_began(pid) or 0}"


def alive(who: str) -> bool | None:
    """Whether the process with this token still runs; None where it cannot be told from here."""
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
