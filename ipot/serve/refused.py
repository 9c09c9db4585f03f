"""What a request is refused with: a status of HTTP and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipot.errors import IpotError, OutOfMemory

UNEXPECTED = "the server failed at this request; what it was is not told, and nothing was kept"


class Refused(IpotError):
    """A request that is not answered, with the status that HTTP has for the reason."""

    def __init__(
        self, status: int, message: str, *, retry: int | None = None, close: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.retry, self.close = status, retry, close
        """`retry` are seconds after which to ask again; `close` ends the connection."""


def busy(why: str, seconds: float) -> Refused:
    """The server has too much to do now."""
    retry = max(1, min(60, round(seconds)))
    return Refused(503, f"{why}: ask again in {retry} s", retry=retry)


def too_large(message: str) -> Refused:
    """The question is larger than this server answers."""
    return Refused(413, message)


def wrong(message: str) -> Refused:
    """The question makes no sense."""
    return Refused(422, message)


def as_refused(error: Exception, private: Sequence[Path] = ()) -> Refused:
    """Any error as what a client is told; of `private` folders and files nobody learns the place.

    The sentences of the package's own errors are for users. Those of any other error are for
    whoever wrote the code, and may quote what they like: they are kept back.
    """
    if isinstance(error, Refused):
        return error
    if isinstance(error, OutOfMemory | MemoryError):
        return busy("the memory does not suffice for this question now", 10)
    if isinstance(error, IpotError):
        return Refused(422, without_places(str(error), private))
    return Refused(500, UNEXPECTED)


def without_places(said: str, private: Sequence[Path]) -> str:
    """A sentence in which files have their names and no folders of this machine."""
    for folder in sorted({str(p) for p in private} | {str(p.resolve()) for p in private})[::-1]:
        said = said.replace(f"{folder}/", "").replace(folder, "the folder")
    return said
