"""Position features: what a coordinate looks like to a network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.spec import Bounds


class FourierFeatures(nn.Module):
    """x itself, then sin(π f x) and cos(π f x) for every dimension.

    The frequencies f are spaced linearly from 1 to half the maximum frequency, `bins` of them, each
    dimension with its own. With `domain` the coordinates are first mapped to [-1, 1]. A periodic
    dimension (which needs the domain) takes the whole frequencies 1, 2, ..., bins and drops x
    itself, so that the features are exactly periodic.
    """

    def __init__(
        self,
        bins: Sequence[int],
        max_frequency: Sequence[float],
        *,
        domain: Bounds | None = None,
        periods: Sequence[float | None] | None = None,
    ) -> None:
        super().__init__()
        dimension = len(bins)
        if len(max_frequency) != dimension:
            raise ValueError(f"{dimension} numbers of bins, {len(max_frequency)} frequencies")
        periods = periods if domain is not None and periods else (None,) * dimension
        domain = domain or ((-1.0, 1.0),) * dimension
        # A periodic coordinate is mapped by its period, which may be longer than the domain seen.
        high = [a + p if p else b for (a, b), p in zip(domain, periods, strict=True)]
        low = torch.tensor([a for a, _ in domain])
        high = torch.tensor(high)
        self.register_buffer("centre", (low + high) / 2, persistent=False)
        self.register_buffer("radius", (high - low) / 2, persistent=False)

        axes, frequencies = [], []
        for axis, (count, highest) in enumerate(zip(bins, max_frequency, strict=True)):
            last = count if periods[axis] else highest / 2
            axes += [axis] * count
            frequencies.append(torch.linspace(1.0, last, count))
        raw = [axis for axis in range(dimension) if not periods[axis]]
        # One matrix maps the coordinates to all phases: a single small product, easily fused. It
        # is free of π, which would be rounded to float32 and spoil the periods in float64.
        matrix = torch.zeros(dimension, len(axes))
        matrix[axes, torch.arange(len(axes))] = torch.cat(frequencies)
        self.register_buffer("matrix", matrix, persistent=False)
        self.register_buffer("raw", torch.tensor(raw, dtype=torch.long), persistent=False)
        self.width = 2 * len(axes) + len(raw)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... F"]:
        """Features of coordinates; always at least float32, since the phases are large."""
        if x.shape[-1] != len(self.centre):
            raise ValueError(f"coordinates must have {len(self.centre)} axes, got {x.shape[-1]}")
        x = (x - self.centre) / self.radius
        # Not a matmul: under autocast that would round the phases to bf16.
        phase = (x.unsqueeze(-1) * self.matrix).sum(-2) * math.pi
        return torch.cat([x[..., self.raw], phase.sin(), phase.cos()], dim=-1)


def for_all(
    dimension: int, bins: tuple[int, ...], max_frequency: tuple[float, ...]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The settings of every dimension, where one number alone serves them all."""
    each = bins * dimension if len(bins) == 1 else bins
    highest = max_frequency * dimension if len(max_frequency) == 1 else max_frequency
    if len(each) != dimension or len(highest) != dimension:
        raise ValueError(
            f"bins {bins} and max_frequency {max_frequency} must have "
            f"{dimension} numbers, or one for all"
        )
    return each, highest
