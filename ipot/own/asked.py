"""A question in arrays: as samples for a model, and its answers as arrays of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.own import Layout
from ipot.data.own_arrays import array, is_listed
from ipot.data.own_given import is_whole, refuse_many_steps
from ipot.errors import DataError, Unsupported, shown
from ipot.own.arguments import (
    is_by_samples,
    led_by_samples,
    parameters_of,
    places_of,
    refuse_missing,
    refuse_other_counts,
    values_of,
)
from ipot.samples import Sample
from ipot.spec import Spec


@dataclass(frozen=True)
class Asked:
    """Samples without targets, and what their answers should look like."""

    samples: list[Sample]
    layout: Layout
    many: bool
    listed: bool
    shapes: list[tuple[int, ...]]
    """The axes of the queries of each sample, in front of their coordinates."""

    def shaped(self, answers: Sequence[Tensor]) -> Any:
        """Answers (T, M, K) as the user's arrays."""
        found = [self._one(a, s) for a, s in zip(answers, self.shapes, strict=True)]
        if not self.many:
            return found[0]
        alike = len({f.shape for f in found}) == 1
        return np.stack(found) if alike and not self.listed else found

    def _one(self, answer: Tensor, shape: tuple[int, ...]) -> np.ndarray:
        out = in_given_units(self.layout, answer)
        out = out.reshape(out.shape[0], *shape, out.shape[-1])
        if not self.layout.timed:
            out = out[0]
        return out[..., 0] if self.layout.flat_targets else out


def in_given_units(layout: Layout, answer: Tensor) -> np.ndarray:
    """An answer (T, M, K) in the units of the data: float64 where they were changed."""
    scaling = layout.scaling("targets")
    return answer.numpy() if scaling is None else scaling.undo(answer)


def in_shown_units(layout: Layout, sample: Sample) -> Sample:
    """A sample of a data set with the values and targets that it was made from, as far as float64
    tells; itself where its units were not changed."""
    found: dict[str, Any] = {}
    for name in ("values", "targets"):
        scaling, held = layout.scaling(name), getattr(sample, name)
        if scaling is not None and held is not None:
            found[name] = torch.from_numpy(scaling.undo(held, name))
    return replace(sample, **found)


@dataclass(frozen=True)
class Known:
    """What predictions are made from, sample by sample: a question without its queries."""

    spec: Spec
    layout: Layout
    inputs: list[dict[str, Any]]
    """Points, values and parameters of each sample, as a `Sample` takes them."""
    shapes: list[tuple[int, ...]]
    """The axes of the points of each sample, in front of their coordinates."""
    counts: dict[str, int]
    """The number of samples by the arguments that have an axis for them; none for one alone."""
    listed: bool

    def at(self, queries: Any = None, times: tuple[float, ...] | None = None) -> Asked:
        """The question at some queries, the points unless said, and times, those of training."""
        times = times_of(self.spec, self.layout) if times is None else times
        if queries is None:
            self._refuse_own_points()
            samples = [
                Sample(**one, queries=one["points"], times=times, index=i)
                for i, one in enumerate(self.inputs)
            ]
            return self._asked(samples, self.shapes, many=bool(self.counts), listed=self.listed)
        listed = is_listed(queries)
        queries = queries if listed else array("queries", queries)
        counts = self.counts | ({"queries": len(queries)} if listed else {})
        refuse_other_counts(counts)
        own = listed or is_by_samples(self.layout, queries, counts, own=self.layout.own_queries)
        kept: dict[str, Tensor] = {}
        scaling = self.layout.scaling("queries")
        samples, shapes = [], []
        # One sample alone may be asked at several lists of places.
        count = next(iter(counts.values()), 1)
        for index in range(count):
            inputs = self.inputs[min(index, len(self.inputs) - 1)]
            name, given = (f"queries[{index}]", queries[index]) if own else ("queries", queries)
            rows, shape = places_of(name, given, self.spec.query_dimension, scaling, kept)
            samples.append(Sample(**inputs, queries=rows, times=times, index=index))
            shapes.append(shape)
        return self._asked(samples, shapes, many=bool(counts), listed=listed or self.listed)

    def _asked(self, samples: list[Sample], shapes: Any, *, many: bool, listed: bool) -> Asked:
        return Asked(samples, self.layout, many, listed, shapes)

    def _refuse_own_points(self) -> None:
        """Refuse to answer at the points where that makes no sense."""
        spec = self.spec
        if not len(self.inputs[0]["points"]):
            raise DataError("queries are needed: the model has no points to answer at")
        if spec.query_dimension != spec.dimension:
            raise DataError(
                f"queries are needed: they have {spec.query_dimension} coordinates, the points "
                f"{spec.dimension}"
            )


def known(
    spec: Spec, layout: Layout, *, points: Any = None, values: Any = None, parameters: Any = None
) -> Known:
    """What a prediction is made from, checked against what the model takes."""
    refuse_missing(spec, layout, points, values, parameters)
    given: dict[str, Any] = {"points": points, "values": values, "parameters": parameters}
    for name, whole in given.items():
        given[name] = whole if whole is None or is_listed(whole) else array(name, whole)
    own = led_by_samples(layout, given)
    for name in own:
        if not is_listed(given[name]) and not given[name].ndim:
            raise DataError(f"{name} is one number: give an array for every sample")
    counts = {name: len(given[name]) for name in sorted(own)}
    refuse_other_counts(counts)
    places = given["points"]
    if (
        places is not None
        and "points" not in own
        and is_by_samples(layout, places, counts, own=layout.own_points)
    ):
        own.add("points")
    scaling = layout.scaling("points")
    # One array for all samples is converted once.
    kept: dict[str, Tensor] = {}
    inputs, shapes = [], []
    for index in range(next(iter(counts.values()), 1)):

        def one(name: str) -> tuple[str, Any]:
            whole = given[name]
            return (f"{name}[{index}]", whole[index]) if name in own else (name, whole)  # noqa: B023

        rows, shape = places_of(*one("points"), spec.dimension, scaling, kept)
        inputs.append(
            {
                "points": rows,
                "values": values_of(*one("values"), len(rows), shape, spec, layout),
                "parameters": parameters_of(*one("parameters"), spec, layout),
            }
        )
        shapes.append(shape)
    listed = any(is_listed(given[name]) for name in own)
    return Known(spec, layout, inputs, shapes, counts, listed)


def asked(
    spec: Spec,
    layout: Layout,
    *,
    points: Any = None,
    values: Any = None,
    queries: Any = None,
    parameters: Any = None,
    steps: int | None = None,
    times: Any = None,
) -> Asked:
    """Arguments of a prediction, checked against what the model takes."""
    inputs = known(spec, layout, points=points, values=values, parameters=parameters)
    return inputs.at(queries, times_of(spec, layout, steps, times))


def times_of(
    spec: Spec, layout: Layout, steps: int | None = None, times: Any = None
) -> tuple[float, ...]:
    """The times to answer at: those of training, the first so many steps, or any whole steps."""
    if times is not None:
        return _times(spec, layout, steps, times)
    if steps is None:
        return layout.times or tuple(spec.dt * (i + 1) for i in range(spec.steps))
    if not is_whole(steps) or steps < 1:
        raise DataError(f"steps must be a whole number of at least 1, got {shown(steps)}")
    refuse_many_steps("steps", steps)
    if steps != 1 and not layout.timed:
        raise Unsupported("steps: the model was trained on targets without times")
    return tuple(spec.dt * (i + 1) for i in range(int(steps)))


def _times(spec: Spec, layout: Layout, steps: Any, times: Any) -> tuple[float, ...]:
    if steps is not None:
        raise DataError("steps and times are both given: one of them says when")
    if not layout.timed:
        raise Unsupported("times: the model was trained on targets without times")
    found = np.atleast_1d(array("times", times)).astype(float)
    if found.ndim != 1 or not len(found):
        raise DataError(f"times must be a list of numbers, got shape {found.shape}")
    counts = (found / spec.dt).round()
    off = np.abs(found / spec.dt - counts) > 1e-3
    if not np.isfinite(found).all() or off.any() or (np.diff([0.0, *counts]) <= 0).any():
        raise DataError(
            f"times must increase and be multiples of the model's step, {spec.dt:g}, from it on; "
            f"got {found.tolist()}"
        )
    refuse_many_steps("times", counts[-1])
    return tuple(spec.dt * int(n) for n in counts)
