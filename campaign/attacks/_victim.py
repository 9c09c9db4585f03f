"""A forked process that works in a folder and is hurt at a chosen moment.

A moment is one of the process's own events (it opens a file for writing, renames, removes, syncs),
which is where things go wrong, or a time, or a size that no file may exceed. A fork costs no
import, and the attacked process shares nothing with the one that judges it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.attacks import _seccomp
from ipot.errors import IpotError
from ipot.training.trainer import Stopped

Hurt = dict[str, Any]
"""How to hurt a process, in plain JSON.

by      `event` (the `at`-th part of those of an undisturbed run), `time` (likewise), `size` (in
        bytes), `size error` (the same, but with EFBIG instead of death), `none`
signal  what to send at the moment
errno   or the error that the system gives: `once`, or from then on for all calls that can give it
vanish  or the folder is removed, and perhaps replaced by a file
clock   seconds by which time.time jumps, each with the number of the call
"""

OPENED = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVENTS = {
    *("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.link"),
    *("tempfile.mkstemp", "tempfile.mkdtemp", "shutil.rmtree", "shutil.copyfile"),
}


@dataclass(frozen=True)
class Ended:
    """How a process ended: done, refused, stopped, foreign, or killed without a word."""

    how: str
    said: str = ""
    where: str = ""
    events: int = 0
    seconds: float = 0.0
    status: int = 0


class Foreign(Exception):
    """What was attacked raised something that is none of ipot's errors."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.said)
        self.where = ended.where


class Victim:
    """A process that has been started; `wait` sees it through."""

    def __init__(
        self,
        work: Callable[[], int | None],
        folder: Path,
        hurt: Hurt | None = None,
        measured: dict[str, Any] | None = None,
    ) -> None:
        self.hurt, self.measured = hurt or {"by": "none"}, measured or {"events": 1, "seconds": 1.0}
        self.began = time.monotonic()
        self.pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _child(work, folder, self.hurt, self.measured, write)
        os.close(write)

    def wait(self) -> Ended:
        """Hurt it when its time has come, and hear how it ended."""
        if self.hurt["by"] == "time":
            left = self.began + self.hurt["at"] * self.measured["seconds"] - time.monotonic()
            if left > 0:
                select.select([self.pipe], [], [], left)
            self.send(self.hurt["signal"])
        with open(self.pipe, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if not said:
            return Ended("killed", f"ended with {os.waitstatus_to_exitcode(status)}", status=status)
        return Ended(**json.loads(said))

    def send(self, number: int) -> None:
        """Send a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def finish(work: Callable[[], int | None], folder: Path) -> Ended:
    """Let work be done undisturbed."""
    return Victim(work, folder).wait()


def _child(work: Callable, folder: Path, hurt: Hurt, measured: dict, pipe: int) -> None:
    """Work until the end, whichever it is; never returns."""
    watch = _Watch(folder, hurt, measured, pipe)
    began = time.monotonic()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        watch.start()
        status = work()
        ended = Ended("done")
        if status:
            ended = Ended("stopped" if status > 128 else "refused", f"exit status {status}")
    except IpotError as error:
        ended = Ended("refused", f"{type(error).__name__}: {error}")
    except (Stopped, KeyboardInterrupt) as error:
        ended = Ended("stopped", str(error))
    except BaseException as error:
        ended = Ended("foreign", _told(error), _where(error))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    content = vars(ended) | {"events": watch.count, "seconds": time.monotonic() - began}
    os.write(pipe, json.dumps(content).encode()[:60000])
    os._exit(0)


def _told(error: BaseException) -> str:
    """What an error says, and where it came from."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    return f"{type(error).__name__}: {error}\n{trace[-2500:]}"


def _where(error: BaseException) -> str:
    """The kind of an error and the last line of the package that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/ipot/" in f.filename] or list(frames)
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].name}"


class _Watch:
    """Counts a process's events, and strikes at one of them."""

    def __init__(self, folder: Path, hurt: Hurt, measured: dict, pipe: int) -> None:
        self.folder, self.hurt, self.pipe = str(folder), hurt, pipe
        self.count = 0
        self.at = int(hurt["at"] * measured["events"]) if hurt["by"] == "event" else -1

    def start(self) -> None:
        """Watch from now on."""
        if self.hurt["by"] in ("size", "size error"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.hurt["at"], self.hurt["at"]))
            # Python lets a write fail instead; with the default the kernel kills in mid-write.
            die = self.hurt["by"] == "size"
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if die else signal.SIG_IGN)
        if "clock" in self.hurt:
            _jumping(self.hurt["clock"])
        sync = os.fsync

        def fsync(file: Any) -> None:
            self.event("os.fsync")
            sync(file)

        os.fsync = fsync
        sys.addaudithook(self.hook)

    def hook(self, event: str, given: tuple) -> None:
        """Python calls this before each of its events."""
        if event == "open":
            path, _, flags = given
            if not isinstance(flags, int) or not flags & OPENED:
                return
        elif event == "ctypes.dlsym":
            if given[-1] == "renameat2":
                self.event(event)
            return
        elif event not in EVENTS:
            return
        else:
            path = given[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str | Path) and str(path).startswith(self.folder):
            self.event(event)

    def event(self, name: str) -> None:
        """One more; is it the one?"""
        self.count += 1
        if self.count - 1 != self.at:
            return
        if "signal" in self.hurt:
            os.kill(os.getpid(), self.hurt["signal"])
        elif self.hurt.get("once"):
            number = self.hurt["errno"]
            raise OSError(number, os.strerror(number), name)
        elif "vanish" in self.hurt:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.hurt["vanish"] == "a file":
                Path(self.folder).touch()
        elif "errno" in self.hurt:
            _seccomp.fail(self.hurt["errno"], spare=self.pipe)


def _jumping(jumps: list[list[float]]) -> None:
    """Let the wall clock jump at some of its readings."""
    true, calls = time.time, 0
    ahead = {int(call): by for call, by in jumps}
    shift = 0.0

    def now() -> float:
        nonlocal calls, shift
        shift += ahead.get(calls, 0.0)
        calls += 1
        return true() + shift

    time.time = now
    time.time_ns = lambda: int(now() * 1e9)
