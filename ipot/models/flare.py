"""FLARE: attention among points routed through a few latent queries, again in every block.

    x = MLP(position, values)
    k, v = MLP_k(LN(x)), MLP_v(LN(x))       deep residual networks, heads side by side
    z = softmax(q kᵀ) v                     compress: latent queries q, other ones for every head
    x = x + W softmax(k qᵀ) z               give back, with the same keys as queries
    x = x + MLP(LN(x))
    u = MLP(LN(x))

Scores are not divided by the root of the width, and the latents do not attend to each other: a head
is an attention of low rank among the points. The cost is linear in them. Puri, Joglekar, Ferguson,
Chen, Zhang and Kara, "FLARE: fast low-rank attention routing engine", 2025. Choices of ours: the
coordinates are mapped to the unit box, the parameters of a case, which the paper has none of, are
further values at every point, and the latent queries start as a normal of deviation 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._settings import divided, positive
from ipot.models.base import OneStep
from ipot.nn.attention import join_heads, split_heads
from ipot.nn.mlp import Precise
from ipot.nn.points import UnitBox, with_parameters
from ipot.samples import Batch
from ipot.spec import Need, Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a FLARE."""

    width: int = 64
    """Channels at every point."""
    blocks: int = 8
    """Blocks of routing and feed-forward."""
    heads: int = 8
    """Heads, each with latent queries of its own."""
    latents: int = 64
    """Latent queries of each head."""
    layers: int = 3
    """Residual layers of the networks for keys, values and feed-forward."""
    ends: int = 2
    """Residual layers of the networks before the first block and after the last."""

    def __post_init__(self) -> None:
        positive(self, "width", "blocks", "heads", "latents", "layers", "ends")
        divided(self)


class Residual(nn.Module):
    """A linear layer, residual layers h + GELU(W h), and a linear layer.

    Where the width stays the same, the first and the last layer are residual too.
    """

    def __init__(self, into: int, width: int, out: int, layers: int) -> None:
        super().__init__()
        self.into = Precise(into, width) if into != width else nn.Linear(into, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = nn.Linear(width, out)
        self.skips_in, self.skips_out = into == width, out == width

    def forward(self, x: Float[Tensor, "... into"]) -> Float[Tensor, "... out"]:
        """Every row by itself."""
        h = F.gelu(self.into(x))
        x = x + h if self.skips_in else h
        for layer in self.hidden:
            x = x + F.gelu(layer(x))
        return x + self.out(x) if self.skips_out else self.out(x)


class Routing(nn.Module):
    """Points to latent queries and back, for every head by itself."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        self.latents = nn.Parameter(
            0.1 * torch.randn(config.heads, config.latents, width // config.heads)
        )
        self.to_key = Residual(width, width, width, config.layers)
        self.to_value = Residual(width, width, width, config.layers)
        self.to_out = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "B N d"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B N d"]:
        """The update of every point."""
        key = split_heads(self.to_key(x), self.heads)
        value = split_heads(self.to_value(x), self.heads)
        query = self.latents.to(key.dtype).expand(x.shape[0], -1, -1, -1)
        seen = None if mask is None else mask[:, None, None, :].expand(-1, -1, query.shape[2], -1)
        z = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=1.0)
        back = F.scaled_dot_product_attention(key, query, z, scale=1.0)
        return self.to_out(join_heads(back))


class Block(nn.Module):
    """Routing and a feed-forward, each added to what it sees normalised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.norm, self.route = nn.LayerNorm(width), Routing(config)
        self.norm_forward = nn.LayerNorm(width)
        self.feed_forward = Residual(width, width, width, config.layers)

    def forward(
        self, x: Float[Tensor, "B N d"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B N d"]:
        """One block."""
        x = x + self.route(self.norm(x), mask)
        return x + self.feed_forward(self.norm_forward(x))


class FLARE(OneStep):
    """Answers at its input points, which may be any."""

    needs = frozenset({Need.SAME_POINTS})

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        width, values = config.width, spec.channels + len(spec.parameters)
        self.box = UnitBox(spec.domain)
        self.lift = Residual(spec.dimension + values, width, width, config.ends)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(width)
        self.out = Residual(width, width, len(spec.outputs), config.ends)

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """The fields at the input points."""
        places = (2 * self.box(batch.points) - 1).expand(batch.size, -1, -1)
        values = with_parameters(batch.values, batch.parameters)
        x = self.lift(torch.cat([places, values.to(places.dtype)], -1))
        for block in self.blocks:
            x = block(x, batch.point_mask)
        return self.out(self.norm(x))


MODEL = FLARE
