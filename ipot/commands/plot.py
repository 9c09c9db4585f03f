"""`ipot plot`: pictures of a trained model."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

import torch

from ipot.api import load
from ipot.commands.common import Generation, emit, parse
from ipot.commands.flags.plot import Kind, Plot
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import DataError, Unsupported
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.own.open_data import open_as_trained
from ipot.problems.base import GridProblem
from ipot.recipes.experiment import Experiment
from ipot.recipes.sizes import WHOLE
from ipot.recipes.studies import Question, answer, examine, seen_test_data
from ipot.report import plots
from ipot.run_folder import Run, run_at
from ipot.samples import Sample, collate
from ipot.saved.folder import is_saved
from ipot.spec import Need, Spec
from ipot.surrogate.surrogate import Surrogate
from ipot.training.journal import read

KINDS = get_args(Kind)


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Plot, arguments, "plot")
    if flags.out is None and is_saved(flags.run):
        raise DataError(
            f"--out is needed: {flags.run} is a saved model, whose folder holds nothing else"
        )
    studio = Studio(flags)
    folder, drawn = flags.out or studio.run.path, []
    for kind in flags.kind or studio.sensible():
        figure = getattr(studio, kind)()
        drawn.append(str(plots.save(figure, folder / f"{kind}.{flags.format}")))
        if not flags.json:
            print(drawn[-1])
    if flags.json:
        emit(drawn)


class Studio:
    """A run and its test data, ready to be drawn."""

    def __init__(self, flags: Plot) -> None:
        self.flags, self.store, self.device = flags, Store(flags.data), choose(flags.device)
        self.report = Generation(self.store, quiet=flags.quiet)
        self.question = Question(
            keep=flags.keep,
            resolution=flags.resolution,
            query_resolution=flags.query_resolution,
            mask=flags.mask,
            fill=flags.fill,
            steps=flags.steps,
        )

    @cached_property
    def surrogate(self) -> Surrogate:
        """Read when a picture needs it: the loss of a run without weights can still be drawn."""
        flags = self.flags
        return load(flags.run, device=flags.device, trusted=flags.trust, edited=flags.edited)

    @property
    def model(self) -> Operator:
        """The trained model."""
        return self.surrogate.model

    @property
    def settings(self) -> Experiment:
        """The settings of its run."""
        if self.surrogate.settings is None:
            raise Unsupported(
                f"{self.flags.run} was trained on data of your own, and this picture needs the "
                "test data of a built-in problem: --kind fields --input FILE and --kind loss can "
                "be drawn"
            )
        return self.surrogate.settings

    @property
    def spec(self) -> Spec:
        """The facts of its data."""
        return self.surrogate.spec

    @property
    def run(self) -> Run:
        """Its training: of a fit it lies in a folder of its own, beside the saved model."""
        return run_at(self.flags.run)

    def sensible(self) -> list[str]:
        """The pictures that this model has."""
        moving = self.spec.steps > 1
        logged = self.run.metrics.exists()  # a saved model may have left its run behind
        if self.flags.input is not None or self.surrogate.settings is None:
            chosen = {"rollout": moving, "loss": logged}
            return [kind for kind in ("fields", "rollout", "loss") if chosen.get(kind, True)]
        grid = isinstance(self.settings.problem, GridProblem)
        free = Need.SAME_POINTS not in self.model.needs
        some = self.flags.fill is not None or not WHOLE & self.model.needs
        chosen = {"rollout": moving, "time": moving, "resolution": grid and free, "sensors": some}
        chosen["loss"] = logged
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
        rows = read(self.run.metrics)
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
        if self.flags.input is not None:
            sample = open_as_trained(self.surrogate, self.flags.input)[index]
            return self.surrogate.drawn(sample)
        data = self._data(replace(self.question, samples=index + 1))
        sample = data[index]
        prediction = predict(self.model, collate([sample]).to(self.device))[0]
        return sample, prediction.cpu()

    def _data(self, question: Question) -> Any:
        keys = {"store": self.store, "device": self.device, "report": self.report}
        data = seen_test_data(self.settings, question, **keys)
        examine(self.model, data, question)
        return data

    def _title(self) -> str:
        if self.flags.input is not None:
            return f"{self.spec.name}: {self.flags.input}"
        return f"{self.settings.problem_name}: {self.question.describe()}"
