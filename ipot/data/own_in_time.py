"""What samples of a series in time know besides their numbers: which times are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


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
