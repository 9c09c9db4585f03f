"""Views of a data set: fewer sensors, a region left out, another order.

A view that breaks a grid drops it, so a model never meets a lie.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ipot.data.dataset import Dataset, Ragged, Stacked, from_samples
from ipot.errors import DataError, UnknownName, shown
from ipot.seeds import generator
from ipot.spec import Spec

# A mask says of unit coordinates (N, D) in [0, 1] which points are seen.
Mask = Callable[[Tensor], Tensor]

MASKS: dict[str, Mask] = {
    "disk": lambda x: (x - 0.5).square().sum(-1) > 0.25**2,
    "left": lambda x: x[:, 0] <= 0.5,
    "right": lambda x: x[:, 0] > 0.5,
    "border": lambda x: ((x < 0.15) | (x > 0.85)).any(-1),
}
"""Regions that any problem has: a hole in the middle, one half, the other, a rim alone."""

SPHERE_MASKS: dict[str, Mask] = {
    "disk": lambda x: 2 * x[:, 0] - 1 < 0.75**0.5,
    "left": lambda x: x[:, 1] <= 0.5,
    "right": lambda x: x[:, 1] > 0.5,
}
"""Masks for unit vectors: a cap of thirty degrees around longitude zero on the equator, and the
hemispheres west and east of it. A sphere has no rim."""


def keep(data: Dataset, fraction: float, *, seed: int = 0) -> Dataset:
    """A random fraction of the input points, drawn afresh for every sample."""
    if not 0 < fraction <= 1:
        raise DataError(f"the fraction of inputs kept must lie in (0, 1], got {fraction}")
    if fraction == 1:
        return data

    def choose(index: int, points: int) -> Tensor:
        count = max(1, round(fraction * points))
        order = torch.randperm(points, generator=generator(seed, "keep", index))
        return order[:count].sort().values

    if isinstance(data, Stacked):
        points = data.data.values.shape[1]
        index = torch.stack([choose(i, points) for i in range(len(data))])
        return Stacked(data.data.take_points(index.to(data.data.values.device)), check=False)
    samples = [data[i] for i in range(len(data))]
    return Ragged(
        [s.take_points(choose(i, len(s.points))) for i, s in enumerate(samples)], check=False
    )


def mask(data: Dataset, name: str, spec: Spec, extra: dict[str, Mask] | None = None) -> Dataset:
    """Only the input points that a named mask lets through."""
    masks = (SPHERE_MASKS if spec.sphere else MASKS) | (extra or {})
    if name not in masks:
        raise UnknownName(
            f"unknown mask {shown(name)} for {spec.name}. Known: {', '.join(sorted(masks))}"
        )
    low = torch.tensor([a for a, _ in spec.domain])
    size = torch.tensor([b - a for a, b in spec.domain])

    def seen(points: Tensor) -> Tensor:
        index = masks[name]((points.cpu() - low) / size).nonzero().squeeze(-1)
        if len(index) == 0:
            raise DataError(f"the mask {shown(name)} leaves no input point")
        return index.to(points.device)

    if isinstance(data, Stacked) and data.data.points.shape[0] == 1:
        return Stacked(data.data.take_points(seen(data.data.points[0])), check=False)
    return from_samples([(s := data[i]).take_points(seen(s.points)) for i in range(len(data))])
