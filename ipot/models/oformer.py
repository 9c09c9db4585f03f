"""OFormer: linear attention, queries that attend to the inputs, and steps in a latent space.

    z₀ = Encoder(a)                          blocks of linear self-attention over the input points
    v₀(y) = γ(y) + Attention(γ(y), z₀, z₀)   γ: random Fourier features and a small network
    v_{t+1}(y) = v_t(y) + N(v_t(y), y)       propagator: a network at every query by itself
    u_t(y) = Q(v_t(y))

The cost is linear in inputs and queries, and a step costs no attention. The code of the authors has
several forms of the decoder; this is the one whose size is that of their tables. In the decoder
keys and values are normalised for both kinds of attention: normalising over the queries would make
an answer depend on the other queries. Nothing is dropped in training. Li, Meidani and Farimani,
"Transformer for partial differential equations' operator learning", 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ipot.errors import Unsupported
from ipot.models._settings import positive
from ipot.models.base import Operator
from ipot.nn.attention import GatedFeedForward
from ipot.nn.linear_attention import LinearAttention, Rotary
from ipot.nn.mlp import MLP
from ipot.nn.points import UnitBox, with_parameters
from ipot.samples import Batch
from ipot.spec import Need, Spec
from ipot.stopping import stop_if_asked

ROWS_AT_ONCE = 1 << 20
"""Rows of a rollout (B times M times steps) beyond which training keeps only its states."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and choices of an OFormer; the defaults are those published for Darcy flow."""

    width: int = 96
    """Channels of the encoder."""
    blocks: int = 6
    """Blocks of the encoder."""
    heads: int = 4
    """Heads of the encoder; each is as wide as the encoder itself."""
    attention: Literal["galerkin", "fourier"] = "galerkin"
    """Which of them are normalised over the points: keys and values, or queries and keys."""
    rotary: tuple[float, ...] = (7225.0, 1785.0, 85.0)
    """Fastest rotation by position in each block, in radians over the domain; the last one serves
    all blocks that follow. Published: r², r (r / 4) and r for r points along an axis."""
    decoder_width: int = 256
    """Channels of the queries' attention."""
    cross_heads: int = 4
    """Heads of the queries' attention; each is as wide as the decoder."""
    cross_rotary: float = 1360.0
    """Fastest rotation there. Published: 16 r."""
    latent_width: int = 256
    """Channels at every query, where steps are taken; also the number of Fourier features."""
    propagators: int | None = None
    """Networks, one after the other, that make a step; None takes one where a problem has several
    steps and none where it is steady."""
    frequency: float = 0.5
    """Standard deviation of the random frequencies, in waves over the domain."""

    def __post_init__(self) -> None:
        positive(self, "width", "blocks", "heads", "decoder_width", "cross_heads", "latent_width")
        positive(self, "cross_rotary", "frequency")
        if not self.rotary or not min(self.rotary) > 0:
            raise Unsupported(f"model.rotary must be positive numbers, got {self.rotary}")
        if self.propagators is not None and self.propagators < 0:
            raise Unsupported(f"model.propagators must not be negative, got {self.propagators}")
        if self.latent_width % 2:
            raise Unsupported(f"model.latent_width must be even, got {self.latent_width}")


class Seen(NamedTuple):
    """What queries see of the inputs: a matrix for each head, and the parameters."""

    summary: Float[Tensor, "B H e e"]
    parameters: Float[Tensor, "B P"] | None


class Block(nn.Module):
    """x = LN(x), x + Attention(x), then LN(x), x + FF(x): the residual is normalised too."""

    def __init__(self, config: Config, dimension: int, fastest: float) -> None:
        super().__init__()
        self.rotary = Rotary(dimension, config.width, fastest)
        self.norm = nn.LayerNorm(config.width)
        self.attend = LinearAttention(config.width, heads=config.heads, kind=config.attention)
        self.attend.start_near_identity("query" if config.attention == "galerkin" else "value")
        self.norm_out = nn.LayerNorm(config.width)
        self.feed_forward = GatedFeedForward(config.width, 1, norm=False)

    def forward(
        self,
        x: Float[Tensor, "B N d"],
        places: Float[Tensor, "B1 N D"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """The points after one block."""
        x = self.norm(x)
        x = self.norm_out(x + self.attend(x, self.rotary(places), mask))
        return x + self.feed_forward(x)


class Encoder(nn.Module):
    """Inputs, places and parameters to features at the input points."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__()
        self.box = UnitBox(spec.domain)
        channels = spec.channels + len(spec.parameters)
        self.from_place = nn.Linear(spec.dimension, config.width, bias=False)
        self.from_value = nn.Linear(channels, config.width, bias=False) if channels else None
        last = len(config.rotary) - 1
        blocks = [
            Block(config, spec.dimension, config.rotary[min(i, last)]) for i in range(config.blocks)
        ]
        # The decoder normalises over the points: what is the same at all of them is lost there, and
        # this bias would never learn.
        blocks[-1].feed_forward.out.register_parameter("bias", None)
        self.blocks = nn.ModuleList(blocks)
        self.out = nn.Linear(config.width, config.decoder_width, bias=False)

    def forward(self, batch: Batch) -> Float[Tensor, "B N d"]:
        """The features of the input points; a shared mesh is embedded once."""
        places = self.box(batch.points)
        x = self.from_place(places).expand(batch.size, -1, -1)
        if self.from_value is not None:
            x = x + self.from_value(with_parameters(batch.values, batch.parameters))
        for block in self.blocks:
            x = block(x, places, batch.point_mask)
        return self.out(x)


class GaussianFeatures(nn.Module):
    """sin and cos of 2π B x, where the entries of B are drawn once and kept with the weights."""

    def __init__(self, dimension: int, width: int, deviation: float) -> None:
        super().__init__()
        self.register_buffer("frequency", deviation * torch.randn(dimension, width // 2))

    def forward(self, places: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B1 M F"]:
        """The features. Not a matmul, which autocast would round."""
        phase = 2 * math.pi * (places.unsqueeze(-1) * self.frequency).sum(-2)
        return torch.cat([phase.sin(), phase.cos()], dim=-1)


class Decoder(nn.Module):
    """Queries attend to the inputs: the latent state at time zero."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__()
        width, wide = config.decoder_width, config.latent_width
        self.features = GaussianFeatures(spec.query_dimension, wide, config.frequency)
        self.embed = MLP((wide, wide, width), bias=False)
        extra = len(spec.parameters)
        self.from_parameters = nn.Linear(extra, width, bias=False) if extra else None
        # Distances between inputs and queries mean nothing where these live in two spaces.
        self.rotary = None
        if spec.domain == spec.query_domain:
            self.rotary = Rotary(spec.dimension, width, config.cross_rotary)
        self.attend = LinearAttention(width, heads=config.cross_heads)
        self.attend.start_near_identity("query", "key", "value")
        self.feed_forward = GatedFeedForward(width, 1, norm=False)
        self.expand = nn.Identity() if wide == width else nn.Linear(width, wide)

    def summary(
        self,
        encoded: Float[Tensor, "B N d"],
        places: Float[Tensor, "B1 N D"],
        mask: Bool[Tensor, "B N"] | None,
    ) -> Float[Tensor, "B H e e"]:
        """The inputs as queries see them."""
        rotation = None if self.rotary is None else self.rotary(places)
        return self.attend.summary(encoded, rotation, mask)

    def forward(self, places: Float[Tensor, "B1 M E"], seen: Seen) -> Float[Tensor, "B M w"]:
        """The latent state at queries in the unit box; shared queries are embedded once."""
        x = self.embed(self.features(places))
        if self.from_parameters is not None and seen.parameters is not None:
            x = x + self.from_parameters(seen.parameters).unsqueeze(1)
        rotation = None if self.rotary is None else self.rotary(places)
        x = x + self.attend.read(x, rotation, seen.summary)
        return self.expand(x + self.feed_forward(x))


class Propagator(nn.Module):
    """One step of the latent state: residual networks of the state and the place."""

    def __init__(self, width: int, dimension: int, depth: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        sizes = (width + dimension, width, width, width)
        self.layers = nn.ModuleList(MLP(sizes, bias=False) for _ in range(depth))

    def forward(
        self, state: Float[Tensor, "B M w"], places: Float[Tensor, "B1 M E"]
    ) -> Float[Tensor, "B M w"]:
        """The state one `dt` later."""
        places = places.to(state.dtype).expand(state.shape[0], -1, -1)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            state = state + layer(torch.cat([norm(state), places], dim=-1))
        return state


class Head(nn.Module):
    """The fields from the latent state; in a steady problem, from the position as well."""

    def __init__(self, width: int, dimension: int, outputs: int) -> None:
        super().__init__()
        half = width // 2
        self.placed = dimension > 0
        self.norm = nn.Identity() if self.placed else nn.LayerNorm(width)
        sizes = (width + dimension, width, half) if self.placed else (width, half, half)
        self.hidden = MLP(sizes, bias=False)
        self.out = nn.Sequential(nn.GELU(), nn.Linear(half, outputs))

    def forward(
        self, state: Float[Tensor, "B M w"], places: Float[Tensor, "B1 M E"]
    ) -> Float[Tensor, "B M K"]:
        """Every query by itself."""
        state = self.norm(state)
        if self.placed:
            places = places.to(state.dtype).expand(state.shape[0], -1, -1)
            state = torch.cat([state, places], dim=-1)
        return self.out(self.hidden(state))


class OFormer(Operator):
    """Any points in, any queries out; time passes at the queries."""

    needs = frozenset({Need.POINTS})

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        depth = config.propagators
        depth = int(spec.steps > 1) if depth is None else depth
        if depth == 0 and spec.steps > 1:
            raise Unsupported(
                f"OFormer takes {spec.steps} steps on {spec.name}, and none are possible without a "
                "propagator: set model.propagators to 1 or more"
            )
        wide, place = config.latent_width, spec.query_dimension
        self.query_box = UnitBox(spec.query_domain)
        self.encoder = Encoder(config, spec)
        self.decoder = Decoder(config, spec)
        self.propagator = Propagator(wide, place, depth) if depth else None
        self.head = Head(wide, 0 if depth else place, len(spec.outputs))

    def encode(self, batch: Batch) -> Seen:
        """The inputs in a form whose size does not depend on their number."""
        encoded, places = self.encoder(batch), self.encoder.box(batch.points)
        summary = self.decoder.summary(encoded, places, batch.point_mask)
        return Seen(summary, batch.parameters)

    def start(self, seen: Seen, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M w"]:
        """The latent state at time zero."""
        return self.decoder(self.query_box(queries), seen)

    def propagate(
        self, state: Float[Tensor, "B M w"], queries: Float[Tensor, "B1 M E"]
    ) -> Float[Tensor, "B M w"]:
        """The latent state one `dt` later; a steady problem has nothing to propagate."""
        if self.propagator is None:
            return state
        return self.propagator(state, self.query_box(queries))

    def decode(
        self, state: Float[Tensor, "B M w"], queries: Float[Tensor, "B1 M E"]
    ) -> Float[Tensor, "B M K"]:
        """The fields of a latent state."""
        return self.head(state, self.query_box(queries))

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """Attend once and propagate; on a moving mesh, once for each time."""
        wanted = self.steps(batch.times)
        if self.propagator is None and wanted != [1]:
            raise Unsupported(
                f"{self.spec.name} is steady: times must be (1.0,), not {batch.times}"
            )
        seen = self.encode(batch)
        if batch.queries.ndim == 3:
            return self._rollout(seen, batch.queries, wanted)
        frames = [
            self._rollout(seen, batch.queries[:, place], [step])
            for place, step in enumerate(wanted)
        ]
        return torch.cat(frames, dim=1)

    def _rollout(self, seen: Seen, queries: Tensor, wanted: list[int]) -> Tensor:
        """The fields after each of these numbers of steps."""
        state, frames = self.start(seen, queries), []
        # A long rollout on many queries keeps states alone, and computes the rest again.
        light = torch.is_grad_enabled() and math.prod(state.shape[:2]) * wanted[-1] > ROWS_AT_ONCE
        for step in range(1, wanted[-1] + 1):
            stop_if_asked()
            state = _call(self.propagate, state, queries, light=light)
            if step == wanted[len(frames)]:
                frames.append(_call(self.decode, state, queries, light=light))
        return torch.stack(frames, dim=1)


def _call(function, state: Tensor, queries: Tensor, *, light: bool) -> Tensor:
    if not light:
        return function(state, queries)
    return checkpoint(function, state, queries, use_reentrant=False)


MODEL = OFormer
