"""What all measurements of a run share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ipot.bench.ceilings import Ceilings, measure_ceilings
from ipot.device import choose, release_memory
from ipot.errors import DataError

SECONDS = 10.0
"""For one measurement, unless said."""


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
        place = check_device(device)
        check_seconds(seconds)
        tell("ceilings: a large copy, a large product")
        top = measure_ceilings(place, seconds=min(0.5, seconds))
        release_memory()
        return cls(device=place, seconds=seconds, top=top, tell=tell)


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
