"""`ipot plot`: pictures of a trained model."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from ipot.api import load
from ipot.commands.flags.plot import Kind, Plot
from ipot.commands.output import Generation, emit, say
from ipot.commands.parsing import data_given, parse, without_old_input
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import DataError, Unsupported
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.problems.base import GridProblem
from ipot.recipes.experiment import Experiment
from ipot.recipes.studies import Question, answer, examine, mean_guess, seen_test_data
from ipot.report import plots
from ipot.run_folder import Run, run_at
from ipot.samples import Sample, collate
from ipot.saved.folder import is_saved
from ipot.spec import ALL_POINTS, Need, Spec
from ipot.surrogate.loading import folder_of
from ipot.surrogate.new_data import one_sample
from ipot.surrogate.surrogate import Surrogate
from ipot.training.journal import read

MIDDLE = (0.1, 0.9)
"""Of the samples of a curve, between which quantiles its bars lie."""
KINDS = get_args(Kind)


def main(arguments: list[str]) -> None:
    """Run the command."""
    arguments, old = without_old_input(arguments, "plot")
    flags = parse(Plot, arguments, "plot")
    flags.cases = data_given(flags.cases, old)
    studio = Studio(flags)
    kinds = flags.kind or studio.sensible()
    if not kinds:
        raise DataError(
            f"{flags.run} was trained on data of your own, and nothing is kept of them to draw. "
            f"Give a file or folder like those it was trained on: ipot plot {flags.run} new_cases"
        )
    out, drawn = flags.out or _beside(studio.run), []
    for kind in kinds:
        figure = getattr(studio, kind)()
        drawn.append(str(plots.save(figure, out / f"{kind}.{flags.format}")))
        if not flags.json:
            print(drawn[-1])
    if flags.json:
        emit(drawn)
    if not flags.kind and studio.lacks_cases:
        say(f"fields are drawn of data that you give: ipot plot {flags.run} new_cases")


def _beside(run: Run) -> Path:
    """Where pictures go: into the folder of a run; that of a saved model holds nothing else."""
    home = run.home.resolve()
    return Path(f"{home.name}-pictures") if is_saved(home) else run.path


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
                "test data of a built-in problem. Of data like those, fields and rollout can be "
                f"drawn (ipot plot {self.flags.run} new_cases), and without any the loss."
            )
        return self.surrogate.settings

    @property
    def spec(self) -> Spec:
        """The facts of its data."""
        return self.surrogate.spec

    @property
    def run(self) -> Run:
        """Its training: of a fit it lies in a folder of its own, beside the saved model."""
        return run_at(folder_of(self.flags.run))

    @property
    def lacks_cases(self) -> bool:
        """Whether there are no samples to draw: your own are not kept with a model."""
        return self.flags.cases is None and self.surrogate.settings is None

    def sensible(self) -> list[str]:
        """The pictures that this model has."""
        moving = self.spec.steps > 1
        logged = self.run.metrics.exists()  # a saved model may have left its run behind
        if self.lacks_cases:
            return ["loss"] if logged else []
        if self.flags.cases is not None:
            chosen = {"rollout": moving, "loss": logged}
            return [kind for kind in ("fields", "rollout", "loss") if chosen.get(kind, True)]
        grid = isinstance(self.settings.problem, GridProblem)
        free = Need.SAME_POINTS not in self.model.needs
        some = self.flags.fill is not None or not ALL_POINTS & self.model.needs
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
        guess = mean_guess(self.settings, replace(self.question, query_resolution=None), self._keys)
        asked = [replace(self.question, **{name: v}) for v in values]
        answers = [self._ask(question, guess) for question in asked]
        errors = [a.scores.relative_l2 for a in answers]
        parts = [np.quantile(a.scores.per_sample, MIDDLE).tolist() for a in answers]
        # It lives on the queries of the training, and is one line wherever these are asked.
        known = [a.mean_field for a in answers if a.mean_field is not None]
        count = len(answers[0].scores.per_sample)
        title = f"{self.settings.problem_name}: mean of {count} test samples"
        return plots.curve(
            {label: (list(values), errors)},
            xlabel=xlabel,
            ylabel="relative L2",
            title=f"{title}; bars hold 80 % of them" if count > 1 else title,
            bars={label: parts} if count > 1 else None,
            reference={"the mean field": known[0]} if known else None,
        )

    def _ask(self, question: Question, guess: torch.Tensor | None = None) -> Any:
        question = replace(question, samples=min(self.flags.samples, self.settings.data.test))
        return answer(self.model, self.settings, question, self._data(question), guess=guess)

    def _case(self) -> tuple[Sample, torch.Tensor]:
        index = self.flags.sample
        if index < 0:
            raise DataError(f"samples are counted from 0, got {index}")
        if self.flags.cases is not None:
            data = self.surrogate.opened(self.flags.cases, targets=self.flags.targets_from)
            return self.surrogate.drawn(one_sample(data, index))
        data = self._data(replace(self.question, samples=index + 1))
        sample = data[index]
        prediction = predict(self.model, collate([sample]).to(self.device))[0]
        return sample, prediction.cpu()

    @property
    def _keys(self) -> dict[str, Any]:
        """Where the data of the problem come from."""
        return {"store": self.store, "device": self.device, "report": self.report}

    def _data(self, question: Question) -> Any:
        data = seen_test_data(self.settings, question, **self._keys)
        examine(self.model, data, question)
        return data

    def _title(self) -> str:
        if self.flags.cases is not None:
            return f"{self.spec.name}: {self.flags.cases}"
        return f"{self.settings.problem_name}: {self.question.describe()}"
