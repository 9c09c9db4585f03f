"""Samples of many sizes, resident on a device: rows one after the other, padded when gathered.

Nothing is padded in memory. A batch names its samples and the box that it is padded to; its rows
are found by arithmetic on the device, and a row of zeros after the last one stands for padding. So
the sizes of a batch are known beforehand and what lies in it is not asked for: a gather can be
captured. The batch is the one that `collate` makes, in a box that may be larger.

A captured step has sizes of its own, so each size costs a capture, and padding costs time at every
step. Here boxes (points, queries) are chosen so that few of them waste little: the samples are cut
in two, by points or by queries, wherever that saves the most rows, again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ipot.data.dataset import Ragged
from ipot.errors import DataError
from ipot.samples import Batch, Sample

MOST = 12
"""Boxes for one data set, without the one that holds everything."""
WASTE = 0.08
"""Rows of padding for each real row below which no more boxes are made."""
MULTIPLE = 8
"""Sizes are rounded up to multiples of it, so that rows of a mask are aligned in memory."""


class Box(NamedTuple):
    """Points and queries that samples are padded to."""

    points: int
    queries: int

    def holds(self, points: int, queries: int) -> bool:
        """Whether a sample of a size fits."""
        return points <= self.points and queries <= self.queries


def boxes(points: Sequence[int], queries: Sequence[int], *, times: int, least: int) -> list[Box]:
    """Boxes for samples of these sizes, the cheapest first; the last one holds them all.

    No cut leaves fewer than `least` samples on one side: a box with less than a few batches is
    hardly ever filled.
    """
    sizes = torch.tensor([points, queries], dtype=torch.long).T
    groups = [torch.arange(len(sizes))]
    real = int(_rows(sizes, times).sum())
    while len(groups) < MOST:
        padded = sum(len(g) * int(_rows(sizes[g].amax(0), times)) for g in groups)
        if padded <= (1 + WASTE) * real:
            break
        cuts = [_best_cut(sizes[g], times, least) for g in groups]
        saved = [cut[0] for cut in cuts]
        place = saved.index(max(saved))
        if not saved[place]:
            break
        group, (_, axis, size) = groups.pop(place), cuts[place]
        small = sizes[group, axis] <= size
        groups += [group[small], group[~small]]
    found = {_box(sizes, group) for group in groups} | {_box(sizes, torch.arange(len(sizes)))}
    return sorted(found, key=lambda box: (_rows(torch.tensor(box), times).item(), box))


def fitting(boxes: Sequence[Box], points: int, queries: int) -> int:
    """The number of the cheapest box that a sample of a size fits into."""
    return next(i for i, box in enumerate(boxes) if box.holds(points, queries))


def _rows(sizes: Tensor, times: int) -> Tensor:
    """What a sample of a size costs."""
    return sizes[..., 0] + times * sizes[..., 1]


def _best_cut(sizes: Tensor, times: int, least: int) -> tuple[int, int, int]:
    """Rows saved by the best cut of a group, its axis, and the largest size on the small side."""
    count, best = len(sizes), (0, 0, 0)
    whole = count * int(_rows(sizes.amax(0), times))
    for axis in (0, 1):
        order = sizes[sizes[:, axis].argsort(stable=True)]
        below = torch.arange(1, count)  # samples on the small side of each cut
        small = _rows(order.cummax(0).values[:-1], times)
        large = _rows(order.flip(0).cummax(0).values.flip(0)[1:], times)
        saved = whole - below * small - (count - below) * large
        # Samples of one size stay together.
        real = order[:-1, axis] != order[1:, axis]
        saved[~real | (below < least) | (count - below < least)] = 0
        if len(saved) and (most := int(saved.max())) > best[0]:
            best = most, axis, int(order[int(saved.argmax()), axis])
    return best


def _box(sizes: Tensor, group: Tensor) -> Box:
    """The smallest box of a group; a side on which all samples agree is not rounded."""
    return Box(*(_rounded(sizes[:, axis], group) for axis in (0, 1)))


def _rounded(sizes: Tensor, group: Tensor) -> int:
    largest = int(sizes[group].max())
    if bool((sizes == sizes[0]).all()):
        return largest
    return -(-largest // MULTIPLE) * MULTIPLE


def unpackable(data: Ragged) -> str | None:
    """Why samples cannot be packed, in words; None where they can."""
    first = data[0]
    if any(s.edges is not None for s in data.samples):
        return "edges join their points"
    if any(s.times != first.times for s in data.samples):
        return "their times differ"
    for name, count in (("grid", "points"), ("query_grid", "queries")):
        if len({getattr(s, name) for s in data.samples}) > 1:
            return f"their {count} lie on grids of different shapes"
    if any((s.weights is None) != (first.weights is None) for s in data.samples):
        return "some have weights and some have none"
    return None


def packed_bytes(data: Ragged) -> int:
    """Memory that the samples take when they are packed.

    A mesh that all samples share is stored once. Whatever else they share, if only some of them do
    or if points are the queries too, is stored for each use.
    """
    samples, total = data.samples, 0
    for name, axis in (("points", 0), ("queries", -2)):
        places = [getattr(s, name) for s in samples]
        shared = all(p is places[0] for p in places)
        total += places[0].nbytes if shared else _table_bytes(places, axis)
        total += 2 * len(samples) * torch.long.itemsize  # where each sample starts, how long it is
    total += _table_bytes([s.values for s in samples], 0)
    total += _table_bytes([s.truth for s in samples], 1)
    total += _table_bytes([s.weights for s in samples if s.weights is not None], 0)
    return total + sum(s.parameters.nbytes for s in samples if s.parameters is not None)


def _table_bytes(rows: Sequence[Tensor], axis: int) -> int:
    """Of the rows of all samples with the zeros after them."""
    if not rows:
        return 0
    wide = rows[0].movedim(axis, 0).shape[1:].numel() * rows[0].element_size()
    return (sum(r.shape[axis] for r in rows) + 1) * wide


class Packed:
    """Ragged samples on a device. `boxes` are the sizes that batches are padded to."""

    stacked = False
    resident = True

    def __init__(self, source: Ragged, *, device: torch.device | str, batch: int) -> None:
        if why := unpackable(source):
            raise DataError(f"these samples cannot be packed: {why}. Leave them as Ragged.")
        self.source, self.device, self.like = source, torch.device(device), source[0]
        samples = source.samples
        self._inputs = _Rows([s.points for s in samples], 0, self.device)
        self._asked = _Rows([s.queries for s in samples], -2, self.device)
        sizes = self._inputs.counts, self._asked.counts
        times = len(self.like.times)
        self.boxes = boxes(*sizes, times=times, least=batch)
        self.box_of = [fitting(self.boxes, *size) for size in zip(*sizes, strict=True)]
        """The number of the cheapest box for each sample."""
        self._values = self._inputs.table([s.values for s in samples], 0)
        self._targets = self._asked.table([s.truth for s in samples], 1)
        self._weights = self._parameters = None
        if self.like.weights is not None:
            self._weights = self._asked.table([s.weights for s in samples if s.weights is not None])
        if self.like.parameters is not None:
            own = [s.parameters for s in samples if s.parameters is not None]
            self._parameters = torch.stack(own).to(self.device)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Sample:
        return self.source[index]

    def box_for(self, index: Sequence[int]) -> int:
        """The number of the cheapest box for samples together."""
        sides = (self._inputs.counts, self._asked.counts)
        return fitting(self.boxes, *(max(counts[i] for i in index) for counts in sides))

    def batch(self, index: Tensor) -> Batch:
        """Padded to the box that holds all samples; the index must lie on the device."""
        return self.gather(index, len(self.boxes) - 1)

    def gather(
        self,
        index: Tensor,
        box: int,
        *,
        points: tuple[float, Tensor] | None = None,
        queries: tuple[float, Tensor] | None = None,
    ) -> Batch:
        """The samples of an index in a box of the data set.

        A fraction of each sample's points or queries is taken where one is given, with an order
        of the rows of the box: a sample takes the first of its own rows in that order.
        """
        size, like = self.boxes[box], self.like
        seen, asked = self._inputs, self._asked
        inputs, point_mask, alike = seen.find(index, size.points, points)
        outputs, query_mask, alike_asked = asked.find(index, size.queries, queries)
        whole = points is None and point_mask is None
        whole_asked = queries is None and query_mask is None
        return Batch(
            points=seen.places(inputs, alike),
            values=self._values[inputs],
            queries=_times_first(asked.places(outputs, alike_asked), like.queries.ndim == 3),
            targets=_times_first(self._targets[outputs], True),
            times=like.times,
            parameters=None if self._parameters is None else self._parameters[index],
            weights=None if self._weights is None else self._weights[outputs],
            point_mask=point_mask,
            query_mask=query_mask,
            grid=like.grid if whole else None,
            query_grid=like.query_grid if whole_asked else None,
            index=index,
        )

    def to(self, device: torch.device | str) -> Packed:
        """Itself: it was made for a device."""
        return self

    def astype(self, dtype: torch.dtype) -> Ragged:
        """The samples in another precision, to be packed again."""
        return self.source.astype(dtype)

    def select(self, index: Sequence[int]) -> Ragged:
        """Some of the samples, to be packed again."""
        return self.source.select(index)

    def columns(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Sample by sample."""
        return self.source.columns()


class _Rows:
    """Where the rows of each sample lie among those of all, for points or for queries."""

    def __init__(self, places: Sequence[Tensor], axis: int, device: torch.device) -> None:
        self.device = device
        self.counts = [p.shape[axis] for p in places]
        self.even = len(set(self.counts)) == 1
        self.last = sum(self.counts)
        """The row of zeros."""
        lengths = torch.tensor(self.counts)
        self._starts = (lengths.cumsum(0) - lengths).to(device)
        self._lengths = lengths.to(device)
        # One mesh of all samples is kept once, and computed with once.
        self.shared = all(p is places[0] for p in places)
        if self.shared:
            self._places = places[0].movedim(axis, 0).contiguous().to(device)
        else:
            self._places = self.table(places, axis)

    def table(self, rows: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Rows of all samples with the zeros after them, the axis of the rows first."""
        rows = [r.movedim(axis, 0) for r in rows]
        return torch.cat([*rows, rows[0].new_zeros(1, *rows[0].shape[1:])]).to(self.device)

    def places(self, rows: Tensor, alike: Tensor) -> Tensor:
        """Points or queries at the rows that were found."""
        return self._places[alike].unsqueeze(0) if self.shared else self._places[rows]

    def find(
        self, index: Tensor, width: int, some: tuple[float, Tensor] | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Rows (B, width) of samples, their mask, and the rows that an even mesh has of its own."""
        starts, lengths = self._starts[index].unsqueeze(1), self._lengths[index].unsqueeze(1)
        chosen = torch.arange(width, device=self.device)
        if some is not None and width:
            fraction, order = some
            width, taken = share(fraction, width), _share(fraction, lengths)
            if self.even:
                chosen = order[:width]
            else:
                chosen, lengths = _first_of(order, lengths, taken, width), taken
        if self.even:
            return starts + chosen, None, chosen
        mask = torch.arange(width, device=self.device) < lengths
        return torch.where(mask, starts + chosen, self.last), mask, chosen


def share(fraction: float, count: int) -> int:
    """How many of so many rows a fraction is; at least one where there are any."""
    return min(count, max(1, round(fraction * count)))


def _share(fraction: float, counts: Tensor) -> Tensor:
    """`share` for a tensor of counts; both round halves to even numbers."""
    taken = (fraction * counts.double()).round().long()
    return taken.clamp(min=1).minimum(counts)


def _first_of(order: Tensor, lengths: Tensor, taken: Tensor, width: int) -> Tensor:
    """The first `taken` rows in an order, of those that each sample has: (B, width).

    The order is a permutation, so that a sample's part of it is one too: a subset without
    repetition, every one as likely as another. What lies behind the taken rows means nothing.
    """
    own = order < lengths
    place = own.cumsum(1) - 1
    place = torch.where(own & (place < taken), place, width)
    chosen = order.new_zeros(len(lengths), width + 1)
    return chosen.scatter_(1, place, order.expand(len(lengths), -1))[:, :width]


def _times_first(rows: Tensor, timed: bool) -> Tensor:
    """(B, M, T, ...) as (B, T, M, ...); a copy only where there is more than one time."""
    return rows.transpose(1, 2).contiguous() if timed else rows
