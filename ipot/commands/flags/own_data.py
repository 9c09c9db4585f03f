"""Flags that say what data of one's own are: those of `ipot fit` and `ipot compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


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
    """A file of its own for the targets of a series: stations in, a grid out."""
    where: Literal["points", "cells"] = "points"
    """Where fields of the same name are taken from."""
    history: int | None = None
    """Frames in, for a series in time."""
    lead: int | None = None
    """Frames out."""
    every: int | None = None
    """Steps of the file from one frame to the next."""
    stride: int | None = None
    """Frames from the start of one window to that of the next; 1 unless said: they overlap."""
    season: bool = False
    """Tell the model the time of the year."""
    periodic: tuple[str, ...] = ()
    """Coordinates that wrap around, as AXIS=PERIOD, like 0=1.0."""
    geographic: bool = False
    """The first two coordinates are longitude and latitude in degrees."""
