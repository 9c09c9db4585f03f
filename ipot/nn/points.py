"""Points as a network sees them: features of their positions, values and parameters; and points
that are spread evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.nn.mlp import Precise
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
    """Settings for every dimension, from one number for all of them or one for each."""
    each = bins * dimension if len(bins) == 1 else bins
    highest = max_frequency * dimension if len(max_frequency) == 1 else max_frequency
    if len(each) != dimension or len(highest) != dimension:
        raise ValueError(
            f"bins {bins} and max_frequency {max_frequency} must have "
            f"{dimension} numbers, or one for all"
        )
    return each, highest


class UnitBox(nn.Module):
    """Coordinates of a domain, mapped to [0, 1] along every axis."""

    def __init__(self, domain: Bounds) -> None:
        super().__init__()
        low = torch.tensor([a for a, _ in domain])
        size = torch.tensor([b - a for a, b in domain])
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("size", size, persistent=False)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """The points in the unit box."""
        return (x - self.low) / self.size


class Lift(nn.Module):
    """Positions and values to the width: two layers, the first split so that the positions of a
    shared mesh are multiplied once for the whole batch.

    `hidden` is the width between the layers. `precise` keeps coordinates as such, which are not
    spread over many features, from being rounded under autocast.
    """

    def __init__(
        self,
        positions: int,
        values: int,
        width: int,
        *,
        hidden: int | None = None,
        precise: bool = False,
    ) -> None:
        super().__init__()
        hidden = hidden or width
        self.from_position = (Precise if precise else nn.Linear)(positions, hidden)
        self.from_value = nn.Linear(values, hidden, bias=False) if values else None
        self.out = nn.Linear(hidden, width)

    def forward(self, position: Tensor, value: Tensor | None = None) -> Tensor:
        """(B or 1, N, F) and (B, N, C) to (B, N, width)."""
        hidden = self.from_position(position)
        if self.from_value is not None:
            hidden = hidden + self.from_value(value)
        return self.out(nn.functional.gelu(hidden))


class ParameterTokens(nn.Module):
    """Parameters of a case as tokens of their own, after those of its points."""

    parameter_offset: nn.Parameter
    parameter_slope: nn.Parameter

    def start_parameters(self, count: int, width: int) -> None:
        """Create the weights that turn `count` parameters into tokens; none for no parameters."""
        if count:
            self.parameter_offset = nn.Parameter(0.02 * torch.randn(count, width))
            self.parameter_slope = nn.Parameter(torch.randn(count, width))

    def join(
        self,
        tokens: Float[Tensor, "B N d"],
        parameters: Float[Tensor, "B P"] | None,
        mask: Bool[Tensor, "B N"] | None,
    ) -> tuple[Float[Tensor, "B NP d"], Bool[Tensor, "B NP"] | None]:
        """Tokens of the points, then of the parameters, and their mask."""
        if parameters is None:
            return tokens, mask
        extra = self.parameter_offset + parameters.unsqueeze(-1) * self.parameter_slope
        tokens = torch.cat([tokens, extra.to(tokens.dtype)], dim=1)
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(parameters.shape)], dim=1)
        return tokens, mask


def with_parameters(
    values: Float[Tensor, "B N C"], parameters: Float[Tensor, "B P"] | None
) -> Float[Tensor, "B N CP"]:
    """Values with the parameters of their sample as further channels, the same at every point."""
    if parameters is None:
        return values
    wide = parameters.to(values.dtype).unsqueeze(1).expand(-1, values.shape[1], -1)
    return torch.cat([values, wide], -1)


def spread(count: int, domain: Bounds, *, sphere: bool = False) -> Float[Tensor, "count D"]:
    """A low-discrepancy sequence in a box, or a spiral of equal areas on the unit sphere.

    In a box: multiples of the powers of 1/φ, where φ^(D + 1) = φ + 1 (the golden ratio for D = 1),
    modulo one. On the sphere: Fibonacci's lattice, whose points turn by the golden angle.
    """
    number = torch.arange(count, dtype=torch.float64) + 0.5
    if sphere:
        height = 1 - 2 * number / count
        angle = math.pi * (3 - math.sqrt(5)) * number
        radius = (1 - height.square()).sqrt()
        return torch.stack([radius * angle.cos(), radius * angle.sin(), height], -1)
    dimension = len(domain)
    phi = 2.0
    for _ in range(60):  # a contraction: the root to rounding
        phi = (1 + phi) ** (1 / (dimension + 1))
    steps = torch.tensor([phi ** -(axis + 1) for axis in range(dimension)], dtype=torch.float64)
    low = torch.tensor([a for a, _ in domain], dtype=torch.float64)
    high = torch.tensor([b for _, b in domain], dtype=torch.float64)
    return low + (high - low) * torch.remainder(0.5 + number[:, None] * steps, 1.0)
