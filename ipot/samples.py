"""The two types that everything passes through.

One legend of axes for the whole package:

    B batch   N input points   M queries   T times
    D input dimension   E query dimension   C input channels   K output channels   P parameters

A `Sample` is one case, ragged and unpadded. A `Batch` is several, padded and masked. Two types, so
that each can be checked strictly.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ipot.errors import DataError
from ipot.padding import padded, padded_or_none, row_mask, shared_or_padded

_REQUIRED = ("points", "values", "queries")
_OPTIONAL = ("targets", "parameters", "weights", "edges", "point_mask", "query_mask")
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
"""What rows can be counted in."""

Item = TypeVar("Item", "Sample", "Batch")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One case: values at points in, targets at queries and times out.

    `queries` may carry a leading T where the mesh moves. `times` are whole multiples of the
    problem's `dt`; a steady case has the single time 1. `grid` and `query_grid` are the shapes of
    points and queries where they form a regular grid, in row-major order.
    """

    points: Float[Tensor, "N D"]
    values: Float[Tensor, "N C"]
    queries: Float[Tensor, "*T M E"]
    targets: Float[Tensor, "T M K"] | None = None
    times: tuple[float, ...] = (1.0,)
    parameters: Float[Tensor, " P"] | None = None
    weights: Float[Tensor, " M"] | None = None
    edges: Int[Tensor, "two_ends edges"] | None = None
    grid: tuple[int, ...] | None = None
    query_grid: tuple[int, ...] | None = None
    index: int = 0
    units: Mapping[str, Any] | None = field(default=None, repr=False)
    """The changes of units that its numbers are held in, by the names of tensors, where a data set
    has taken offsets or scales out of them."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_index(self.index)
        _check_rank("points", self.points, 2, "(N, D)")
        _check_rank("values", self.values, 2, "(N, C)")
        if self.queries.ndim not in (2, 3):
            raise DataError(f"queries must be (M, E) or (T, M, E), got {tuple(self.queries.shape)}")
        _check_sizes(self, batched=False)
        if self.edges is not None:
            _check_edges(self.edges, len(self.points))

    def astype(self, dtype: torch.dtype) -> Sample:
        """The sample with its floating-point tensors in another precision."""
        return _map(self, lambda t: t.to(dtype) if t.is_floating_point() else t)

    @property
    def truth(self) -> Tensor:
        """The targets, where they must be there."""
        return _present(self.targets)

    def take_points(self, index: Int[Tensor, " n"]) -> Sample:
        """The sample with some of its input points only, and without grid and edges."""
        return replace(
            self, points=self.points[index], values=self.values[index], grid=None, edges=None
        )

    def take_queries(self, index: Int[Tensor, " m"]) -> Sample:
        """The sample with some of its queries only."""
        return replace(
            self,
            queries=self.queries[..., index, :],
            targets=None if self.targets is None else self.targets[:, index],
            weights=None if self.weights is None else self.weights[index],
            query_grid=None,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Samples side by side. True in a mask means a real row; None means that all rows are real.

    `points`, `queries` and `weights` may keep a leading 1: one mesh shared by the whole batch, so
    that whatever depends on positions alone is computed once and not once per sample.
    """

    points: Float[Tensor, "B1 N D"]
    values: Float[Tensor, "B N C"]
    queries: Float[Tensor, "B2 *T M E"]
    targets: Float[Tensor, "B T M K"] | None = None
    times: tuple[float, ...] = (1.0,)
    parameters: Float[Tensor, "B P"] | None = None
    weights: Float[Tensor, "B3 M"] | None = None
    point_mask: Bool[Tensor, "B N"] | None = None
    query_mask: Bool[Tensor, "B M"] | None = None
    edges: Int[Tensor, "two_ends edges"] | None = None
    grid: tuple[int, ...] | None = None
    query_grid: tuple[int, ...] | None = None
    index: Int[Tensor, " B"] | None = None
    """Which sample of its data set each one is, for what is kept for every sample."""

    def __post_init__(self) -> None:
        _check_types(self)
        if self.index is not None:
            _check_tensor("index", self.index)
        _check_rank("points", self.points, 3, "(B, N, D) or (1, N, D)")
        _check_rank("values", self.values, 3, "(B, N, C)")
        if self.queries.ndim not in (3, 4):
            raise DataError(
                f"queries must be (B, M, E) or (B, T, M, E), got {tuple(self.queries.shape)}"
            )
        for name in ("points", "queries", "weights"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape[0] not in (1, self.size):
                raise DataError(
                    f"{name} of a batch of {self.size} must lead with {self.size} or 1, "
                    f"got {tuple(tensor.shape)}"
                )
        _check_sizes(self, batched=True)
        for name, rows in (("point_mask", self.values), ("query_mask", self.queries)):
            mask, expected = getattr(self, name), (self.size, rows.shape[-2])
            if mask is not None and tuple(mask.shape) != expected:
                raise DataError(f"{name} must be {expected}, got {tuple(mask.shape)}")
        if self.parameters is not None and len(self.parameters) != self.size:
            raise DataError(
                f"parameters {tuple(self.parameters.shape)} do not fit a batch of {self.size}"
            )

    @property
    def size(self) -> int:
        """B, the number of samples."""
        return self.values.shape[0]

    @property
    def asked_where_seen(self) -> bool:
        """True if queries are known to be the input points: grids of one shape are one grid."""
        return self.grid is not None and self.grid == self.query_grid

    @property
    def truth(self) -> Tensor:
        """The targets, where they must be there."""
        return _present(self.targets)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The batch with every tensor on a device."""
        return _map(self, lambda t: t.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """The batch in page-locked memory, from where copies to a GPU overlap with work."""
        return _map(self, Tensor.pin_memory)

    def astype(self, dtype: torch.dtype) -> Batch:
        """The batch with its floating-point tensors in another precision."""
        return _map(self, lambda t: t.to(dtype) if t.is_floating_point() else t)

    def take(self, index: Int[Tensor, " b"], rows: Rows | None = None) -> Batch:
        """Some of the samples, by an index on the same device. A shared mesh stays shared.

        `rows` takes them from all tensors at once, given by name, where there is a better way than
        one by one.
        """
        if self.edges is not None:
            raise DataError("edges are numbered over the whole batch: collate the samples instead")
        names = ("points", "values", "queries", "targets", "parameters", "weights")
        held = {n: getattr(self, n) for n in (*names, "point_mask", "query_mask", "index")}
        held = {n: t for n, t in held.items() if t is not None}
        apart = {n: t for n, t in held.items() if t.shape[0] != 1 or self.size == 1}
        return replace(self, **(rows or rows_of)(index, apart))

    def take_points(self, index: Int[Tensor, "*B n"]) -> Batch:
        """Some of the input points: one choice (n) for all samples, or one for each (B, n)."""
        return replace(
            self,
            points=_rows(self.points, index),
            values=_rows(self.values, index),
            point_mask=None if self.point_mask is None else _rows(self.point_mask, index),
            grid=None,
            edges=None,
        )

    def take_queries(self, index: Int[Tensor, " m"]) -> Batch:
        """Some of the queries, the same for all samples."""
        return replace(
            self,
            queries=self.queries.index_select(-2, index),
            targets=None if self.targets is None else self.targets.index_select(2, index),
            weights=None if self.weights is None else self.weights.index_select(1, index),
            query_mask=None if self.query_mask is None else self.query_mask.index_select(1, index),
            query_grid=None,
        )


Rows = Callable[[Tensor, dict[str, Tensor]], dict[str, Tensor]]
"""What takes the rows of an index from tensors with names."""


def rows_of(index: Int[Tensor, " b"], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The rows of an index, of one tensor after the other."""
    return {name: tensor[index] for name, tensor in tensors.items()}


def _map(item: Item, function: Callable[[Tensor], Tensor]) -> Item:
    changes = {
        f.name: function(value)
        for f in fields(item)
        if isinstance(value := getattr(item, f.name), Tensor)
    }
    return replace(item, **changes)


def _present(targets: Tensor | None) -> Tensor:
    if targets is None:
        raise DataError("targets are needed here, and there are none")
    return targets


def _rows(tensor: Tensor, index: Tensor) -> Tensor:
    """Rows of axis 1, chosen alike for all (n) or for each sample (B, n)."""
    if index.ndim == 1:
        return tensor.index_select(1, index)
    tensor = tensor.expand(index.shape[0], *tensor.shape[1:])
    wide = index if tensor.ndim == 2 else index.unsqueeze(-1).expand(-1, -1, tensor.shape[-1])
    return tensor.gather(1, wide)


def collate(samples: Sequence[Sample]) -> Batch:
    """Pad samples to the longest and mask the rest.

    Tensors that are the same object in all samples (a shared mesh) are kept once. Rows of padding
    hold zeros; the masks are None where nothing was padded.
    """
    if not samples:
        raise DataError("a batch needs at least one sample, got none")
    first = samples[0]
    for i, sample in enumerate(samples):
        if not isinstance(sample, Sample):
            raise DataError(f"samples[{i}] is a {type(sample).__name__}, not an ipot.Sample")
        if sample.times != first.times:
            raise DataError(
                f"samples of one batch must have the same times: sample {first.index} has "
                f"{first.times}, sample {sample.index} has {sample.times}"
            )
        if sample.units is not first.units and sample.units != first.units:
            raise DataError(
                f"samples[{i}] counts in other units than samples[0]: it is of a data set with "
                "other offsets or scales. ipot.Dataset.from_samples brings both to the same."
            )
    points = [s.points for s in samples]
    queries = [s.queries for s in samples]
    return Batch(
        points=shared_or_padded(points, 0, "points"),
        values=padded([s.values for s in samples], 0, "values"),
        queries=shared_or_padded(queries, -2, "queries"),
        targets=padded_or_none([s.targets for s in samples], 1, "targets"),
        times=first.times,
        parameters=padded_or_none([s.parameters for s in samples], 0, "parameters"),
        weights=padded_or_none([s.weights for s in samples], 0, "weights"),
        point_mask=row_mask([len(p) for p in points], points[0].device),
        query_mask=row_mask([q.shape[-2] for q in queries], queries[0].device),
        edges=_offset_edges(samples),
        grid=_common([s.grid for s in samples]),
        query_grid=_common([s.query_grid for s in samples]),
        index=torch.tensor([s.index for s in samples], device=first.values.device),
    )


def _common(grids: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    return grids[0] if len(set(grids)) == 1 else None


def _offset_edges(samples: Sequence[Sample]) -> Tensor | None:
    """Edges of all samples, numbered over the rows of the padded batch."""
    longest = max(len(s.points) for s in samples)
    edges = [s.edges + i * longest for i, s in enumerate(samples) if s.edges is not None]
    return torch.cat(edges, dim=1) if len(edges) == len(samples) else None


# ---- what must hold of the fields, checked once when a sample or a batch is made
#
# Nothing here waits for a device, but for the range of `edges` and for `times` given as a tensor.


def _check_types(item: Any) -> None:
    """Refuse fields that are no tensors, and times and grids that are no tuples of numbers.

    Lists of times and of the sides of a grid are made tuples.
    """
    for name in _REQUIRED:
        _check_tensor(name, getattr(item, name))
    for name in _OPTIONAL:
        found = getattr(item, name, None)
        if found is not None:
            _check_tensor(name, found)
    if type(item.times) is not tuple or not all(type(t) is float for t in item.times):
        object.__setattr__(item, "times", _times(item.times))
    for name in ("grid", "query_grid"):
        found = getattr(item, name)
        if found is not None and (
            type(found) is not tuple or not all(type(side) is int for side in found)
        ):
            object.__setattr__(item, name, _sides(name, found))


def _check_tensor(name: str, given: Any) -> None:
    """Refuse what is no tensor, or one whose axes have no lengths."""
    if not isinstance(given, Tensor):
        advice = ": torch.as_tensor makes one of an array" if _is_array(given) else ""
        raise DataError(f"{name} must be a torch.Tensor, got {_kind(given)}{advice}")
    if given.is_nested:
        raise DataError(f"{name} is a nested tensor: make a sample of each of its parts")


def _check_index(given: Any) -> None:
    """Refuse a number of a sample that is no whole one, or too large for a tensor."""
    if type(given) is int and -(2**63) <= given < 2**63:
        return
    try:
        found = operator.index(given)
    except Exception as error:  # tensors and objects of others raise what they like
        raise DataError(f"index must be a whole number, got {_kind(given)}") from error
    if not -(2**63) <= found < 2**63:
        raise DataError("index must be a whole number of 64 bits, got a larger one")


def _check_rank(name: str, tensor: Tensor, rank: int, axes: str) -> None:
    """Refuse a tensor with other axes."""
    if tensor.ndim != rank:
        raise DataError(f"{name} must be {axes}, got shape {tuple(tensor.shape)}")


def _check_edges(edges: Tensor, count: int) -> None:
    """Refuse edges that join anything but two of the rows of the points."""
    if edges.ndim != 2 or len(edges) != 2:
        raise DataError(f"edges must be (2, edges), got shape {tuple(edges.shape)}")
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


def _check_sizes(item: Any, *, batched: bool) -> None:
    """The sizes that must agree, said in the legend's letters."""
    lead = 1 if batched else 0
    n, m = item.values.shape[lead], item.queries.shape[-2]
    if item.points.shape[lead] != n:
        raise DataError(
            f"points and values disagree on N: {item.points.shape[lead]} points "
            f"{tuple(item.points.shape)}, {n} rows of values {tuple(item.values.shape)}"
        )
    if item.parameters is not None:
        _check_rank("parameters", item.parameters, 1 + lead, "(B, P)" if batched else "(P)")
    if n == 0 and (item.parameters is None or item.parameters.shape[-1] == 0):
        raise DataError("no input points and no parameters: there is nothing to predict from")
    if m == 0:
        raise DataError("no queries: give at least one point to predict at")
    if not item.times:
        raise DataError("times is empty: a steady case has the single time 1.0")
    t = len(item.times)
    if item.queries.ndim == 3 + lead and item.queries.shape[lead] != t:
        raise DataError(f"moving queries {tuple(item.queries.shape)} need {t} times, one for each")
    if item.targets is not None:
        expected = (*(item.values.shape[:1] if batched else ()), t, m)
        if item.targets.ndim != 3 + lead or tuple(item.targets.shape)[:-1] != expected:
            raise DataError(
                f"targets must be {(*expected, 'K')} to match {t} times and {m} queries, "
                f"got {tuple(item.targets.shape)}"
            )
    if item.weights is not None:
        _check_rank("weights", item.weights, 1 + lead, "(B, M)" if batched else "(M)")
        if item.weights.shape[-1] != m:
            raise DataError(
                f"weights must be one for each of {m} queries, got {tuple(item.weights.shape)}"
            )
    for name, count in (("grid", n), ("query_grid", m)):
        grid = getattr(item, name)
        if grid is not None and torch.Size(grid).numel() != count:
            raise DataError(f"{name} {grid} has {torch.Size(grid).numel()} nodes, not {count}")


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
