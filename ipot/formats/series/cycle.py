"""The season alone as a forecast: one or two waves of the year at every place.

Learned from the training part of a series, and kept with the model to hold it against on other
data. Numbers are in the units of the model.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipot.data.own import Dataset

MONTHS = 12
MOST_KEPT = 300_000
"""Numbers that are kept with a model."""


@dataclass(frozen=True, eq=False)
class Cycle:
    """The mean and the waves of the year (1 + 2 count, M, K), at places (M, D)."""

    waves: np.ndarray
    places: np.ndarray

    def at(self, season: np.ndarray) -> np.ndarray:
        """The fields (T, M, K) at some times of the year."""
        count = len(self.waves) // 2
        return np.einsum("th,hmk->tmk", _waves(season, count), self.waves)

    @property
    def is_small(self) -> bool:
        """Whether it is kept with a model."""
        return self.waves.size + self.places.size <= MOST_KEPT

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        numbers = np.concatenate([self.waves.ravel(), self.places.ravel()]).astype("<f4")
        packed = base64.b64encode(zlib.compress(numbers.tobytes())).decode("ascii")
        return {"waves": list(self.waves.shape), "places": list(self.places.shape), "data": packed}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Cycle:
        """What `as_dict` wrote; what it unpacks to is bounded by the sizes that it says."""
        waves, places = (tuple(int(n) for n in content[name]) for name in ("waves", "places"))
        count, rest = int(np.prod(waves)), int(np.prod(places))
        bad = len(waves) != 3 or len(places) != 2 or waves[0] not in (3, 5) or min(places) < 0
        if bad or min(waves) < 1 or count + rest > MOST_KEPT or waves[1] != places[0]:
            raise ValueError("the sizes of the season")
        packed = base64.b64decode(content["data"])
        raw = zlib.decompressobj().decompress(packed, 4 * (count + rest) + 1)
        numbers = np.frombuffer(raw, "<f4").astype(np.float32)
        if len(numbers) != count + rest or not np.isfinite(numbers).all():
            raise ValueError("the numbers of the season")
        return cls(numbers[:count].reshape(waves), numbers[count:].reshape(places))


def learn_cycle(data: Dataset, train: Dataset) -> Cycle | None:
    """The season of the training part, where all data have every month of a year; one wave of it
    where the training part has not. None where times are no dates, or places miss values."""
    if data.in_time is None or train.in_time is None or not train.data.stacked:
        return None
    known, seen = data.in_time.season, train.in_time.season
    if known is None or seen is None or len(_months(known)) < MONTHS:
        return None
    count = 2 if len(_months(seen)) == MONTHS else 1
    first = train.data[0]
    if first.queries.ndim != 2:
        return None
    # Sample by sample, so that nothing is held twice.
    size = 1 + 2 * count
    squares, sums = np.zeros((size, size)), np.zeros((size, first.truth[0].numel()))
    for i in range(len(train)):
        waves = _waves(seen[i], count)
        truth = train.data[i].truth.cpu().double().numpy()
        squares += waves.T @ waves
        sums += waves.T @ truth.reshape(len(truth), -1)
    found = np.linalg.solve(squares + 1e-9 * np.trace(squares) * np.eye(size), sums)
    shape = (size, *first.truth.shape[1:])
    return Cycle(found.reshape(shape).astype(np.float32), first.queries.cpu().float().numpy())


def _months(season: np.ndarray) -> np.ndarray:
    return np.unique((season % (2 * np.pi)) // (2 * np.pi / MONTHS))


def _waves(season: np.ndarray, count: int) -> np.ndarray:
    waves = [f(k * season) for k in range(1, count + 1) for f in (np.cos, np.sin)]
    return np.stack([np.ones_like(season), *waves], -1)
