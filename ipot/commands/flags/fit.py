"""The flags of `ipot fit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from ipot.commands.flags.kinds import Folder


@dataclass
class Fit:
    """Train on your own data, and save a model that answers anywhere.

        ipot fit cases/ --inputs permeability --targets pressure --out surrogate
        ipot fit runs.csv --parameters speed angle --targets p --minutes 20 --out surrogate
        ipot fit era5.nc --inputs t2m --targets t2m --history 7 --lead 7 --out forecast
        ipot fit cases/ --inputs load --targets bend --model relay --out surrogate

    `ipot data inspect PATH` lists the names. Sizes are chosen from the data. A part of them is held
    out, and the error there is printed beside those of nearest neighbours and a linear model.
    """

    usual: ClassVar = (
        *("path", "out", "inputs", "targets", "parameters", "history", "lead", "periodic"),
        *("geographic", "minutes", "epochs", "model", "seed", "resume", "device", "quiet", "json"),
    )

    path: Annotated[Path, tyro.conf.Positional]
    """File or folder of cases, or a series in netCDF, Zarr or GRIB."""
    out: Folder = None
    """Where the result goes: a folder for the model."""
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
    """Frames that come out, behind the last that went in: --lead 7 of daily data is each of the
    next seven days, --lead 0 the time of the last frame in. 1 unless said, and 0 with
    --targets-from."""
    every: int | None = None
    """Steps of the file from one frame to the next, in and out: --every 4 of six-hourly data takes
    one frame a day. 1 unless said."""
    stride: int | None = None
    """Frames from the start of one sample to that of the next: --stride 7 of daily data starts one
    a week. 1 unless said, so that samples overlap; trajectories are cut without overlap."""
    season: bool = False
    """Tell the model the time of the year."""
    periodic: tuple[str, ...] = ()
    """Coordinates that wrap around, as AXIS=PERIOD, like 0=1.0."""
    geographic: bool = False
    """The first two coordinates are longitude and latitude in degrees."""
    minutes: float | None = None
    """Training time in minutes; 5 unless said."""
    epochs: int | None = None
    """Passes over the training data; they take the place of minutes."""
    model: str | None = None
    """ipot unless said, or another model that takes such data: relay, fno, ... (`ipot models`)."""
    preset: Literal["default", "paper"] = "default"
    """Whose settings: default, chosen for the data; paper, the sizes of the publication."""
    device: str = "auto"
    """auto, cpu or cuda."""
    seed: int = 0
    """Seed of what is drawn at random: the split, the initial weights and the order."""
    resume: Folder = None
    """Go on with the run that was stopped in this folder; on the same data."""
    resume_or_start: bool = False
    """Go on with the run in --out if there is one, and start it if not."""
    start_from: Folder = None
    """Start from the best weights of another run, to fine-tune it; with the sizes of its model."""
    trust: bool = False
    """Import code outside ipot that a folder names: only where you know where it comes from."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON."""


FLAGS = Fit
