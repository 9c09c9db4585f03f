"""`ipot.fit`: from data of one's own to an operator that answers anywhere."""

from __future__ import annotations

import contextlib
import inspect
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ipot.data.own import Dataset
from ipot.data.own_given import flag
from ipot.data.own_units import spans_held
from ipot.data.statistics import Moments, Statistics
from ipot.device import choose, use_quickest
from ipot.errors import DataError
from ipot.evaluation.baselines import score_baselines
from ipot.evaluation.evaluate import Scores, evaluate
from ipot.models.base import Operator
from ipot.own.fit_run import (
    Interrupted,
    refuse_another,
    resumed_plan,
    start_fit,
    stored_settings,
    working_folder,
)
from ipot.own.open_data import PLACES, SERIES, OpenedData, open_data
from ipot.own.sizing import Plan, plan, refuse_misspelt, refuse_settings
from ipot.recipes.experiment import build_model
from ipot.run_folder import Run, environment
from ipot.surrogate.batches import calibrated
from ipot.surrogate.loading import TRAINING
from ipot.surrogate.surrogate import Surrogate
from ipot.training import checkpoint
from ipot.training.objective import BalancedL2, Objective
from ipot.training.settings import Training
from ipot.training.trainer import Result, Stopped, train
from ipot.typed_json import to_dict

MODEL = "ipot"
HELD_OUT = 0.08
"""Of the samples, for choosing the best weights; as many again for the scores and bounds."""
MOST_HELD = 200
FEW = 10
"""Samples below which all are learned from: what could be held out would tell nothing."""
FEWEST = 30
"""Samples below which none are set aside for scores and bounds of their own."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Splits:
    """Samples to learn from, to choose weights by, and to score with (None where too few)."""

    train: Dataset
    validation: Dataset
    held_out: Dataset | None


def fit(
    data: Any,
    *,
    inputs: str | Sequence[str] = (),
    targets: Any = (),
    parameters: str | Sequence[str] = (),
    minutes: float | None = None,
    epochs: int | None = None,
    preset: str = "default",
    device: str = "auto",
    seed: int = 0,
    out: Path | str | None = None,
    resume: Path | str | None = None,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    quiet: bool = False,
    **options: Any,
) -> Surrogate:
    """Train on data of one's own, within `minutes` (five unless said) or for so many `epochs`.

    data    an `ipot.Dataset`; an xarray object with the variables `inputs` and `targets` (and
            `history=7, lead=7` for a forecast); or the path of a file or folder, whose columns
            they name. The `options` are those of `ipot.own.open_data.open_data`.

    Sizes are chosen from the data and said; `model` and `training` change single settings, like
    `model={"width": 96}`. A part of the samples is held out: for choosing the best weights, for
    scores beside those of simple predictors, and for bounds on the answers.

    With `out` the model is saved there, and checkpoints on the way; `resume` goes on with a run
    that was stopped there, on the same data and with the settings that it was started with.
    """
    refuse_misspelt(options, _arguments())
    quiet = flag("quiet", quiet)
    say = _silent if quiet else _aloud
    place = choose(device)
    told = {"model": model, "training": training, "minutes": minutes, "epochs": epochs}
    refuse_settings(preset=preset, seed=seed, **told)
    seed = int(seed)
    with working_folder(out, resume) as folder:
        run, before = Run(folder / TRAINING), None
        if resume is not None:
            asked = {"preset": preset if preset != "default" else None, "seed": seed or None}
            before = stored_settings(run, told | asked)
            refuse_another(folder, before)
            seed = before["seed"]
        source = open_data(data, inputs=inputs, targets=targets, parameters=parameters, **options)
        data, splits = source.data, _splits(source, seed)
        if before is None:
            chosen = plan(splits.train, device=place, preset=preset, seed=seed, **told)
            start_fit(run, chosen, data, preset=preset, seed=seed)
        else:
            chosen = resumed_plan(before, run, data)
        for line in (*source.notes, *data.describe(), *chosen.lines):
            say(line)
        begun = time.monotonic()
        kept = folder if resume is not None or out is not None else None
        try:
            baselines = {}
            if splits.held_out is not None:
                baselines = score_baselines(splits.train.data, splits.held_out.data, data.spec)
            operator, result = _trained(splits, chosen, run, place, quiet)
            fitted = _finished(operator, splits, chosen, result, baselines)
        except Stopped as stop:
            raise Interrupted(stop.signal, kept) from None
        except KeyboardInterrupt as stop:
            # Before the loop, or behind it: what it has kept is there to go on with.
            raise Interrupted(getattr(stop, "signal", signal.SIGINT), kept) from None
        fitted.series = source.series
        fitted.about |= {"seconds": round(time.monotonic() - begun, 1), "columns": source.columns}
        fitted.about["data"] = run.config()["data"]
        for line in fitted.summary():
            say(line)
        if kept is not None:
            fitted.save(folder, overwrite=True)
            say(f"saved: {folder}")
    return fitted


def _arguments() -> set[str]:
    """What `fit` may be told by name, its options among it."""
    told = {*inspect.signature(fit).parameters, *inspect.signature(open_data).parameters}
    return (told | {*SERIES, *PLACES}) - {"source", "options"}


def _splits(source: OpenedData, seed: int) -> Splits:
    return Splits(*source.parts) if source.parts is not None else split(source.data, seed)


def split(data: Dataset, seed: int) -> Splits:
    """Parts drawn at random; small data sets keep none for scores, very small ones none at all."""
    if len(data) < 2:
        raise DataError(f"at least two samples are needed to learn from, got {len(data)}")
    if len(data) < FEW:
        return Splits(data, data, None)
    held = min(MOST_HELD, max(1, round(HELD_OUT * len(data))))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
    parts = 2 if len(data) >= FEWEST else 1
    # Bounds at 90 % take nine samples at the least.
    held = max(held, 10) if parts == 2 else held
    learnt = data.select(sorted(order[parts * held :]))
    validation = data.select(sorted(order[:held]))
    scored = data.select(sorted(order[held : 2 * held])) if parts == 2 else None
    return Splits(learnt, validation, scored)


def _trained(
    splits: Splits, chosen: Plan, run: Run, place: torch.device, quiet: bool
) -> tuple[Operator, Result]:
    """The model at its best weights."""
    spec = splits.train.spec
    scales = Statistics.of(splits.train.data) if chosen.normalize else None
    operator = build_model(MODEL, chosen.model, spec, seed=chosen.training.seed, statistics=scales)
    objective = _objective(splits.train)
    with _threads(operator, objective, splits.train, chosen.training, place):
        result = train(
            operator,
            splits.train.data,
            splits.validation.data,
            chosen.training,
            run,
            device=place,
            objective=objective,
            quiet=quiet,
        )
    weights, _ = checkpoint.load(run.best)
    checkpoint.load_weights(operator, weights, run.best)
    return operator.to(place, torch.float32).eval(), result


def _objective(data: Dataset) -> Objective:
    """Relative errors of every channel in its own size, and weighted if there are weights. Of one
    channel too: the square of what is very large or small is no float32."""
    sizes = Moments()
    for _, targets, _ in data.data.columns():
        sizes.add(targets.double().square())
    size = sizes.mean().sqrt()
    return BalancedL2(torch.where(size > 0, size, torch.ones_like(size)).float())


def _finished(
    operator: Operator,
    splits: Splits,
    chosen: Plan,
    result: Result,
    baselines: dict[str, Any],
) -> Surrogate:
    """The trained model with its scores, and bounds from samples that it has not seen."""
    data, held = splits.train, splits.held_out
    scores: dict[str, Any] = {"validation": result.best_validation}
    scores["balanced"] = len(data.spec.outputs) > 1
    bounds = None
    if held is not None:
        device = next(operator.parameters()).device
        found = evaluate(operator, held.data.to(device), device=device)
        weighted = found.weighted_relative_l2 is not None
        scores["held_out"] = _total(found)
        scores["weighted"] = weighted
        scores["per_channel"] = dict(zip(data.spec.outputs, found.per_channel, strict=True))
        scores["baselines"] = {name: _total(s) for name, s in baselines.items()}
        scores["baselines_per_channel"] = {
            name: dict(zip(data.spec.outputs, s.per_channel, strict=True))
            for name, s in baselines.items()
        }
        bounds = calibrated(operator, held.data)
    about = {
        "samples": {
            "train": len(splits.train),
            "validation": 0 if splits.validation is splits.train else len(splits.validation),
            "held out": 0 if held is None else len(held),
        },
        "described": data.describe(),
        "training": to_dict(chosen.training, infinite=True),
        "epochs": result.epochs,
        "stopped early": result.out_of_patience,
        "steps": result.steps,
        "environment": environment(),
        "date": time.strftime("%Y-%m-%d"),
    }
    layout = replace(data.layout, **spans_held(data.data))
    return Surrogate(
        operator, chosen.model, data.spec, layout, scores=scores, about=about, bounds=bounds
    )


def _total(scores: Scores) -> float:
    """One number, weighted where there are weights, as in training."""
    weighted = scores.weighted_relative_l2
    return scores.relative_l2 if weighted is None else weighted


@contextlib.contextmanager
def _threads(
    operator: Operator,
    objective: Objective,
    data: Dataset,
    settings: Training,
    place: torch.device,
) -> Iterator[None]:
    """As many threads as serve a step best, now and on this machine; afterwards as before.

    Only where time is the limit: a run of so many epochs ends in the same bits every time.
    """
    before = torch.get_num_threads()
    if place.type == "cpu" and settings.minutes is not None:
        batch = data.data.batch(torch.arange(min(settings.batch, len(data))))
        use_quickest(lambda: objective(operator, batch).backward(), repeats=2)
        operator.zero_grad(set_to_none=True)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _aloud(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass
