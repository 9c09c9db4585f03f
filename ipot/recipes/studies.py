"""Scores of a trained model on other views of the test data: other grids, fewer sensors, longer
times."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ipot.data import fill, views
from ipot.data.dataset import Dataset
from ipot.data.statistics import mean_field
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import DataError, Unsupported, warn_user
from ipot.evaluation.evaluate import Scores, evaluate, score, score_references
from ipot.models.base import Operator
from ipot.problems.base import Problem
from ipot.recipes.experiment import Experiment, SplitReport, load_data
from ipot.recipes.running import restore
from ipot.samples import Batch
from ipot.spec import ALL_POINTS, Spec

LOOKED_AT = 1 << 20
"""Queries that are compared with a domain at a time."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """How the test data are seen. The defaults are the data as in training."""

    keep: float = 1.0
    resolution: int | None = None
    query_resolution: int | None = None
    mask: str | None = None
    fill: str | None = None
    """How inputs that are hidden are interpolated from the others; None leaves them out."""
    steps: int | None = None
    samples: int | None = None
    seed: int = 0
    symmetric: bool = False
    """Answers are averaged over the symmetries of the problem."""

    def __post_init__(self) -> None:
        if self.fill is not None:
            fill.check(self.fill)

    @property
    def hides(self) -> bool:
        """True if some of the inputs are hidden."""
        return self.mask is not None or self.keep != 1

    def describe(self) -> str:
        """How the test data are seen, in words."""
        words = []
        if self.resolution:
            words.append(f"inputs at {self.resolution} a side")
        if self.query_resolution:
            words.append(f"queries at {self.query_resolution} a side")
        if self.mask:
            words.append(f"mask {self.mask}")
        if self.keep < 1:
            words.append(f"{100 * self.keep:g} % of the inputs")
        if self.hides and self.fill:
            words.append(f"filled: {self.fill}")
        if self.steps:
            words.append(f"{self.steps} steps")
        if self.symmetric:
            words.append("averaged over symmetries")
        return ", ".join(words) or "test data as in training"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The scores, and what they were computed on."""

    question: Question
    scores: Scores
    points: int
    queries: int
    outputs: tuple[str, ...]
    mean_field: float | None
    """What the average training field scores where the queries allow it."""
    references: dict[str, Scores] = field(default_factory=dict)
    """What simple forecasts score, where the problem knows any and the inputs allow it."""

    @property
    def median(self) -> float:
        """The median sample's error."""
        return statistics.median(self.scores.per_sample)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `relative_l2` stands at the top."""
        return {
            **self.scores.as_dict(),
            "median": self.median,
            "mean_field": self.mean_field,
            "references": {name: s.as_dict() for name, s in self.references.items()},
            "points": self.points,
            "queries": self.queries,
            "samples": len(self.scores.per_sample),
            "question": asdict(self.question),
        }


def ask(
    run: Path | str,
    question: Question,
    *,
    store: Store | None = None,
    device: str = "auto",
    weights: str = "best",
    batch: int = 16,
    report: SplitReport | None = None,
    trusted: bool = False,
) -> Answer:
    """Score a run folder on test data seen through a question.

    Code outside this package that the run names is imported only where it is `trusted`.
    """
    model, settings = restore(run, choose(device), weights, trusted=trusted)
    return ask_model(model, settings, question, store=store, batch=batch, report=report)


def ask_model(
    model: Operator,
    settings: Experiment,
    question: Question,
    *,
    store: Store | None = None,
    batch: int = 16,
    report: SplitReport | None = None,
    channels: Sequence[int] | None = None,
) -> Answer:
    """Score a trained model on the test data of its problem, seen through a question; some of its
    outputs alone where `channels` are given."""
    place = next(model.parameters()).device
    keys = {"store": store or Store(), "device": place, "report": report}
    data = seen_test_data(settings, question, **keys)
    examine(model, data, question)
    how: dict[str, Any] = {"batch": batch, "channels": channels}
    guess = mean_guess(settings, question, keys)
    found = answer(model, settings, question, data, guess=guess, **how)
    simple = asked_problem(settings, question).references(data, "test")
    return replace(found, references=score_references(simple, data, batch=batch))


def examine(model: Operator, data: Dataset, question: Question) -> None:
    """Refuse data that lack what the model needs, with advice if the question took it away."""
    found = sorted(need.value for need in ALL_POINTS & model.needs)
    if found and question.hides and question.fill is None:
        raise Unsupported(
            f"{model.name} needs {' and '.join(found)}: it cannot be asked with inputs hidden "
            f"({question.describe()}). --fill linear interpolates them from those that are seen; "
            "cubic and nearest are the other ways."
        )
    model.examine(data)


def answer(
    model: Operator,
    settings: Experiment,
    question: Question,
    data: Dataset,
    *,
    batch: int = 16,
    guess: Tensor | None = None,
    channels: Sequence[int] | None = None,
) -> Answer:
    """Score a model on data that are there already."""
    place = next(model.parameters()).device
    with torch.autocast(place.type, enabled=False):
        how = {"finite": True, "symmetric": question.symmetric, "channels": channels}
        scores = evaluate(model, data.to(place), batch=batch, device=place, **how)
    first = data[0]
    return Answer(
        question=question,
        scores=scores,
        points=len(first.points),
        queries=first.queries.shape[-2],
        outputs=settings.problem.spec.outputs,
        mean_field=None if guess is None else guess_error(guess, data),
    )


def asked_problem(settings: Experiment, question: Question) -> Problem:
    """The problem with the horizon that a question asks for."""
    if question.steps is None:
        return settings.problem
    return settings.problem.with_steps(question.steps)


def seen_test_data(
    settings: Experiment,
    question: Question,
    *,
    store: Store,
    device: torch.device,
    report: SplitReport | None = None,
) -> Dataset:
    """The test split, seen through a question."""
    if question.samples is not None:
        if question.samples < 1:
            raise DataError(f"at least one test sample is needed, got {question.samples}")
        settings = replace(settings, data=replace(settings.data, test=question.samples))
    settings = replace(settings, problem=asked_problem(settings, question))
    data = load_data(
        settings,
        "test",
        store=store,
        device=device,
        report=report,
        resolution=question.resolution,
        query_resolution=question.query_resolution,
    )
    spec, masks = settings.problem.spec, dict(settings.problem.masks)

    def view(data: Dataset) -> Dataset:
        if question.mask is not None:
            data = views.mask(data, question.mask, spec, masks)
        return views.keep(data, question.keep, seed=question.seed)

    if question.hides and question.fill is not None:
        return fill.fill(data, view, spec, question.fill)
    return view(data)


def guess_error(guess: Tensor, data: Dataset) -> float | None:
    """The score of a fixed field, if it is given at the queries of the data."""
    truth = data[0].truth
    if guess.shape != truth.shape:
        return None
    guess = guess.to(truth.device).unsqueeze(0)
    pairs = ((guess, data[i].truth.unsqueeze(0), None, None) for i in range(len(data)))
    return score(pairs).relative_l2


def warn_outside(batch: Batch, spec: Spec, name: str = "queries") -> None:
    """Warn where queries lie far outside the domain that the model was trained on.

    They are looked at in pieces, since they may fill a file that no memory holds. `name` is what
    they are called, where they are no queries in truth.
    """
    places, domain = batch.queries, spec.query_domain
    low, high = torch.tensor(domain, dtype=torch.float32).unbind(-1)
    margin = 0.05 * (high - low)
    turning = torch.tensor([p is not None for p in spec.query_periods])
    low = (low - margin).masked_fill(turning, -torch.inf)
    high = (high + margin).masked_fill(turning, torch.inf)
    count, first = 0, None
    for piece in _pieces(places):
        least, most = torch.stack(torch.aminmax(piece, dim=0)).cpu()
        if ((least >= low) & (most <= high)).all():
            continue
        piece = piece.cpu()
        outside = ((piece < low) | (piece > high)).any(-1)
        count += int(outside.sum())
        if first is None and count:
            first = piece[outside][0].tolist()
    if count:
        warn_user(
            f"{count} of {places.shape[:-1].numel()} {name} lie outside the domain "
            f"{domain} that the model has seen, the first at {first}: "
            "an extrapolation, not to be trusted",
        )


def _pieces(queries: Tensor) -> Iterator[Tensor]:
    """Views of some rows (rows, E) at a time, of all samples and times."""
    rows = queries.shape[-1]
    planes = [queries.view(-1, rows)] if queries.is_contiguous() else _planes(queries)
    for plane in planes:
        yield from plane.split(LOOKED_AT)


def _planes(queries: Tensor) -> Iterator[Tensor]:
    """The queries of every sample and time one by one, since together they would be copied."""
    for sample in queries:
        yield from sample if sample.ndim == 3 else [sample]


def mean_guess(settings: Experiment, question: Question, keys: dict[str, Any]) -> Tensor | None:
    """The mean field of the training data at the training resolution, if the question is asked
    there; other resolutions would need the training data at that resolution. None where these data
    are not there, as behind a model from elsewhere: a yardstick is not worth solving for them."""
    own = getattr(settings.problem, "resolution", None)
    asked = question.query_resolution or question.resolution or own
    if asked != own or question.steps is not None:
        return None
    problem, data = settings.problem, settings.data
    if problem.generated and problem.files is None:
        recipe = problem.recipe("train", data.seed, problem.storage(None, None))
        if keys["store"].count(recipe) < data.train:
            return None
    return mean_field(load_data(settings, "train", **keys))
