"""The flags of `ipot fit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from ipot.commands.flags import Folder
from ipot.commands.flags.own_data import OwnData


@dataclass(kw_only=True)
class Fit(OwnData):
    """Train on your own data, and save a model that answers anywhere.

        ipot fit cases/ --inputs permeability --targets pressure --out surrogate
        ipot fit runs.csv --parameters speed angle --targets p --minutes 20 --out surrogate
        ipot fit era5.nc --inputs t2m --targets t2m --history 7 --lead 7 --out forecast
        ipot fit cases/ --inputs load --targets bend --model relay --out surrogate

    `ipot data inspect PATH` lists the names. Sizes are chosen from the data. A part of them is held
    out, and the error there is printed beside those of nearest neighbours and a linear model.

    Any model of `ipot models` that takes the data may be trained, and any setting of it and of the
    training may be said; of a setting that there is not, all that there are are listed.

        ipot fit cases/ --inputs a --targets u --model fno --model.width 32 --model.modes 12
        ipot fit cases/ --inputs a --targets u --model.latents 128 --training.batch 4

    Sizes are --model.width, --model.blocks and --model.heads, and of ipot and relay
    --model.latents. Of the training the most useful are --training.batch, --training.learning-rate,
    --training.weight-decay, --training.points (the part of the points that a step sees) and
    --training.patience (None never stops early).
    """

    usual: ClassVar = (
        *("path", "out", "inputs", "targets", "parameters", "history", "lead", "periodic"),
        *("geographic", "minutes", "epochs", "model", "seed", "resume", "device", "quiet", "json"),
    )
    settings: ClassVar = (
        ("--model.width N", "Sizes of the model: also --model.blocks, .heads, .latents, ..."),
        (
            "--training.batch N",
            "How it is trained: also --training.learning-rate, .points, ...",
        ),
    )

    path: Annotated[Path, tyro.conf.Positional]
    """File or folder of cases, or a series in netCDF, Zarr or GRIB."""
    out: Folder = None
    """Where the result goes: a folder for the model."""
    minutes: float | None = None
    """Training time in minutes; 5 by default."""
    epochs: int | None = None
    """Passes over the training data; they take the place of minutes."""
    model: str | None = None
    """ipot by default, or another model that takes such data: relay, fno, ... (`ipot models`)."""
    blend: bool = True
    """Blend the answers with those of a linear model or a kernel regression, where that helps on
    validation samples; never those of another --model than ipot."""
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
