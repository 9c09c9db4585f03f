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

from ipot.data.dataset import Dataset
from ipot.errors import DataError, Unsupported
from ipot.models._settings import divided, positive
from ipot.models.base import OneStep
from ipot.nn.attention import FeedForward
from ipot.nn.mlp import truncate
from ipot.nn.points import Lift, UnitBox, with_parameters
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


class Position(nn.Module):
    """Distances to points spread over the unit box, or the coordinates in it."""

    def __init__(self, reference: int, spec: Spec) -> None:
        super().__init__()
        self.box = UnitBox(spec.domain)
        line = torch.linspace(0, 1, reference)
        nodes = torch.cartesian_prod(*[line] * spec.dimension).view(-1, spec.dimension)
        self.register_buffer("nodes", nodes, persistent=False)
        self.width = len(nodes) if reference else spec.dimension

    def forward(self, points: Float[Tensor, "B N D"]) -> Float[Tensor, "B N F"]:
        """Features of positions."""
        points = self.box(points)
        if not len(self.nodes):
            return points
        # A norm and not a root of squares: a point may lie on a node, where the root has no slope.
        return torch.linalg.vector_norm(points.unsqueeze(-2) - self.nodes, dim=-1)


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


class Transolver(OneStep):
    """Answers at its input points; on a grid, or on any points, by `projection`."""

    needs = frozenset({Need.SAME_POINTS})

    def __init__(self, config: Config, spec: Spec) -> None:
        axes = _axes(config, spec)
        if axes:
            self.needs = Transolver.needs | {Need.GRID}
        super().__init__(config, spec)
        values = spec.channels + len(spec.parameters)
        self.position = Position(config.reference, spec)
        self.lift = Lift(
            self.position.width, values, config.width, hidden=2 * config.width, precise=True
        )
        self.blocks = nn.ModuleList(Block(config, axes) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, len(spec.outputs))
        self._start()
        # What stands for the values where there are none.
        self.placeholder = None if values else nn.Parameter(torch.rand(config.width) / config.width)

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """The fields at the input points."""
        x = self.lift(self.position(batch.points), with_parameters(batch.values, batch.parameters))
        if self.placeholder is not None:
            x = x + self.placeholder
        x = x.expand(batch.size, -1, -1)
        for block in self.blocks:
            x = block(x, batch.point_mask, batch.grid)
        return self.out(self.norm(x))

    def forward(self, batch: Batch) -> Float[Tensor, "B 1 M K"]:
        """The answer with an axis for the time."""
        if Need.GRID in self.needs and batch.grid is None:
            raise DataError(_lost("this batch"))
        return super().forward(batch)

    def examine(self, data: Dataset) -> None:
        """Refuse data without the grid that the model was built for."""
        if Need.GRID in self.needs and data[0].grid is None:
            raise Unsupported(_lost("this view of the data"))
        super().examine(data)

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


def _lost(what: str) -> str:
    return (
        f"Transolver projects into slices by convolutions on a grid, and {what} has none: "
        "use --model.projection points"
    )


MODEL = Transolver
