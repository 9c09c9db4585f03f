"""Arguments of `predict` as samples for a model, and answers as arrays of the same form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.argument_checks import is_whole, refuse_many_steps
from ipot.data.arrays import array, has_axes, is_listed
from ipot.data.own import Layout
from ipot.errors import DataError, Unsupported, shown
from ipot.samples import Sample
from ipot.spec import Spec
from ipot.surrogate.arguments import (
    array_or_mapped,
    channel_as_trained,
    is_by_samples,
    led_by_samples,
    parameters_of,
    places_of,
    refuse_missing,
    refuse_other_counts,
    refuse_transposed,
    values_of,
)


@dataclass(frozen=True)
class Request:
    """Samples without targets, and the form of their answers."""

    samples: list[Sample]
    layout: Layout
    many: bool
    listed: bool
    shapes: list[tuple[int, ...]]
    """The axes of the queries of each sample, in front of their coordinates."""

    def shaped(self, answers: Sequence[Tensor]) -> Any:
        """Answers (T, M, K) as arrays in the form of the user's."""
        found = [self._one(a, s) for a, s in zip(answers, self.shapes, strict=True)]
        if not self.many:
            return found[0]
        alike = len({f.shape for f in found}) == 1
        return np.stack(found) if alike and not self.listed else found

    def shape(self, channels: int) -> tuple[int, ...]:
        """The shape of the answers together."""
        if len(set(self.shapes)) > 1:
            raise DataError(
                f"the samples are asked at other numbers of places, from {min(self.shapes)} to "
                f"{max(self.shapes)}: their answers do not fit into one array"
            )
        layout = self.layout
        shape = self.shapes[0] if layout.flat_targets else (*self.shapes[0], channels)
        shape = (len(self.samples[0].times), *shape) if layout.timed else shape
        return (len(self.samples), *shape) if self.many else shape

    def views(self, out: Any, channels: int) -> list[Tensor] | None:
        """Tensors (T, M, K) that share the memory of an array of the answers' shape; None if
        answers must be converted before they are written there."""
        layout, shape = self.layout, self.shape(channels)
        given = out if isinstance(out, np.ndarray) else np.empty((), object)
        if given.shape != shape or given.dtype.kind != "f":
            got = f"{given.shape} of {given.dtype}" if given is out else shown(out)
            raise DataError(f"out must be {shape} and of floating-point numbers, got {got}")
        if layout.scaling("targets") is not None:
            return None
        times = len(self.samples[0].times)
        try:
            return list(torch.from_numpy(out).view(len(self.samples), times, -1, channels))
        except (RuntimeError, ValueError, TypeError):  # strides that torch does not know
            return None

    def _one(self, answer: Tensor, shape: tuple[int, ...]) -> np.ndarray:
        out = in_given_units(self.layout, answer)
        out = out.reshape(out.shape[0], *shape, out.shape[-1])
        if not self.layout.timed:
            out = out[0]
        return out[..., 0] if self.layout.flat_targets else out


def in_given_units(layout: Layout, answer: Tensor) -> np.ndarray:
    """An answer (T, M, K) in the units of the data; in float64 if units were changed."""
    scaling = layout.scaling("targets")
    return answer.numpy() if scaling is None else scaling.undo(answer)


def in_shown_units(layout: Layout, sample: Sample) -> Sample:
    """A sample of a data set in the units that it was made from, to float64 precision; itself if
    units were not changed."""
    found: dict[str, Any] = {}
    for name in ("values", "targets"):
        scaling, held = layout.scaling(name), getattr(sample, name)
        if scaling is not None and held is not None:
            found[name] = torch.from_numpy(scaling.undo(held, name))
    return replace(sample, **found)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a prediction, sample by sample: a request without queries."""

    spec: Spec
    layout: Layout
    inputs: list[dict[str, Any]]
    """Points, values and parameters of each sample, as a `Sample` takes them."""
    shapes: list[tuple[int, ...]]
    """The axes of the points of each sample, in front of their coordinates."""
    counts: dict[str, int]
    """The number of samples by the arguments that have an axis for them; none for one alone."""
    listed: bool

    def at(self, queries: Any = None, times: tuple[float, ...] | None = None) -> Request:
        """The request at some queries (by default the points) and times (by default those of
        training)."""
        times = times_of(self.spec, self.layout) if times is None else times
        if queries is None:
            self._refuse_own_points()
            samples = [
                Sample(**one, queries=one["points"], times=times, index=i)
                for i, one in enumerate(self.inputs)
            ]
            return self._asked(samples, self.shapes, many=bool(self.counts), listed=self.listed)
        listed = is_listed(queries)
        queries = queries if listed else array_or_mapped("queries", queries)
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

    def _asked(self, samples: list[Sample], shapes: Any, *, many: bool, listed: bool) -> Request:
        return Request(samples, self.layout, many, listed, shapes)

    def _refuse_own_points(self) -> None:
        """Refuse to use the points as queries if the model cannot answer there."""
        spec = self.spec
        if not len(self.inputs[0]["points"]):
            raise DataError("queries are needed: the model has no points to answer at")
        if spec.query_dimension != spec.dimension:
            raise DataError(
                f"queries are needed: they have {spec.query_dimension} coordinates, the points "
                f"{spec.dimension}"
            )


def read_inputs(
    spec: Spec,
    layout: Layout,
    *,
    points: Any = None,
    values: Any = None,
    parameters: Any = None,
    copy: bool = False,
) -> Inputs:
    """The inputs of a prediction, checked against what the model takes.

    Arrays of float32, and those mapped from files, are not copied; with `copy` only mapped ones are
    not, for inputs that outlive the call.
    """
    if layout.alone and _empty(points):  # rows without a point are no points
        points, values = None, None if _empty(values) else values
    if not spec.parameters and _empty(parameters):
        parameters = None  # a model without parameters may be told that there are none
    refuse_missing(spec, layout, points, values, parameters)
    given: dict[str, Any] = {"points": points, "values": values, "parameters": parameters}
    for name, whole in given.items():
        given[name] = whole if whole is None or is_listed(whole) else array_or_mapped(name, whole)
    given["values"] = channel_as_trained(spec, layout, given["points"], given["values"])
    refuse_transposed(layout, given["points"], given["values"])
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

        rows, shape = places_of(*one("points"), spec.dimension, scaling, kept, copy=copy)
        inputs.append(
            {
                "points": rows,
                "values": values_of(*one("values"), len(rows), shape, spec, layout, copy=copy),
                "parameters": parameters_of(*one("parameters"), spec, layout),
            }
        )
        shapes.append(shape)
    listed = any(is_listed(given[name]) for name in own)
    return Inputs(spec, layout, inputs, shapes, counts, listed)


def request(
    spec: Spec,
    layout: Layout,
    *,
    points: Any = None,
    values: Any = None,
    queries: Any = None,
    parameters: Any = None,
    steps: int | None = None,
    times: Any = None,
) -> Request:
    """The arguments of `predict` as a request, checked against what the model takes."""
    inputs = read_inputs(spec, layout, points=points, values=values, parameters=parameters)
    return inputs.at(queries, times_of(spec, layout, steps, times))


def times_of(
    spec: Spec, layout: Layout, steps: int | None = None, times: Any = None
) -> tuple[float, ...]:
    """The times to answer at: those of training, the first `steps` of them, or any whole steps."""
    if times is not None:
        return _times(spec, layout, steps, times)
    if steps is None:
        return layout.times or tuple(spec.dt * (i + 1) for i in range(spec.steps))
    if not is_whole(steps) or steps < 1:
        raise DataError(f"steps must be a whole number of at least 1, got {shown(steps)}")
    refuse_many_steps("steps", steps)
    if steps != 1:
        _refuse_steady(spec, layout, "steps")
    return tuple(spec.dt * (i + 1) for i in range(int(steps)))


def _times(spec: Spec, layout: Layout, steps: Any, times: Any) -> tuple[float, ...]:
    if steps is not None:
        raise DataError("steps and times are both given: one of them says when")
    if not layout.timed:
        _refuse_steady(spec, layout, "times")
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
    if counts.tolist() != [1]:
        _refuse_steady(spec, layout, "times")
    return tuple(spec.dt * int(n) for n in counts)


def is_steady(spec: Spec, layout: Layout) -> bool:
    """True if the model has no time, as for a steady problem."""
    return not layout.timed or (spec.steps == 1 and not layout.times)


def _refuse_steady(spec: Spec, layout: Layout, argument: str) -> None:
    if not layout.timed:
        raise Unsupported(f"{argument}: the model was trained on targets without times")
    if is_steady(spec, layout):
        raise Unsupported(f"{argument}: {spec.name} is steady, it has no steps to take")


def _empty(given: Any) -> bool:
    """True for an argument without rows."""
    if isinstance(given, list | tuple):
        return not given
    return has_axes(given) and given.shape[0] == 0
