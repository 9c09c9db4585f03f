"""`Surrogate`, the class of trained models: arrays or xarray objects in, the same out."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.argument_checks import is_whole, path_given, whole
from ipot.data.dataset import Ragged, Stacked
from ipot.data.layout import counted_by
from ipot.data.own import Dataset, Layout
from ipot.errors import DataError, Unsupported, shown
from ipot.evaluation.conformal import Conformal
from ipot.evaluation.evaluate import Scores, evaluate
from ipot.evaluation.simple_forecasts import score_forecasts
from ipot.formats.series.description import Series
from ipot.formats.xarray_files import is_labelled
from ipot.models.base import Operator
from ipot.problems.base import Problem
from ipot.recipes.experiment import Experiment
from ipot.recipes.own_data import OwnData
from ipot.recipes.studies import warn_outside
from ipot.report import plots
from ipot.samples import Sample
from ipot.saved.folder import Saved, write_folder
from ipot.saved.graph import takes_points
from ipot.spec import Spec
from ipot.surrogate.answers import (
    answered,
    calibrated,
    intervals,
    joined,
    pieces,
    refuse_taken_names,
    usable_bounds,
)
from ipot.surrogate.encoded import Encoded, Interval
from ipot.surrogate.forecast import forecast, forecast_every_time
from ipot.surrogate.grid import data_with_grids, grid_places, on_grid, refuse_fill, with_grids
from ipot.surrogate.inputs import (
    Request,
    in_given_units,
    in_shown_units,
    read_inputs,
    request,
    times_of,
)
from ipot.surrogate.new_data import (
    one_sample,
    open_as_trained,
    points_as_queries,
    refuse_beside_path,
    refuse_other_kind,
    refuse_other_layout,
    refuse_other_sample,
    seen_in_training,
    turned,
    warn_radians,
    warn_unlike,
)
from ipot.surrogate.summary import in_and_out, summary

_log = logging.getLogger("ipot")


class Surrogate:
    """A trained operator, with facts about its data and its errors.

    `ipot.fit` and `ipot.load` make them. One that was trained on a built-in problem has the
    `settings` of its run, and so a grid to answer on or to fill (`places`, `predict(fill=...)`).
    """

    def __init__(
        self,
        model: Operator,
        config: Any,
        spec: Spec,
        layout: Layout | None = None,
        *,
        scores: dict[str, Any] | None = None,
        about: dict[str, Any] | None = None,
        bounds: Conformal | None = None,
        series: Series | None = None,
        settings: Experiment | None = None,
        samples: bytes | None = None,
    ) -> None:
        self.model, self.config, self.spec = model.eval(), config, spec
        self.layout = layout or Layout(timed=True)
        self.scores, self.about, self.bounds = scores or {}, about or {}, bounds
        self.series, self.settings = series, settings
        self.samples = samples
        """The archive samples.npz that `save` writes beside the model, to try it with."""

    @classmethod
    def of_experiment(
        cls,
        model: Operator,
        settings: Experiment,
        ranges: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Surrogate:
        """The model of a run. A run on your own data brings their layout; a run on a built-in
        problem brings its settings and perhaps the ranges of its training data (fields of a
        `Layout`), and answers are always (T, M, K)."""
        data, spec = settings.problem, settings.spec
        if isinstance(data, OwnData):
            if facts.get("series") is None and data.series is not None:
                facts["series"] = Series.from_dict(data.series)
            return cls(model, settings.model, spec, data.layout, **facts)
        layout = Layout(timed=True, alone=not takes_points(spec), **(ranges or {}))
        return cls(model, settings.model, spec, layout, settings=settings, **facts)

    @property
    def problem(self) -> Problem | None:
        """The built-in problem that it was trained on, if any."""
        return None if self.settings is None else self.settings.problem

    @property
    def device(self) -> torch.device:
        """The device that it computes on."""
        return next(self.model.parameters()).device

    def predict(
        self,
        points: Any = None,
        values: Any = None,
        queries: Any = None,
        *,
        parameters: Any = None,
        steps: int | None = None,
        times: Any = None,
        interval: float | None = None,
        on: Any = None,
        fill: str | None = None,
        rows: int | None = None,
        out: Any = None,
        precision: str = "float32",
        all_times: bool = False,
    ) -> Any:
        """The fields at the queries, in the form of the arrays that the model was trained on.

        For one sample: values (N, C), or (N) where there is one channel, at points (N, D); the
        answer is (M, K), or (M) where the targets of training had no axis for channels, with an
        axis for times in front where training had one.
        With an axis for samples in front, or a list, so is the answer. Points and queries may be
        given for every sample or once for all, and be any number; queries default to the points,
        and for a grid (H, W, 2) the answer has its axes. A model of a built-in problem answers (T,
        M, K), in one step where the problem is steady.

        A model of targets in time answers at their times, at the first so many `steps`, or at any
        `times` that are multiples of its step; more than in training are an extrapolation.

        The path of a file or folder like those of the training may be given instead of arrays; for
        a folder of cases the answers are a list, one for each.

        A model of labelled arrays takes an xarray object with the latest frames and returns one: on
        the coordinates of `on`, or else where the targets of the training were. With `all_times`
        every time that has its history is answered, and not only the last: as one xarray data set,
        or with `out="maps.nc"` in a file that is written time by time.

        `interval=0.9` gives (prediction, low, high): bounds that contain the truth at nine of ten
        places on average, from the errors on samples that were held out of training.

        `fill` interpolates the values onto the grid of `places` first ("linear", "cubic" or
        "nearest"), for a model that needs that grid; queries then default to the grid.

        Arrays may be mapped from files (`numpy.load(..., mmap_mode="r")`), which are then read
        piece by piece; `out` is an array of the answer's shape to write it to, which may be mapped
        too. `rows` are the points or queries taken at once, to save memory. `precision` "bf16" is
        quicker, at about three decimal digits: several times on a GPU, about twice on a CPU that
        has the instructions for it.
        """
        self.refuse_level(interval)  # before any work
        how: dict[str, Any] = {"rows": rows, "precision": precision}
        if isinstance(points, str | os.PathLike):
            from ipot.surrogate.files import predict_path

            told = {"values": values, "parameters": parameters, "times": times}
            if all_times:
                how |= {"all_times": True, "out": out}
            refuse_beside_path(told if all_times else told | {"out": out})
            asked = {"queries": queries, "steps": steps, "interval": interval, "fill": fill}
            return predict_path(self, points, on=on, **asked, **how)
        given = {"values": values, "queries": queries, "parameters": parameters, "times": times}
        if is_labelled(points):
            if all_times:
                refuse_beside_path(given | {"fill": fill})
                return self._every_time(points, out, on=on, steps=steps, level=interval, **how)
            others = given | {"fill": fill, "out": out}
            return self._labelled(points, steps, interval, on, how, **others)
        if all_times:
            raise Unsupported("all_times is for labelled arrays: give a series as xarray or a path")
        if on is not None:
            raise Unsupported("on is for xarray objects: say where to answer with queries=...")
        asked = self.request(points=points, **given, steps=steps, fill=fill)
        return self.answer(asked, interval=interval, out=out, **how)

    def request(self, *, fill: str | None = None, queries: Any = None, **given: Any) -> Request:
        """The arguments of `predict` as samples for the model."""
        refuse_fill(self.problem, self.spec, fill)
        if fill is not None and queries is None:
            queries = self.places()
        asked = request(self.spec, self.layout, queries=queries, **given)
        samples = on_grid(asked.samples, self.problem, self.spec, fill)
        return replace(asked, samples=samples)

    def sample(
        self, points: Any = None, values: Any = None, queries: Any = None, **given: Any
    ) -> Sample:
        """One case in arrays as a checked `Sample`; takes the arguments of `predict`."""
        asked = self.request(points=points, values=values, queries=queries, **given)
        if asked.many:
            raise DataError(f"sample takes one case, and these are {len(asked.samples)}")
        return asked.samples[0]

    def answer(
        self,
        asked: Request,
        *,
        interval: float | None = None,
        out: np.ndarray | None = None,
        **how: Any,
    ) -> Any:
        """The answer to a request as arrays; `how` are the rows and the precision of `predict`."""
        self.refuse_level(interval)
        if out is None:
            return self.given_back(asked, self.answers(asked.samples, **how), interval)
        if interval is not None:
            raise DataError("out takes the prediction alone: leave out interval=..., or out=...")
        places = asked.views(out, len(self.spec.outputs))
        answers = self.answers(asked.samples, **how, out=places)
        if places is None:  # in other units, or memory of another order: written at the end
            out[...] = asked.shaped(answers)
        return out

    def places(self) -> np.ndarray:
        """The points (N, D) of the grid that a built-in problem was trained on."""
        return grid_places(self.problem, self.spec)

    def encode(self, points: Any = None, values: Any = None, *, parameters: Any = None) -> Encoded:
        """The inputs of `predict`, encoded once to be asked often, as in a loop:

        state = model.encode(points=x, values=a)
        u_there, u_elsewhere = state.at(there), state.at(elsewhere)

        `state.at` takes the other arguments of `predict`, and answers as it would.
        """
        if is_labelled(points):
            raise Unsupported(
                "encode takes arrays; an xarray object is answered by predict(..., on=...)"
            )
        given = {"points": points, "values": values, "parameters": parameters}
        return Encoded(self, read_inputs(self.spec, self.layout, **given, copy=True))

    def given_back(self, asked: Request, answers: list[Tensor], interval: float | None) -> Any:
        """Answers to a request as arrays, with bounds if a level is asked for."""
        if interval is None:
            return asked.shaped(answers)
        found = self._around(asked.samples, answers, interval)
        return Interval(*(asked.shaped(part) for part in (answers, *found)))

    def _labelled(
        self, source: Any, steps: Any, interval: Any, on: Any, how: dict[str, Any], **others: Any
    ) -> Any:
        """The prediction from an xarray object, as xarray objects."""
        if self.series is None:
            raise Unsupported(
                "an xarray object was given, and the model was trained on arrays: give points "
                "and values as arrays"
            )
        if told := [name for name, value in others.items() if value is not None]:
            raise DataError(
                f"{', '.join(told)}: an xarray object has its own; on=... says where to answer"
            )
        found = forecast(self, self.series, source, on=on, steps=steps, level=interval, **how)
        return found[0] if interval is None else Interval(*found)

    def _every_time(self, source: Any, out: Any, **how: Any) -> Any:
        """The answers from all times of an xarray object, in memory or in a file."""
        if self.series is None:
            raise Unsupported("all_times is for a model that was trained on labelled arrays")
        out = None if out is None else path_given("out", out)
        return forecast_every_time(self, self.series, source, out=out, **how)

    def evaluate(self, data: Any, *, targets: Any = None) -> Scores:
        """Errors on samples whose answers are known: an `ipot.Dataset`, the path of a file or
        folder like those of the training, or an xarray object for a model of such; for a model of a
        built-in problem also a data set that the problem loads.

        `targets` is where the answers are, if elsewhere: stations in, a grid out. If an offset was
        subtracted from a channel, errors are relative to what is left of it, and root mean squares
        are in the units of the model (`layout`).
        """
        # Targets that are tiny in the units of the model would be zero in float32, and errors
        # relative to them absolute.
        opened = self.opened(data, targets=targets)
        data = self._fitting(opened, wide=("targets",))
        device = self.device
        scores = evaluate(self.model, data.to(device), device=device, finite=True)
        if not isinstance(opened, Dataset):
            return scores
        cycle = None if self.series is None else self.series.cycle
        return replace(scores, references=score_forecasts(opened, data, self.layout, cycle))

    def opened(self, data: Any, *, targets: Any = None) -> Any:
        """A path or an xarray object as samples with targets, by the names that the model was
        trained with, and in its units. Samples are returned as they are."""
        if isinstance(data, Dataset):
            return data.in_units_of(self.spec)
        if not is_labelled(data) and not isinstance(data, str | os.PathLike):
            return data
        facts = {"spec": self.spec, "about": self.about, "series": self.series}
        found = open_as_trained(data, targets=targets, **facts)
        for note in found.notes:
            _log.warning("%s", note)
        return found.data.in_units_of(self.spec)

    def plot(
        self,
        sample: Any,
        path: Path | str | None = None,
        *,
        index: int = 0,
        channel: str | int = 0,
        time: int = -1,
        targets: Any = None,
    ) -> Any:
        """A picture of a sample: what goes in, the truth if it is known, the answer, the error.

        `sample` is an `ipot.Sample`, or whatever `evaluate` takes, of which `index` says which
        sample is meant. The figure is returned, and with `path` also written there.
        """
        chosen = one_sample(self.opened(sample, targets=targets), index)
        path = None if path is None else path_given("path", path)
        outputs, which = self.spec.outputs, channel
        if isinstance(channel, str) and channel in outputs:
            which = outputs.index(channel)
        if isinstance(which, str) or not is_whole(which):
            raise DataError(f"channel={shown(channel)} is no output. Known: {', '.join(outputs)}")
        if not is_whole(time):
            raise DataError(f"time must be the number of one, like 0 or -1, got {shown(time)}")
        seen, answer = self.drawn(chosen)
        figure = plots.fields(seen, answer, spec=self.spec, channel=which, time=time)
        if path is not None:
            plots.save(figure, path)
        return figure

    def drawn(self, sample: Sample) -> tuple[Sample, Tensor]:
        """A sample and its answer (T, M, K), both in the units of the data."""
        refuse_other_sample(self.spec, sample)
        sample = counted_by(sample, self.layout)
        answer = torch.from_numpy(in_given_units(self.layout, self.answers([sample])[0]))
        return in_shown_units(self.layout, sample), answer

    def save(
        self, path: Path | str, *, overwrite: bool = False, precision: str = "float32"
    ) -> Path:
        """Write a folder that `ipot.load` reads: weights, settings, scores, a card; and of a fit a
        few samples that it was not trained on, unless `samples` is set to None before.

        The precision "float16" rounds the weights to three digits, for half the bytes. The answers
        of what is loaded then differ a little: score it again.
        """
        saved = Saved(
            model_name=self.model.name,
            model=self.config,
            spec=self.spec,
            layout=self.layout.as_dict(),
            about=self.about,
            scores=self.scores,
            bounds=None if self.bounds is None else self.bounds.state(),
            series=None if self.series is None else self.series.as_dict(),
            experiment=None if self.settings is None else self.settings.as_dict(),
            samples=self.samples,
        )
        place = path_given("path", path)
        return write_folder(place, self.model, saved, overwrite=overwrite, precision=precision)

    def summary(self) -> list[str]:
        """Inputs, outputs and their times, and the model's error beside those of simple predictors,
        as lines of text."""
        return [*in_and_out(self.spec, self.about, self.series), *self.score_lines()]

    def score_lines(self) -> list[str]:
        """The lines of `summary` about errors."""
        return summary(self.scores, self.about, self.model.name)

    def __repr__(self) -> str:
        said = " ".join(" ".join(self.score_lines()[:2]).split()) if self.scores else "no scores"
        return f"<ipot.Surrogate {self.spec.name}: {', '.join(self.spec.outputs)}; {said}>"

    def answers(
        self,
        samples: Sequence[Sample],
        *,
        rows: int | None = None,
        precision: str = "float32",
        out: Sequence[Tensor] | None = None,
    ) -> list[Tensor]:
        """Fields (T, M, K) of every sample, several at a time, in the units of `layout`. With `out`
        each is written to a given tensor."""
        if not isinstance(precision, str) or precision not in ("float32", "bf16"):
            raise Unsupported(f"precision must be float32 or bf16, got {shown(precision)}")
        rows = None if rows is None else whole("rows", rows)
        self.remark(samples)
        samples = with_grids(samples, self.problem, self.model)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bf16"):
            if out is None:
                parts = [self.answers_of(self.model, p, rows=rows) for p in pieces(samples)]
            else:
                pairs = zip(samples, out, strict=True)
                parts = [self.answers_of(self.model, [s], rows=rows, out=o) for s, o in pairs]
        return [answer for part in parts for answer in part]

    def remark(self, samples: Sequence[Sample]) -> None:
        """Warn if inputs are far from those of training, once for all samples."""
        seen = seen_in_training(self.model, self.layout)
        warn_unlike(samples, seen, self.spec, self.layout)
        warn_radians(samples, self.spec)

    def answers_of(
        self,
        model: Operator,
        samples: Sequence[Sample],
        *,
        rows: int | None = None,
        out: Tensor | None = None,
    ) -> list[Tensor]:
        """Answers to some samples together, by this model or by one with encoded inputs."""
        batch = joined(samples)
        warn_outside(*turned(batch, self.spec))
        if batch.points.shape[1]:
            warn_outside(*turned(*points_as_queries(batch, self.spec)), name="points")
        return answered(model, samples, batch, rows=rows, out=out)

    def around(
        self, samples: Sequence[Sample], answers: Sequence[Tensor], level: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The lower and the upper bounds of answers, for use under the names of outputs."""
        refuse_taken_names(self.spec.outputs)
        return self._around(samples, answers, level)

    def _around(
        self, samples: Sequence[Sample], answers: Sequence[Tensor], level: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        bounds = usable_bounds(self.bounds, level, fitted=self.problem is None)
        return intervals(bounds, level, samples, answers, self.spec, self.layout)

    def calibrate(self, data: Dataset | Stacked | Ragged) -> None:
        """Compute bounds from samples that the model was not trained on."""
        data = self._fitting(data)
        own, other = times_of(self.spec, self.layout, None), data[0].times
        if len(own) != len(other) or not np.allclose(own, other):
            raise DataError(
                f"data have the times {other}, and bounds are made at those of training, {own}: "
                "give targets at these times"
            )
        self.bounds = calibrated(self.model, data)

    def refuse_level(self, interval: float | None) -> None:
        """Refuse bounds that the model has none for."""
        if interval is not None:
            usable_bounds(self.bounds, interval, fitted=self.problem is None)

    def _fitting(self, data: Any, wide: Sequence[str] = ()) -> Stacked | Ragged:
        """Samples in the model's units; refused if they do not fit the model."""
        if self.problem is not None and isinstance(data, Stacked | Ragged):
            refuse_other_sample(self.spec, data[0], "data are")
            return data_with_grids(data, self.problem, self.model)
        if not isinstance(data, Dataset):
            raise DataError(
                f"data must be an ipot.Dataset, got {type(data).__name__}. Arrays become one by "
                "ipot.Dataset.from_arrays."
            )
        refuse_other_kind(self.spec, data.spec)
        refuse_other_layout(self.spec, self.layout, data.layout)
        data = data.in_units_of(self.spec)
        return data_with_grids(data.like(self.layout, wide=wide).data, self.problem, self.model)
