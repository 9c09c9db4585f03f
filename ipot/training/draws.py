"""Every random choice of a step, as a function of (seed, step) alone.

A run that was stopped and one that was not draw the same numbers, and so do all processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from ipot import symmetry
from ipot.data.dataset import Dataset, Ragged, Stacked
from ipot.errors import DataError, Unsupported
from ipot.samples import Batch, collate
from ipot.seeds import generator
from ipot.spec import Spec
from ipot.training.settings import Training
from ipot.training.unroll import pieces as pieces_of

BUCKET = 32
"""Batches of ragged samples that are sorted by size together."""


@dataclass(frozen=True, eq=False)
class Draw:
    """The choices of one step, on the CPU. None means all of it, or nothing to choose."""

    index: Tensor
    points: Tensor | None = None
    queries: Tensor | None = None
    symmetry: Tensor | None = None
    pieces: Tensor | None = None

    def to(self, device: torch.device) -> Draw:
        """The same on a device."""
        optional = (self.points, self.queries, self.symmetry, self.pieces)
        return Draw(self.index.to(device), *(None if t is None else t.to(device) for t in optional))

    def copy_(self, other: Draw) -> None:
        """Take over the numbers of another draw of the same shape, in place."""
        names = ("index", "points", "queries", "symmetry", "pieces")
        for mine, new in ((getattr(self, name), getattr(other, name)) for name in names):
            if mine is not None:
                mine.copy_(new, non_blocking=True)


class Draws:
    """The sequence of all steps. `rank` of `world` takes its share of every batch."""

    def __init__(
        self, data: Dataset, spec: Spec, settings: Training, *, rank: int = 0, world: int = 1
    ) -> None:
        self.data, self.spec, self.settings = data, spec, settings
        self.rank, self.world = rank, world
        self.batch = min(settings.batch, len(data))
        if self.batch % world:
            raise DataError(f"a batch of {self.batch} does not divide among {world} processes")
        self.steps_per_epoch = len(data) // self.batch
        if settings.augment and not spec.symmetries:
            raise Unsupported(f"{spec.name} lists no symmetry to augment by")
        self._pieces = len(data[0].times) // settings.unroll if settings.unroll else 1
        self._order: tuple[int, Tensor] | None = None

    def __call__(self, step: int) -> Draw:
        """The choices of a step, counted from 0."""
        epoch, place = divmod(step, self.steps_per_epoch)
        random = generator(self.settings.seed, "step", step)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._shuffle(epoch)
        index = self._order[1][place]
        points = queries = element = None
        if isinstance(self.data, Stacked):
            whole = self.data.data
            points = _subset(whole.values.shape[1], self.settings.points, random)
            queries = _subset(whole.queries.shape[-2], self.settings.queries, random)
        if self.settings.augment:
            element = symmetry.draw(self.spec, self.batch, random)
            element = element[self.rank :: self.world]
        pieces = None
        if self.settings.pieces is not None:
            pieces = torch.randperm(self._pieces, generator=random)[: self.settings.pieces]
        return Draw(index[self.rank :: self.world], points, queries, element, pieces)

    def stacked_batch(self, draw: Draw) -> Batch:
        """The batch of a draw whose tensors lie on the data's device; safe to capture."""
        batch = self.data.batch(draw.index)
        if draw.symmetry is not None:
            shared = isinstance(self.data, Stacked) and self.data.one_mesh
            batch = symmetry.apply(batch, draw.symmetry, self.spec, shared=shared)
        if draw.points is not None:
            batch = batch.take_points(draw.points)
        if draw.queries is not None:
            batch = batch.take_queries(draw.queries)
        return self._cut(batch, draw)

    def ragged_batch(self, step: int) -> Batch:
        """The batch of a step, collated; subsets are drawn for each sample."""
        draw = self(step)
        samples = []
        for i in draw.index.tolist():
            sample, random = self.data[i], generator(self.settings.seed, "sample", step, i)
            points = _subset(len(sample.points), self.settings.points, random)
            queries = _subset(sample.queries.shape[-2], self.settings.queries, random)
            sample = sample if points is None else sample.take_points(points)
            samples.append(sample if queries is None else sample.take_queries(queries))
        batch = collate(samples)
        if draw.symmetry is not None:
            batch = symmetry.apply(batch, draw.symmetry, self.spec, shared=False)
        return self._cut(batch, draw)

    def _cut(self, batch: Batch, draw: Draw) -> Batch:
        """Trajectories in the pieces that they are trained in."""
        if self.settings.unroll is None:
            return batch
        return pieces_of(batch, self.spec, self.settings.unroll, draw.pieces)

    def _shuffle(self, epoch: int) -> Tensor:
        """An epoch's batches (steps, batch). Ragged samples of like size come together."""
        random = generator(self.settings.seed, "epoch", epoch)
        order = torch.randperm(len(self.data), generator=random)
        order = order[: self.steps_per_epoch * self.batch]
        if isinstance(self.data, Ragged):
            sizes = torch.tensor(self.data.sizes())
            window = self.batch * BUCKET
            order = torch.cat([w[sizes[w].argsort(stable=True)] for w in order.split(window)])
            rows = order.view(self.steps_per_epoch, self.batch)
            return rows[torch.randperm(self.steps_per_epoch, generator=random)]
        return order.view(self.steps_per_epoch, self.batch)


def _subset(count: int, fraction: float, random: torch.Generator) -> Tensor | None:
    if fraction >= 1 or count == 0:
        return None
    return torch.randperm(count, generator=random)[: max(1, round(fraction * count))]


class RaggedSteps(TorchDataset):
    """Batches by the number of their step, for a loader with workers."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def __getitem__(self, index: int) -> Batch:
        return self.draws.ragged_batch(index)
