"""A question in arrays: as samples for a model, and its answers as arrays of the same kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.own import Layout
from ipot.data.own_arrays import array, is_listed, tensor
from ipot.data.own_facts import is_straight
from ipot.errors import DataError, Unsupported
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
        out = answer.numpy()
        out = out.reshape(out.shape[0], *shape, out.shape[-1])
        if not self.layout.timed:
            out = out[0]
        return out[..., 0] if self.layout.flat_targets else out


def asked(
    spec: Spec,
    layout: Layout,
    *,
    points: Any = None,
    values: Any = None,
    queries: Any = None,
    parameters: Any = None,
    steps: int | None = None,
) -> Asked:
    """Arguments of a prediction, checked against what the model takes."""
    _refuse_missing(spec, layout, points, values, parameters)
    given = {"points": points, "values": values, "queries": queries, "parameters": parameters}
    count, own = _by_sample(layout, given)
    shapes, samples = [], []
    times = times_of(spec, layout, steps)
    origin = np.asarray(layout.origin) if layout.origin else None
    # One array for all samples is converted once.
    kept: dict[str, Tensor] = {}
    for index in range(1 if count is None else count):

        def one(name: str) -> tuple[str, Any]:
            whole = given[name]
            return (f"{name}[{index}]", whole[index]) if name in own else (name, whole)  # noqa: B023

        places, shape = _places(*one("points"), spec.dimension, origin, kept)
        if queries is None:
            asked_at, asked_shape = places, shape
            if not len(places):
                raise DataError("queries are needed: the model has no points to answer at")
            if spec.query_dimension != spec.dimension:
                raise DataError(
                    f"queries are needed: they have {spec.query_dimension} coordinates, the points "
                    f"{spec.dimension}"
                )
        else:
            asked_at, asked_shape = _places(*one("queries"), spec.query_dimension, origin, kept)
        samples.append(
            Sample(
                points=places,
                values=_values(*one("values"), len(places), shape, spec, layout),
                queries=asked_at,
                times=times,
                parameters=_parameters(*one("parameters"), spec, layout),
                index=index,
            )
        )
        shapes.append(asked_shape)
    listed = any(is_listed(given[name]) for name in own)
    return Asked(samples, layout, count is not None, listed, shapes)


def _refuse_missing(spec: Spec, layout: Layout, points: Any, values: Any, parameters: Any) -> None:
    if spec.inputs and values is None:
        raise DataError(f"values are needed at the points: {', '.join(spec.inputs)}")
    if not spec.inputs and values is not None:
        raise DataError("values are given, and the model was trained without any: leave them out")
    if values is not None and points is None:
        raise DataError("values are given without points: say where they are, points=...")
    if spec.parameters and parameters is None:
        raise DataError(f"parameters are needed: {', '.join(spec.parameters)}")
    if not spec.parameters and parameters is not None:
        raise DataError("parameters are given, and the model was trained without any")
    if layout.alone and points is not None:
        raise DataError(
            "points are given, and the model was trained on parameters alone: say where to answer "
            "with queries=..."
        )
    if not layout.alone and points is None:
        raise DataError("points are needed: the model knows its input by them")


def _by_sample(layout: Layout, given: dict[str, Any]) -> tuple[int | None, frozenset[str]]:
    """How many samples are asked for, None for one without an axis of its own; and which of the
    arguments have such an axis in front, or are lists."""
    lists = {name for name, whole in given.items() if whole is not None and is_listed(whole)}
    shapes = {
        name: array(name, whole).shape
        for name, whole in given.items()
        if whole is not None and name not in lists
    }
    own = set(lists)
    points = shapes.get("points")
    if "values" in shapes:
        places = shapes["values"] if layout.flat_values else shapes["values"][:-1]
        one = points is not None and _one_grid(layout, given["points"])
        own |= _values_by_sample(places, points, one=one)
    elif points is not None and len(points) > 2 and not _one_grid(layout, given["points"]):
        own.add("points")
    if len(shapes.get("parameters", ())) > (0 if layout.flat_parameters else 1):
        own.add("parameters")
    counts = {name: len(given[name]) for name in sorted(own)}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{n} in {name}" for name, n in counts.items())
        raise DataError(f"the arguments disagree on the number of samples: {said}")
    count = next(iter(counts.values()), None)
    if count == 0:
        raise DataError(f"{next(iter(counts))} holds no sample: there is nothing to answer")
    # Places of three axes may be one grid for all, or rows for every sample.
    for name in ("points", "queries"):
        shape = shapes.get(name, ())
        if name in own or len(shape) < 3 or shape[0] != count:
            continue
        if not _one_grid(layout, given[name]):
            own.add(name)
    return count, frozenset(own)


def _values_by_sample(
    places: tuple[int, ...], points: tuple[int, ...] | None, *, one: bool
) -> set[str]:
    """Which of values and points have an axis for samples, by the axes of the values in front of
    their channels. `points` are None where they are a list, and `one` grid for all or not."""
    if points is None:
        return {"values"}
    if len(points) <= 2:
        return {"values"} if len(places) > 1 else set()
    mesh = points[:-1]
    if places in _forms(mesh) and one:
        return set()
    if places[:1] == mesh[:1] and places[1:] in _forms(mesh[1:]):
        return {"values", "points"}
    return {"values"} if places[1:] in _forms(mesh) else set()


def _forms(mesh: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The axes that rows on a mesh may have: those of a grid, or one for all of it."""
    return mesh, (math.prod(mesh),)


def _one_grid(layout: Layout, places: Any) -> bool:
    """Whether places of three axes or more are one grid and not rows for every sample: their lines
    are straight, or the model was trained on grids whose lines are not."""
    found = array("places", places)
    if found.ndim < 3 or layout.curved:
        return layout.curved
    return is_straight(found)


def times_of(spec: Spec, layout: Layout, steps: int | None) -> tuple[float, ...]:
    """The times to answer at: those of training, or so many steps."""
    if steps is None:
        return layout.times or tuple(spec.dt * (i + 1) for i in range(spec.steps))
    if isinstance(steps, bool) or not isinstance(steps, Integral) or steps < 1:
        raise DataError(f"steps must be a whole number of at least 1, got {steps!r}")
    if steps != 1 and not layout.timed:
        raise Unsupported("steps: the model was trained on targets without times")
    return tuple(spec.dt * (i + 1) for i in range(int(steps)))


def _places(
    name: str, given: Any, columns: int, origin: np.ndarray | None, kept: dict[str, Tensor]
) -> tuple[Tensor, tuple[int, ...]]:
    """Coordinates as rows, and the axes that they had."""
    if given is None:
        return torch.zeros(0, columns), (0,)
    found = array(name, given)
    if found.ndim == 1 and columns == 1:
        found = found[:, None]
    if found.ndim < 2 or found.shape[-1] != columns:
        raise DataError(
            f"{name} must have {columns} coordinates in its last axis, got shape {found.shape}"
        )
    shape = found.shape[:-1]
    if name not in kept:
        rows = tensor(name, found.reshape(-1, columns), origin)
        if not len(rows):
            raise DataError(f"{name} holds no row")
        if "[" in name:
            return rows, shape
        kept[name] = rows
    return kept[name], shape


def _values(
    name: str, given: Any, count: int, shape: tuple[int, ...], spec: Spec, layout: Layout
) -> Tensor:
    if given is None:
        return torch.zeros(count, 0)
    found = tensor(name, given)
    if layout.flat_values and tuple(found.shape) in (shape, (count,)):
        found = found.unsqueeze(-1)
    if tuple(found.shape[:-1]) not in (shape, (count,)) or found.shape[-1] != spec.channels:
        wanted = shape if layout.flat_values else (*shape, spec.channels)
        raise DataError(f"{name} must have shape {wanted}, got {tuple(found.shape)}")
    return found.reshape(count, spec.channels)


def _parameters(name: str, given: Any, spec: Spec, layout: Layout) -> Tensor | None:
    if given is None:
        return None
    found = tensor(name, given)
    if found.ndim == 0:
        found = found.unsqueeze(0)
    if tuple(found.shape) != (len(spec.parameters),):
        raise DataError(
            f"{name} must be {len(spec.parameters)} numbers ({', '.join(spec.parameters)}), got "
            f"shape {tuple(found.shape)}"
        )
    return found
