"""From points to a latent state, on in time, and from there to queries.

    encoder      inducing points attend to the tokens of the input points
    processor    blocks of self-attention, the same at every step
    decoder      queries attend to the latent state

A token is a point as the network sees it: features of its position beside its values, or a small
network's output from the two. Parameters of a case are tokens of their own, after the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.nn.attention import AttentionBlock
from ipot.nn.globe import on_globe
from ipot.nn.points import FourierFeatures, Lift, ParameterTokens, spread
from ipot.spec import Spec
from ipot.stopping import stop_if_asked

QUIET = 0.3
"""What the updates of the blocks are multiplied by at the start."""


class PointTokens(ParameterTokens):
    """Tokens of points: position features beside values, or both lifted to a width."""

    def __init__(
        self, position: FourierFeatures, channels: int, parameters: int, lifted: int | None
    ) -> None:
        super().__init__()
        self.position = position
        self.width = lifted or position.width + channels
        self.lift = Lift(position.width, channels, lifted) if lifted else None
        self.start_parameters(parameters, self.width)

    def tokens(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        parameters: Float[Tensor, "B P"] | None,
        mask: Bool[Tensor, "B N"] | None,
    ) -> tuple[Float[Tensor, "B NP d"], Bool[Tensor, "B NP"] | None]:
        """The tokens of all points and parameters, and which of them are real."""
        position = self.position(points)
        if self.lift is not None:
            tokens = self.lift(position, values).expand(len(values), -1, -1)
        else:
            position = position.expand(len(values), -1, -1)
            tokens = torch.cat([position, values.to(position.dtype)], -1)
        return self.join(tokens, parameters, mask)


class InducingPoints(PointTokens):
    """Z₀ = Attention(Z_q, a, a): learnable inducing points attend to the tokens of the inputs."""

    def __init__(
        self,
        latents: int,
        width: int,
        position: FourierFeatures,
        *,
        channels: int,
        parameters: int,
        lifted: bool,
        heads: int,
        head_width: int | None = None,
        multiplier: int = 2,
        gain: float = 1.0,
    ) -> None:
        super().__init__(position, channels, parameters, width if lifted else None)
        self.latents = nn.Parameter(0.02 * torch.randn(latents, width))
        self.block = AttentionBlock(
            width,
            context=self.width,
            heads=heads,
            head_width=head_width,
            multiplier=multiplier,
            gain=gain,
        )

    def forward(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B Z d"]:
        """A row for each inducing point; points with a leading 1 are shared by all samples."""
        tokens, mask = self.tokens(points, values, parameters, mask)
        return self.block(self.latents.unsqueeze(0), tokens, mask)


class Processor(nn.ModuleList):
    """Z_{t+1} = G(Z_t): blocks of self-attention; tied, one of them again and again."""

    def __init__(
        self,
        width: int,
        *,
        blocks: int,
        heads: int,
        multiplier: int,
        tied: bool = False,
        raw: bool = False,
    ) -> None:
        super().__init__(
            AttentionBlock(width, heads=heads, multiplier=multiplier, raw=raw)
            for _ in range(1 if tied else blocks)
        )
        self.repeats = blocks if tied else 1

    def forward(
        self, state: Float[Tensor, "B Z d"], mask: Bool[Tensor, "B Z"] | None = None
    ) -> Float[Tensor, "B Z d"]:
        """The state one step later."""
        for _ in range(self.repeats):
            for block in self:
                state = block(state, None, mask)
        return state

    def roll(
        self,
        state: Float[Tensor, "B Z d"],
        wanted: Sequence[int],
        mask: Bool[Tensor, "B Z"] | None = None,
    ) -> list[Float[Tensor, "B Z d"]]:
        """The states after some numbers of steps, which increase."""
        states = []
        for step in range(1, wanted[-1] + 1):
            stop_if_asked()
            state = self(state, mask)
            if step == wanted[len(states)]:
                states.append(state)
        return states


class QueryDecoder(nn.Module):
    """u(y) = Attention(y, Z, Z): features of the queries attend to the latent state.

    A `full` decoder adds the attention's answer to the lifted queries, at the width of the state,
    and ends in a linear layer; otherwise the attention gives the outputs itself.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        position: FourierFeatures,
        *,
        lifted: bool,
        full: bool,
        heads: int,
        head_width: int | None = None,
        multiplier: int = 2,
        gain: float = 1.0,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.position = position
        self.scale = scale
        self.lift = Lift(position.width, 0, width) if lifted else None
        self.block = AttentionBlock(
            width if lifted else position.width,
            context=width,
            heads=heads,
            head_width=head_width,
            out=width if full else outputs,
            multiplier=multiplier,
            residual=full,
            gain=gain,
        )
        self.head = None
        if full:
            self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, outputs))

    def forward(
        self,
        state: Float[Tensor, "B Z d"],
        queries: Float[Tensor, "B1 M E"],
        mask: Bool[Tensor, "B Z"] | None = None,
    ) -> Float[Tensor, "B M K"]:
        """The fields at the queries; queries with a leading 1 are shared by all samples."""
        tokens = self.position(queries)
        if self.lift is not None:
            tokens = self.lift(tokens)
        out = self.block(tokens, state, mask)
        if self.head is not None:
            out = self.head(out)
        return out * self.scale


@torch.no_grad()
def start_local(model: Any, spec: Spec) -> None:
    """Let a model with lifted inputs start with attention to what is near.

    Drawn at random, inducing points attend to all inputs almost alike, and so do queries to
    inducing points: a network that sees only averages sits at the mean field until it has found out
    where things are. With this start it knows from the first step. Inducing points are the
    embeddings of places spread over the domain; queries and keys are projected alike, so that what
    lies close together meets; position features are the weaker the higher their frequency, which
    makes `close` mean close in space; and the blocks change the state little, so that a point is
    still known by its place when the queries come. It is only a start: all of it is learnt.
    """
    encoder, decoder = model.encoder, model.decoder
    for part in (encoder, decoder):
        _fade(part.lift.from_position, part.position)
        _alike(part.block)
    if spec.domain == spec.query_domain and spec.periods == spec.query_periods:
        for name in ("from_position", "out"):
            source = getattr(encoder.lift, name).state_dict()
            getattr(decoder.lift, name).load_state_dict(source)
    latents = getattr(encoder, "latents", None)
    if latents is not None:
        if spec.region:
            places = on_globe(spread(len(latents), spec.region))
        else:
            places = spread(len(latents), spec.domain, sphere=spec.sphere)
        nothing = torch.zeros(len(places), spec.channels)
        embedded = encoder.lift(encoder.position(places.float()), nothing)
        latents.copy_(F.layer_norm(embedded, embedded.shape[-1:]))
    for block in (encoder.block, *model.processor):
        for out in (block.attend.to_out, block.feed_forward.out):
            out.weight.mul_(QUIET)
            out.bias.mul_(QUIET)


def _fade(layer: nn.Linear, features: FourierFeatures) -> None:
    """Divide the weights of every feature by its frequency, and keep their overall size."""
    frequency = features.matrix.abs().sum(0)
    raw = torch.ones(features.width - 2 * len(frequency))
    share = torch.cat([raw, 1 / frequency, 1 / frequency])
    layer.weight.mul_(share / share.square().mean().sqrt())


def _alike(block: AttentionBlock) -> None:
    """Project keys as queries are projected."""
    query, pair = block.attend.to_query.weight, block.attend.to_key_value.weight
    if query.shape[1] == pair.shape[1]:
        pair[: len(query)] = query
