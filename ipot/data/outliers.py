"""A few numbers so far from the others of their channel that float32 rounds the others away.

An offset or a scale (`scaling.py`) serves all numbers of a channel. Where one of them is a fill
value such as -9999 or 1e300, the others may fall together beside it, and a warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ipot.data.scaling import HELD, LOST, NOISE, Scaling, Span, label_of

LOOKED_AT = 1 << 14
"""Numbers of a channel that are looked at; of more, so many are taken evenly."""
FEW = 200
"""One in so many, at either end, may be an outlier; one at least."""
TINIEST = 2.0**-149
"""The smallest number of float32."""


def warn_outliers(
    name: str, arrays: Sequence[np.ndarray], found: Sequence[Span] | None, scaling: Scaling | None
) -> None:
    """Warn of channels (the last axis; none where there is one span) most of which is lost."""
    if found is None:
        return
    channels = Scaling.none(len(found)) if scaling is None else scaling
    alone = len(found) == 1
    count = sum(a.size for a in arrays) // len(found)
    for i, span in enumerate(found):
        parts = [a if alone else a[..., i] for a in arrays]
        change = Scaling((channels.offset[i],), (channels.scale[i],))
        warn_of(label_of(name, i, len(found)), span, evenly(parts, count), count, change)


def evenly(parts: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Some of the numbers of some arrays."""
    step = max(1, count // LOOKED_AT)
    return np.concatenate([np.asarray(p.flat[::step]) for p in parts])


def warn_of(label: str, span: Span, some: np.ndarray, count: int, scaling: Scaling) -> None:
    """Warn if float32 loses too much of how most numbers of a channel differ.

    `some` are numbers as they were given, of `count` in all.
    """
    cut = max(1, len(some) // FEW)
    if len(some) < 2 * cut + 2 or span.is_noise:
        return
    most = np.sort(some)[cut:-cut]
    held = scaling.apply(np.stack([most[0], most[-1]])[:, None])[:, 0]
    spread, largest = float(held[1] - held[0]), float(np.abs(held).max())
    ends = scaling.apply(np.array([[_float(span.low)], [_float(span.high)]]))[:, 0]
    # A model takes off the mean, to which the largest number alone gives so much.
    mean = float(np.abs(ends).max()) / max(1, count)
    rounded = max(HELD * max(largest, mean), TINIEST)
    if spread <= NOISE * span.precision * largest or rounded <= LOST * spread:
        return
    warnings.warn(
        f"{label}: nearly all numbers lie between {_float(most[0]):.6g} and "
        f"{_float(most[-1]):.6g}, and a few reach from {_float(span.low):.6g} to "
        f"{_float(span.high):.6g}. Beside these, float32 rounds the others by "
        f"{min(100.0, 100 * rounded / spread):.2g} % of the range that they lie in. Leave such "
        "numbers out, for example where they stand for missing values.",
        stacklevel=2,
    )


def warn_vanished(
    given: Sequence[np.ndarray] | np.ndarray, held: Sequence[Tensor] | Tensor
) -> None:
    """Warn of samples whose targets are so small that float32 rounds them to zero."""
    if isinstance(held, Tensor):
        zero = (~held.reshape(len(held), -1).any(1)).nonzero().flatten().tolist()
    else:
        zero = [i for i, one in enumerate(held) if not bool(one.any())]
    gone = [i for i in zero if np.any(given[i])]
    if gone:
        least = max(float(np.abs(np.asarray(given[i], np.float64)).max()) for i in gone)
        warnings.warn(
            f"targets of {len(gone)} samples, first sample {gone[0]}, are {least:.3g} at most and "
            "count as zero beside those of the others, in float32: their errors are relative to "
            "the typical size of the others. Leave them out if they do not belong here.",
            stacklevel=2,
        )


def _float(number: Any) -> float:
    return float(number)
