"""`ipot.fit`: from your own data to a trained operator.

Data and a device become the settings of an experiment (`ipot.own.sizing`), which is trained like
any other (`ipot.recipes.running`); the model is then scored, calibrated and saved.
"""

from __future__ import annotations

import contextlib
import inspect
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ipot.data.argument_checks import flag
from ipot.data.store import Store
from ipot.device import choose, use_quickest
from ipot.errors import DataError, RunError
from ipot.evaluation.baselines import score_baselines
from ipot.evaluation.evaluate import Scores, evaluate
from ipot.evaluation.sample_tables import Table, tables
from ipot.evaluation.simple_forecasts import score_forecasts
from ipot.formats.open_data import PLACES, SERIES, OpenedData, open_data
from ipot.formats.series.cycle import learn_cycle
from ipot.models.base import Operator
from ipot.own.blending import blended
from ipot.own.folder import refuse_another, working_folder
from ipot.own.sizing import MODEL, Plan, named_model, plan, refuse_misspelt, refuse_settings
from ipot.recipes import running
from ipot.recipes.experiment import Data, Experiment, build, load_data, read_settings
from ipot.recipes.own_data import OWN_DATA, OwnData, Splits, as_experiment, split
from ipot.recipes.starting import Start
from ipot.run_folder import TRAINING, Run, differences
from ipot.saved.samples import archive_if_small
from ipot.spec import ALL_POINTS, Spec
from ipot.surrogate.answers import calibrated
from ipot.surrogate.loading import facts_of_run
from ipot.surrogate.summary import constant_lines, course
from ipot.surrogate.surrogate import Surrogate
from ipot.training import journal
from ipot.training.objective import Validation, relative
from ipot.training.trainer import Stopped
from ipot.typed_json import from_value


class Interrupted(KeyboardInterrupt):
    """A signal ended a fit; `folder` is what to resume, or None where nothing was kept."""

    def __init__(self, signal: int, folder: Path | None) -> None:
        how = "nothing is kept, since no out=... was given"
        if folder is not None:
            how = f"go on with ipot.fit(data, resume={str(folder)!r})"
        super().__init__(f"stopped; {how}")
        self.signal, self.folder = signal, folder


def fit(
    data: Any = None,
    *unnamed: Any,
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
    or_resume: bool = False,
    start_from: Path | str | None = None,
    model: str | dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    blend: bool | None = None,
    trusted: bool = False,
    quiet: bool = False,
    **options: Any,
) -> Surrogate:
    """Train on your own data, within `minutes` (five by default) or for so many `epochs`.

    data    an `ipot.Dataset`; an xarray object with the variables `inputs` and `targets` (and
            `history=7, lead=7` for a forecast); or the path of a file or folder, whose columns
            they name. The `options` are those of `ipot.formats.open_data.open_data`.

    Sizes are chosen from the data and said; `model` and `training` change single settings, like
    `model={"width": 96}`. `model="relay"`, or `model={"name": "relay", "width": 96}`, trains that
    model instead of an IPOT: any of `ipot models` that takes such data. A part of the samples is
    held out: for choosing the best weights, for scores beside those of simple predictors, and for
    bounds on the answers.

    With `out` the model is saved there, and checkpoints on the way; `resume` goes on with a run
    that was stopped there, on the same data and with the settings that it was started with. With
    `or_resume` a run that is in `out` goes on, and one is started if there is none.

    Where that helps on validation samples, of which it takes ten, the answers of the trained model
    are blended with those of a simple predictor, a linear model or a kernel regression on principal
    components; `blend=False` leaves the network alone, also when the run goes on later; so does the
    name of another model than ipot, unless `blend=True`.

    `start_from` is the folder of another fit or run, whose best weights are taken as the start, and
    with them the sizes of its model. Code outside this package that a folder names is imported only
    where it is `trusted`.
    """
    _refuse_arrays(data, unnamed, options)
    refuse_misspelt(options, _arguments())
    quiet, trusted = flag("quiet", quiet), flag("trusted", trusted)
    or_resume = flag("or_resume", or_resume)
    say = _silent if quiet else _aloud
    torch_device = choose(device)
    name, model = named_model(model)
    told: dict[str, Any] = {"model": model, "training": training}
    told |= {"minutes": minutes, "epochs": epochs}
    start = None if start_from is None else Start.read(start_from, trusted=trusted)
    chosen_name = name or (MODEL if start is None else start.settings.model_name)
    # A run that may go on knows its model, and which settings that has.
    known = chosen_name if name or not (resume or or_resume) else None
    refuse_settings(known, preset=preset, seed=seed, **told)
    blend = None if blend is None else flag("blend", blend)
    seed = int(seed)
    with working_folder(out, resume, or_resume=or_resume) as (folder, goes_on):
        run = Run(folder / TRAINING)
        if goes_on:
            asked = {"preset": preset if preset != "default" else None, "seed": seed or None}
            asked |= {"name": name}
            before, seed = _refuse_changed(run, told | asked, start, trusted)
            refuse_another(folder, before.fingerprints[0])
            blend = _was_to_blend(run) if blend is None else blend
        elif blend is None:
            blend = name in (None, MODEL)
        source = open_data(data, inputs=inputs, targets=targets, parameters=parameters, **options)
        splits = Splits(*source.parts) if source.parts is not None else split(source.data, seed)
        series = None if source.series is None else source.series.as_dict()
        own = OwnData.of(source.data, splits, columns=source.columns, series=series)
        if goes_on:
            settings = read_settings(run, trusted=trusted, data=own)
            lines: Sequence[str] = (f"going on with {folder}",)
        else:
            if start is not None and start.settings.model_name == chosen_name:
                told["start"] = start.settings.model
            told |= {"name": chosen_name}
            chosen = plan(splits.train, device=torch_device, preset=preset, seed=seed, **told)
            lines = chosen.lines
            data_settings = Data(**splits.counts(), seed=seed)
            settings = _experiment(own, chosen, data_settings, preset)
        constants = splits.train.constants()
        lines = (*source.data.describe(), *constant_lines(constants), *lines)
        for line in (*source.notes, *lines):
            say(line)
        kept = None if out is None and resume is None else folder
        how: dict[str, Any] = {"device": device, "quiet": quiet, "trusted": trusted}
        try:
            separate = splits.validation is not splits.train
            known = tables(splits.train.data, source.data.spec) if separate else []
            baselines, source = _simple_scores(source, splits, known, constants)
            with _threads(settings, torch_device):
                if goes_on:
                    running.resume(run.path, data=own, **how)
                else:
                    noted = {} if blend else {"blend": False}
                    running.run(settings, run.path, start_from=start_from, noted=noted, **how)
            trained, settings = running.restore(run.path, torch_device, data=own, trusted=trusted)
            fitted = Surrogate.of_experiment(
                trained, settings, **facts_of_run(run, settings), series=source.series
            )
            parts: dict[str, Operator] = {}
            if blend:
                parts = _blend(fitted, settings, splits, known, constants, say)
            _score(fitted, splits, baselines, constants, parts)
            tried = splits.held_out or splits.validation
            bound = bool(fitted.model.needs & ALL_POINTS)  # to all of its points
            fitted.samples = archive_if_small(tried.data, tried.layout, thin=not bound)
            fitted.scores["course"] = course(journal.read(run.metrics))
        except Stopped as stop:
            raise Interrupted(stop.signal, kept) from None
        except KeyboardInterrupt as stop:
            # Before the loop, or after it: what it has kept is there to go on with.
            raise Interrupted(getattr(stop, "signal", signal.SIGINT), kept) from None
        fitted.about |= {"described": splits.train.describe(), "date": time.strftime("%Y-%m-%d")}
        for line in fitted.score_lines():
            say(line)
        if kept is not None:
            fitted.save(folder, overwrite=True)
            say(f"saved: {folder}")
    return fitted


def _experiment(own: OwnData, chosen: Plan, data: Data, preset: str) -> Experiment:
    """The experiment of a fit, with the sizes that were chosen for it."""
    return Experiment(
        problem=own,
        model=chosen.model,
        training=chosen.training,
        data=data,
        problem_name=OWN_DATA,
        model_name=chosen.name,
        preset=preset,
        normalize=chosen.normalize,
    )


def _simple_scores(
    source: OpenedData,
    splits: Splits,
    known: Sequence[Table],
    constants: dict[str, float],
) -> tuple[dict[str, Scores], OpenedData]:
    """The scores of simple predictors and forecasts on held-out samples, if there are any; and the
    source with the seasonal cycle that was learned for them, which a model of a series keeps."""
    held, spec = splits.held_out, source.data.spec
    if held is None:
        return {}, source
    channels = scored_channels(spec, constants)
    scores = score_baselines(known, held.data, spec, channels)
    cycle = learn_cycle(source.data, splits.train)
    scores |= score_forecasts(held, held.data, held.layout, cycle, channels)
    if source.series is not None and cycle is not None and cycle.is_small:
        source = replace(source, series=replace(source.series, cycle=cycle))
    return scores, source


def _arguments() -> set[str]:
    """The names of all arguments of `fit`, its options included."""
    told = {*inspect.signature(fit).parameters, *inspect.signature(open_data).parameters}
    return (told | {*SERIES, *PLACES}) - {"source", "options", "unnamed"}


def _refuse_arrays(data: Any, unnamed: Sequence[Any], options: dict[str, Any]) -> None:
    """Refuse arrays that are no data set yet, and nothing at all, and say how one is made."""
    told = [name for name in ("points", "values", "queries") if name in options]
    if not unnamed and not told and data is not None:
        return
    got = f"{1 + len(unnamed)} arguments without a name" if unnamed else "no data"
    if told and not unnamed:
        got = f"{', '.join(told)}"
    raise DataError(
        f"ipot.fit takes one data set, and its other arguments by name; got {got}. Arrays become a "
        "data set by their names: ipot.fit(ipot.Dataset.from_arrays(points=x, values=a, "
        "targets=u)). Of a file or folder it is ipot.fit('cases/', inputs='a', targets='u')."
    )


def _refuse_changed(
    run: Run, told: dict[str, Any], start: Start | None, trusted: bool
) -> tuple[OwnData, int]:
    """What a run says of its data, and its seed; settings that are told again must be the same."""
    content = as_experiment(run.config())
    found = Experiment.from_dict(content, str(run.config_file), trusted=trusted)
    if not isinstance(found.problem, OwnData):
        raise RunError(f"{run.path} is not a run of `ipot.fit`")
    asked: dict[str, Any] = {} if told["preset"] is None else {"preset": told["preset"]}
    asked["data"] = {} if told["seed"] is None else {"seed": told["seed"]}
    asked["model"] = {} if told["name"] is None else {"name": told["name"]}
    asked["model"] |= told["model"] or {}
    limits = {n: told[n] for n in ("minutes", "epochs") if told[n] is not None}
    asked["training"] = dict(told["training"] or {}) | limits
    if start is not None:
        asked["start_from"] = str(start.folder.path.resolve())
    for part in ("model", "training"):
        asked[part] = {n: list(v) if isinstance(v, tuple) else v for n, v in asked[part].items()}
    if changed := differences(content, asked, ("model", "training", "data")):
        raise RunError(
            f"resume={run.home}: {', '.join(changed)} is another than the run was started with, "
            "and a run that goes on keeps its settings. Leave it out, or start anew."
        )
    return found.problem, found.data.seed


def _was_to_blend(run: Run) -> bool:
    """True if a run was started with blending, which is the default."""
    return from_value(bool, run.config().get("blend", True), f"{run.config_file}: blend")


def scored_channels(spec: Spec, constants: dict[str, float]) -> list[int]:
    """The outputs that vary: those that do not are answered as they are, and have no error that
    would mean anything. All of them where none does."""
    found = [i for i, name in enumerate(spec.outputs) if name not in constants]
    return found or list(range(len(spec.outputs)))


def _blend(
    fitted: Surrogate,
    settings: Experiment,
    splits: Splits,
    known: list[Table],
    constants: dict[str, float],
    say: Callable[[str], None],
) -> dict[str, Operator]:
    """Blend the model with a simple predictor if that helps; returns the blend's parts by name.
    What each is worth by itself is kept either way."""
    channels = [i for i, name in enumerate(fitted.spec.outputs) if name not in constants]
    found = blended(fitted.model, fitted.spec, splits, known, channels)
    if found is None:
        return {}
    objective: Any = fitted.model.objective() or running.objective_for(settings, splits.train.data)
    measure = getattr(objective, "measure", relative)
    held = splits.validation.data.to(fitted.device)
    error = Validation(held, fitted.device, measure=measure)
    fitted.scores["validation of each"] = {n: error(part) for n, part in found.parts.items()}
    fitted.about["simple predictor"] = {"kind": found.kind, "shares": found.shares}
    if not found.line:
        return {}
    fitted.model, fitted.spec = found.model, found.spec
    fitted.about["blend"] = found.line
    fitted.scores["validation"] = error(fitted.model)
    say(found.line)
    return found.parts


def _score(
    fitted: Surrogate,
    splits: Splits,
    baselines: dict[str, Scores],
    constants: dict[str, float],
    parts: dict[str, Operator],
) -> None:
    """Its errors on samples that it has not seen, beside those of others, and bounds from them."""
    scores, held = fitted.scores, splits.held_out
    channels = scored_channels(fitted.spec, constants)
    outputs = [fitted.spec.outputs[i] for i in channels]
    scores["balanced"] = len(outputs) > 1
    if constants:
        scores["constant"] = constants
    if held is None:
        return
    data, device = held.data.to(fitted.device), fitted.device
    found = evaluate(fitted.model, data, device=device, channels=channels)
    scores["held_out"] = total(found)
    scores["parts"] = {
        name: total(evaluate(part, data, device=device, channels=channels))
        for name, part in parts.items()
    }
    scores["weighted"] = found.weighted_relative_l2 is not None
    scores["per_channel"] = dict(zip(outputs, found.per_channel, strict=True))
    scores["baselines"] = {name: total(s) for name, s in baselines.items()}
    scores["baselines_per_channel"] = {
        name: dict(zip(outputs, s.per_channel, strict=True)) for name, s in baselines.items()
    }
    fitted.bounds = calibrated(fitted.model, held.data)


def total(scores: Scores) -> float:
    """One number, weighted where there are weights, as in training."""
    weighted = scores.weighted_relative_l2
    return scores.relative_l2 if weighted is None else weighted


@contextlib.contextmanager
def _threads(settings: Experiment, device: torch.device) -> Iterator[None]:
    """Use the number of threads with which a step is quickest on this machine; restored afterwards.

    Only where time is the limit: a run of so many epochs ends in the same bits every time.
    """
    before = torch.get_num_threads()
    if device.type == "cpu" and settings.training.minutes is not None:
        data = load_data(settings, "train", store=Store(), device=device)
        operator = build(settings)
        objective = running.objective_for(settings, data)
        batch = data.batch(torch.arange(min(settings.training.batch, len(data))))
        use_quickest(lambda: objective(operator, batch).backward(), repeats=2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _aloud(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass
