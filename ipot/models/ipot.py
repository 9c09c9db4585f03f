"""The inducing point operator transformer.

    Z₀ = Attention(Z_q, a, a)          encoder: learnable inducing points attend to the inputs
    Z_{t+1} = G_dt(Z_t)                processor: self-attention blocks, the same at every step
    u_t(y) = Attention(y, Z_t, Z_t)    decoder: any queries attend to the latent state

The cost is linear in inputs and queries, and the depth of the processor costs nothing at the
points. Lee and Oh, "Inducing Point Operator Transformer", AAAI 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._attentive import Attentive, Encoder, Settings
from ipot.models._checks import positive
from ipot.models._local import start_local
from ipot.models.base import Latent
from ipot.nn.split import Split
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes and choices of an IPOT; a preset changes some of them for a problem."""

    latents: int = 256
    """Inducing points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "latents")


class InducingPoints(Encoder):
    """Inducing points attend to the inputs."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.latents = nn.Parameter(0.02 * torch.randn(config.latents, config.width))
        self.block = self.attention(config, context=self.width)

    def state(
        self, tokens: Float[Tensor, "B N d"] | Split, mask: Bool[Tensor, "B N"] | None
    ) -> Latent:
        """A row for each inducing point."""
        return Latent(self.block(self.latents.unsqueeze(0), tokens, mask))


class IPOT(Attentive):
    """Any points in, any queries out, through a small set of inducing points."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec, InducingPoints(config, spec))
        if config.local:
            start_local(self, spec)


MODEL = IPOT
