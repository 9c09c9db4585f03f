"""Time and memory of a call, what a device can do at best, and the terms of all measurements."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from ipot.device import choose, peak_memory, release_memory, reset_peak_memory, synchronize
from ipot.errors import DataError
from ipot.memory import machine_memory

MOST = 1000
"""Calls of one measurement, at most."""
WARM_UP = 12
"""Calls after the first that are not counted, where they are quick; one where they are not."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Milliseconds of a call: the median, the middle half and the quickest of several."""

    ms: float
    low: float
    high: float
    best: float
    calls: int

    @classmethod
    def of(cls, times: list[float]) -> Timing:
        """From single times in milliseconds."""
        low, median, high = times[0], times[0], times[0]
        if len(times) > 1:
            low, median, high = statistics.quantiles(times, n=4, method="inclusive")
        return cls(ms=median, low=low, high=high, best=min(times), calls=len(times))

    def scaled(self, factor: float | int) -> Timing:
        """The timing of so many times the work."""
        numbers = {name: factor * getattr(self, name) for name in ("ms", "low", "high", "best")}
        return Timing(**numbers, calls=self.calls)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """GiB at the peak, in all and above what was held before; None where nothing tells."""

    peak: float | None
    above: float | None


def time_calls(
    call: Callable[[], object], device: torch.device, *, seconds: float, most: int = MOST
) -> Timing:
    """Time calls for about so many seconds, behind a warm-up and at least once.

    On a GPU by its own events, between which nothing waits: calls follow each other as they do in
    a loop, and a host that is too slow to feed the device counts.
    """
    # The first call compiles and the next ones may still be captured: none of them tells how long
    # the others will take.
    _one(call, device)
    once, spent = _one(call, device), 0.0
    if once > seconds:  # there is no time for another
        return Timing.of([1e3 * once])
    for _ in range(WARM_UP):
        spent += once
        if spent > seconds / 4:
            break
        once = _one(call, device)
    count = max(1, min(most, int(seconds / max(once, 1e-9))))
    if device.type == "cuda":
        return Timing.of(_by_events(call, device, count))
    return Timing.of([1e3 * _one(call, device) for _ in range(count)])


def peak_of(call: Callable[[], object], device: torch.device) -> Memory:
    """The memory of one call, above what is held between calls and in all."""
    release_memory()
    before = held_memory(device)
    reset_peak_memory(device)
    _one(call, device)
    return memory_since(before, device)


def memory_since(before: float | None, device: torch.device) -> Memory:
    """The peak since the last reset, and how far it lies above what was held then."""
    peak = peak_memory(device)
    above = None if peak is None or before is None else max(0.0, peak - before)
    return Memory(peak=peak, above=above)


def held_memory(device: torch.device) -> float | None:
    """GiB that tensors take on a GPU, or that the process holds; None where nothing tells."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / 2**30
    return _kilobytes(Path("/proc/self/status"), "VmRSS")


def free_memory(device: torch.device) -> float | None:
    """GiB that can still be had; None where nothing tells."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return (free + cached) / 2**30
    free = machine_memory()
    return None if free is None else free / 2**30


def _one(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, until the device is done."""
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - start


def _by_events(call: Callable[[], object], device: torch.device, count: int) -> list[float]:
    with torch.cuda.device(device):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        torch.cuda.synchronize(device)
    return [start.elapsed_time(end) for start, end in pairwise(marks)]


def _kilobytes(path: Path, name: str) -> float | None:
    """A line of /proc such as `VmRSS:  12345 kB`, in GiB."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) / 2**20 if found else None


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Measured, not printed in a data sheet."""

    flops: float
    """Floating-point operations a second in a large matrix product."""
    bytes: float
    """Bytes a second, read and written together, in a large copy."""
    dtype: str
    """Of the matrix product: what is quickest on the device."""


# Copied bytes and the side of the matrices: large enough for the best rate, quick enough to wait.
SIZES = {"cuda": (2**31, 8192), "cpu": (2**28, 1536)}


def measure_ceilings(device: torch.device, *, seconds: float = 0.5) -> Ceilings:
    """Time a large copy and a large product, bf16 on a GPU and float32 elsewhere."""
    size, side = SIZES.get(device.type, SIZES["cpu"])
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copied = time_calls(lambda: target.copy_(source), device, seconds=seconds)
    del source, target
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    multiplied = time_calls(lambda: torch.mm(a, b, out=out), device, seconds=seconds)
    return Ceilings(
        flops=2 * side**3 / (1e-3 * multiplied.best),
        bytes=2 * size / (1e-3 * copied.best),
        dtype=str(dtype).removeprefix("torch."),
    )


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The device, the time for each measurement, and the ceilings measured on it."""

    device: torch.device
    seconds: float
    top: Ceilings
    tell: Callable[[str], None] = lambda text: None
    """Takes remarks on what is measured now."""

    @classmethod
    def of(
        cls, device: str, seconds: float, tell: Callable[[str], None] = lambda text: None
    ) -> Terms:
        """Measure the ceilings of a device that is named as a user does."""
        found = check_device(device)
        check_seconds(seconds)
        tell("ceilings: a large copy, a large product")
        top = measure_ceilings(found, seconds=min(0.5, seconds))
        release_memory()
        return cls(device=found, seconds=seconds, top=top, tell=tell)


def check_device(name: str) -> torch.device:
    """The device of a name, on which something can be computed."""
    device = choose(name)
    if device.type not in ("cpu", "cuda"):
        raise DataError(f"only cpu and cuda are measured, not {device}: use --device cpu or cuda")
    return device


def check_seconds(seconds: float | int) -> None:
    """Refuse a time that is none."""
    if not 0 < seconds < math.inf:
        raise DataError(f"--seconds must be positive, got {seconds:g}")


def forget() -> None:
    """Let go of what the measurement before has compiled and kept."""
    torch.compiler.reset()
    release_memory()
