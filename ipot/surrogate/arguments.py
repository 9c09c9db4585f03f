"""Arguments of `predict`: which have an axis for samples, and their conversion to tensors."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.arrays import array, is_listed, tensor
from ipot.data.facts import is_straight
from ipot.data.own import Layout
from ipot.data.samples_from_arrays import transposed
from ipot.data.scaling import Scaling
from ipot.errors import DataError
from ipot.spec import Spec

CHECKED_AT_ONCE = 1 << 20
"""Rows of an array that are checked in one go."""
MAPPED = (np.float32, np.float16, np.float64)
"""Numbers that a mapped array may have to stay in its file; others are converted in memory."""


def refuse_missing(spec: Spec, layout: Layout, points: Any, values: Any, parameters: Any) -> None:
    """Refuse missing and superfluous arguments by name."""
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


def led_by_samples(layout: Layout, given: dict[str, Any]) -> set[str]:
    """Which of the arguments have an axis for samples in front, or are lists."""
    own = {name for name, whole in given.items() if whole is not None and is_listed(whole)}
    shapes = {n: a.shape for n, a in given.items() if a is not None and n not in own}
    points = shapes.get("points")
    if "values" in shapes:
        places = shapes["values"] if layout.flat_values else shapes["values"][:-1]
        one = points is not None and _one_grid(layout, given["points"], layout.own_points)
        own |= _values_by_sample(places, points, one=one)
    elif len(points or ()) > 2 and not _one_grid(layout, given["points"], layout.own_points):
        own.add("points")
    if len(shapes.get("parameters", ())) > (0 if layout.flat_parameters else 1):
        own.add("parameters")
    return own


def channel_as_trained(spec: Spec, layout: Layout, points: Any, values: Any) -> Any:
    """Values of one channel with or without its axis, as the training had them. Both are taken
    where the shape has one meaning: arrays that can be read as they are stay so."""
    if spec.channels != 1 or values is None or points is None:
        return values
    if is_listed(values) or is_listed(points) or not values.ndim or not points.ndim:
        return values
    forms = _forms(points.shape[:-1] if points.ndim > 1 else points.shape)

    def holds_rows(shape: tuple[int, ...]) -> bool:
        return shape in forms or shape[1:] in forms

    has_axis = values.ndim > 1 and values.shape[-1] == 1 and holds_rows(values.shape[:-1])
    has_none = holds_rows(values.shape)
    if layout.flat_values:
        return values[..., 0] if has_axis and not has_none else values
    return values[..., None] if has_none and not has_axis else values


def refuse_transposed(layout: Layout, points: Any, values: Any) -> None:
    """Refuse values whose first axis is points and should be samples."""
    if values is None or points is None or is_listed(values) or is_listed(points):
        return
    shape, axes = values.shape, 2 if layout.flat_values else 3
    if points.ndim == 2 and len(shape) == axes and shape[1] != len(points) == shape[0]:
        raise DataError(transposed("values", shape, 1, "points", len(points)))


def refuse_other_counts(counts: dict[str, int]) -> None:
    """Refuse arguments that disagree on the number of samples, or have none."""
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{n} in {name}" for name, n in sorted(counts.items()))
        raise DataError(f"the arguments disagree on the number of samples: {said}")
    if 0 in counts.values():
        raise DataError(f"{next(iter(counts))} holds no sample: there is nothing to answer")


def is_by_samples(layout: Layout, places: np.ndarray, counts: dict[str, int], *, own: bool) -> bool:
    """True if places of three axes are rows for each sample, False if they are one grid for all.
    `own` says that they were rows for each sample in training."""
    shape = places.shape
    alike = len(shape) > 2 and shape[0] == next(iter(counts.values()), None)
    return alike and not _one_grid(layout, places, own)


def _values_by_sample(
    places: tuple[int, ...], points: tuple[int, ...] | None, *, one: bool
) -> set[str]:
    """Which of values and points have an axis for samples, by the number of axes before the
    channels of the values. `points` are None if they are a list; `one` says that they are one grid
    for all."""
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
    """The numbers of axes that rows on a mesh may have: those of a grid, or one."""
    return mesh, (math.prod(mesh),)


def _one_grid(layout: Layout, places: np.ndarray, own: bool) -> bool:
    """True if places of three axes or more are one grid and not rows for every sample: their lines
    are straight, or the model was trained on curved grids. Rows for every sample can look like this
    too, such as sensors at another height in each sample; if they were so in training, they are
    `own`."""
    if own and places.ndim == 3:
        return False
    if places.ndim < 3 or layout.curved:
        return layout.curved
    return is_straight(places)


def array_or_mapped(name: str, given: Any) -> np.ndarray:
    """An argument as an array of real numbers; an array mapped from a file stays mapped."""
    if not isinstance(given, np.memmap):
        return array(name, given)
    if given.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold real numbers, got {given.dtype}")
    return given


def float_rows(name: str, found: np.ndarray, scaling: Scaling | None, *, copy: bool) -> Tensor:
    """An array as a tensor of finite numbers, in float32 unless it is mapped from a file. An array
    that needs no conversion is copied only with `copy`."""
    mapped = isinstance(found, np.memmap)
    kinds = MAPPED if mapped else () if copy else MAPPED[:1]
    if scaling is not None or not found.flags.c_contiguous or found.dtype not in kinds:
        return tensor(name, np.asarray(found), scaling)
    for start in range(0, len(found), CHECKED_AT_ONCE):
        piece = found[start : start + CHECKED_AT_ONCE]
        # As float32, since that is what it will be: a larger number would be infinity there.
        with np.errstate(over="ignore"):
            finite = np.isfinite(piece if piece.dtype == np.float32 else piece.astype(np.float32))
        if not finite.all():
            first, *rest = (int(i) for i in np.argwhere(~finite)[0])
            place, value = (start + first, *rest), float(piece[(first, *rest)])
            if np.isfinite(value):
                raise DataError(
                    f"{name} holds {value:g} at {place}, more than float32 can: choose other units"
                )
            raise DataError(
                f"{name} holds {value} at {place}, which is not finite. Leave those points out."
            )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # nor is it written to
        return torch.from_numpy(found)


def places_of(
    name: str,
    given: Any,
    columns: int,
    scaling: Scaling | None,
    kept: dict[str, Tensor],
    *,
    copy: bool = False,
) -> tuple[Tensor, tuple[int, ...]]:
    """Coordinates as rows, and the axes that they came with."""
    if given is None and "[" not in name:
        return torch.zeros(0, columns), (0,)
    found = array_or_mapped(name, given)
    if found.ndim == 1 and columns == 1:
        found = found[:, None]
    if found.ndim < 2 or found.shape[-1] != columns:
        raise DataError(
            f"{name} must have {columns} coordinates in its last axis, got shape {found.shape}"
        )
    shape = found.shape[:-1]
    if name not in kept:
        rows = float_rows(name, found.reshape(-1, columns), scaling, copy=copy)
        if not len(rows):
            raise DataError(f"{name} holds no row")
        if "[" in name:
            return rows, shape
        kept[name] = rows
    return kept[name], shape


def values_of(
    name: str,
    given: Any,
    count: int,
    shape: tuple[int, ...],
    spec: Spec,
    layout: Layout,
    *,
    copy: bool = False,
) -> Tensor:
    """Values as rows with channels."""
    if given is None and "[" not in name:
        return torch.zeros(count, 0)
    found = array_or_mapped(name, given)
    flat = spec.channels == 1 and found.shape in (shape, (count,))
    rows, channels = (found.shape, 1) if flat else (found.shape[:-1], found.shape[-1:])
    if rows not in (shape, (count,)) or channels not in (spec.channels, (spec.channels,)):
        wanted = shape if layout.flat_values else (*shape, spec.channels)
        raise DataError(f"{name} must have shape {wanted}, got {found.shape}")
    scaling = layout.scaling("values")
    return float_rows(name, found, scaling, copy=copy).reshape(count, spec.channels)


def parameters_of(name: str, given: Any, spec: Spec, layout: Layout) -> Tensor | None:
    """The numbers of one sample, where it has any."""
    if given is None and "[" not in name:
        return None
    found = array(name, given)
    if found.ndim == 0:
        found = found.reshape(1)
    if found.shape != (len(spec.parameters),):
        raise DataError(
            f"{name} must be {len(spec.parameters)} numbers ({', '.join(spec.parameters)}), got "
            f"shape {found.shape}"
        )
    return tensor(name, found, layout.scaling("parameters"))
