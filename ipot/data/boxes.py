"""A few sizes that samples of many sizes are padded to.

A captured step has sizes of its own, so each size costs a capture, and padding costs time at every
step. Here boxes (points, queries) are chosen so that few of them waste little: the samples are cut
in two, by points or by queries, wherever that saves the most rows, again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

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
