"""Errors, sorted by who can mend them.

Everything here is meant for a user: the command line prints the message without a traceback and
exits with a non-zero status. A message says what was expected, what came, and what to do.
"""

import errno
import sys
import warnings
from pathlib import Path
from signal import SIGTERM
from types import FrameType
from typing import Any

GONE = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ESTALE)
"""What a system says of a place whose folder was removed, became a file or was unmounted."""


SHORT = 80
"""Characters of a value that a message quotes."""


def shown(given: Any) -> str:
    """A value as a message quotes it: never longer than a line, whatever it is."""
    try:
        said = repr(given)
    except Exception:  # objects of other libraries raise what they like
        return f"a {type(given).__name__}"
    if len(said) <= (SHORT if _is_simple(given) else SHORT // 2):
        return said
    if isinstance(given, list | tuple | dict):
        return f"a {type(given).__name__} of {len(given)} entries"
    return f"{said[: SHORT - 3]}..." if _is_simple(given) else f"a {type(given).__name__}"


def _is_simple(given: Any) -> bool:
    return given is None or isinstance(given, str | bytes | int | float)


class Terminated(KeyboardInterrupt):
    """SIGTERM came where nothing waits for it; it ends a command as Ctrl-C does."""

    signal = SIGTERM


class IpotError(Exception):
    """The root of all errors whose message is written for a user."""


class DataError(IpotError):
    """Data that cannot be used: shapes that disagree, values that are not finite, nothing there."""


class Unsupported(IpotError):
    """A combination that makes no sense, with the reason: a grid model on scattered points."""


class UnknownName(IpotError):
    """A problem, model, preset or flag that does not exist; the message lists those that do."""


class Diverged(IpotError):
    """Training met a loss that is not finite; `step` says where."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


class RunError(IpotError):
    """A run folder or checkpoint that cannot be read, written or continued."""


class Untrusted(RunError):
    """A folder that names code outside this package, which nobody has said to trust.

    `home` is where its module would be found, if that is neither here nor on Python's path.
    """

    def __init__(self, message: str, home: Path | None = None) -> None:
        super().__init__(message)
        self.home = home


class Busy(RunError):
    """Another process is at work in the folder; the message names it."""


class OutOfMemory(RunError, MemoryError):
    """A run that does not fit into memory; the message names the settings to lower."""


class DiskError(RunError, OSError):
    """The disk took no more, or may not be written to; what was there before is as it was.

    Also a folder that was there and is gone, or that cannot be made where a file lies.
    """

    def __str__(self) -> str:
        if self.errno in GONE:
            advice = "Restore that folder or choose another place, and run the same again."
            return f"cannot write {self.filename}: no folder there ({self.strerror}). {advice}"
        advice = "Make room or choose another place, and run the same again."
        return f"cannot write {self.filename}: {self.strerror}. What was there is kept. {advice}"


class StoreError(IpotError):
    """The data cache cannot be read or filled."""


class IpotWarning(UserWarning):
    """Something that a user should look at: inputs unlike those of training, units converted."""


BETWEEN = ("ipot", "torch", "contextlib", "functools", "jaxtyping", "beartype")
"""Packages whose lines no user wrote: ours, and those that call ours on the way."""


def warn_user(message: str) -> None:
    """Warn at the user's own line, however many of ours lie in between.

    A `stacklevel` counts calls, of which there are more or fewer by the way that was taken; and
    `skip_file_prefixes`, which skips a package, came with Python 3.12.
    """
    frame: FrameType | None = sys._getframe(1)
    outermost = frame
    while frame is not None and _is_between(frame):
        outermost, frame = frame, frame.f_back
    # Of a command there is no such line.
    found = frame or outermost
    assert found is not None
    names = found.f_globals
    warnings.warn_explicit(
        message,
        IpotWarning,
        found.f_code.co_filename,
        found.f_lineno,
        module=names.get("__name__", "<unknown>"),
        registry=names.setdefault("__warningregistry__", {}),
    )


def _is_between(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    if name == "__main__":  # `python -m ipot`
        name = frame.f_globals.get("__package__") or name
    # What beartype writes around a function has the names of that function's module.
    return name.partition(".")[0] in BETWEEN or frame.f_code.co_filename.startswith("<@beartype")
