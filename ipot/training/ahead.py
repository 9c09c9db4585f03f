"""Draws made ahead of their steps, so that a GPU does not wait for random numbers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import torch

from ipot.training.draws import Draw

DEPTH = 8
"""Draws that wait for their steps."""


def ahead(draws: Callable[[int], Draw], first: int, device: torch.device) -> Iterator[Draw]:
    """The draws from a step on, without end.

    For a GPU they are made in a thread of their own and lie in page-locked memory. They are the
    same numbers: a draw depends on its step alone.
    """
    if device.type != "cuda":
        yield from map(draws, count(first))
        return
    yield from in_a_thread(draws, first, pin=True)


def in_a_thread(draws: Callable[[int], Draw], first: int, *, pin: bool) -> Iterator[Draw]:
    """The same made by another thread, which ends with this iterator."""
    line: queue.Queue[Draw | Exception] = queue.Queue(DEPTH)
    stop = threading.Event()

    def put(item: Draw | Exception) -> None:
        waiting = True
        while waiting and not stop.is_set():
            with suppress(queue.Full):
                line.put(item, timeout=0.1)
                waiting = False

    def make() -> None:
        try:
            for step in count(first):
                if stop.is_set():
                    return
                draw = draws(step)
                put(draw.pin_memory() if pin else draw)
        except Exception as error:
            put(error)

    threading.Thread(target=make, daemon=True, name="draws").start()
    try:
        while True:
            item = line.get()
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        stop.set()
