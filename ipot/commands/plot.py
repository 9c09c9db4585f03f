"""`ipot plot`: pictures of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from ipot.commands.common import Folder, Generation, parse
from ipot.config import Run
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import DataError, UnknownName, Unsupported
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.problems.base import GridProblem
from ipot.recipes.experiment import WHOLE, Experiment, restore
from ipot.recipes.studies import Question, answer, examine, seen_test_data
from ipot.report import plots
from ipot.samples import Sample, collate
from ipot.spec import Need, Spec
from ipot.training.journal import read

KINDS = ("fields", "rollout", "loss", "sensors", "resolution", "time")


@dataclass
class Plot:
    """Draw pictures of a run into its folder, or into --out.

    fields: input, truth, prediction and error of a test sample; rollout: the same over time;
    loss: the training curve; sensors, resolution, time: the error against the fraction of the
    inputs observed, the resolution of the queries, and time. Without --kind, all that make sense.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    kind: tuple[str, ...] = ()
    """Which pictures."""
    sample: int = 0
    """Which test sample the fields and rollouts show."""
    keep: float = 1.0
    """Fraction of the inputs that fields and rollouts see."""
    resolution: int | None = None
    """Points a side of the inputs."""
    query_resolution: int | None = None
    """Points a side of the queries."""
    mask: str | None = None
    """Only the inputs of a region."""
    fill: str | None = None
    """Interpolate the inputs that are hidden from those that are seen: linear, cubic or nearest."""
    steps: int | None = None
    """Steps of the rollout."""
    samples: int = 20
    """Test samples that the curves average over, at most."""
    format: str = "png"
    """png, pdf or svg."""
    out: Folder = None
    """Where to put the pictures; the run folder unless said."""
    data: Folder = None
    """Data folder; $IPOT_DATA or the user's cache unless said."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that the folder names: only where you know where it comes from."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Plot, arguments, "plot")
    unknown = set(flags.kind) - set(KINDS)
    if unknown:
        raise UnknownName(f"unknown kind {sorted(unknown)}. Known: {', '.join(KINDS)}")
    studio = Studio(flags)
    for kind in flags.kind or studio.sensible():
        figure = getattr(studio, kind)()
        print(plots.save(figure, (flags.out or flags.run) / f"{kind}.{flags.format}"))


class Studio:
    """A run and its test data, ready to be drawn."""

    def __init__(self, flags: Plot) -> None:
        self.flags, self.store, self.device = flags, Store(flags.data), choose(flags.device)
        self.question = Question(
            keep=flags.keep,
            resolution=flags.resolution,
            query_resolution=flags.query_resolution,
            mask=flags.mask,
            fill=flags.fill,
            steps=flags.steps,
        )

    @cached_property
    def _trained(self) -> tuple[Operator, Experiment]:
        """Read when a picture needs it: the loss of a run without weights can still be drawn."""
        return restore(self.flags.run, self.device, trusted=self.flags.trust)

    @property
    def model(self) -> Operator:
        """The trained model."""
        return self._trained[0]

    @property
    def settings(self) -> Experiment:
        """Its settings."""
        return self._trained[1]

    @property
    def spec(self) -> Spec:
        """Its problem's facts."""
        return self.settings.problem.spec

    def sensible(self) -> list[str]:
        """The pictures that this problem has."""
        moving = self.spec.steps > 1
        grid = isinstance(self.settings.problem, GridProblem)
        free = Need.SAME_POINTS not in self.model.needs
        some = self.flags.fill is not None or not WHOLE & self.model.needs
        chosen = {"rollout": moving, "time": moving, "resolution": grid and free, "sensors": some}
        return [kind for kind in KINDS if chosen.get(kind, True)]

    def fields(self) -> Any:
        """Input, truth, prediction, error."""
        sample, prediction = self._case()
        return plots.fields(sample, prediction, spec=self.spec, title=self._title())

    def rollout(self) -> Any:
        """Truth, prediction and error over time."""
        self._need_time()
        sample, prediction = self._case()
        return plots.rollout(sample, prediction, spec=self.spec, title=self._title())

    def loss(self) -> Any:
        """The training curve."""
        rows = read(Run(self.flags.run).metrics)
        if not rows:
            raise DataError(f"{self.flags.run} has no metrics yet")
        return plots.training(rows)

    def sensors(self) -> Any:
        """Error against the fraction of the inputs observed."""
        fractions = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
        return self._curve("observed", "fraction of the inputs observed", fractions, "keep")

    def resolution(self) -> Any:
        """Error against the resolution of the queries, inputs as in training."""
        problem = self.settings.problem
        if not isinstance(problem, GridProblem):
            raise Unsupported(f"{problem.name} has no grid: it comes at one resolution only")
        own = problem.resolution
        chosen = [r for r in problem.resolutions() if own // 4 <= r]
        return self._curve("queries", "points a side of the queries", chosen, "query_resolution")

    def time(self) -> Any:
        """Error against time."""
        self._need_time()
        scores = self._ask(self.question).scores
        steps = [self.spec.dt * (i + 1) for i in range(len(scores.per_time))]
        series = {self.settings.model_name: (steps, scores.per_time)}
        return plots.curve(series, xlabel="time", ylabel="relative L2", title=self._title())

    def _need_time(self) -> None:
        if self.spec.steps == 1:
            raise Unsupported(f"{self.spec.name} is steady: there is nothing to see over time")

    def _curve(self, label: str, xlabel: str, values: Any, name: str) -> Any:
        errors = [self._ask(replace(self.question, **{name: v})).scores.relative_l2 for v in values]
        return plots.curve(
            {label: (list(values), errors)},
            xlabel=xlabel,
            ylabel="relative L2",
            title=self.settings.problem_name,
        )

    def _ask(self, question: Question) -> Any:
        question = replace(question, samples=min(self.flags.samples, self.settings.data.test))
        return answer(self.model, self.settings, question, self._data(question))

    def _case(self) -> tuple[Sample, torch.Tensor]:
        index = self.flags.sample
        if index < 0:
            raise DataError(f"samples are counted from 0, got {index}")
        data = self._data(replace(self.question, samples=index + 1))
        sample = data[index]
        prediction = predict(self.model, collate([sample]).to(self.device))[0]
        return sample, prediction.cpu()

    def _data(self, question: Question) -> Any:
        keys = {"store": self.store, "device": self.device, "report": Generation(self.store)}
        data = seen_test_data(self.settings, question, **keys)
        examine(self.model, data, question)
        return data

    def _title(self) -> str:
        return f"{self.settings.problem_name}: {self.question.describe()}"
