"""LRSA: points to a few latents, attention among these, and back to the points, in every block.

    x = MLP(position, values)
    z = Attn(q, x, x)                       down: learnt latents q attend to all points
    z = z + Attn(z, z, z),  z = z + FF(z)   attention among the latents
    x = x + Attn(x, z, z)                   up: every point attends to the latents
    x = x + FF(x)                           on a grid with a convolution of three nodes an axis
    u = W LN(x)

Every block has latents and weights of its own, every attention and feed-forward its LayerNorm
before it. The cost is linear in the points. Yang, Xin, Du and Liu, "Simple yet effective: low-rank
spatial attention for neural operators", ICML 2026. Choices of ours, where the description leaves
them open: positions are distances to a grid of reference points as Transolver's, the convolution
is depthwise and stands between the two layers of the feed-forward, the parameters of a case are
further values at every point, and weights start as torch has them: from weights of deviation 0.02
all latents start alike, and points that ask them learn next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.errors import Unsupported
from ipot.models._grid_or_points import GridOrPoints
from ipot.models._settings import divided, positive
from ipot.nn.attention import AttentionBlock, MultiHead
from ipot.nn.slices import CONVOLUTIONS
from ipot.spec import Need, Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and choices of an LRSA."""

    width: int = 128
    """Channels at every point and latent."""
    blocks: int = 8
    """Blocks of down, latent attention, up and feed-forward."""
    heads: int = 8
    """Heads of every attention."""
    latents: int = 64
    """Latents of each block."""
    feed_forward: int = 2
    """Multiplier of the feed-forwards."""
    reference: int = 8
    """Reference points along each axis, whose distances are a point's position; 0 takes the
    coordinates as they are."""
    mixing: Literal["auto", "grid", "points"] = "auto"
    """grid: a convolution in the feed-forwards of the points; points: each point by itself; auto:
    grid where the problem has one with up to three axes."""

    def __post_init__(self) -> None:
        positive(self, "width", "blocks", "heads", "latents", "feed_forward")
        divided(self)
        if self.reference < 0:
            raise Unsupported(f"model.reference must not be negative, got {self.reference}")


class Mixing(nn.Module):
    """A feed-forward of the points, with a depthwise convolution inside on a grid.

    Grids are padded with zeros, periodic or not.
    """

    def __init__(self, width: int, multiplier: int, axes: int) -> None:
        super().__init__()
        inner = multiplier * width
        self.norm = nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, inner), nn.Linear(inner, width)
        self.mix = CONVOLUTIONS[axes](inner, inner, 3, padding=1, groups=inner) if axes else None

    def forward(
        self, x: Float[Tensor, "B N d"], grid: tuple[int, ...] | None
    ) -> Float[Tensor, "B N d"]:
        """The update of every point."""
        x = self.into(self.norm(x))
        if self.mix is not None and grid is not None:
            around = self.mix(x.transpose(1, 2).unflatten(2, grid))
            x = x + around.flatten(2).transpose(1, 2)
        return self.out(F.gelu(x))


class Block(nn.Module):
    """Down to the latents, attention among them, up to the points, and their feed-forward."""

    def __init__(self, config: Config, axes: int) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.latents = nn.Parameter(0.02 * torch.randn(config.latents, width))
        self.down, self.up = (
            MultiHead(width, context=width, heads=heads, head_width=width // heads, out=width)
            for _ in range(2)
        )
        self.among = AttentionBlock(width, heads=heads, multiplier=config.feed_forward, gated=False)
        self.feed_forward = Mixing(width, config.feed_forward, axes)

    def forward(
        self,
        x: Float[Tensor, "B N d"],
        mask: Bool[Tensor, "B N"] | None,
        grid: tuple[int, ...] | None,
    ) -> Float[Tensor, "B N d"]:
        """One block."""
        z = self.among(self.down(self.latents.unsqueeze(0), x, mask))
        x = x + self.up(x, z)
        return x + self.feed_forward(x, grid)


class LRSA(GridOrPoints):
    """Answers at its input points; on a grid with local mixing, or on any points, by `mixing`."""

    on_a_grid = (
        "LRSA mixes neighbours by convolutions on a grid, and {} has none: "
        "use --model.mixing points"
    )

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec, _axes(config, spec), Block)


def _axes(config: Config, spec: Spec) -> int:
    """How many axes the convolutions have; 0 for none."""
    axes, found = len(spec.wraps), Need.GRID in spec.provides
    if config.mixing == "points" or (config.mixing == "auto" and not found):
        return 0
    if axes in CONVOLUTIONS:
        return axes
    if config.mixing == "auto":
        return 0
    raise Unsupported(
        f"model.mixing grid takes one to three axes, {spec.name} has {axes}: use --model.mixing "
        "points"
    )


MODEL = LRSA
