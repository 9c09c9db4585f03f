"""How samples become rows of numbers of one length, and such rows fields again.

On one mesh that all samples share, a row is what stands at its points. Where meshes differ there
are two ways, and which one serves better is for held-out samples to say: `Places` carries all to
common places and back; `Rows` takes the k-th point of every sample for the same one, as on a mesh
that is deformed, and counts where it lies among the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from ipot.data.dataset import Dataset, Stacked
from ipot.errors import DataError
from ipot.evaluation.carry import Scattered, Space, common_places, same
from ipot.samples import Sample
from ipot.spec import Spec

INPUT_PLACES, QUERY_PLACES = 1024, 2048
"""The most places that stand for differing meshes; four times the points of the largest of them
are enough."""
CARRIED_FROM = 16_384
"""Points of a sample that its values are carried from; more are thinned to about so many."""


@dataclass(frozen=True)
class Shared:
    """What all samples have in common."""

    first: Sample
    points: bool
    queries: bool
    sizes: bool
    """Whether the numbers of points and of queries are the same in all."""

    @classmethod
    def of(cls, data: Dataset) -> Shared:
        """Looks at every sample, unless the data say it themselves."""
        first = data[0]
        if isinstance(data, Stacked) and data.one_mesh:
            return cls(first, True, True, True)
        points = queries = sizes = True
        for i in range(len(data)):
            sample = data[i]
            if len(sample.times) != len(first.times):
                raise DataError(
                    f"sample {i} has {len(sample.times)} times, sample 0 has {len(first.times)}: "
                    "simple predictors need the same number in all"
                )
            points = points and same(first.points, sample.points)
            queries = queries and same(first.queries, sample.queries)
            sizes = sizes and first.points.shape == sample.points.shape
            sizes = sizes and first.queries.shape == sample.queries.shape
        return cls(first, points, queries, sizes)


class Places:
    """Inputs and targets at places that are the same for all samples."""

    def __init__(self, data: Dataset, shared: Shared, spec: Spec) -> None:
        self.spec, self.times = spec, len(shared.first.times)
        self._here, self._there = Space.of_points(spec), Space.of_queries(spec)
        self.shape_counts = not shared.points
        samples = () if shared.points and shared.queries else (data[i] for i in range(len(data)))
        clouds = [(s.points, s.queries.flatten(0, -2)) for s in samples]
        self.points, self.queries = shared.first.points, shared.first.queries
        if not shared.points:
            self.points = _common([points for points, _ in clouds], self._here, INPUT_PLACES)
        if not shared.queries:
            self.queries = _common([queries for _, queries in clouds], self._there, QUERY_PLACES)
        self._answered = _Answered(self.queries, self._there, self.times)

    def without_shape(self) -> Places:
        """The same, where the shape of the mesh is no input."""
        other = copy(self)
        other.shape_counts = False
        return other

    def inputs(self, sample: Sample) -> list[Tensor]:
        """Blocks (rows, channels): values at the places, the shape of the mesh, the parameters."""
        _check(sample, self.spec, self.times)
        blocks = [sample.values]
        if self.shape_counts or not same(self.points, sample.points):
            keep = _thinned(len(sample.points))
            known = Scattered(sample.points[keep], self._here)
            blocks = [known.at(sample.values[keep], self.points)]
            if self.shape_counts:
                blocks.append(known.offsets(self.points))
        return _with_parameters(blocks, sample)

    def targets(self, sample: Sample) -> Tensor:
        """(T, places, K)."""
        if same(self.queries, sample.queries):
            return sample.truth
        keep = _thinned(sample.queries.shape[-2])
        return _Answered(sample.queries[..., keep, :], self._there, self.times).at(
            sample.truth[:, keep], self.queries
        )

    def field(self, answer: Tensor, sample: Sample) -> Tensor:
        """An answer (T, places, K) at the queries of a sample (T, M, K)."""
        return self._answered.at(answer, sample.queries)

    def field_of(self, known: Sample, sample: Sample) -> Tensor:
        """The targets of a known sample at the queries of another (T, M, K)."""
        if same(known.queries, sample.queries):
            return known.truth
        return _Answered(known.queries, self._there, self.times).at(known.truth, sample.queries)


class Rows:
    """Inputs and targets row by row, with where the rows lie as further inputs."""

    shape_counts = False

    def __init__(self, data: Dataset, shared: Shared, spec: Spec) -> None:
        self.spec, self.first, self.times = spec, shared.first, len(shared.first.times)
        self._places: list[Callable[[Sample], Tensor]] = []
        if not shared.points:
            self._places.append(lambda sample: sample.points)
        if not shared.queries and not _asked_where_seen(data):
            self._places.append(lambda sample: sample.queries.flatten(0, -2))

    def fits(self, sample: Sample) -> bool:
        """Whether a sample has as many points and queries."""
        first = self.first
        return (first.points.shape, first.queries.shape) == (
            sample.points.shape,
            sample.queries.shape,
        )

    def inputs(self, sample: Sample) -> list[Tensor]:
        """Blocks (rows, channels): values, where they and the queries lie, the parameters."""
        _check(sample, self.spec, self.times)
        if not self.fits(sample):
            raise DataError(
                f"rows of points {tuple(sample.points.shape)} and queries "
                f"{tuple(sample.queries.shape)} cannot be matched with those of training, "
                f"{tuple(self.first.points.shape)} and {tuple(self.first.queries.shape)}"
            )
        blocks = [sample.values, *(place(sample) for place in self._places)]
        return _with_parameters(blocks, sample)

    def targets(self, sample: Sample) -> Tensor:
        """(T, M, K), as they are."""
        return sample.truth

    def field(self, answer: Tensor, sample: Sample) -> Tensor:
        """An answer as it is."""
        return answer

    def field_of(self, known: Sample, sample: Sample) -> Tensor:
        """The targets of a known sample, row by row."""
        return known.truth


Frame = Places | Rows


class _Answered:
    """Fields (T, n, K) known at queries (n, E) or, where those move, (T, n, E)."""

    def __init__(self, queries: Tensor, space: Space, times: int) -> None:
        self.queries, self.space, self.times = queries, space, times
        self._known: list[Scattered] | None = None

    def at(self, fields: Tensor, queries: Tensor) -> Tensor:
        """The fields at other queries (T, m, K)."""
        if same(self.queries, queries):
            return fields
        if self._known is None:
            moving = self.queries if self.queries.ndim == 3 else self.queries.unsqueeze(0)
            self._known = [Scattered(q, self.space) for q in moving]
        if len(self._known) == 1 and queries.ndim == 2:
            times, count, channels = fields.shape
            flat = fields.transpose(0, 1).reshape(count, times * channels)
            made = self._known[0].at(flat, queries)
            return made.reshape(-1, times, channels).transpose(0, 1)
        known = self._known * self.times if len(self._known) == 1 else self._known
        asked = queries if queries.ndim == 3 else [queries] * self.times
        return torch.stack([k.at(f, q) for k, f, q in zip(known, fields, asked, strict=True)])


def _check(sample: Sample, spec: Spec, times: int) -> None:
    parameters = 0 if sample.parameters is None else len(sample.parameters)
    for name, found, expected in (
        ("input channels", sample.values.shape[1], spec.channels),
        ("parameters", parameters, len(spec.parameters)),
        ("times", len(sample.times), times),
    ):
        if found != expected:
            raise DataError(f"sample {sample.index} has {found} {name}, expected {expected}")


def _with_parameters(blocks: list[Tensor], sample: Sample) -> list[Tensor]:
    if sample.parameters is None:
        return blocks
    return [*blocks, sample.parameters.unsqueeze(0)]


def _common(clouds: list[Tensor], space: Space, most: int) -> Tensor:
    return common_places(clouds, space, min(most, 4 * max(len(cloud) for cloud in clouds)))


def _thinned(count: int) -> slice:
    return slice(None, None, -(-count // CARRIED_FROM) if count > CARRIED_FROM else 1)


def _asked_where_seen(data: Dataset) -> bool:
    samples = (data[i] for i in range(len(data)))
    return all(same(sample.points, sample.queries) for sample in samples)
