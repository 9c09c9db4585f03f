"""Sea-surface temperature of the world's oceans, week by week: measured, not computed.

The weeks gone by at 2040 ocean points to the weeks that follow. A window belongs to a split by the
weeks it forecasts: training before 2007, validation from 2007 to 2009, test from 2010 on. No week
of a training window is seen in validation, and none of a validation window in the test.

What is learnt is chosen by `target`; the error in kelvin is the same for all three:

    temperature    T(x, t)
    anomaly        A(x, t) = T - cycle, the cycle fitted to the weeks before 2010
    departure      A(x, t + L) - r_L(x) A(x, t), what damped persistence leaves to explain

Reynolds et al., "An improved in situ and satellite SST analysis for climate", J. Climate, 2002.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ipot.data import sst
from ipot.data.climatology import Climatology, phase
from ipot.data.dataset import Dataset, Stacked
from ipot.data.latlon import unit_vectors
from ipot.data.store import Fields
from ipot.errors import DataError, Unsupported
from ipot.problems.base import Problem, same_points
from ipot.samples import Batch
from ipot.spec import Need, Spec, frame_name

STARTS = {"train": "1990-01-01", "validation": "2007-01-01", "test": "2010-01-01"}
"""The day from which on the forecasts of a split lie."""
WEEKS = 52


@dataclass(frozen=True, kw_only=True)
class Sst(Problem):
    """Weeks of sea-surface temperature in, the following ones out."""

    name: ClassVar[str] = "sst"
    about: ClassVar[str] = "sea-surface temperature: weeks of the world's oceans to the next ones"
    source: ClassVar[str] = "NOAA OISST v2, weekly analyses 1990-2017 (in the package)"
    sizes: ClassVar[Mapping[str, int]] = {"train": 862, "validation": 142, "test": 363}
    generated: ClassVar[bool] = False
    published: ClassVar[tuple[str, ...]] = (sst.ORIGINAL,)
    reduced: ClassVar[Mapping[str, Any]] = {"steps": 2}

    files: str | None = None
    """The original file, or the folder that holds it, in place of the record in the package."""
    history: int = 8
    """Weeks that a forecast looks back on."""
    steps: int = 8
    """Weeks that it looks ahead."""
    target: Literal["temperature", "anomaly", "departure"] = "departure"
    """What is learnt: temperature, its anomaly, or what damped persistence leaves to explain."""

    def __post_init__(self) -> None:
        if self.history < 1 or self.steps < 1:
            raise DataError(
                f"history and steps are whole weeks, 1 at least: got {self.history}, {self.steps}"
            )

    @property
    def spec(self) -> Spec:
        """Past weeks and the season in, on the unit sphere.

        A departure is not what the inputs are, so there the inputs do not count as its past.
        """
        past = "T" if self.target == "temperature" else "A"
        return Spec(
            name=self.name,
            inputs=tuple(frame_name(past, self.history - 1 - i) for i in range(self.history)),
            outputs=(self.target,),
            parameters=("cos(season)", "sin(season)"),
            units=("K",),
            domain=((-1.0, 1.0),) * 3,
            sphere=True,
            steps=self.steps,
            history=0 if self.target == "departure" else self.history,
            provides=frozenset({Need.SAME_POINTS, Need.FIXED_POINTS}),
            shape=(sst.POINTS,),
        )

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """The first windows of a split: temperatures, and the first week to forecast."""
        record = sst.packaged() if files is None else sst.read(files)
        weeks = self.weeks(split, record.day)
        if count > len(weeks):
            raise DataError(
                f"the {split} split has {len(weeks)} windows of {self.history} + {self.steps} "
                f"weeks, and {count} were asked for. Ask for {len(weeks)} at most, with "
                f"--count.{split} in training and --samples in evaluation."
            )
        first = np.asarray(weeks[:count])
        around = first[:, None] + np.arange(-self.history, self.steps)
        return {
            "temperature": torch.from_numpy(record.sst[around]),
            "week": torch.from_numpy(first),
        }

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """Past weeks at the points, the target at the same points."""
        record, climate = self.record_and_climate()
        first = fields["week"].numpy()
        anomaly = _float(climate.anomaly[first[:, None] + np.arange(-self.history, self.steps)])
        values = anomaly[:, : self.history]
        if self.target == "temperature":
            values = fields["temperature"][:, : self.history]
        targets = self._told(anomaly[:, self.history :], first, climate)
        season = phase(record.day[first - 1])
        angles = (np.radians(a.astype(np.float64)) for a in (record.latitude, record.longitude))
        places = _float(unit_vectors(*angles)).unsqueeze(0)
        area = np.cos(np.radians(record.latitude.astype(np.float64)))
        return Stacked(
            Batch(
                points=places,
                values=values.transpose(1, 2).contiguous(),
                queries=places,
                targets=targets.unsqueeze(-1),
                parameters=_float(np.stack([np.cos(season), np.sin(season)], -1)),
                weights=_float(area / area.mean()).unsqueeze(0),
                times=tuple(float(t) for t in range(1, self.steps + 1)),
            )
        )

    def references(self, data: Dataset, split: str) -> dict[str, Tensor]:
        """Climatology; and where all inputs are seen, persistence and damped persistence."""
        record, climate = self.record_and_climate()
        rows = [data[i].index for i in range(len(data))]
        first = np.asarray(self.weeks(split, record.day))[rows]
        ahead = first[:, None] + np.arange(self.steps)
        forecasts = {"climatology": torch.zeros(*ahead.shape, len(record.latitude))}
        if same_points(data):
            last = record.sst[first - 1][:, None]
            forecasts = {
                "persistence": _float(last - climate.cycle[ahead]),
                **forecasts,
                "damped persistence": self._damped(first, climate),
            }
        told = {name: self._told(f, first, climate) for name, f in forecasts.items()}
        return {name: f.unsqueeze(-1).to(data[0].truth.device) for name, f in told.items()}

    def weeks(self, split: str, day: np.ndarray) -> range:
        """The first weeks that the windows of a split forecast, one window a week."""
        start, stop = self.history, len(day)
        if split != "train":
            start = max(start, int(np.searchsorted(day, np.datetime64(STARTS[split]))))
        if split != "test":
            later = list(STARTS)[list(STARTS).index(split) + 1]
            # The windows of the next split look back on the weeks before it.
            stop = int(np.searchsorted(day, np.datetime64(STARTS[later]))) - self.history
        return range(start, max(start, stop - self.steps + 1))

    def record_and_climate(self) -> tuple[sst.Record, Climatology]:
        """The record, and the cycle and damping that are learnt of its first years."""
        return _packaged() if self.files is None else _learnt(sst.read(Path(self.files)))

    def _damped(self, first: np.ndarray, climate: Climatology) -> Tensor:
        """What is left of the last anomaly, (S, T, M)."""
        share = np.stack([climate.damping(lead) for lead in range(1, self.steps + 1)])
        return _float(climate.anomaly[first - 1][:, None] * share)

    def _told(self, anomaly: Tensor, first: np.ndarray, climate: Climatology) -> Tensor:
        """Anomalies (S, T, M) of the weeks ahead in the terms of the target."""
        if self.target == "anomaly":
            return anomaly
        if self.target == "departure":
            return anomaly - self._damped(first, climate)
        return anomaly + _float(climate.cycle[first[:, None] + np.arange(self.steps)])

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Refused: the ocean cannot be run again."""
        raise Unsupported("sst is measured: its samples are read and cannot be generated")

    def bytes_each(self, resolution: int | None) -> int:
        """Nothing is stored: the record is in the package."""
        return 0

    def with_steps(self, steps: int) -> Sst:
        """The problem with forecasts for longer or shorter."""
        if steps < 1:
            raise DataError(f"a forecast needs at least one step, got {steps}")
        return replace(self, steps=steps)


def _learnt(record: sst.Record) -> tuple[sst.Record, Climatology]:
    known = int(np.searchsorted(record.day, np.datetime64(STARTS["test"])))
    if known < 2 * WEEKS:
        raise DataError(
            f"a seasonal cycle needs two years of weeks before {STARTS['test']}, the record has "
            f"{known} weeks. Give the original record, or leave --problem.files out."
        )
    return record, Climatology(record.sst, record.day, known)


@lru_cache(maxsize=1)
def _packaged() -> tuple[sst.Record, Climatology]:
    return _learnt(sst.packaged())


def _float(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


PROBLEM = Sst()
