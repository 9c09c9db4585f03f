"""Flags that say what your own data are: those of `ipot fit` and `ipot compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ipot.errors import DataError


@dataclass(kw_only=True)
class OwnData:
    """Which columns of a file are known and which are to be predicted, and how a series is cut."""

    inputs: tuple[str, ...] = ()
    """Fields that are known; without any, parameters or the places of the points."""
    targets: tuple[str, ...] = ()
    """Fields to predict."""
    parameters: tuple[str, ...] = ()
    """Numbers that hold for a whole case."""
    targets_from: Path | None = None
    """A file of its own for the targets of a series: stations in, a grid out; at the same time
    (--lead 0) unless --lead says later."""
    where: Literal["points", "cells"] = "points"
    """Where fields of the same name are taken from."""
    history: int | None = None
    """Frames that go in, up to now: --history 7 of daily data is the week that ends today. 1 unless
    said."""
    lead: int | None = None
    """Frames that come out, after the last that went in: --lead 7 of daily data is each of the
    next seven days, --lead 0 the time of the last frame in. 1 by default, and 0 with
    --targets-from."""
    every: int | None = None
    """Steps of the file from one frame to the next, in and out: --every 4 of six-hourly data takes
    one frame a day. 1 by default."""
    stride: int | None = None
    """Frames from the start of one sample to that of the next: --stride 7 of daily data starts one
    a week. 1 by default, so that samples overlap; trajectories are cut without overlap."""
    season: bool = False
    """Tell the model the time of the year."""
    periodic: tuple[str, ...] = ()
    """Coordinates that wrap around, as AXIS=PERIOD, like 0=1.0."""
    geographic: bool = False
    """The first two coordinates are longitude and latitude in degrees."""

    def options(self) -> dict[str, Any]:
        """The arguments of `ipot.fit` and `ipot.compare` that were said; the rest is left out."""
        targets: Any = self.targets
        if self.targets_from is not None:
            from ipot.formats.xarray_files import open_series

            targets = open_series(self.targets_from)
            if self.targets:
                targets = targets[list(self.targets)]
        said: dict[str, Any] = {"inputs": self.inputs, "targets": targets}
        said["parameters"] = self.parameters
        for name in ("history", "lead", "every", "stride"):
            if getattr(self, name) is not None:
                said[name] = getattr(self, name)
        if self.season:
            said["season"] = True
        if self.periodic:
            said["periods"] = _periods(self.periodic)
        if self.geographic:
            said["geographic"] = True
        if self.where != "points":
            said["where"] = self.where
        return said


def _periods(words: tuple[str, ...]) -> dict[int, float]:
    found = {}
    for word in words:
        axis, _, period = word.partition("=")
        try:
            found[int(axis)] = float(period)
        except ValueError:
            raise DataError(f"--periodic {word}: expected AXIS=PERIOD, like 0=1.0") from None
    return found
