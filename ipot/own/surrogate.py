"""An operator that was fitted to somebody's data: arrays in, arrays of the same kind out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.own import Dataset, Layout
from ipot.data.own_given import is_whole, path_given
from ipot.data.own_units import counted_by
from ipot.errors import DataError, Unsupported, shown
from ipot.evaluation.conformal import Conformal
from ipot.evaluation.evaluate import Scores, evaluate
from ipot.evaluation.input_range import ends_of, seen_in_training, warn_unlike
from ipot.labelled.series import Series
from ipot.models.base import Operator
from ipot.own.answered import answered, calibrated, pieces
from ipot.own.asked import Asked, asked, in_given_units, in_shown_units, known, times_of
from ipot.own.encoded import Encoded, Interval
from ipot.own.forecast import forecast
from ipot.own.kind import (
    points_as_queries,
    refuse_other_kind,
    refuse_other_layout,
    refuse_other_sample,
    turned,
)
from ipot.own.sources import is_labelled
from ipot.own.summary import summary
from ipot.recipes.studies import warn_outside
from ipot.report import plots
from ipot.samples import Sample, collate
from ipot.saved.folder import Saved, write_folder
from ipot.spec import Spec

BOUNDS = ("_low", "_high")
"""What the bounds of a channel are called by, behind its name, where they have names."""


class Fitted:
    """A trained operator, with what it knows of its data and of its own errors."""

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
    ) -> None:
        self.model, self.config, self.spec = model.eval(), config, spec
        self.layout = layout or Layout(timed=True)
        self.scores, self.about, self.bounds = scores or {}, about or {}, bounds
        self.series = series

    @property
    def device(self) -> torch.device:
        """Where it computes."""
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
    ) -> Any:
        """The fields at the queries, in the kind of arrays that the model was trained on.

        For one sample: values (N, C), or (N) where training had no axis for channels, at points
        (N, D); the answer is (M, K) or (M), with an axis for times in front where training had
        one. With an axis for samples in front, or a list, so is the answer. Points and queries
        may be those of every sample or one for all, and any number; queries are the points unless
        said, and on a grid (H, W, 2) the answer has its axes.

        A model of targets in time answers at their times, at the first so many `steps`, or at any
        `times` that are multiples of its step.

        A model of labelled arrays takes those, an xarray object with the latest frames, and gives
        such ones back: on the coordinates of `on`, or else where the targets of the training were.

        `interval=0.9` gives (prediction, low, high): bounds that hold the truth at nine of ten
        places on average, by the errors on samples that were held out of training.
        """
        self.refuse_level(interval)  # before any work
        if is_labelled(points):
            others = {"values": values, "queries": queries, "parameters": parameters}
            return self._labelled(points, steps, interval, on, **others, times=times)
        if on is not None:
            raise Unsupported("on is for xarray objects: say where to answer with queries=...")
        question = asked(
            self.spec,
            self.layout,
            points=points,
            values=values,
            queries=queries,
            parameters=parameters,
            steps=steps,
            times=times,
        )
        return self.given_back(question, self.answers(question.samples), interval)

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
        return Encoded(self, known(self.spec, self.layout, **given))

    def given_back(self, question: Asked, answers: list[Tensor], interval: float | None) -> Any:
        """Answers to a question as arrays, with bounds where a level is asked for."""
        if interval is None:
            return question.shaped(answers)
        found = self._around(question.samples, answers, interval)
        return Interval(*(question.shaped(part) for part in (answers, *found)))

    def _labelled(self, source: Any, steps: Any, interval: Any, on: Any, **others: Any) -> Any:
        """The same for an xarray object."""
        if self.series is None:
            raise Unsupported(
                "an xarray object was given, and the model was trained on arrays: give points "
                "and values as arrays"
            )
        if told := [name for name, value in others.items() if value is not None]:
            raise DataError(
                f"{', '.join(told)}: an xarray object has its own; on=... says where to answer"
            )
        found = forecast(self, self.series, source, on=on, steps=steps, level=interval)
        return found[0] if interval is None else Interval(*found)

    def evaluate(self, data: Dataset) -> Scores:
        """Errors on samples whose answers are known.

        Where a channel is counted from an offset, errors are relative to what is left of it, and
        root mean squares are in the units of the model (`layout`).
        """
        # Targets that are tiny in the units of the model would be zero in float32, and errors
        # relative to them absolute.
        data = self._fitting(data, wide=("targets",))
        device = self.device
        return evaluate(self.model, data.data.to(device), device=device, finite=True)

    def plot(
        self,
        sample: Sample,
        path: Path | str | None = None,
        *,
        channel: str | int = 0,
        time: int = -1,
    ) -> Any:
        """A picture of a sample: what goes in, the truth if it is known, the answer, the error.

        The figure is given back; with `path` it is also written there.
        """
        if not isinstance(sample, Sample):
            raise DataError(
                f"sample must be an ipot.Sample, like data[0], got {type(sample).__name__}"
            )
        refuse_other_sample(self.spec, sample)
        sample = counted_by(sample, self.layout)
        path = None if path is None else path_given("path", path)
        which = channel
        if isinstance(channel, str) and channel in self.spec.outputs:
            which = self.spec.outputs.index(channel)
        if isinstance(which, str) or not is_whole(which):
            raise DataError(
                f"channel={shown(channel)} is no output. Known: {', '.join(self.spec.outputs)}"
            )
        if not is_whole(time):
            raise DataError(f"time must be the number of one, like 0 or -1, got {shown(time)}")
        answer = torch.from_numpy(in_given_units(self.layout, self.answers([sample])[0]))
        seen = in_shown_units(self.layout, sample)
        figure = plots.fields(seen, answer, spec=self.spec, channel=which, time=time)
        if path is not None:
            plots.save(figure, path)
        return figure

    def save(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write a folder that `ipot.load` reads: weights, settings, scores, a card."""
        saved = Saved(
            model_name=self.model.name,
            model=self.config,
            spec=self.spec,
            layout=self.layout.as_dict(),
            about=self.about,
            scores=self.scores,
            bounds=None if self.bounds is None else self.bounds.state(),
            series=None if self.series is None else self.series.as_dict(),
        )
        return write_folder(path_given("path", path), self.model, saved, overwrite=overwrite)

    def summary(self) -> list[str]:
        """How good it is, in lines: its own error beside those of simple predictors."""
        return summary(self.scores, self.about)

    def __repr__(self) -> str:
        said = " ".join(line.strip() for line in self.summary()[:2]) if self.scores else "no scores"
        return f"<ipot.Fitted {self.spec.name}: {', '.join(self.spec.outputs)}; {said}>"

    def answers(self, samples: Sequence[Sample]) -> list[Tensor]:
        """Fields (T, M, K) of every sample, several at a time, in the units of `layout`."""
        self.remark(samples)
        return [a for piece in pieces(samples) for a in self.answers_of(self.model, piece)]

    def remark(self, samples: Sequence[Sample]) -> None:
        """Warn where inputs are far from those of training, once for all samples."""
        seen = seen_in_training(self.model, self.layout)
        warn_unlike(ends_of(samples), seen, self.spec, self.layout, stacklevel=5)

    def answers_of(self, model: Operator, samples: Sequence[Sample]) -> list[Tensor]:
        """The same of some that are answered together, by this model or one that has encoded."""
        batch = collate(samples)
        warn_outside(*turned(batch, self.spec))
        if batch.points.shape[1]:
            warn_outside(*turned(*points_as_queries(batch, self.spec)), name="points")
        return answered(model, samples, batch)

    def around(
        self, samples: Sequence[Sample], answers: Sequence[Tensor], level: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The lower and the upper bounds of answers that are then told apart by name.

        Those of a channel u are called u_low and u_high, so there may be no channels of that name.
        """
        taken = [n for n in self.spec.outputs for s in BOUNDS if f"{n}{s}" in self.spec.outputs]
        if taken:
            raise Unsupported(
                f"interval: the bounds of {taken[0]} are called {taken[0]}_low and "
                f"{taken[0]}_high, and the model has a channel of that name. Ask with arrays in "
                "Python, where bounds have no names, or train with other names of the outputs."
            )
        return self._around(samples, answers, level)

    def _around(
        self, samples: Sequence[Sample], answers: Sequence[Tensor], level: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        bounds = self._bounds(level)
        for sample in samples:
            if self.layout.times[: len(sample.times)] not in ((), sample.times):
                raise Unsupported(
                    f"interval: bounds are known at the times of training, {self.layout.times}, "
                    "and not at others: leave out steps=... or times=..."
                )
        both = [
            bounds.interval(answer, level, queries=sample.queries, spec=self.spec)
            for sample, answer in zip(samples, answers, strict=True)
        ]
        return [low for low, _ in both], [high for _, high in both]

    def calibrate(self, data: Dataset) -> None:
        """Make bounds from samples that the model has not been trained on."""
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
            self._bounds(interval)

    def _bounds(self, level: Any) -> Conformal:
        """Its bounds, where it has any that can vouch for a level."""
        if not isinstance(level, float | np.floating) or not 0 < level < 1:
            hint = ""
            if isinstance(level, int | float) and 1 < level < 100:
                hint = f": {level} % are interval={level / 100:g}"
            raise DataError(
                f"interval must lie between 0 and 1, like 0.9, got {shown(level)}{hint}"
            )
        if self.bounds is None:
            raise Unsupported(
                "interval: this model has no bounds, since too few samples were held out of its "
                "training. `model.calibrate(data)` makes them from samples of your own."
            )
        if level > self.bounds.highest_level + 1e-9:
            raise Unsupported(
                f"interval={level:g}: {self.bounds.samples} samples were held out, and can vouch "
                f"for {self.bounds.highest_level:.3g} at the most. Ask for less, or make bounds "
                "from more samples by `model.calibrate(data)`."
            )
        return self.bounds

    def _fitting(self, data: Dataset, wide: Sequence[str] = ()) -> Dataset:
        """Data as the model counts them, or a refusal where they are of another kind."""
        if not isinstance(data, Dataset):
            raise DataError(
                f"data must be an ipot.Dataset, got {type(data).__name__}. Arrays become one by "
                "ipot.Dataset.from_arrays."
            )
        refuse_other_kind(self.spec, data.spec)
        refuse_other_layout(self.spec, self.layout, data.layout)
        return data.like(self.layout, wide=wide)
