"""The seasonal cycle, and how long a departure from it lasts.

    T(x, t) = a_0(x) + Σ_k a_k(x) cos(2πk t / year) + b_k(x) sin(2πk t / year) + A(x, t)
    A(x, t + L) ≈ r_L(x) A(x, t)

The cycle a, b and the damping r are least-squares fits at every point by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

YEAR = 365.25
ORIGIN = np.datetime64("1990-01-01")


def phase(day: np.ndarray) -> np.ndarray:
    """The season as an angle: 2π in a year, zero at the beginning of 1990."""
    return 2 * np.pi * (day - ORIGIN).astype("timedelta64[D]").astype(np.float64) / YEAR


def harmonics(day: np.ndarray, count: int) -> np.ndarray:
    """One, and cosine and sine of the season's first multiples: (days, 1 + 2 count)."""
    angle = phase(day)
    waves = [f(k * angle) for k in range(1, count + 1) for f in (np.cos, np.sin)]
    return np.stack([np.ones_like(angle), *waves], axis=-1)


@dataclass(frozen=True, eq=False)
class Climatology:
    """The cycle of a record (weeks, points), learnt from its first weeks alone."""

    values: np.ndarray
    day: np.ndarray
    known: int
    """The weeks that may be learnt from."""
    count: int = 3
    """Harmonics of the year."""

    @cached_property
    def coefficients(self) -> np.ndarray:
        """a and b, (1 + 2 count, points), in the order of `harmonics`."""
        waves = harmonics(self.day[: self.known], self.count)
        known = self.values[: self.known].astype(np.float64)
        return np.linalg.lstsq(waves, known, rcond=None)[0]

    @cached_property
    def cycle(self) -> np.ndarray:
        """What the season alone says, for every week of the record."""
        return harmonics(self.day, self.count) @ self.coefficients

    @cached_property
    def anomaly(self) -> np.ndarray:
        """What is left."""
        return self.values - self.cycle

    def damping(self, lead: int) -> np.ndarray:
        """The share of an anomaly (points) that is there some weeks later, on average."""
        if lead not in self._shares:
            now, later = self.anomaly[: self.known - lead], self.anomaly[lead : self.known]
            self._shares[lead] = (now * later).sum(0) / np.square(now).sum(0)
        return self._shares[lead]

    @cached_property
    def _shares(self) -> dict[int, np.ndarray]:
        return {}
