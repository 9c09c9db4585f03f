"""Perceiver IO: a learnt array attends to the inputs, queries attend to it.

    Z = CrossAttention(Z_0, inputs)          inputs: position features beside the values
    Z = SelfAttention(Z)                     `blocks` of them, all of them `repeats` times
    u(y) = W CrossAttention(y, Z)            queries: position features, not added to the answer

Attention with biases after LayerNorms, each followed by a plain MLP. What sets it apart from IPOT
is time: it has no step in latent space, so it goes on from its own answers in physical space.
Jaegle et al., "Perceiver IO: a general architecture for structured inputs & outputs", ICLR 2022.
The parameters of a case are further inputs; the sizes are those of IPOT, with which it is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._settings import divided, frequencies, positive
from ipot.models.base import OneStep
from ipot.nn.attention import AttentionBlock
from ipot.nn.mlp import truncate
from ipot.nn.points import FourierFeatures, ParameterTokens, for_all
from ipot.samples import Batch
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a Perceiver IO."""

    latents: int = 256
    """Rows of the learnt array."""
    width: int = 128
    """Channels of the learnt array."""
    blocks: int = 4
    """Self-attention blocks, each with weights of its own."""
    repeats: int = 1
    """Passes through the blocks, all with the same weights."""
    heads: int = 8
    """Heads of the self-attention."""
    cross_heads: int = 1
    """Heads of encoder and decoder; their keys are as wide as what is attended to."""
    feed_forward: int = 1
    """Multiplier of the MLPs."""
    bins: tuple[int, ...] = (16,)
    """Frequencies of the position features, for each dimension or one number for all."""
    max_frequency: tuple[float, ...] = (32.0,)
    """Twice the highest frequency, for each dimension or one number for all."""

    def __post_init__(self) -> None:
        sizes = ("latents", "width", "blocks", "repeats", "heads", "cross_heads", "feed_forward")
        positive(self, *sizes)
        divided(self)
        divided(self, "cross_heads")
        frequencies(self)


class Encoder(ParameterTokens):
    """The learnt array attends to the inputs."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__()
        bins, highest = for_all(spec.dimension, config.bins, config.max_frequency)
        self.position = FourierFeatures(bins, highest, domain=spec.domain, periods=spec.periods)
        inputs = self.position.width + spec.channels
        self.block = _cross(config, config.width, inputs)
        self.latents = nn.Parameter(torch.empty(config.latents, config.width))
        nn.init.trunc_normal_(self.latents, std=0.02, a=-0.04, b=0.04)
        self.start_parameters(len(spec.parameters), inputs)

    def forward(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B Z d"]:
        """The latent array."""
        position = self.position(points).expand(values.shape[0], -1, -1)
        tokens = torch.cat([position, values.to(position.dtype)], -1)
        tokens, mask = self.join(tokens, parameters, mask)
        if mask is not None:
            # A sample of nothing but padding attends to zeros: no attention is without a key.
            tokens = tokens.masked_fill(~mask.unsqueeze(-1), 0)
            mask = mask | ~mask.any(1, keepdim=True)
        return self.block(self.latents.unsqueeze(0), tokens, mask)


class PerceiverIO(OneStep):
    """Any points in, any queries out, through a learnt array."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.encoder = Encoder(config, spec)
        self.blocks = nn.ModuleList(
            AttentionBlock(
                config.width,
                heads=config.heads,
                multiplier=config.feed_forward,
                bias=True,
                gated=False,
            )
            for _ in range(config.blocks)
        )
        bins, highest = for_all(spec.query_dimension, config.bins, config.max_frequency)
        self.position = FourierFeatures(
            bins, highest, domain=spec.query_domain, periods=spec.query_periods
        )
        self.decoder = _cross(config, self.position.width, config.width, residual=False)
        self.out = nn.Linear(self.position.width, len(spec.outputs))
        truncate(self)

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """Encode, process, decode."""
        latents = self.encoder(batch.points, batch.values, batch.parameters, batch.point_mask)
        for _ in range(self.config.repeats):
            for block in self.blocks:
                latents = block(latents)
        return self.out(self.decoder(self.position(batch.queries), latents))


def _cross(config: Config, queries: int, context: int, residual: bool = True) -> AttentionBlock:
    """Cross-attention whose heads share the width of what is attended to, rounded up."""
    return AttentionBlock(
        queries,
        context=context,
        heads=config.cross_heads,
        head_width=-(-context // config.cross_heads),
        multiplier=config.feed_forward,
        residual=residual,
        bias=True,
        gated=False,
    )


MODEL = PerceiverIO
