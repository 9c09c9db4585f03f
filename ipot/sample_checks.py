"""What must hold of the fields of a `Sample` or a `Batch`, checked once when one is made.

Nothing here waits for a device, but for the range of `edges` and for `times` given as a tensor.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.errors import DataError

REQUIRED = ("points", "values", "queries")
OPTIONAL = ("targets", "parameters", "weights", "edges", "point_mask", "query_mask")
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
"""What rows can be counted in."""


def check_types(item: Any) -> None:
    """Refuse fields that are no tensors, and times and grids that are no tuples of numbers.

    Lists of times and of the sides of a grid are made tuples.
    """
    for name in REQUIRED:
        check_tensor(name, getattr(item, name))
    for name in OPTIONAL:
        found = getattr(item, name, None)
        if found is not None:
            check_tensor(name, found)
    if type(item.times) is not tuple or not all(type(t) is float for t in item.times):
        object.__setattr__(item, "times", _times(item.times))
    for name in ("grid", "query_grid"):
        found = getattr(item, name)
        if found is not None and (
            type(found) is not tuple or not all(type(side) is int for side in found)
        ):
            object.__setattr__(item, name, _sides(name, found))


def check_tensor(name: str, given: Any) -> None:
    """Refuse what is no tensor, or one whose axes have no lengths."""
    if not isinstance(given, Tensor):
        advice = ": torch.as_tensor makes one of an array" if _is_array(given) else ""
        raise DataError(f"{name} must be a torch.Tensor, got {_kind(given)}{advice}")
    if given.is_nested:
        raise DataError(f"{name} is a nested tensor: make a sample of each of its parts")


def check_index(given: Any) -> None:
    """Refuse a number of a sample that is no whole one, or too large for a tensor."""
    if type(given) is int and -(2**63) <= given < 2**63:
        return
    try:
        found = operator.index(given)
    except Exception as error:  # tensors and objects of others raise what they like
        raise DataError(f"index must be a whole number, got {_kind(given)}") from error
    if not -(2**63) <= found < 2**63:
        raise DataError("index must be a whole number of 64 bits, got a larger one")


def check_rank(name: str, tensor: Tensor, rank: int, axes: str) -> None:
    """Refuse a tensor with other axes."""
    if tensor.ndim != rank:
        raise DataError(f"{name} must be {axes}, got shape {shape_of(tensor)}")


def check_edges(edges: Tensor, count: int) -> None:
    """Refuse edges that join anything but two of the rows of the points."""
    if edges.ndim != 2 or len(edges) != 2:
        raise DataError(f"edges must be (2, edges), got shape {shape_of(edges)}")
    if edges.dtype not in WHOLE:
        raise DataError(f"edges must be whole numbers like torch.int64, got {edges.dtype}")
    if edges.layout != torch.strided:
        raise DataError("edges is sparse: give it by .to_dense()")
    if not edges.numel() or edges.is_meta:
        return
    low, high = int(edges.min()), int(edges.max())
    if not 0 <= low <= high < count:
        raise DataError(
            f"edges join rows {low} to {high}; there are {count} points, counted from 0"
        )


def check_sizes(item: Any, *, batched: bool) -> None:
    """The sizes that must agree, said in the legend's letters."""
    lead = 1 if batched else 0
    n, m = item.values.shape[lead], item.queries.shape[-2]
    if item.points.shape[lead] != n:
        raise DataError(
            f"points and values disagree on N: {item.points.shape[lead]} points "
            f"{shape_of(item.points)}, {n} rows of values {shape_of(item.values)}"
        )
    if item.parameters is not None:
        check_rank("parameters", item.parameters, 1 + lead, "(B, P)" if batched else "(P)")
    if n == 0 and (item.parameters is None or item.parameters.shape[-1] == 0):
        raise DataError("no input points and no parameters: there is nothing to predict from")
    if m == 0:
        raise DataError("no queries: give at least one point to predict at")
    if not item.times:
        raise DataError("times is empty: a steady case has the single time 1.0")
    t = len(item.times)
    if item.queries.ndim == 3 + lead and item.queries.shape[lead] != t:
        raise DataError(f"moving queries {shape_of(item.queries)} need {t} times, one for each")
    if item.targets is not None:
        expected = (*(item.values.shape[:1] if batched else ()), t, m)
        if item.targets.ndim != 3 + lead or shape_of(item.targets)[:-1] != expected:
            raise DataError(
                f"targets must be {(*expected, 'K')} to match {t} times and {m} queries, "
                f"got {shape_of(item.targets)}"
            )
    if item.weights is not None:
        check_rank("weights", item.weights, 1 + lead, "(B, M)" if batched else "(M)")
        if item.weights.shape[-1] != m:
            raise DataError(
                f"weights must be one for each of {m} queries, got {shape_of(item.weights)}"
            )
    for name, count in (("grid", n), ("query_grid", m)):
        grid = getattr(item, name)
        if grid is not None and torch.Size(grid).numel() != count:
            raise DataError(f"{name} {grid} has {torch.Size(grid).numel()} nodes, not {count}")


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """As a plain tuple, which is shown without a name."""
    return tuple(tensor.shape)


def _times(given: Any) -> tuple[float, ...]:
    if isinstance(given, Tensor | np.ndarray) and given.ndim == 1:
        given = _listed(given)
    if not isinstance(given, tuple | list):
        raise DataError(f"times must be a tuple of numbers like (1.0, 2.0), got {_kind(given)}")
    for time in given:
        if not isinstance(time, float | int | np.number) or isinstance(time, np.complexfloating):
            raise DataError(f"times must be numbers like (1.0, 2.0), one of them is {_kind(time)}")
    try:
        return tuple(t if type(t) is float else float(t) for t in given)
    except (OverflowError, TypeError, ValueError) as error:  # 10**400; durations are np.number too
        raise DataError(f"times must be numbers like (1.0, 2.0): {error}") from error


def _listed(given: Any) -> Any:
    try:
        return given.tolist()
    except Exception:  # of a tensor without numbers; what it is gets said where it is refused
        return given


def _sides(name: str, given: Any) -> tuple[int, ...]:
    if isinstance(given, tuple | list):  # torch.Size is a tuple
        try:
            return tuple(operator.index(side) for side in given)
        except Exception:  # said below, like all others
            given = given[0] if len(given) == 1 else given
    raise DataError(f"{name} must be a tuple of whole numbers like (64, 64), got {_kind(given)}")


def _is_array(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.dtype.kind in "fiub"


def _kind(given: Any) -> str:
    """What it is, without a look into it, which might fail."""
    return "None" if given is None else f"a {type(given).__name__}"
