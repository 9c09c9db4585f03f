"""`ipot evaluate`: score a trained model on samples that it has not seen."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from ipot.api import load
from ipot.commands.common import (
    Folder,
    Generation,
    data_given,
    emit,
    parse,
    show,
    without_old_input,
)
from ipot.data.store import Store
from ipot.errors import DataError, Unsupported
from ipot.evaluation.evaluate import Scores, leads
from ipot.recipes import ledger
from ipot.recipes.studies import Answer, Question, ask_model
from ipot.surrogate.surrogate import Surrogate


@dataclass
class Evaluate:
    """Score a trained model on test samples, as they are or seen otherwise.

    For instance, a quarter of the sensors of a coarser grid in, a fine grid out:

        ipot evaluate runs/darcy --keep 0.25 --resolution 43 --query-resolution 421

    A model of your own data is scored on a file or folder like those it was trained on:

        ipot evaluate surrogate new_cases/ --json
        ipot evaluate surrogate stations.nc --targets-from grid.nc

    The error is the paper's: for each sample the L2 norm of the error over times, queries and
    channels, divided by that of the truth; then the mean over samples. Where there are several
    steps, a second table has root mean square errors at some of them, in the units of the field and
    weighted by area where points stand for areas, and what simple forecasts score beside the model.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the folder of a saved model."""
    cases: Annotated[Path | None, tyro.conf.Positional] = None
    """File or folder with samples and their answers, instead of the test data of a problem."""
    targets_from: Path | None = None
    """A file of its own for the answers of a series: stations in, a grid out."""
    keep: float = 1.0
    """Fraction of the input points kept, drawn anew for every sample."""
    resolution: int | None = None
    """Points a side of the inputs."""
    query_resolution: int | None = None
    """Points a side of the queries; as the inputs unless said."""
    mask: str | None = None
    """Hide inputs: disk leaves a hole in the middle, left, right and border keep that part alone;
    a problem may have masks of its own."""
    fill: str | None = None
    """Interpolate the inputs that --mask and --keep hide from those that are seen, for a system
    that takes all of them: linear, cubic or nearest."""
    steps: int | None = None
    """Steps of the rollout, also more than in training."""
    samples: int | None = None
    """How many test samples; as many as the run says unless said."""
    seed: int = 0
    """Seed of the sensors kept."""
    symmetric: bool = False
    """Average the answers over the symmetries of the problem: eight times the work for Darcy."""
    weights: str = "best"
    """best or last."""
    batch: int = 16
    """Samples at a time."""
    data: Folder = None
    """Data folder; $IPOT_DATA or the user's cache unless said."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that the folder names: only where you know where it comes from."""
    edited: bool = False
    """Take a saved model whose settings or files were changed after it was saved."""
    record: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Add the error to the record of this run in this ledger, e.g. results/runs.json."""
    json: bool = False
    """Print JSON, with the error of every sample."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    arguments, old = without_old_input(arguments, "evaluate")
    flags = parse(Evaluate, arguments, "evaluate")
    cases = data_given(flags.cases, old)
    model = load(
        flags.run,
        device=flags.device,
        weights=flags.weights,
        trusted=flags.trust,
        edited=flags.edited,
    )
    if cases is not None or model.settings is None:
        if flags.symmetric:
            raise Unsupported("--symmetric is for built-in problems, whose symmetries are known")
        if flags.record is not None:
            raise Unsupported("--record is for runs on the test data of a built-in problem")
        _evaluate_file(flags, model, cases)
        return
    if flags.targets_from is not None:
        raise Unsupported("--targets-from is for a series of your own, and none is given")
    store = Store(flags.data)
    question = Question(
        keep=flags.keep,
        resolution=flags.resolution,
        query_resolution=flags.query_resolution,
        mask=flags.mask,
        fill=flags.fill,
        steps=flags.steps,
        samples=flags.samples,
        seed=flags.seed,
        symmetric=flags.symmetric,
    )
    answer = ask_model(
        model.model,
        model.settings,
        question,
        store=store,
        batch=flags.batch,
        report=Generation(store),
    )
    if flags.record is not None:
        tests = {_seen(question, flags.weights): answer.scores.relative_l2}
        ledger.add(flags.record, [ledger.record_of(flags.run, tests=tests)])
    if flags.json:
        emit(answer.as_dict())
        return
    from ipot.report.tables import table

    scores = answer.scores
    rows = [
        ["relative L2", f"{scores.relative_l2:.5f}"],
        ["the mean field instead", _or_dash(answer.mean_field)],
        ["median / worst sample", f"{answer.median:.5f} / {max(scores.per_sample):.5f}"],
        ["samples", str(len(scores.per_sample))],
        ["inputs → queries", f"{answer.points} → {answer.queries}"],
    ]
    if scores.weighted_relative_l2 is not None:
        rows.insert(1, ["weighted relative L2", f"{scores.weighted_relative_l2:.5f}"])
    if len(scores.per_time) > 1:
        first, last = scores.per_time[0], scores.per_time[-1]
        rows.append(["first / last step", f"{first:.5f} / {last:.5f}"])
    rows += _channels(answer.outputs, scores)
    show(table(f"{flags.run}: {question.describe()}", ["", "value"], rows))
    if answer.references or len(scores.rmse_per_time) > 1:
        show(table("beside simple forecasts", *forecasts(answer)))


def _seen(question: Question, weights: str) -> str:
    """How the test data were seen, and whatever else makes a number another one."""
    words = [question.describe()]
    words += [] if question.samples is None else [f"{question.samples} samples"]
    words += [] if weights == "best" else [f"{weights} weights"]
    return ", ".join(words)


def _evaluate_file(flags: Evaluate, model: Surrogate, cases: Path | None) -> None:
    """Score a model on samples in a file or a folder."""
    if cases is None:
        raise DataError(
            f"{flags.run} was trained on data of your own, which have no test samples here. Give "
            f"a file or folder like those it was trained on: ipot evaluate {flags.run} new_cases"
        )
    seen = ("keep", "resolution", "query_resolution", "mask", "fill", "steps", "samples", "seed")
    default = {f.name: f.default for f in fields(Evaluate)}
    if other := [n for n in seen if getattr(flags, n) != default[n]]:
        said = ", ".join(f"--{name.replace('_', '-')}" for name in other)
        raise Unsupported(f"{said}: for the test data of a built-in problem, not for {cases}")
    scores = model.evaluate(cases, targets=flags.targets_from)
    errors = scores.per_sample
    if flags.json:
        emit({**scores.as_dict(), "median": statistics.median(errors), "samples": len(errors)})
        return
    from ipot.report.tables import table

    rows = [
        ["relative L2", f"{scores.relative_l2:.5f}"],
        ["median / worst sample", f"{statistics.median(errors):.5f} / {max(errors):.5f}"],
        ["samples", str(len(errors))],
        *_channels(model.spec.outputs, scores),
    ]
    if scores.weighted_relative_l2 is not None:
        rows.insert(1, ["weighted relative L2", f"{scores.weighted_relative_l2:.5f}"])
    show(table(f"{flags.run}: {cases}", ["", "value"], rows))


def _channels(names: Sequence[str], scores: Scores) -> list[list[str]]:
    """A row for each of several channels."""
    if len(names) < 2:
        return []
    return [[n, f"{e:.5f}"] for n, e in zip(names, scores.per_channel, strict=True)]


def forecasts(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: the model and every reference, each with its errors."""
    steps = leads(len(answer.scores.rmse_per_time))
    columns = ["", "relative L2", *(f"RMSE, step {step}" for step in steps)]
    rows = [
        [
            name,
            f"{scores.relative_l2:.5f}",
            *(f"{scores.rmse_per_time[step - 1]:#.4g}" for step in steps),
        ]
        for name, scores in {"this model": answer.scores, **answer.references}.items()
    ]
    return columns, rows


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"
