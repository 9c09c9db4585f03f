"""Devices: choosing one, its memory and threads, and work recorded as a CUDA graph."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ipot.errors import Unsupported, shown


def choose(name: str | torch.device = "auto") -> torch.device:
    """`auto` is a GPU where there is one; a GPU asked for where there is none is an error."""
    if isinstance(name, torch.device):
        name = str(name)
    if not isinstance(name, str):
        raise Unsupported(f"device must be auto, cpu or cuda, got {shown(name)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise Unsupported(f"device {name}: torch sees no GPU here; use cpu or auto")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise Unsupported(f"unknown device {shown(name)}; use auto, cpu or cuda") from error


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release_memory() -> None:
    """Give back what is held for later use: it would count as the next model's peak."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak_memory(device: torch.device) -> None:
    """Start counting `peak_memory` anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> float | None:
    """GiB: the most that tensors took on a GPU, or that the process held where there is none.

    None where the system does not tell (only Linux does).
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 2**20 if found else None


def busy_cores(seconds: float = 0.2) -> tuple[float, int]:
    """How many of the cores that this process may use other work keeps busy, and how many it may.

    Measured while this process sleeps; where the system does not count (only Linux does), the load
    of the last minute, in which this process has a part.
    """
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = len(mine) or os.cpu_count() or 1
    before = _ticks(mine)
    if before is None:
        return (os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0), count
    time.sleep(seconds)
    idle, all_ = (b - a for a, b in zip(before, _ticks(mine) or before, strict=True))
    return (max(0.0, count * (1 - idle / all_)) if all_ else 0.0), count


def _ticks(cores: Sequence[int]) -> tuple[int, int] | None:
    """The ticks that some cores have been idle, and all of theirs."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{core}" for core in cores}
    # user nice system idle iowait irq softirq steal; guests are among the users.
    rows = [[int(n) for n in line.split()[1:9]] for line in lines if line.split()[:1][0] in names]
    return (sum(r[3] + r[4] for r in rows), sum(map(sum, rows))) if rows else None


def out_of_memory(error: BaseException | None) -> bool:
    """True if an error, or one that caused it, is about memory; not every library has a type for
    that."""
    signs = ("out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED")
    while error is not None:
        told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
        if told or isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        error = error.__cause__
    return False


def recorded(
    work: Callable[[], object],
    *,
    rehearsals: int,
    before: Callable[[], object] = lambda: None,
    pool: Any = None,
) -> Callable[[], None]:
    """Rehearse work on the current GPU, record it as a CUDA graph, and return what replays it.

    Plans and work space of libraries must exist before a recording, so the work runs `rehearsals`
    times first. It must read and write tensors that stay where they are, and must not look at a
    value on the host. `before` is called between the rehearsals and the recording.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(rehearsals):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    before()
    with torch.cuda.graph(graph, pool=pool):
        work()
    return graph.replay


def captured(
    step: Callable[[], None], state: Sequence[Tensor], *, rehearsals: int = 3
) -> Callable[[], None]:
    """A step as a CUDA graph if its state lies on a GPU, else the step itself.

    A loop of many small kernels on a GPU waits for their launches; a graph is a single launch.
    `state` is all that the step changes, and is as before when this returns.
    """
    if not state[0].is_cuda:
        return step
    before = [tensor.clone() for tensor in state]
    with torch.cuda.device(state[0].device):
        replay = recorded(step, rehearsals=rehearsals)
    for tensor, value in zip(state, before, strict=True):
        tensor.copy_(value)
    return replay


def use_quickest(work: Callable[[], object], *, repeats: int = 4) -> int:
    """Time a piece of work with one thread and with all; keep the quicker number, and return it.

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
