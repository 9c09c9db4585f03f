"""Training samples as a table: a row of inputs and a row of targets for each, in float64 on demand.

On one mesh that all samples share, a row holds the values at its points. Where meshes differ there
are two frames, and held-out samples decide which one serves better: `CommonPlaces` carries all
values to places that are the same for all samples and back; `Rows` takes the k-th point of every
sample for the same one, as on a mesh that is deformed, and counts where it lies among the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from ipot.data.dataset import Dataset, Stacked
from ipot.errors import DataError
from ipot.evaluation.interpolation import Scattered, Space, common_places, evenly, same
from ipot.samples import Sample
from ipot.spec import Spec

INPUT_PLACES, QUERY_PLACES = 1024, 2048
"""The most places that stand for differing meshes; four times the points of the largest of them
are enough."""
CARRIED_FROM = 16_384
"""Points of a sample that its values are carried from; more are thinned to about so many."""


@dataclass(frozen=True)
class Shared:
    """What all samples share."""

    first: Sample
    points: bool
    queries: bool
    sizes: bool
    """True if the numbers of points and of queries are the same in all."""

    @classmethod
    def of(cls, data: Dataset) -> Shared:
        """Look at every sample, unless the data say it themselves."""
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


class CommonPlaces:
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

    def without_shape(self) -> CommonPlaces:
        """The frame without the shape of the mesh among its inputs."""
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
        """True if a sample has as many points and queries as those of training."""
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


Frame = CommonPlaces | Rows


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


CARRIED_SAMPLES = 1500
"""Samples on meshes of their own that are learned from; of more, so many are taken evenly."""
BLOCK = 1 << 22
"""Numbers that are worked on at once, in float64."""
CONSTANT = 1e-6
"""A channel that varies by less than this share of its size does so by rounding."""


class Table:
    """Rows of standardised inputs, and rows of targets, in a frame.

    Inputs are centred at every place, and each channel is scaled so that it counts the same,
    whatever its unit and however many points it stands at; so does each parameter. A channel that
    is the same in all samples counts nothing. Numbers stay as they are stored until asked for.
    """

    def __init__(
        self, data: Dataset, frame: Frame, inputs: Sequence[Tensor], targets: Tensor
    ) -> None:
        self.data, self.frame = data, frame
        self.shape = tuple(targets.shape[1:])
        self._inputs, self._targets = list(inputs), targets.flatten(1)
        self._centres = [_mean(block) for block in self._inputs]
        self._scales = [_scale(b, c) for b, c in zip(self._inputs, self._centres, strict=True)]

    def __len__(self) -> int:
        return len(self._targets)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the targets."""
        return self.data[0].truth.dtype

    @property
    def width(self) -> int:
        """Columns of inputs."""
        return sum(c.numel() for c in self._centres)

    def inputs(self, rows: Tensor | slice) -> Tensor:
        """Standardised inputs of some samples (rows, width), in float64."""
        return self._standardised([block[rows] for block in self._inputs])

    def targets(self, rows: Tensor | slice) -> Tensor:
        """Targets of some samples in one row each, in float64."""
        return self._targets[rows].double()

    def standards(self) -> tuple[Tensor, Tensor]:
        """What is taken off every column of the inputs, and what it is then multiplied by."""
        centres = [c.flatten() for c in self._centres]
        pairs = zip(self._scales, self._centres, strict=True)
        scales = [scale.expand(centre.shape).flatten() for scale, centre in pairs]
        return torch.cat(centres), torch.cat(scales)

    def inputs_of(self, samples: Sequence[Sample]) -> Tensor:
        """The standardised inputs of other samples (samples, width)."""
        found = [self.frame.inputs(sample) for sample in samples]
        return self._standardised([torch.stack(list(b)) for b in zip(*found, strict=True)])

    def select(self, rows: Tensor) -> Table:
        """Some of the samples."""
        inputs = [block[rows] for block in self._inputs]
        targets = self._targets[rows].unflatten(1, self.shape)
        return Table(self.data.select(rows.tolist()), self.frame, inputs, targets)

    def blocks(self) -> Iterator[slice]:
        """All rows, piece by piece."""
        size = max(1, BLOCK // max(1, self.width, self._targets.shape[1]))
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def _standardised(self, blocks: Sequence[Tensor]) -> Tensor:
        scaled = [
            ((block.double() - centre) * scale).flatten(1)
            for block, centre, scale in zip(blocks, self._centres, self._scales, strict=True)
        ]
        return torch.cat(scaled, 1)


def tables(train: Dataset, spec: Spec) -> list[Table]:
    """The training data in every frame that may serve: one where all samples share a mesh."""
    if len(train) == 0:
        raise DataError("simple predictors need at least one training sample, got none")
    train = train.to("cpu")
    shared = Shared.of(train)
    if not (shared.points and shared.queries) and len(train) > CARRIED_SAMPLES:
        train = train.select(evenly(len(train), CARRIED_SAMPLES).tolist())
    frame = CommonPlaces(train, shared, spec)
    if isinstance(train, Stacked) and shared.points and shared.queries:
        whole = train.data  # what lies there in rows already is not copied
        scalars = [] if whole.parameters is None else [whole.parameters.unsqueeze(1)]
        return [Table(train, frame, [whole.values, *scalars], whole.truth)]
    inputs, targets = _rows(train, frame)
    found = [Table(train, frame, inputs, targets)]
    if frame.shape_counts and (spec.channels or spec.parameters):
        values, _, *parameters = inputs
        found.append(Table(train, frame.without_shape(), [values, *parameters], targets))
    if shared.sizes:
        rows = Rows(train, shared, spec)
        found.append(Table(train, rows, *_rows(train, rows)))
    return found


def _rows(data: Dataset, frame: Frame) -> tuple[list[Tensor], Tensor]:
    """Blocks of inputs (samples, rows, channels), and targets (samples, T, places, K)."""
    inputs, targets = [], []
    for i in range(len(data)):
        sample = data[i]
        dtype = sample.truth.dtype
        inputs.append([block.to(dtype) for block in frame.inputs(sample)])
        targets.append(frame.targets(sample).to(dtype))
    return [torch.stack(list(blocks)) for blocks in zip(*inputs, strict=True)], torch.stack(targets)


def _mean(block: Tensor) -> Tensor:
    """The mean over samples at every place (rows, channels), in float64."""
    total = torch.zeros(block.shape[1:], dtype=torch.float64)
    for part in _parts(block):
        total += part.sum(0)
    return total / len(block)


def _scale(block: Tensor, centre: Tensor) -> Tensor:
    """What every channel is multiplied by (channels)."""
    spread = torch.zeros(block.shape[2], dtype=torch.float64)
    size = torch.zeros(block.shape[2], dtype=torch.float64)
    for part in _parts(block):
        spread += (part - centre).square().sum((0, 1))
        size += part.square().sum((0, 1))
    constant = spread <= CONSTANT**2 * size
    each = (spread / len(block)).sqrt()
    return torch.where(constant, torch.zeros_like(each), 1 / torch.where(constant, 1.0, each))


def _parts(block: Tensor) -> Iterator[Tensor]:
    size = max(1, BLOCK // max(1, block[0].numel()))
    for start in range(0, len(block), size):
        yield block[start : start + size].double()
