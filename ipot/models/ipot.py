"""The inducing point operator transformer.

    Z₀ = Attention(Z_q, a, a)          encoder: learnable inducing points attend to the inputs
    Z_{t+1} = G_dt(Z_t)                processor: self-attention blocks, the same at every step
    u_t(y) = Attention(y, Z_t, Z_t)    decoder: any queries attend to the latent state

The cost is linear in inputs and queries, and the depth of the processor costs nothing at the
points. Lee and Oh, "Inducing Point Operator Transformer", AAAI 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ipot.errors import Unsupported
from ipot.models._local import start_local
from ipot.models.base import Latent, LatentOperator
from ipot.nn.attention import AttentionBlock
from ipot.nn.fourier import FourierFeatures
from ipot.samples import Batch
from ipot.spec import Spec

# In training, a decode of more rows than this (B times T times M) is cut into pieces that are
# recomputed in the backward pass: a rollout then holds one piece's activations, not all of them.
ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and choices of an IPOT; a preset changes some of them for a problem."""

    latents: int = 256
    """Inducing points."""
    width: int = 128
    """Channels of the latent state."""
    blocks: int = 4
    """Self-attention blocks of the processor, applied at every step."""
    heads: int = 8
    """Heads of the processor."""
    cross_heads: int = 4
    """Heads of encoder and decoder."""
    cross_head_width: int | None = None
    """Channels of a head in encoder and decoder; None divides the width among the heads."""
    cross_gain: float = 2.0
    """Factor on the initial query and key projections of encoder and decoder: the larger, the
    fewer points they attend to at first. At 1 they attend to almost all alike."""
    bins: tuple[int, ...] = (16,)
    """Frequencies of the position features, for each dimension or one number for all."""
    max_frequency: tuple[float, ...] = (32.0,)
    """Twice the highest frequency, for each dimension or one number for all."""
    coordinates: Literal["unit", "raw"] = "unit"
    """unit: map the domain to [-1, 1] and honour periods; raw: take coordinates as they come."""
    feed_forward: int = 2
    """Multiplier of the feed-forwards in processor and decoder."""
    encoder_feed_forward: int = 2
    """Multiplier of the feed-forward in the encoder."""
    tied: bool = False
    """One block applied `blocks` times, instead of as many different ones."""
    lifted: bool = True
    """Lift inputs and queries to the width by a small network before they are attended to."""
    decoder: Literal["full", "narrow"] = "full"
    """full: residual at full width, then a head; narrow: straight to the output channels."""
    inducing: bool = True
    """False leaves the inducing points out: inputs attend to inputs, at quadratic cost."""
    local: bool = True
    """Start with attention to what is near, instead of to everything alike; needs lifted."""
    output_scale: float = 1.0
    """A fixed factor on the output."""

    def __post_init__(self) -> None:
        positive = ("latents", "width", "blocks", "heads", "cross_heads", "feed_forward")
        for name in (*positive, "encoder_feed_forward", "cross_gain"):
            if not getattr(self, name) > 0:
                raise Unsupported(f"model.{name} must be positive, got {getattr(self, name)}")
        if self.cross_head_width is not None and self.cross_head_width < 1:
            raise Unsupported(f"model.cross_head_width must be positive: {self.cross_head_width}")
        if self.local and not self.lifted:
            raise Unsupported("model.local starts from lifted inputs: set model.local to False")
        if not self.bins or min(self.bins) < 1:
            raise Unsupported(f"model.bins must be positive, got {self.bins}")
        if not self.max_frequency or not min(self.max_frequency) >= 2:
            raise Unsupported(f"model.max_frequency must be 2 at least, got {self.max_frequency}")


class Lift(nn.Module):
    """Positions and values to the width: two layers, the first split so that the positions of a
    shared mesh are multiplied once for the whole batch."""

    def __init__(self, positions: int, values: int, width: int) -> None:
        super().__init__()
        self.from_position = nn.Linear(positions, width)
        self.from_value = nn.Linear(values, width, bias=False) if values else None
        self.out = nn.Linear(width, width)

    def forward(self, position: Tensor, value: Tensor | None = None) -> Tensor:
        """(B or 1, N, F) and (B, N, C) to (B, N, width)."""
        hidden = self.from_position(position)
        if self.from_value is not None:
            hidden = hidden + self.from_value(value)
        return self.out(nn.functional.gelu(hidden))


class Encoder(nn.Module):
    """Inputs, and parameters as tokens of their own, to the latent state."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__()
        self.position = _features(config, spec.domain, spec.periods)
        tokens = config.width if config.lifted else self.position.width + spec.channels
        self.lift = None
        if config.lifted:
            self.lift = Lift(self.position.width, spec.channels, config.width)
        if spec.parameters:
            shape = (len(spec.parameters), tokens)
            self.parameter_offset = nn.Parameter(0.02 * torch.randn(shape))
            self.parameter_slope = nn.Parameter(torch.randn(shape))
        self.latents = self.embed = None
        if config.inducing:
            self.latents = nn.Parameter(0.02 * torch.randn(config.latents, config.width))
        elif not config.lifted:
            self.embed = nn.Linear(tokens, config.width)
        self.block = AttentionBlock(
            config.width,
            context=tokens if config.inducing else None,
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
        """The latent state, and its mask where the inputs themselves are the state."""
        tokens = self._tokens(points, values)
        if parameters is not None:
            extra = self.parameter_offset + parameters.unsqueeze(-1) * self.parameter_slope
            tokens = torch.cat([tokens, extra.to(tokens.dtype)], dim=1)
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(parameters.shape)], dim=1)
        if self.latents is not None:
            return Latent(self.block(self.latents.unsqueeze(0), tokens, mask))
        if self.embed is not None:
            tokens = self.embed(tokens)
        return Latent(self.block(tokens, None, mask), mask)

    def _tokens(self, points: Tensor, values: Tensor) -> Tensor:
        position = self.position(points)
        if self.lift is not None:
            return self.lift(position, values).expand(values.shape[0], -1, -1)
        position = position.expand(values.shape[0], -1, -1)
        return torch.cat([position, values.to(position.dtype)], dim=-1)


class Decoder(nn.Module):
    """Queries attend to the latent state."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__()
        self.position = _features(config, spec.query_domain, spec.query_periods)
        self.scale = config.output_scale
        outputs = len(spec.outputs)
        full = config.decoder == "full"
        self.lift = Lift(self.position.width, 0, config.width) if config.lifted else None
        queries = config.width if config.lifted else self.position.width
        if full and queries != config.width:
            raise ValueError('decoder="full" adds the queries to their update: it needs lifted')
        self.block = AttentionBlock(
            queries,
            context=config.width,
            heads=config.cross_heads,
            head_width=config.cross_head_width,
            out=config.width if full else outputs,
            multiplier=config.feed_forward,
            residual=full,
            gain=config.cross_gain,
        )
        self.head = None
        if full:
            self.head = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, outputs))

    def forward(
        self,
        state: Float[Tensor, "B Z d"],
        queries: Float[Tensor, "B1 M E"],
        mask: Bool[Tensor, "B Z"] | None = None,
    ) -> Float[Tensor, "B M K"]:
        """The fields at the queries; queries with a leading 1 are embedded once."""
        embedded = self.position(queries)
        if self.lift is not None:
            embedded = self.lift(embedded)
        out = self.block(embedded, state, mask)
        if self.head is not None:
            out = self.head(out)
        return out * self.scale


class IPOT(LatentOperator):
    """Any points in, any queries out, through a small set of inducing points."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.encoder = Encoder(config, spec)
        self.processor = nn.ModuleList(
            AttentionBlock(config.width, heads=config.heads, multiplier=config.feed_forward)
            for _ in range(1 if config.tied else config.blocks)
        )
        self.decoder = Decoder(config, spec)
        if config.local:
            start_local(self, spec)

    def encode(self, batch: Batch) -> Latent:
        """Inducing points attend to the inputs."""
        return self.encoder(batch.points, batch.values, batch.parameters, batch.point_mask)

    def step(self, latent: Latent) -> Latent:
        """One pass through the processor advances the state by one `dt`."""
        state = latent.state
        for index in range(self.config.blocks):
            block = self.processor[0 if self.config.tied else index]
            state = block(state, None, latent.mask)
        return Latent(state, latent.mask)

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """Queries attend to the state."""
        return self.decoder(latent.state, queries, latent.mask)

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """All steps in one batch, or in a few pieces with recomputation where that is too large."""
        if queries.ndim == 4:
            return super().decode_all(states, queries)
        size, rows = states[0].state.shape[0], queries.shape[-2]
        group = max(1, ROWS_AT_ONCE // max(1, size * rows))
        recompute = torch.is_grad_enabled() and len(states) > group
        pieces = []
        for start in range(0, len(states), group):
            piece = states[start : start + group]
            if recompute:
                out = checkpoint(self._decode_group, piece, queries, use_reentrant=False)
            else:
                out = self._decode_group(piece, queries)
            pieces.append(out)
        return torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]

    def regions(self) -> Iterator[nn.Module]:
        """Encoder, blocks and decoder: a rollout repeats the blocks, so they compile once."""
        yield self.encoder
        yield from self.processor
        yield self.decoder

    def _decode_group(self, group: list[Latent], queries: Tensor) -> Tensor:
        count, size = len(group), group[0].state.shape[0]
        if count == 1:
            return self.decode(group[0], queries).unsqueeze(1)
        state = torch.stack([latent.state for latent in group], 1).flatten(0, 1)
        mask = group[0].mask
        if mask is not None:
            mask = mask.repeat_interleave(count, dim=0)
        if queries.shape[0] != 1:
            queries = queries.repeat_interleave(count, dim=0)
        return self.decode(Latent(state, mask), queries).unflatten(0, (size, count))


def _features(config: Config, domain, periods) -> FourierFeatures:
    """Position features of a space, one number of the config serving all dimensions if alone."""
    dimension = len(domain)
    bins = config.bins * dimension if len(config.bins) == 1 else config.bins
    highest = config.max_frequency
    highest = highest * dimension if len(highest) == 1 else highest
    if len(bins) != dimension or len(highest) != dimension:
        raise ValueError(
            f"bins {config.bins} and max_frequency {config.max_frequency} must have "
            f"{dimension} numbers, or one for all"
        )
    if config.coordinates == "raw":
        return FourierFeatures(bins, highest)
    return FourierFeatures(bins, highest, domain=domain, periods=periods)


MODEL = IPOT
