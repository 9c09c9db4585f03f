"""IPOT without inducing points: inputs attend to inputs, at quadratic cost.

    Z₀ = Attention(a, a, a),   Z_{t+1} = G_dt(Z_t),   u_t(y) = Attention(y, Z_t, Z_t)

The state is as large as the input. This is what the paper holds its inducing points against, as a
stand-in for the transformer of Vaswani et al., "Attention is all you need", 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._attentive import Attentive, Settings, Tokens
from ipot.models._local import start_local
from ipot.models.base import Latent
from ipot.nn.attention import AttentionBlock
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes and choices of a transformer; those of an IPOT without its inducing points."""


class Encoder(Tokens):
    """Inputs attend to inputs."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
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
    ) -> Latent:
        """The latent state, one row for each input, and its mask."""
        tokens, mask = self.tokens(points, values, parameters, mask)
        if self.embed is not None:
            tokens = self.embed(tokens)
        return Latent(self.block(tokens, None, mask), mask)


class Transformer(Attentive):
    """Any points in, any queries out; the state holds every input."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec, Encoder(config, spec))
        if config.local:
            start_local(self, spec)


MODEL = Transformer
