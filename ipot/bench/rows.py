"""What a measurement says: one row for each version of a piece of work, and the whole of them."""

from __future__ import annotations

import math
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ipot.accelerate.cpu.build import why_not, why_not_bf16
from ipot.bench.counts import Work
from ipot.bench.measuring import Ceilings, Memory, Timing
from ipot.run_folder import environment

FORMAT = 1
"""Version of the JSON layout."""
OURS, PLAIN = "ours", "plain"
EQUAL, RAGGED = "equal", "ragged"
"""Ours with a mesh of its own for every sample: all of one size, and of uneven sizes."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One version of a piece of work, or the reason why there are no numbers of it."""

    problem: str
    version: str
    """ours, plain, equal, ragged, or the name of another system."""
    batch: int = 1
    points: int = 0
    queries: int = 0
    steps: int = 1
    """Times that are predicted."""
    ms: float | None = None
    """Median of a step or an answer, for as many samples as `batch`."""
    low_ms: float | None = None
    """The middle half of the calls lies between this and `high_ms`."""
    high_ms: float | None = None
    calls: int = 0
    ratio: float | None = None
    """Its time divided by ours: how many times faster ours is."""
    over_equal: float | None = None
    """Of uneven sizes: their time divided by that of equal ones with as many points."""
    peak_gib: float | None = None
    above_gib: float | None = None
    """The peak above what was held before: data or inputs, and weights."""
    flops: float | None = None
    """What the mathematics needs; see `counts`."""
    bytes: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    of_flops: float | None = None
    """The share of the ceiling measured in the same run."""
    of_bytes: float | None = None
    setup_seconds: float | None = None
    """Compiling and capturing, before the first step."""
    epoch_seconds: float | None = None
    samples_per_second: float | None = None
    ns_per_point: float | None = None
    kind: str = ""
    """How it ran: eager, compiled or graph; one by one or together."""
    precision: str = ""
    first_loss: float | None = None
    difference: float | None = None
    """Of its answer or its first loss from the plain version's, relative."""
    gradient_difference: float | None = None
    """Of the gradient of its first step from the plain version's, relative."""
    reason: str = ""
    """Why there are no numbers."""
    notes: tuple[str, ...] = ()

    def timed(self, timing: Timing, memory: Memory, work: Work | None, top: Ceilings) -> Row:
        """The row with its measurements, and what follows from them."""
        seconds = 1e-3 * timing.ms
        flops, moved = (None, None) if work is None else (work.flops, work.bytes)
        rates = [None if n is None else n / seconds for n in (flops, moved)]
        shares = [None if r is None else r / t for r, t in zip(rates, _both(top), strict=True)]
        return replace(
            self,
            ms=timing.ms,
            low_ms=timing.low,
            high_ms=timing.high,
            calls=timing.calls,
            peak_gib=memory.peak,
            above_gib=memory.above,
            flops=flops,
            bytes=moved,
            flops_per_second=rates[0],
            bytes_per_second=rates[1],
            of_flops=shares[0],
            of_bytes=shares[1],
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """All rows of a run, and what they were measured with."""

    task: str
    command: str
    device: str
    ceilings: Ceilings
    rows: list[Row]
    summary: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=lambda: machine())
    commit: str | None = field(default_factory=lambda: commit())

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"format": FORMAT, **asdict(self)}


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The versions of one piece of work, with their times in units of ours."""
    ours = next((row.ms for row in rows if row.version == OURS), None)
    if not ours:
        return list(rows)
    return [row if row.ms is None else replace(row, ratio=row.ms / ours) for row in rows]


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """The mean of factors; None of none."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def machine() -> dict[str, Any]:
    """Where it was measured: versions, threads, processor, GPU."""
    gpu = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
    return {
        **environment(),
        "processor": _processor(),
        "cuda": torch.version.cuda,
        "gpu_gib": None if gpu is None else gpu.total_memory / 2**30,
    }


def lacks(device: torch.device, precision: str = "float32") -> tuple[str, ...]:
    """What is missing here for ours to be as quick as it can, in words."""
    if device.type != "cpu":
        return ()
    if (reason := why_not()) is not None:
        return (f"without compiled kernels: {reason}",)
    if precision == "bf16" and (reason := why_not_bf16()) is not None:
        return (f"without compiled kernels in bf16: {reason}",)
    return ()


def commit() -> str | None:
    """The commit of the code that runs, with a mark where it was changed; None if not known."""
    folder = Path(__file__).parent
    # A repository around an installed package is not that of the package.
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    found, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", ":/")
    return f"{found} with changes" if found and changes else found


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _both(top: Ceilings) -> tuple[float, float]:
    return top.flops, top.bytes
