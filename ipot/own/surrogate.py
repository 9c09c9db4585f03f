"""An operator that was fitted to somebody's data: arrays in, arrays of the same kind out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ipot.data.own import Dataset, Layout
from ipot.errors import DataError, Unsupported
from ipot.evaluation.conformal import Conformal
from ipot.evaluation.evaluate import Scores, evaluate
from ipot.labelled.series import Series
from ipot.models.base import Operator
from ipot.nn.globe import GLOBAL
from ipot.own.answered import answered, calibrated, pieces
from ipot.own.asked import asked, times_of
from ipot.own.forecast import forecast
from ipot.own.sources import is_labelled
from ipot.recipes.studies import warn_outside
from ipot.report import plots
from ipot.report.tables import percent
from ipot.samples import Batch, Sample, collate
from ipot.saved.folder import Saved, write_folder
from ipot.spec import Spec


class Interval(NamedTuple):
    """An answer with bounds."""

    prediction: Any
    low: Any
    high: Any


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
        interval: float | None = None,
        on: Any = None,
    ) -> Any:
        """The fields at the queries, in the kind of arrays that the model was trained on.

        For one sample: values (N, C), or (N) where training had no axis for channels, at points
        (N, D); the answer is (M, K) or (M), with an axis for times in front where training had
        one. With an axis for samples in front, or a list, so is the answer. Points and queries
        may be those of every sample or one for all, and any number; queries are the points unless
        said, and on a grid (H, W, 2) the answer has its axes.

        A model of labelled arrays takes those, an xarray object with the latest frames, and gives
        such ones back: on the coordinates of `on`, or else where the targets of the training were.

        `interval=0.9` gives (prediction, low, high): bounds that hold the truth at nine of ten
        places on average, by the errors on samples that were held out of training.
        """
        if interval is not None:
            self._bounds(interval)  # refused before any work
        if is_labelled(points):
            return self._labelled(
                points, steps, interval, on, values=values, queries=queries, parameters=parameters
            )
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
        )
        answers = self.answers(question.samples)
        if interval is None:
            return question.shaped(answers)
        found = self.around(question.samples, answers, interval)
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
        """Errors on samples whose answers are known."""
        data = self._fitting(data)
        device = self.device
        return evaluate(self.model, data.data.to(device), device=device)

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
        if isinstance(channel, str):
            if channel not in self.spec.outputs:
                raise DataError(
                    f"channel={channel!r} is no output. Known: {', '.join(self.spec.outputs)}"
                )
            channel = self.spec.outputs.index(channel)
        figure = plots.fields(
            sample, self.answers([sample])[0], spec=self.spec, channel=channel, time=time
        )
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
        return write_folder(Path(path), self.model, saved, overwrite=overwrite)

    def summary(self) -> list[str]:
        """How good it is, in lines: its own error beside those of simple predictors."""
        if "held_out" not in self.scores:
            error = percent(self.scores["validation"])
            count = self.about.get("samples", {}).get("validation", 0)
            if not count:
                return [f"error on the training samples: {error}; too few to hold any out"]
            each = "sample" if count == 1 else "samples"
            return [f"error on {count} validation {each}: {error}; too few to hold more out"]
        count = self.about["samples"]["held out"]
        lines = [f"relative L2 error on {count} samples held out:"]
        simple = sorted(self.scores["baselines"].items(), key=lambda pair: -pair[1])
        rows = {"ipot": self.scores["held_out"], **dict(simple)}
        width = max(map(len, rows))
        lines += [f"  {name:<{width}}  {percent(error)}" for name, error in rows.items()]
        best = min(self.scores["baselines"].values(), default=float("inf"))
        if self.scores["held_out"] > best:
            lines.append("a simple predictor is better here: train longer, or give more samples")
        return lines

    def __repr__(self) -> str:
        said = " ".join(line.strip() for line in self.summary()[:2]) if self.scores else "no scores"
        return f"<ipot.Fitted {self.spec.name}: {', '.join(self.spec.outputs)}; {said}>"

    def answers(self, samples: Sequence[Sample]) -> list[Tensor]:
        """Fields (T, M, K) of every sample, several at a time."""
        found: list[Tensor] = []
        for piece in pieces(samples):
            batch = collate(piece)
            warn_outside(*self._turned(batch))
            found += answered(self.model, piece, batch)
        return found

    def around(
        self, samples: Sequence[Sample], answers: Sequence[Tensor], level: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The lower and the upper bounds of answers to samples."""
        bounds = self._bounds(level)
        for sample in samples:
            if self.layout.times[: len(sample.times)] not in ((), sample.times):
                raise Unsupported(
                    f"interval: bounds are known at the times of training, {self.layout.times}, "
                    "and not at others: leave out steps=..."
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
            raise DataError(f"the model answers at the times {own}, the data are at {other}")
        self.bounds = calibrated(self.model, data)

    def _bounds(self, level: Any) -> Conformal:
        """Its bounds, where it has any that can vouch for a level."""
        if not isinstance(level, float | np.floating) or not 0 < level < 1:
            raise DataError(f"interval must lie between 0 and 1, like 0.9, got {level!r}")
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

    def _fitting(self, data: Dataset) -> Dataset:
        """Data as the model counts them, or a refusal where they are of another kind."""
        if not isinstance(data, Dataset):
            raise DataError(
                f"data must be an ipot.Dataset, got {type(data).__name__}. Arrays become one by "
                "ipot.Dataset.from_arrays."
            )
        for name in ("inputs", "outputs", "parameters"):
            own, other = getattr(self.spec, name), getattr(data.spec, name)
            # Data without names count by their order; the same names in another order do not.
            if len(own) != len(other) or (own != other and set(own) == set(other)):
                raise DataError(
                    f"the model has {len(own)} {name} ({', '.join(own) or 'none'}), the data "
                    f"{len(other)} ({', '.join(other) or 'none'})"
                )
        for name, words in (
            ("dimension", "coordinates of a point"),
            ("query_dimension", "coordinates of a query"),
        ):
            own, other = getattr(self.spec, name), getattr(data.spec, name)
            if own != other:
                raise DataError(f"the model has {own} {words}, the data {other}")
        if self.spec.geographic != data.spec.geographic:
            raise DataError(
                "longitude and latitude: the model and the data must both have them, or neither "
                "(geographic=True)"
            )
        return data.moved(self.layout.origin)

    def _turned(self, batch: Batch) -> tuple[Batch, Spec]:
        """Queries and facts to look for places outside by: a longitude may be 350 or -10 degrees,
        and nothing lies outside of the whole way around."""
        spec = self.spec
        if not spec.geographic:
            return batch, spec
        (west, east), *_ = spec.query_domain
        if east - west >= GLOBAL[0]:
            return batch, replace(spec, query_periods=(360.0, *spec.query_periods[1:]))
        longitude, middle = batch.queries[..., :1], (west + east) / 2
        turned = longitude - 360.0 * torch.round((longitude - middle) / 360.0)
        return replace(batch, queries=torch.cat([turned, batch.queries[..., 1:]], -1)), spec
