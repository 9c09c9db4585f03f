"""`ipot fit`: train on a file or a folder of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ipot import registry
from ipot.commands.common import emit, flag_value, parse, say
from ipot.commands.settings import settings_said
from ipot.errors import DataError
from ipot.formats.xarray_files import open_series
from ipot.own.fit import Interrupted, fit
from ipot.own.sizing import MODEL
from ipot.recipes.starting import Start
from ipot.run_folder import run_at
from ipot.training.settings import Training


@dataclass
class Fit:
    """Train on your own data, and save a model that answers anywhere.

        ipot fit cases/ --inputs permeability --targets pressure --out surrogate
        ipot fit runs.csv --parameters speed angle --targets p --minutes 20 --out surrogate
        ipot fit era5.nc --inputs t2m --targets t2m --history 7 --lead 7 --out forecast
        ipot fit cases/ --inputs load --targets bend --model relay --out surrogate

    `ipot data inspect PATH` lists the names. Sizes are chosen from the data. A part of them is held
    out, and the error there is printed beside those of nearest neighbours and a linear model.

    Any model of `ipot models` that takes the data, and any setting of it and of its training:

        ipot fit cases/ --inputs a --targets u --model fno --model.width 32 --model.modes 12
        ipot fit cases/ --inputs a --targets u --model.latents 128 --training.batch 4

    Sizes are --model.width, --model.blocks, --model.heads, and of ipot and relay --model.latents.
    --training.batch, --training.learning-rate, --training.weight-decay, --training.points (the part
    of the points that a step sees) and --training.patience (None never stops early) are the most
    useful of the training. Of a name that there is not, all that there are are listed.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """File or folder of cases, or a series in netCDF, Zarr or GRIB."""
    out: Path | None = None
    """Folder for the model."""
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
    minutes: float | None = None
    """Training time; 5 unless said."""
    epochs: int | None = None
    """Passes over the data, instead of minutes."""
    model: str | None = None
    """ipot unless said, or another model that takes such data: relay, fno, ... (`ipot models`)."""
    preset: Literal["default", "paper"] = "default"
    """paper: the sizes of the publication."""
    device: str = "auto"
    """auto, cpu or cuda."""
    seed: int = 0
    """Of the split, the initial weights and the order."""
    resume: Path | None = None
    """Go on with a run that was stopped in this folder, on the same data."""
    resume_or_start: bool = False
    """Go on with the run in --out if there is one, and start it if not."""
    start_from: Path | None = None
    """Fine-tune: start from the best weights of another fit, or of a run, with its sizes."""
    trust: bool = False
    """Import code outside ipot that the folder of --resume or --start-from names: only where you
    know where it comes from."""
    json: bool = False
    """Print the scores as JSON."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    owner = _model_of(arguments)
    kinds = {"model": registry.config_of(owner), "training": Training}
    said, rest = settings_said(arguments, kinds, "fit", owner)
    flags = parse(Fit, rest, "fit")
    try:
        return _fit(flags, said)
    except Interrupted as stop:
        say(f"ipot fit: stopped; the same command with --resume {stop.folder} goes on")
        return 128 + stop.signal


def _model_of(arguments: list[str]) -> str:
    """The model that settings are of: the one that is named, or that of the run to begin with."""
    if named := flag_value(arguments, "--model", ""):
        registry.find("models", named)
        return named
    if not any(word.startswith("--model.") for word in arguments):
        return MODEL
    before = flag_value(arguments, "--resume", "") or flag_value(arguments, "--start-from", "")
    if not before and "--resume-or-start" in arguments:
        out = flag_value(arguments, "--out", "")
        before = out if out and run_at(out).config_file.is_file() else ""
    return (
        Start.read(before, trusted="--trust" in arguments).settings.model_name if before else MODEL
    )


def _fit(flags: Fit, said: dict[str, dict[str, Any]]) -> int:
    if flags.out is None and flags.resume is None:
        raise DataError("--out is needed: a folder for the model")
    targets: Any = flags.targets
    options: dict[str, Any] = {}
    if flags.targets_from is not None:
        targets = open_series(flags.targets_from)
        if flags.targets:
            targets = targets[list(flags.targets)]
    for name in ("history", "lead", "every", "stride"):
        if getattr(flags, name) is not None:
            options[name] = getattr(flags, name)
    if flags.season:
        options["season"] = True
    if flags.periodic:
        options["periods"] = _periods(flags.periodic)
    if flags.geographic:
        options["geographic"] = True
    if flags.where != "points":
        options["where"] = flags.where
    model = fit(
        flags.path,
        inputs=flags.inputs,
        targets=targets,
        parameters=flags.parameters,
        minutes=flags.minutes,
        epochs=flags.epochs,
        model=_model(flags.model, said["model"]),
        training=said["training"] or None,
        preset=flags.preset,
        device=flags.device,
        seed=flags.seed,
        out=flags.out,
        resume=flags.resume,
        or_resume=flags.resume_or_start,
        start_from=flags.start_from,
        trusted=flags.trust,
        **options,
    )
    if flags.json:
        emit({"out": str(flags.out or flags.resume), **model.scores})
    return 0


def _model(name: str | None, settings: dict[str, Any]) -> str | dict[str, Any] | None:
    """What `ipot.fit` is told of the model."""
    named = {} if name is None else {"name": name}
    return (named | settings) if settings else name


def _periods(words: tuple[str, ...]) -> dict[int, float]:
    found = {}
    for word in words:
        axis, _, period = word.partition("=")
        try:
            found[int(axis)] = float(period)
        except ValueError:
            raise DataError(f"--periodic {word}: expected AXIS=PERIOD, like 0=1.0") from None
    return found
