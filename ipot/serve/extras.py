"""What the page shows of a problem that is in no sample and in no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipot.data.climatology import ORIGIN
from ipot.data.sst import SCALE
from ipot.problems.sst import STARTS, Sst


def ocean(problem: Sst) -> dict[str, Any]:
    """The weeks of the test with those that its first forecast looks back on, and what the season
    and the last anomaly say without a model: `Weeks` of web/problems/sst.js."""
    record, climate = problem.record_and_climate()
    first = int(np.searchsorted(record.day, np.datetime64(STARTS["test"]))) - problem.history
    weeks = slice(max(first, 0), None)
    return {
        "temperature": np.round(record.sst[weeks].astype(np.float64) * SCALE).astype(np.int16),
        "latitude": record.latitude.astype(np.float32),
        "longitude": record.longitude.astype(np.float32),
        "cycle": climate.coefficients.astype(np.float32),
        "damping": np.stack([climate.damping(lead) for lead in range(1, problem.steps + 1)]).astype(
            np.float32
        ),
        "start": np.float64((record.day[weeks][0] - ORIGIN).astype("timedelta64[D]").astype(int)),
    }


EXTRAS: dict[type, Callable[[Any], dict[str, Any]]] = {Sst: ocean}
