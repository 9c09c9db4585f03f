"""What is seen of one array, piece by piece: its range, its sizes, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ipot.formats.case import Variable

AT_ONCE = 2**22
"""Numbers that are looked at together."""
FILLED = 1e20
"""A size from which a number is rather a sign for a missing one."""
FIELD, PARAMETER, PLACES = "input or target", "parameter", "places"


@dataclass
class Tally:
    """What was seen of one array so far."""

    role: str
    rows: str = "points"
    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    count: int = 0
    missing: int = 0
    seen: int = 0
    sizes: set[int] = field(default_factory=set)
    widths: set[int] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    even: bool = True
    """True if the field has one value at all points of every case."""

    def add(self, array: np.ndarray) -> None:
        """One more array, (rows) or (rows, components)."""
        self.seen += 1
        self.sizes.add(len(array) if array.ndim else 1)
        self.widths.add(array.shape[-1] if array.ndim > 1 else 1)
        self.dtypes.add(str(array.dtype))
        if array.size:
            self.even &= bool((array == array[:1]).all()) if array.ndim else True
        flat = array.reshape(-1)
        for start in range(0, flat.size, AT_ONCE):
            piece = flat[start : start + AT_ONCE]
            finite = piece[np.isfinite(piece)] if piece.dtype.kind == "f" else piece
            self.missing += piece.size - finite.size
            if finite.size:
                self.low = min(self.low, float(finite.min()))
                self.high = max(self.high, float(finite.max()))
                with np.errstate(over="ignore"):
                    self.total += float(finite.sum(dtype=np.float64))
                self.count += finite.size

    @property
    def learnable(self) -> bool:
        """Whether it differs somewhere, is there everywhere, and as wide in all cases."""
        wide = len(self.sizes if self.role == PARAMETER else self.widths) == 1
        return wide and not self.missing and self.low < self.high

    def variable(self, name: str, shape: str, units: str, role: str | None = None) -> Variable:
        """As it is shown."""
        return Variable(
            name=name,
            role=role or self.role,
            shape=shape,
            dtype=" and ".join(sorted(self.dtypes)),
            low=self.low if self.count else None,
            high=self.high if self.count else None,
            mean=self.total / self.count if self.count else None,
            missing=self.missing,
            units=units,
        )

    def notes(self, name: str) -> Iterator[str]:
        """What is odd about it alone."""
        if self.missing:
            yield f"{name}: {self.missing} values are NaN or infinite; remove or fill these points"
        if self.count and self.low == self.high and not self.missing and self.role != PLACES:
            yield f"{name} is {self.low:g} everywhere: it tells nothing"
        if self.count and max(-self.low, self.high) >= FILLED:
            worst = self.high if self.high >= -self.low else self.low
            yield f"{name} reaches {worst:g}: is that a sign for a missing value? Remove such rows"
        if len(self.widths) > 1:
            yield f"{name} has {span(self.widths)} components: it must have as many in all cases"


def span(counts: set[int]) -> str:
    """A number, or from which to which."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
