"""The two types that everything passes through.

One legend of axes for the whole package:

    B batch   N input points   M queries   T times
    D input dimension   E query dimension   C input channels   K output channels   P parameters

A `Sample` is one case, ragged and unpadded. A `Batch` is several, padded and masked. Two types, so
that each can be checked strictly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ipot.errors import DataError
from ipot.memory import SMALL, free_memory, refuse_too_large
from ipot.sample_checks import (
    check_edges,
    check_index,
    check_rank,
    check_sizes,
    check_tensor,
    check_types,
    shape_of,
)

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
        check_types(self)
        check_index(self.index)
        check_rank("points", self.points, 2, "(N, D)")
        check_rank("values", self.values, 2, "(N, C)")
        if self.queries.ndim not in (2, 3):
            raise DataError(f"queries must be (M, E) or (T, M, E), got {shape_of(self.queries)}")
        check_sizes(self, batched=False)
        if self.edges is not None:
            check_edges(self.edges, len(self.points))

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
        check_types(self)
        if self.index is not None:
            check_tensor("index", self.index)
        check_rank("points", self.points, 3, "(B, N, D) or (1, N, D)")
        check_rank("values", self.values, 3, "(B, N, C)")
        if self.queries.ndim not in (3, 4):
            raise DataError(
                f"queries must be (B, M, E) or (B, T, M, E), got {shape_of(self.queries)}"
            )
        for name in ("points", "queries", "weights"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape[0] not in (1, self.size):
                raise DataError(
                    f"{name} of a batch of {self.size} must lead with {self.size} or 1, "
                    f"got {shape_of(tensor)}"
                )
        check_sizes(self, batched=True)
        for name, rows in (("point_mask", self.values), ("query_mask", self.queries)):
            mask, expected = getattr(self, name), (self.size, rows.shape[-2])
            if mask is not None and shape_of(mask) != expected:
                raise DataError(f"{name} must be {expected}, got {shape_of(mask)}")
        if self.parameters is not None and len(self.parameters) != self.size:
            raise DataError(
                f"parameters {shape_of(self.parameters)} do not fit a batch of {self.size}"
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
        points=_shared_or_padded(points, 0, "points"),
        values=_pad([s.values for s in samples], 0, "values"),
        queries=_shared_or_padded(queries, -2, "queries"),
        targets=_pad_optional([s.targets for s in samples], 1, "targets"),
        times=first.times,
        parameters=_pad_optional([s.parameters for s in samples], 0, "parameters"),
        weights=_pad_optional([s.weights for s in samples], 0, "weights"),
        point_mask=_mask([len(p) for p in points], points[0].device),
        query_mask=_mask([q.shape[-2] for q in queries], queries[0].device),
        edges=_offset_edges(samples),
        grid=_common([s.grid for s in samples]),
        query_grid=_common([s.query_grid for s in samples]),
        index=torch.tensor([s.index for s in samples], device=first.values.device),
    )


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


def _pad(tensors: Sequence[Tensor], axis: int, name: str) -> Tensor:
    """Stack, with zeros behind the shorter ones along one axis."""
    longest = max(t.shape[axis] for t in tensors)
    _refuse_large(name, tensors, axis, longest)
    if all(t.shape[axis] == longest for t in tensors):
        return _stack(tensors)
    shape = list(tensors[0].shape)
    shape[axis] = longest
    out = tensors[0].new_zeros(len(tensors), *shape)
    for row, tensor in zip(out, tensors, strict=True):
        try:
            row.narrow(axis, 0, tensor.shape[axis]).copy_(tensor)
        except RuntimeError as error:
            raise DataError(
                f"samples of one batch disagree: {shape_of(tensor)} beside {shape_of(tensors[0])}"
            ) from error
    return out


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    try:
        return torch.stack(list(tensors))
    except RuntimeError as error:
        shapes = sorted({shape_of(t) for t in tensors})
        raise DataError(f"samples of one batch disagree in shape: {shapes}") from error


def _refuse_large(name: str, tensors: Sequence[Tensor], axis: int, longest: int) -> None:
    """Refuse what the memory cannot hold side by side, before any of it is taken: an expanded
    tensor may have any shape without taking memory itself."""
    first, shape = tensors[0], list(tensors[0].shape)
    shape[axis] = longest
    size = len(tensors) * math.prod(shape) * first.element_size()
    if size > SMALL and first.device.type == "cpu":
        refuse_too_large(f"{name} of {len(tensors)} samples", size, free_memory())


def _shared_or_padded(tensors: Sequence[Tensor], axis: int, name: str) -> Tensor:
    if all(t is tensors[0] for t in tensors):
        return tensors[0].unsqueeze(0)
    return _pad(tensors, axis, name)


def _pad_optional(tensors: Sequence[Tensor | None], axis: int, name: str) -> Tensor | None:
    present = [t for t in tensors if t is not None]
    if not present:
        return None
    if len(present) != len(tensors):
        raise DataError(f"{len(present)} of {len(tensors)} samples have {name}: all or none must")
    return _pad(present, axis, name)


def _mask(lengths: Sequence[int], device: torch.device) -> Tensor | None:
    if len(set(lengths)) == 1:
        return None
    columns = torch.arange(max(lengths), device=device)
    return columns < torch.tensor(lengths, device=device).unsqueeze(1)


def _common(grids: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    return grids[0] if len(set(grids)) == 1 else None


def _offset_edges(samples: Sequence[Sample]) -> Tensor | None:
    """Edges of all samples, numbered over the rows of the padded batch."""
    longest = max(len(s.points) for s in samples)
    edges = [s.edges + i * longest for i, s in enumerate(samples) if s.edges is not None]
    return torch.cat(edges, dim=1) if len(edges) == len(samples) else None
