"""How many threads a small job should use on a CPU that it may have to share."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def use_quickest(work: Callable[[], object], *, repeats: int = 4) -> int:
    """Time a piece of work with one thread and with all, keep the quicker setting, return it.

    Small operations gain little from a second thread, and lose much to it where another process
    holds the core that the first thread then waits for.
    """
    everything = torch.get_num_threads()
    if everything == 1:
        return 1
    seconds = {}
    for count in (everything, 1):
        torch.set_num_threads(count)
        work()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        seconds[count] = time.perf_counter() - start
    best = min(seconds, key=seconds.__getitem__)
    torch.set_num_threads(best)
    return best
