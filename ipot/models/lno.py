"""The latent neural operator: points to modes and back by one attention over positions.

    s(x) = A(T(x))                          scores of a position: trunk and attention projectors
    z = Σ_x softmax_x(s(x)) B(x, a(x))      encoder: every mode attends to all points
    z = Blocks(z)                           self-attention among the modes
    u(y) = O(softmax_z(s(y)) z)             decoder: every query attends to all modes

T, A, B and O are small networks; T and A serve encoder and decoder alike, so that what a mode
gathers and where it answers go together. The cost is linear in points and queries. Wang and Wang,
"Latent neural operator for solving forward and inverse PDE problems", NeurIPS 2024. The parameters
of a case, which the paper has none of, are added to the modes by a linear map.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.errors import Unsupported
from ipot.models._settings import divided, positive
from ipot.models.base import OneStep
from ipot.nn.attention import AttentionBlock
from ipot.nn.mlp import ResidualMLP
from ipot.nn.points import UnitBox
from ipot.samples import Batch
from ipot.spec import Bounds, Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of an LNO."""

    width: int = 128
    """Channels of points and modes."""
    modes: int = 256
    """Modes of the latent space."""
    blocks: int = 4
    """Self-attention blocks among the modes."""
    heads: int = 8
    """Heads of these blocks."""
    layers: int = 2
    """Hidden layers of each of the four projectors."""
    feed_forward: int = 2
    """Multiplier of the feed-forwards."""

    def __post_init__(self) -> None:
        positive(self, "width", "modes", "blocks", "heads", "feed_forward")
        divided(self)
        if self.layers < 0:
            raise Unsupported(f"model.layers must not be negative, got {self.layers}")


class Trunk(ResidualMLP):
    """Features of positions, from coordinates whose mean over the domain is 0 and variance 1."""

    def __init__(self, domain: Bounds, config: Config) -> None:
        super().__init__(len(domain), config.width, config.width, config.layers)
        self.box = UnitBox(domain)

    def places(self, points: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """The coordinates that it sees."""
        return (self.box(points) - 0.5) * 12**0.5


class LNO(OneStep):
    """Any points in, any queries out, through modes that positions alone attend to."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        width, layers = config.width, config.layers
        self.trunk = Trunk(spec.domain, config)
        # Where the answers lie in another space, positions there have a trunk of their own.
        same = spec.query_domain == spec.domain
        self.query_trunk = None if same else Trunk(spec.query_domain, config)
        self.score = ResidualMLP(width, width, config.modes, layers)
        self.branch = ResidualMLP(spec.dimension + spec.channels, width, width, layers)
        self.from_parameters = None
        if spec.parameters:
            self.from_parameters = nn.Linear(len(spec.parameters), config.modes * width)
        self.blocks = nn.ModuleList(
            AttentionBlock(
                width, heads=config.heads, multiplier=config.feed_forward, bias=True, gated=False
            )
            for _ in range(config.blocks)
        )
        self.out = ResidualMLP(width, width, len(spec.outputs), layers)

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """Encode, process, decode."""
        modes = self.encode(batch)
        for block in self.blocks:
            modes = block(modes)
        share = self.scores(batch.queries, self.query_trunk or self.trunk).softmax(-1)
        return self.out(share.to(modes.dtype) @ modes)

    def encode(self, batch: Batch) -> Float[Tensor, "B Z d"]:
        """The modes: means of the branch network over the points, and the parameters."""
        places = self.trunk.places(batch.points).expand(batch.size, -1, -1)
        said = self.branch(torch.cat([places, batch.values.to(places.dtype)], -1))
        share = over_points(self.scores(batch.points, self.trunk), batch.point_mask)
        modes = share.transpose(1, 2).to(said.dtype) @ said
        if self.from_parameters is None:
            return modes
        return modes + self.from_parameters(batch.parameters).unflatten(1, modes.shape[1:])

    def scores(self, points: Float[Tensor, "B N D"], trunk: Trunk) -> Float[Tensor, "B N Z"]:
        """What each mode makes of each position; once for a shared mesh.

        Never in half precision, in which a softmax over thousands of points is noise.
        """
        with torch.autocast(points.device.type, enabled=False):
            return self.score(trunk(trunk.places(points)))


def over_points(
    scores: Float[Tensor, "B1 N Z"], mask: Bool[Tensor, "B N"] | None
) -> Float[Tensor, "B N Z"]:
    """Softmax over the real points; all zero where there are none."""
    if mask is None:
        return scores.softmax(1)
    empty = ~mask.unsqueeze(-1)
    # The smallest number and not -inf, which would be no number at all in a sample of padding.
    return scores.masked_fill(empty, torch.finfo(scores.dtype).min).softmax(1).masked_fill(empty, 0)


MODEL = LNO
