"""Offsets and scales that are taken out of numbers in float64, before float32 rounds them.

Models count in float32, which holds seven digits. Of `v + 1e9` it would keep nothing, and
`v * 1e-300` is zero to it. So every channel may have a change of units, x = offset + scale * held,
that is found from the data, kept with the model, and undone for its answers. It is left out
wherever float32 does well by itself: where the error that it makes stays below 1e-4 of the spread.

One offset and one scale serve all numbers of a channel. Where one of them is a fill value such as
-9999 or 1e300, the others may fall together beside it, and a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ipot.errors import DataError, warn_user

FAR = 1000.0
"""Times their own spread that numbers may lie from zero: float32 rounds them by 6e-5 of it."""
SMALLEST, LARGEST = 1e-30, 1e30
"""Sizes whose errors float32 can still tell from nothing, and add up."""
NOISE = 64
"""Steps of the given precision within which numbers are one number, rounded here and there."""
ROUNDING = 2
"""Such steps that nobody needs to be told of."""
HELD = 2.0**-24
"""How far float32 rounds, as a part of the number."""
LOST = 1e-3
"""Of the spread that numbers may be rounded by before that is remarked on, or refused."""
WORD = 2**32


@dataclass(frozen=True)
class Span:
    """The smallest and the largest number of a channel: whole numbers exactly, as Python has them.

    `precision` is the relative step between neighbouring numbers as they were given, 0 for whole
    numbers.
    """

    low: Any
    high: Any
    precision: float = 0.0

    @property
    def largest(self) -> Any:
        """The largest size."""
        return max(abs(self.low), abs(self.high))

    @property
    def spread(self) -> Any:
        """From the smallest to the largest."""
        return self.high - self.low

    @property
    def is_far(self) -> bool:
        """Whether float32 would round away too much of how the numbers differ."""
        return 0 < FAR * self.spread < self.largest

    @property
    def is_noise(self) -> bool:
        """Whether the numbers differ by rounding alone, as far as anybody can tell."""
        return 0 < self.spread <= NOISE * self.precision * self.largest

    def join(self, other: Span) -> Span:
        """The span of both."""
        return Span(
            min(self.low, other.low),
            max(self.high, other.high),
            max(self.precision, other.precision),
        )


@dataclass(frozen=True)
class Scaling:
    """What is taken off every channel, and what the rest is divided by."""

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def none(cls, channels: int) -> Scaling:
        """No change at all."""
        return cls((0.0,) * channels, (1.0,) * channels)

    def apply(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers (..., channels) in the units of a model, in float64."""
        offset, scale = np.asarray(self.offset), np.asarray(self.scale)
        with np.errstate(over="ignore"):
            return (minus(numbers, offset) / scale).astype(np.float64, copy=False)

    def undo(self, held: np.ndarray | Tensor, what: str = "the answer") -> np.ndarray:
        """Numbers in the units that they were given in, in float64."""
        if isinstance(held, Tensor):
            held = held.detach().cpu().double().numpy()
        with np.errstate(over="ignore"):
            found = held.astype(np.float64) * np.asarray(self.scale) + np.asarray(self.offset)
        if not np.isfinite(found).all() and np.isfinite(held).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
            raise DataError(
                f"{what} is more than float64 can hold at index {place}: choose other units for "
                "that channel"
            )
        return found


def minus(numbers: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Numbers less an offset, rounded once: where float64 cannot hold them themselves, whole
    numbers are subtracted in two halves, each of them exactly."""
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize > 8:
        return numbers - offset.astype(numbers.dtype)
    if numbers.dtype.kind in "iu" and numbers.dtype.itemsize == 8:
        whole = np.array([[int(o) // WORD, int(o) % WORD] for o in offset.ravel()], np.float64)
        if (whole[:, 0] * WORD + whole[:, 1] == offset.ravel()).all():
            high = (numbers // WORD).astype(np.float64) - whole[:, 0]
            low = (numbers % WORD).astype(np.float64) - whole[:, 1]
            return high * WORD + low
    return numbers.astype(np.float64) - offset


def spans(arrays: Iterable[np.ndarray], channels: int | None) -> list[Span] | None:
    """The span of every channel over some arrays (..., channels); without an axis for channels
    (None) there is one. None where there is no number at all."""
    found: list[Span] | None = None
    for array in arrays:
        if not array.size:
            continue
        kind = array.dtype.kind
        precision = float(np.finfo(array.dtype).eps) if kind == "f" else 0.0
        parts = [array] if channels is None else [array[..., c] for c in range(channels)]
        here = [Span(_plain(p.min()), _plain(p.max()), precision) for p in parts]
        found = here if found is None else [a.join(b) for a, b in zip(found, here, strict=True)]
    return found


def scaling_of(
    name: str, found: Sequence[Span] | None, labels: Sequence[str] | None = None
) -> Scaling | None:
    """The change of units that channels need; None where float32 holds them well as they are.

    Constants may be rounded too where they are targets: their error is counted by their own size.
    """
    if found is None:
        return None
    answers, pairs = name == "targets", []
    for i, span in enumerate(found):
        label = label_of(name, i, len(found), labels)
        pairs.append(_change(label, span, answers=answers))
    if all(pair == (0.0, 1.0) for pair in pairs):
        return None
    return Scaling(tuple(o for o, _ in pairs), tuple(s for _, s in pairs))


def label_of(name: str, index: int, count: int, labels: Sequence[str] | None = None) -> str:
    """What one of the channels of an argument is called in a message."""
    if labels is not None:
        return f"{name}: {labels[index]}"
    return name if count == 1 else f"{name}: channel {index}"


def _change(label: str, span: Span, *, answers: bool) -> tuple[float, float]:
    """The offset and the scale of one channel."""
    if not all(math.isfinite(end) for end in (span.low, span.high)):
        raise DataError(
            f"{label} reaches from {span.low} to {span.high}: leave out what is not finite, or "
            "choose other units"
        )
    offset = 0.0
    if span.is_noise:
        _say_noise(label, span)
    elif span.is_far:
        offset = middle(span)
        if answers and span.spread <= NOISE * np.finfo(float).eps * span.largest:
            raise DataError(
                f"{label} varies by {span.spread:g} at {span.low:g}, and answers are float64, "
                f"which cannot tell such numbers apart: take {int(offset)} off before"
            )
    elif not answers and not span.spread and span.largest > FAR and _rounded(span.low):
        offset = float(span.low)
    left = max(abs(_less(end, offset)) for end in (span.low, span.high))
    return offset, power_of_two(left)


def middle(span: Span) -> float:
    """A round number amid a span, near enough that what is left of the span is small."""
    if isinstance(span.low, int) and isinstance(span.high, int):
        return float((span.low + span.high) // 2)
    step = 2.0 ** math.floor(math.log2(span.spread))
    return round((span.low / 2 + span.high / 2) / step) * step


def power_of_two(largest: float) -> float:
    """A power of two, so that nothing is rounded by it; 1 where float32 needs none."""
    if largest == 0 or SMALLEST <= largest <= LARGEST:
        return 1.0
    return 2.0 ** (math.frexp(largest)[1] - 1)


def _say_noise(label: str, span: Span) -> None:
    steps = span.spread / (span.precision * span.largest)
    if span.is_far and steps > ROUNDING:
        warn_user(
            f"{label} varies by {span.spread:g} at {span.low:g}, {steps:.0f} times what the "
            "numbers given are rounded by: it is taken for constant. If it is not, take the offset "
            "off before it is rounded.",
        )


def _rounded(number: Any) -> bool:
    """Whether float32 cannot hold a number as it is."""
    with np.errstate(over="ignore"):
        return float(np.float32(number)) != number


def _less(number: Any, offset: float) -> float:
    return float(number - int(offset)) if isinstance(number, int) else number - offset


def _plain(number: Any) -> Any:
    """A number of numpy as one of Python."""
    return int(number) if number.dtype.kind in "iub" else float(number)


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
    ends = scaling.apply(np.array([[float(span.low)], [float(span.high)]]))[:, 0]
    # A model takes off the mean, to which the largest number alone gives so much.
    mean = float(np.abs(ends).max()) / max(1, count)
    rounded = max(HELD * max(largest, mean), TINIEST)
    if spread <= NOISE * span.precision * largest or rounded <= LOST * spread:
        return
    warn_user(
        f"{label}: nearly all numbers lie between {float(most[0]):.6g} and "
        f"{float(most[-1]):.6g}, and a few reach from {float(span.low):.6g} to "
        f"{float(span.high):.6g}. Beside these, float32 rounds the others by "
        f"{min(100.0, 100 * rounded / spread):.2g} % of the range that they lie in. Leave such "
        "numbers out, for example where they stand for missing values.",
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
        warn_user(
            f"targets of {len(gone)} samples, first sample {gone[0]}, are {least:.3g} at most and "
            "count as zero beside those of the others, in float32: their errors are relative to "
            "the typical size of the others. Leave them out if they do not belong here.",
        )
