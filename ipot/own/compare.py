"""`ipot.compare`: several systems on your own data, with the same split and the same minutes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipot import files
from ipot.data.argument_checks import flag, path_given
from ipot.device import choose
from ipot.errors import DataError
from ipot.evaluation.baselines import MeanField, score_baselines
from ipot.formats.open_data import OpenedData, open_data
from ipot.own.fit import scored_channels, total
from ipot.own.sizing import MODEL, plan, refuse_settings
from ipot.recipes import compare as recipes
from ipot.recipes.compare_table import Comparison
from ipot.recipes.experiment import Data, Experiment
from ipot.recipes.own_data import FEW, OWN_DATA, OwnData, Splits, split
from ipot.report.comparison import table_lines, write

AGAIN = (
    "too few samples to set some aside for a test: the errors are those on the samples that chose "
    "the weights, and a little too low"
)


def compare(
    data: Any,
    models: str | Sequence[str] = "all",
    *,
    inputs: str | Sequence[str] = (),
    targets: Any = (),
    parameters: str | Sequence[str] = (),
    minutes: float = 1.0,
    out: Path | str | None = None,
    device: str = "auto",
    seed: int = 0,
    trusted: bool = False,
    quiet: bool = False,
    **options: Any,
) -> Comparison:
    """Train several systems on your own data, each for so many `minutes`, and score all of them
    on the same held-out samples, beside simple predictors.

    `models` are names as `ipot.fit(model=...)` takes them, or all that the package has; one that
    cannot take such data stays in the table with the reason. Data, columns and `options` are those
    of `ipot.fit`, and so are the settings of each system and the outputs that are scored: those
    that vary. Every system answers alone, and is not blended with a simple predictor as a fit is:
    `ipot.fit(blend=False)` is what the row shows. With `out` a run of each system is kept
    there, with compare.md, compare.json and compare.png; the same call goes on where it was stopped
    and adds systems. Systems outside this package that were compared there before, and are not
    named now, are imported only where `out` is `trusted`.
    """
    quiet, trusted = flag("quiet", quiet), flag("trusted", trusted)
    say: Callable[[str], None] = (lambda line: None) if quiet else _aloud
    columns = {"inputs": inputs, "targets": targets, "parameters": parameters}
    how = {"minutes": minutes, "out": out, "device": device, "seed": seed, "trusted": trusted}
    found = side_by_side(data, models, say=say, quiet=quiet, **columns, **how, **options)
    for line in table_lines(found):
        say(line)
    return found


def side_by_side(
    data: Any,
    models: str | Sequence[str],
    *,
    say: Callable[[str], None],
    inputs: str | Sequence[str],
    targets: Any,
    parameters: str | Sequence[str],
    minutes: float,
    out: Path | str | None,
    device: str,
    seed: int,
    trusted: bool,
    quiet: bool,
    **options: Any,
) -> Comparison:
    """`compare` without printing the table; `say` is called with progress."""
    refuse_settings(
        None, preset="default", seed=seed, minutes=minutes, epochs=None, model=None, training=None
    )
    names, torch_device = recipes.chosen(models), choose(device)
    source = open_data(data, inputs=inputs, targets=targets, parameters=parameters, **options)
    splits, remarks = _splits(source, seed)
    channels = scored_channels(source.data.spec, splits.train.constants())
    series = None if source.series is None else source.series.as_dict()
    own = OwnData.of(source.data, splits, columns=source.columns, series=series)

    def recipe(name: str) -> Experiment:
        chosen = plan(splits.train, device=torch_device, name=name, minutes=minutes, seed=seed)
        return Experiment(
            problem=own,
            model=chosen.model,
            training=replace(chosen.training, patience=None),  # all have the same time
            data=Data(**splits.counts(), seed=seed),
            problem_name=OWN_DATA,
            model_name=name,
            normalize=chosen.normalize,
        )

    for line in (*source.notes, *source.data.describe(), *remarks):
        say(line)
    with ExitStack() as kept:
        if out is None:
            out = kept.enter_context(tempfile.TemporaryDirectory(prefix="ipot-"))
        folder = path_given("out", out)
        found = recipes.compare(
            recipe(MODEL),
            names,
            folder,
            minutes=float(minutes),
            seed=int(seed),
            device=device,
            tell=say,
            quiet=quiet,
            trusted=trusted,
            recipe=recipe,
            simple=_simple(splits, own, channels),
            channels=channels if len(channels) < len(own.spec.outputs) else None,
        )
        found = replace(found, remarks=remarks)
        files.write_json(folder / "compare.json", found.as_dict())
        write(found, folder, _call(names, minutes), "python")
    return found


def _splits(source: OpenedData, seed: int) -> tuple[Splits, tuple[str, ...]]:
    """The parts that `ipot.fit` makes; samples to score on even where it keeps none for that."""
    if source.parts is None and len(source.data) < FEW:
        raise DataError(
            f"{len(source.data)} samples are too few for a comparison, which holds some out: at "
            f"least {FEW} are needed"
        )
    parts = Splits(*source.parts) if source.parts is not None else split(source.data, int(seed))
    if parts.held_out is not None:
        return parts, ()
    return replace(parts, held_out=parts.validation), (AGAIN,)


def _simple(splits: Splits, own: OwnData, channels: Sequence[int]) -> dict[str, Any]:
    """What simple predictors score, which learn from the same samples."""
    assert splits.held_out is not None
    found = score_baselines(splits.train.data, splits.held_out.data, own.spec, channels)
    errors = {name: total(scores) for name, scores in found.items()}
    return {"mean_field": errors.pop(MeanField.name), "references": errors}


def _call(names: Sequence[str], minutes: float) -> str:
    return f"ipot.compare(data, {list(names)!r}, minutes={minutes:g})"


def _aloud(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
