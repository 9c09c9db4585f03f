"""The inducing point operator transformer.

    Z₀ = Attention(Z_q, a, a)          encoder: learnable inducing points attend to the inputs
    Z_{t+1} = G_dt(Z_t)                processor: self-attention blocks, the same at every step
    u_t(y) = Attention(y, Z_t, Z_t)    decoder: any queries attend to the latent state

Z_q is `encoder.latents`; a are tokens of the input points, y those of the queries, both made from
position features. The cost is linear in inputs and queries, and a deeper processor costs the same
however many points there are. Lee and Oh, "Inducing Point Operator Transformer", AAAI 2024. The
layers are in `ipot/nn/latent.py`, their attention in `ipot/nn/attention.py`; encode, roll on and
decode are chained in `LatentOperator.forward` (`ipot/models/base.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ipot.models._settings import Settings, features, positive
from ipot.models.base import Latent, LatentOperator
from ipot.nn.latent import InducingPoints, Processor, QueryDecoder, start_local
from ipot.samples import Batch
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes and choices of an IPOT; a preset changes some of them for a problem."""

    latents: int = 256
    """Inducing points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "latents")


class IPOT(LatentOperator):
    """Any points in, any queries out, through a small set of inducing points."""

    def __init__(self, config: Settings, spec: Spec) -> None:
        super().__init__(config, spec)
        self.encoder = self.make_encoder(config, spec)
        self.processor = Processor(
            config.width,
            blocks=config.blocks,
            heads=config.heads,
            multiplier=config.feed_forward,
            tied=config.tied,
            raw=config.raw_keys,
        )
        self.decoder = QueryDecoder(
            config.width,
            len(spec.outputs),
            features(config, spec.query_domain, spec.query_periods),
            lifted=config.lifted,
            full=config.decoder == "full",
            heads=config.cross_heads,
            head_width=config.cross_head_width,
            multiplier=config.feed_forward,
            gain=config.cross_gain,
            scale=config.output_scale,
        )
        if config.local:
            start_local(self, spec)

    def make_encoder(self, config: Any, spec: Spec) -> nn.Module:
        """The encoder: inducing points that attend to the inputs."""
        return InducingPoints(
            config.latents,
            config.width,
            features(config, spec.domain, spec.periods),
            channels=spec.channels,
            parameters=len(spec.parameters),
            lifted=config.lifted,
            heads=config.cross_heads,
            head_width=config.cross_head_width,
            multiplier=config.encoder_feed_forward,
            gain=config.cross_gain,
        )

    def encode(self, batch: Batch) -> Latent:
        """Z₀: a row for each inducing point."""
        return Latent(self.encoder(batch.points, batch.values, batch.parameters, batch.point_mask))

    def step(self, latent: Latent) -> Latent:
        """Z_{t+1}: one pass through the processor advances the state by one `dt`."""
        return Latent(self.processor(latent.state, latent.mask), latent.mask)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """Z_t at some times, by steps one after the other."""
        states = self.processor.roll(latent.state, self.steps(times), latent.mask)
        return [Latent(state, latent.mask) for state in states]

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """u_t(y): queries attend to the state."""
        return self.decoder(latent.state, queries, latent.mask)


MODEL = IPOT
