"""Which samples come together: the order of an epoch.

Samples of one size come as chance has it. Where sizes differ, a batch holds samples that are alike,
since it is padded to the largest of them; the batches themselves come in any order.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Int
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.data.packed import Packed

WINDOW = 32
"""Batches of ragged samples that are sorted by size together, so that company changes."""


def sizes_of(data: Dataset) -> Int[Tensor, "two samples"] | None:
    """Points and queries of every sample, where they differ."""
    if data.stacked:
        return None
    samples = [data[i] for i in range(len(data))]
    return torch.tensor([[len(s.points), s.queries.shape[-2]] for s in samples]).T


def batches(
    data: Dataset, sizes: Tensor | None, steps: int, batch: int, random: torch.Generator
) -> tuple[Int[Tensor, "steps batch"], list[int] | None]:
    """An epoch's batches, and the numbers of their boxes where samples are packed.

    Whatever the sizes, the samples that an epoch leaves out are a matter of chance alone.
    """
    order, numbers = torch.randperm(len(data), generator=random)[: steps * batch], None
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
    """Samples in an order in which every `batch` of them are alike in points and in queries:
    sorted by points into slabs of several batches, and by queries within each."""
    points, queries = sizes
    slab = batch * max(1, round(math.sqrt(len(window) / batch)))
    window = window[points[window].argsort(stable=True)]
    return torch.cat([w[queries[w].argsort(stable=True)] for w in window.split(slab)])


def by_box(order: Tensor, data: Packed, sizes: Tensor, batch: int) -> tuple[Tensor, list[int]]:
    """Samples such that every `batch` of them fit a box, and the numbers of these boxes.

    What is left over of each box makes batches of its own, in the cheapest boxes that they fit.
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
