"""Times of one's own data: as whole steps, which a model counts, and those that samples are of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipot.data.own_arrays import array
from ipot.errors import DataError

MOST_STEPS = 1000
"""From 0 to the last time."""
PRINTED = 1e-3
"""Of a step that times may be off it where their smallest gap is one: by printed digits."""
ROUNDED = 2e-7
"""Of the last time that times may be off a finer step: as float32 rounds."""


def times_given(times: Any) -> tuple[float, ...]:
    """An argument `times` as whole steps."""
    found = array("times", times)
    if found.ndim != 1 or not len(found):
        raise DataError(f"times must be a list of numbers, got shape {found.shape}")
    return snapped(tuple(float(t) for t in found))


def step_of(times: tuple[float, ...]) -> tuple[float, int]:
    """The largest step that all times are multiples of, and how many the last one is."""
    if not all(math.isfinite(t) and t > 0 for t in times) or list(times) != sorted(set(times)):
        raise DataError(
            f"times must be positive and increase, got {_shown(times)}. Time 0 is the input itself."
        )
    gap = float(min(np.diff([0.0, *times])))
    count = times[-1] / gap
    if count > MOST_STEPS or _off(times, np.asarray([count]))[0] > PRINTED:
        # The times need not be next to each other: 2 and 5 are steps of 1.
        counts = np.arange(1, MOST_STEPS + 1)
        fitting = counts[_off(times, counts) <= ROUNDED * counts]
        if not len(fitting):
            raise DataError(
                f"times must be whole multiples of one step, {MOST_STEPS} at most: "
                f"{_shown(times)}. For other times make time one more coordinate of the queries."
            )
        count = fitting[0]
    # The last time knows the step best.
    return times[-1] / round(count), round(count)


def snapped(times: tuple[float, ...]) -> tuple[float, ...]:
    """Times as exact multiples of their step."""
    step, _ = step_of(times)
    return tuple(step * round(t / step) for t in times)


def _off(times: tuple[float, ...], counts: np.ndarray) -> np.ndarray:
    """How far, in steps, the times are off whole ones where the last is so many of them."""
    found = np.multiply.outer(counts, np.asarray(times) / times[-1])
    return np.abs(found - found.round()).max(-1)


def _shown(times: Sequence[float]) -> str:
    shown = ", ".join(f"{t:g}" for t in times[:6])
    return f"({shown}{', ...' if len(times) > 6 else ''})"


@dataclass(frozen=True, eq=False)
class InTime:
    """Of the samples of a data set that are windows of a series."""

    lines: tuple[str, ...]
    """What comes in at which times and what comes out at which, to read."""
    season: np.ndarray | None = None
    """(S, T): the time of the year of every target as an angle, where times are dates."""

    def select(self, rows: Sequence[int]) -> InTime:
        """Those of some of the samples."""
        return self if self.season is None else replace(self, season=self.season[list(rows)])
