"""How time and memory grow with the number of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ipot.bench.infer import Question, measure_inference
from ipot.bench.measuring import Terms
from ipot.bench.rows import OURS, PLAIN, Row
from ipot.bench.samples import check_count
from ipot.errors import DataError

VERSIONS = (PLAIN, "transformer")
"""What ours is held against."""
LARGE = 10**6
"""From here on, time should be linear in the number of points."""
ENOUGH = 3
"""Sizes that a slope is taken over: the largest ones, where nothing else counts any more."""


def sizes(low: float | int, high: float | int, per_decade: int) -> list[int]:
    """Numbers of points from low to high, so many for every power of ten."""
    first, last = check_count("from", low), check_count("to", high)
    if first > last:
        raise DataError(f"--from {first:g} is more than --to {last:g}: exchange them")
    if not 1 <= per_decade <= 100:
        raise DataError(f"--per-decade must lie in 1 to 100, got {per_decade}")
    steps = math.floor(per_decade * math.log10(last / first) + 1e-9)
    found = [round(first * 10 ** (step / per_decade)) for step in range(steps + 1)]
    return list(dict.fromkeys(found))


def measure_scaling(
    question: Question, counts: Sequence[int], terms: Terms, *, against: Sequence[str] = VERSIONS
) -> list[Row]:
    """Every version at every size; one that was left out is left out of all larger sizes."""
    rows: list[Row] = []
    lost: dict[str, Row] = {}
    for count in sorted(counts):
        asked = replace(question, points=count)
        found = measure_inference(asked, terms, against=[v for v in against if v not in lost])
        # A reason does not get better with more points: say it again instead of trying again.
        rows += found + [replace(row, points=count, queries=count) for row in lost.values()]
        lost |= {row.version: row for row in found if row.reason}
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Slopes of time and memory for every version, and how far ours is from linear."""
    versions = list(dict.fromkeys(row.version for row in rows))
    return {
        "time_slope": {v: slope(series(rows, v, "ms")) for v in versions},
        "memory_slope": {v: slope(series(rows, v, "above_gib")) for v in versions},
        "drift": drift(series(rows, OURS, "ms")),
    }


def series(rows: Sequence[Row], version: str, name: str) -> list[tuple[int, float]]:
    """Points and a number of a version's rows, where it is known and positive."""
    mine = (row for row in rows if row.version == version)
    return sorted((row.points, value) for row in mine if (value := getattr(row, name)))


def slope(pairs: Sequence[tuple[int, float]]) -> float | None:
    """The exponent p of n^p over the largest sizes; None where there are too few.

    A line goes through any two of them, and so says nothing.
    """
    pairs = sorted(pairs)[-ENOUGH:]
    if len(pairs) < ENOUGH:
        return None
    x, y = ([math.log(pair[i]) for pair in pairs] for i in (0, 1))
    centre = sum(x) / len(x)
    spread = sum((a - centre) ** 2 for a in x)
    return sum((a - centre) * b for a, b in zip(x, y, strict=True)) / spread


def drift(pairs: Sequence[tuple[int, float]]) -> float | None:
    """How far the time of a point departs, from a million on, from that at the first such size.

    The largest departure, relative and with its sign; None with less than two such sizes.
    """
    each = [ms / points for points, ms in sorted(pairs) if points >= LARGE]
    if len(each) < 2:
        return None
    return max((time / each[0] - 1 for time in each[1:]), key=abs)
