"""Every random choice of a step, as a function of (seed, step) alone.

A run that was stopped and one that was not draw the same numbers, and so do all processes. Samples
of one size come in random order. Where sizes differ, a batch holds samples of similar size, since
it is padded to the largest of them; the batches themselves come in random order. For a GPU, draws
are made ahead of their steps by a thread.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from ipot import symmetry
from ipot.data.dataset import Dataset, Stacked
from ipot.data.packed import Packed, share
from ipot.errors import DataError, Unsupported
from ipot.samples import Batch, collate, rows_of
from ipot.seeds import generator
from ipot.spec import Spec
from ipot.training.settings import Training, shares
from ipot.training.unroll import pieces as pieces_of


@dataclass(frozen=True, eq=False)
class Draw:
    """The random choices of one step, on the CPU. None means all rows, or nothing to choose."""

    index: Tensor
    points: Tensor | None = None
    queries: Tensor | None = None
    symmetry: Tensor | None = None
    pieces: Tensor | None = None
    box: int | None = None
    """The number of the box that the batch is padded to, where samples are packed: draws of one
    box have the same shapes."""
    share: float = 1.0
    """The fraction of the input points that is taken."""

    def to(self, device: torch.device) -> Draw:
        """The draw with its tensors on a device."""
        return self._map(lambda t: t.to(device, non_blocking=True))

    def pin_memory(self) -> Draw:
        """The draw in page-locked memory, from where copies to a GPU do not block."""
        return self._map(Tensor.pin_memory)

    def copy_(self, other: Draw) -> None:
        """Copy the numbers of another draw of the same sizes, in place."""
        for mine, new in zip(self._tensors(), other._tensors(), strict=True):
            if mine is not None:
                mine.copy_(new, non_blocking=True)

    def _tensors(self) -> tuple[Any, ...]:
        return self.index, self.points, self.queries, self.symmetry, self.pieces

    def _map(self, function: Callable[[Tensor], Tensor]) -> Draw:
        index, *optional = self._tensors()
        made = (None if t is None else function(t) for t in optional)
        return Draw(function(index), *made, box=self.box, share=self.share)

    @property
    def sizes(self) -> tuple[int | None, float]:
        """What the shapes of the tensors depend on."""
        return self.box, self.share


def steps_of(samples: int, batch: int, settings: Training) -> int:
    """The steps of an epoch: whole batches, and one more if the last one is filled."""
    return samples // batch + (settings.last_batch == "fill" and samples % batch > 0)


class Draws:
    """The random choices of all steps. Process `rank` of `world` takes its share of every batch."""

    def __init__(
        self, data: Dataset, spec: Spec, settings: Training, *, rank: int = 0, world: int = 1
    ) -> None:
        self.data, self.spec, self.settings = data, spec, settings
        self.rank, self.world = rank, world
        self.batch = min(settings.batch, len(data))
        if self.batch % world:
            raise DataError(f"a batch of {self.batch} does not divide among {world} processes")
        self.steps_per_epoch = steps_of(len(data), self.batch, settings)
        if settings.augment and not spec.symmetries:
            raise Unsupported(f"{spec.name} lists no symmetry to augment by")
        self._pieces = len(data[0].times) // settings.unroll if settings.unroll else 1
        self._shares = shares(settings)
        self._order: tuple[int, Tensor, list[int] | None] | None = None
        self._sizes = sizes_of(data)
        self.rows = RowsOf()

    def __call__(self, step: int) -> Draw:
        """The choices of a step, counted from 0."""
        return self._draw(step, *self._whole(step))

    def _whole(self, step: int) -> tuple[Tensor, int | None]:
        """The samples of a step in all processes, and their box."""
        epoch, number = divmod(step, self.steps_per_epoch)
        known = self._order  # read once: draws may be made in several threads
        if known is None or known[0] != epoch:
            random = generator(self.settings.seed, "epoch", epoch)
            steps = self.steps_per_epoch
            known = epoch, *batches(self.data, self._sizes, steps, self.batch, random)
            self._order = known
        _, order, boxes = known
        return order[number], None if boxes is None else boxes[number]

    def examples(self) -> Iterator[Draw]:
        """One draw of every size that occurs, of any samples."""
        first = self._whole(0)
        for part in self._shares:
            if not isinstance(self.data, Packed):
                yield self._draw(0, *first, part)
                continue
            for box in range(len(self.data.boxes)):
                own = [i for i, number in enumerate(self.data.box_of) if number == box] or [0]
                index = torch.tensor((own * self.batch)[: self.batch])
                yield self._draw(0, index, box, part)

    def _draw(self, step: int, index: Tensor, box: int | None, part: float | None = None) -> Draw:
        """The choices of a step; if a `part` of the points is given, it is not drawn."""
        random = generator(self.settings.seed, "step", step)
        points = queries = element = None
        if part is None:
            part = self._shares[0]
            if len(self._shares) > 1:
                part = self._shares[int(torch.randint(len(self._shares), (), generator=random))]
        if isinstance(self.data, Stacked):
            whole = self.data.data
            points = _subset(whole.values.shape[1], part, random)
            queries = _subset(whole.queries.shape[-2], self.settings.queries, random)
        elif isinstance(self.data, Packed) and box is not None:
            size = self.data.boxes[box]
            points = _order(size.points, part, random)
            queries = _order(size.queries, self.settings.queries, random)
        if self.settings.augment:
            element = symmetry.draw(self.spec, self.batch, random)
            element = element[self.rank :: self.world]
        pieces = None
        if self.settings.pieces is not None:
            # Each sample its own: in one step the model sees as many times as it can.
            order = torch.rand(self.batch, self._pieces, generator=random).argsort(1)
            pieces = order[self.rank :: self.world, : self.settings.pieces]
        own = index[self.rank :: self.world]
        return Draw(own, points, queries, element, pieces, box, part)

    def passes(self) -> Iterator[nn.Module]:
        """The gather of stacked samples, as a module that can be compiled for a GPU."""
        if isinstance(self.data, Stacked):
            yield self.rows

    def gather(self, draw: Draw) -> Batch:
        """The batch of a draw on the device of resident data; can be captured in a CUDA graph."""
        packed = isinstance(self.data, Packed)
        return self.packed_batch(draw) if packed else self.stacked_batch(draw)

    def mesh(self) -> tuple[Tensor | None, Tensor | None]:
        """Points and queries that are the very same tensors in all batches; None for those that
        differ from batch to batch or move in time."""
        if not isinstance(self.data, Stacked):
            return None, None
        whole = self.data.data
        # How a batch is made is the same at every step, so that one of them tells.
        batch = self.gather(self._draw(0, *self._whole(0), self._shares[0]).to(whole.values.device))
        points = batch.points if batch.points is whole.points else None
        fixed = batch.queries is whole.queries and batch.queries.ndim == 3
        return points, batch.queries if fixed else None

    def shape(self) -> tuple[int, int, int, int]:
        """The largest batch of one process: samples, points and queries of each, times."""
        whole = (torch.tensor([[0], [0]]) if self._sizes is None else self._sizes).amax(1).tolist()
        if isinstance(self.data, Stacked):
            whole = [self.data.data.values.shape[1], self.data.data.queries.shape[-2]]
        fractions = (self.settings.points, self.settings.queries)
        points, queries = (share(f, n) for f, n in zip(fractions, whole, strict=True))
        return self.batch // self.world, points, queries, len(self.data[0].times)

    def stacked_batch(self, draw: Draw) -> Batch:
        """The batch of a draw on the data's device; can be captured in a CUDA graph."""
        shared = False
        if isinstance(self.data, Stacked):
            batch, shared = self.data.batch(draw.index, self.rows), self.data.one_mesh
        else:
            batch = self.data.batch(draw.index)
        if draw.symmetry is not None:
            batch = symmetry.apply(batch, draw.symmetry, self.spec, shared=shared)
        if draw.points is not None:
            batch = batch.take_points(draw.points)
        if draw.queries is not None:
            batch = batch.take_queries(draw.queries)
        return self._cut(batch, draw)

    def packed_batch(self, draw: Draw) -> Batch:
        """The batch of a draw from packed samples; subsets are a fraction of each sample's rows."""
        assert isinstance(self.data, Packed)
        assert draw.box is not None
        settings = self.settings
        points = None if draw.points is None else (draw.share, draw.points)
        queries = None if draw.queries is None else (settings.queries, draw.queries)
        batch = self.data.gather(draw.index, draw.box, points=points, queries=queries)
        if draw.symmetry is not None:
            batch = symmetry.apply(batch, draw.symmetry, self.spec, shared=False)
        return self._cut(batch, draw)

    def ragged_batch(self, step: int) -> Batch:
        """The batch of a step, collated; subsets are drawn for each sample."""
        draw = self(step)
        samples = []
        for i in draw.index.tolist():
            sample, random = self.data[i], generator(self.settings.seed, "sample", step, i)
            points = _subset(len(sample.points), draw.share, random)
            queries = _subset(sample.queries.shape[-2], self.settings.queries, random)
            sample = sample if points is None else sample.take_points(points)
            samples.append(sample if queries is None else sample.take_queries(queries))
        batch = collate(samples)
        if draw.symmetry is not None:
            batch = symmetry.apply(batch, draw.symmetry, self.spec, shared=False)
        return self._cut(batch, draw)

    def _cut(self, batch: Batch, draw: Draw) -> Batch:
        """The batch with its trajectories cut into pieces, where training asks for it."""
        if self.settings.unroll is None:
            return batch
        return pieces_of(batch, self.spec, self.settings.unroll, draw.pieces)


class RowsOf(nn.Module):
    """Rows of tensors by an index; a module, so that it can be compiled."""

    def forward(self, index: Int[Tensor, " b"], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rows of every tensor."""
        return rows_of(index, tensors)


def _subset(count: int, fraction: float, random: torch.Generator) -> Tensor | None:
    order = _order(count, fraction, random)
    return None if order is None else order[: share(fraction, count)]


def _order(count: int, fraction: float, random: torch.Generator) -> Tensor | None:
    """A random order of rows, if only a fraction of them is to be taken."""
    if fraction >= 1 or count == 0:
        return None
    return torch.randperm(count, generator=random)


class RaggedSteps(TorchDataset):
    """Batches by step number, for a loader with workers."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def __getitem__(self, index: int) -> Batch:
        return self.draws.ragged_batch(index)


WINDOW = 32
"""Batches of ragged samples that are sorted by size together; small, so that batches are mixed
anew in every epoch."""


def sizes_of(data: Dataset) -> Int[Tensor, "two samples"] | None:
    """Points and queries of every sample, where they differ."""
    if data.stacked:
        return None
    samples = [data[i] for i in range(len(data))]
    return torch.tensor([[len(s.points), s.queries.shape[-2]] for s in samples]).T


def batches(
    data: Dataset, sizes: Tensor | None, steps: int, batch: int, random: torch.Generator
) -> tuple[Int[Tensor, "steps batch"], list[int] | None]:
    """An epoch's batches, and the numbers of their boxes if samples are packed.

    Which samples an epoch leaves out, or takes twice to fill its last batch, is random and does not
    depend on their sizes.
    """
    order, numbers = torch.randperm(len(data), generator=random)[: steps * batch], None
    if (missing := steps * batch - len(order)) > 0:
        # From the batches before it, so that the last one has nothing twice where sizes are equal.
        whole = len(order) - len(order) % batch
        order = torch.cat([order, order[torch.randperm(whole, generator=random)[:missing]]])
    if sizes is None:
        return order.view(steps, batch), None
    if isinstance(data, Packed):
        order, numbers = by_box(order, data, sizes, batch)
    else:
        windows = order.split(batch * WINDOW)
        order = torch.cat([by_size(window, sizes, batch) for window in windows])
    mixed = torch.randperm(steps, generator=random)
    return order.view(steps, batch)[mixed], numbers and [numbers[i] for i in mixed.tolist()]


def by_size(window: Tensor, sizes: Tensor, batch: int) -> Tensor:
    """Samples ordered so that those of a batch have similar numbers of points and queries: sorted
    by points into groups of several batches, and by queries within each group."""
    points, queries = sizes
    slab = batch * max(1, round(math.sqrt(len(window) / batch)))
    window = window[points[window].argsort(stable=True)]
    return torch.cat([w[queries[w].argsort(stable=True)] for w in window.split(slab)])


def by_box(order: Tensor, data: Packed, sizes: Tensor, batch: int) -> tuple[Tensor, list[int]]:
    """Samples ordered so that those of a batch fit into one box, and the numbers of these boxes.

    What is left over in each box makes further batches, in the cheapest boxes that fit.
    """
    box_of, whole, numbers, left = torch.tensor(data.box_of)[order], [], [], []
    for box in range(len(data.boxes)):
        own = order[box_of == box]
        count = len(own) // batch
        whole.append(own[: count * batch])
        numbers += [box] * count
        left.append(own[count * batch :])
    rest = by_size(torch.cat(left), sizes, batch)
    numbers += [data.box_for(few.tolist()) for few in rest.split(batch) if len(few)]
    return torch.cat([*whole, rest]), numbers


DEPTH = 8
"""Draws that are made ahead."""


def ahead(draws: Callable[[int], Draw], first: int, device: torch.device) -> Iterator[Draw]:
    """The draws of a step and all steps after it, without end.

    For a GPU they are made by a thread, in page-locked memory. This does not change them: a draw
    depends on its step alone.
    """
    if device.type != "cuda":
        yield from map(draws, count(first))
        return
    yield from in_a_thread(draws, first, pin=True)


def in_a_thread(draws: Callable[[int], Draw], first: int, *, pin: bool) -> Iterator[Draw]:
    """The draws of a step and all steps after it, from a thread that ends with this iterator."""
    line: queue.Queue[Draw | Exception] = queue.Queue(DEPTH)
    stop = threading.Event()

    def put(item: Draw | Exception) -> None:
        waiting = True
        while waiting and not stop.is_set():
            with suppress(queue.Full):
                line.put(item, timeout=0.1)
                waiting = False

    def make() -> None:
        try:
            for step in count(first):
                if stop.is_set():
                    return
                draw = draws(step)
                put(draw.pin_memory() if pin else draw)
        except Exception as error:
            put(error)

    threading.Thread(target=make, daemon=True, name="draws").start()
    try:
        while True:
            item = line.get()
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        stop.set()
