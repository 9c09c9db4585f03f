"""Signals as something to look at between two steps."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class Caught:
    """The first signal that came, if any."""

    number: int | None = None


@contextmanager
def remembered() -> Iterator[Caught]:
    """Remember SIGINT and SIGTERM instead of dying in the middle of a step."""
    caught = Caught()

    def remember(number: int, frame: Any) -> None:
        if caught.number is not None:
            raise KeyboardInterrupt
        caught.number = number

    numbers: Iterable[int] = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {n: signal.signal(n, remember) for n in numbers}
    except ValueError:  # not in the main thread: the host program handles signals
        yield caught
        return
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
