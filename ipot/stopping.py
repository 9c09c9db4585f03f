"""Work that can be stopped between two of its steps, where nobody waits for it any longer.

A rollout takes seconds to minutes, and a thread cannot be ended from outside. Whoever may lose
interest says so around the work, and loops over steps and chunks look in between:

    with stoppable(lambda: client.is_gone):
        model.predict(..., steps=1000)      # raises Stopped at the next step once it is
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

_asked: dict[int, Callable[[], bool]] = {}
"""Whether to stop, by the thread that is at work."""


class Stopped(BaseException):
    """Nobody waits any longer. No `Exception`, which code that tries another way would catch."""


@contextmanager
def stoppable(asked: Callable[[], bool]) -> Iterator[None]:
    """Stop this thread's work at its next step once `asked` says so."""
    thread = get_ident()
    before = _asked.get(thread)
    _asked[thread] = asked
    try:
        yield
    finally:
        if before is None:
            del _asked[thread]
        else:
            _asked[thread] = before


def stop_if_asked() -> None:
    """To be called between two steps: raises `Stopped` where these are no longer wanted."""
    # The first question is all that is asked where nothing can be stopped, as in training.
    if _asked and (asked := _asked.get(get_ident())) is not None and asked():
        raise Stopped
