"""IPOT without inducing points: inputs attend to inputs, at quadratic cost.

    Z₀ = Attention(a, a, a),   Z_{t+1} = G_dt(Z_t),   u_t(y) = Attention(y, Z_t, Z_t)

The state is as large as the input. The paper compares its inducing points with this, as a stand-in
for the transformer of Vaswani et al., "Attention is all you need", 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._settings import Settings, features
from ipot.models.base import Latent
from ipot.models.ipot import IPOT
from ipot.nn.attention import AttentionBlock
from ipot.nn.latent import PointTokens
from ipot.samples import Batch
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes and choices of a transformer; those of an IPOT without its inducing points."""


class EveryInput(PointTokens):
    """The tokens of the inputs attend to each other."""

    def __init__(self, config: Config, spec: Spec) -> None:
        position = features(config, spec.domain, spec.periods)
        lifted = config.width if config.lifted else None
        super().__init__(position, spec.channels, len(spec.parameters), lifted)
        self.embed = None if config.lifted else nn.Linear(self.width, config.width)
        self.block = AttentionBlock(
            config.width,
            heads=config.cross_heads,
            head_width=config.cross_head_width,
            multiplier=config.encoder_feed_forward,
            gain=config.cross_gain,
        )

    def forward(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, "B NP d"], Bool[Tensor, "B NP"] | None]:
        """A row for each input and each parameter, and which of them are real."""
        tokens, mask = self.tokens(points, values, parameters, mask)
        if self.embed is not None:
            tokens = self.embed(tokens)
        return self.block(tokens, None, mask), mask


class Transformer(IPOT):
    """Any points in, any queries out; the state holds every input."""

    def make_encoder(self, config: Any, spec: Spec) -> nn.Module:
        """Inputs attend to inputs."""
        return EveryInput(config, spec)

    def encode(self, batch: Batch) -> Latent:
        """Z₀: a row for each input."""
        return Latent(*self.encoder(batch.points, batch.values, batch.parameters, batch.point_mask))


MODEL = Transformer
