"""Transolver: attention among learnt slices of the domain, at the input points.

    h = MLP(position, values)               position: distances to a grid of reference points
    h = h + PhysicsAttention(LN(h))         see `ipot.nn.slices`
    h = h + MLP(LN(h))                      such blocks one after another
    u = W LN(h)

On a grid the projections into slices are convolutions, which pad it with zeros, periodic or not;
elsewhere they are linear maps of each point. Wu, Luo, Wang, Wang and Long, "Transolver: a fast
transformer solver for PDEs on general geometries", ICML 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.errors import Unsupported
from ipot.models._grid_or_points import GridOrPoints
from ipot.models._settings import divided, positive
from ipot.nn.attention import FeedForward
from ipot.nn.mlp import truncate
from ipot.nn.slices import CONVOLUTIONS, PhysicsAttention
from ipot.samples import Batch
from ipot.spec import Need, Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and choices of a Transolver."""

    width: int = 128
    """Channels at every point."""
    blocks: int = 8
    """Blocks of attention and feed-forward."""
    heads: int = 8
    """Heads, each with slices of its own."""
    slices: int = 64
    """Slices that the points are shared out among."""
    feed_forward: int = 1
    """Multiplier of the feed-forwards."""
    reference: int = 8
    """Reference points along each axis, whose distances are a point's position; 0 takes the
    coordinates as they are."""
    projection: Literal["auto", "grid", "points"] = "auto"
    """grid: project into slices by convolutions; points: each point by itself; auto: grid where
    the problem has one with two or three axes."""

    def __post_init__(self) -> None:
        positive(self, "width", "blocks", "heads", "slices", "feed_forward")
        divided(self)
        if self.reference < 0:
            raise Unsupported(f"model.reference must not be negative, got {self.reference}")


class Block(nn.Module):
    """Physics attention and a feed-forward, each added to what it sees normalised."""

    def __init__(self, config: Config, axes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attend = PhysicsAttention(
            config.width, heads=config.heads, slices=config.slices, axes=axes
        )
        self.feed_forward = FeedForward(config.width, config.feed_forward)

    def forward(
        self,
        x: Float[Tensor, "B N d"],
        mask: Bool[Tensor, "B N"] | None,
        grid: tuple[int, ...] | None,
    ) -> Float[Tensor, "B N d"]:
        """One block."""
        x = x + self.attend(self.norm(x), mask, grid)
        return x + self.feed_forward(x)


class Transolver(GridOrPoints):
    """Answers at its input points; on a grid, or on any points, by `projection`."""

    on_a_grid = (
        "Transolver projects into slices by convolutions on a grid, and {} has none: "
        "use --model.projection points"
    )

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec, _axes(config, spec), Block)
        self._start()
        # What stands for the values where there are none.
        bare = not (spec.channels or spec.parameters)
        self.placeholder = nn.Parameter(torch.rand(config.width) / config.width) if bare else None

    def lifted(self, batch: Batch) -> Float[Tensor, "B N d"]:
        """What the first block sees."""
        x = super().lifted(batch)
        return x if self.placeholder is None else x + self.placeholder

    def _start(self) -> None:
        """Small weights, and slices that are far from each other."""
        truncate(self, 0.02)
        for module in self.modules():
            if isinstance(module, PhysicsAttention):
                nn.init.orthogonal_(module.to_slice.weight)


def _axes(config: Config, spec: Spec) -> int:
    """How many axes the convolutions have; 0 for none."""
    axes, found = len(spec.wraps), Need.GRID in spec.provides
    if config.projection == "points" or (config.projection == "auto" and not found):
        return 0
    if config.projection == "auto":
        return axes if axes in (2, 3) else 0
    if axes not in CONVOLUTIONS and found:
        raise Unsupported(
            f"model.projection grid takes one to three axes, {spec.name} has {axes}: "
            "use --model.projection points"
        )
    return axes


MODEL = Transolver
