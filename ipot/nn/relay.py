"""Attention from points to inducing points and back, and mixing among neighbours.

Z = softmax(Q Kᵀ / √e) V               compress: inducing points Q of every head attend to points
X = X + W softmax(K Qᵀ / √e) Z         give back: the same keys, as queries, attend to Q
H = W₁ LN(X);  X = X + W₂ GELU(H + A ∗ H)     feed-forward with its neighbours' hidden channels
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.nn.attention import AttentionBlock, attention, join_heads, split_heads
from ipot.nn.mlp import MLP
from ipot.nn.neighbours import Neighbours
from ipot.nn.points import FourierFeatures, Lift, ParameterTokens


class RelayAttention(nn.Module):
    """Attention through inducing points of each head and back, with the same keys."""

    def __init__(self, width: int, *, heads: int, latents: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_key_value = nn.Linear(width, 2 * width)
        self.latents = nn.Parameter(torch.randn(latents, width))
        self.to_out = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "B N d"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N d"]:
        """The update that a residual connection adds; padding takes no part."""
        key, value = (
            split_heads(t, self.heads) for t in self.to_key_value(self.norm(x)).chunk(2, -1)
        )
        induced = split_heads(self.latents.unsqueeze(0).to(key.dtype), self.heads)
        state = attention(induced, key, value, mask)
        back = attention(key, induced.expand(len(key), -1, -1, -1), state)
        return self.to_out(join_heads(back))


class LocalMixing(nn.Module):
    """Σ_o A_o h(x + δ o), with weights for each channel and each place of a stencil."""

    def __init__(self, channels: int, places: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(places, channels).uniform_(-1, 1) * places**-0.5)

    def forward(self, h: Float[Tensor, "B N c"], around: Neighbours) -> Float[Tensor, "B N c"]:
        """The weighted sum over the stencil of every point. Rows after the points are parameters,
        which have no neighbours."""
        places = len(self.weight)
        points = around.index.shape[1] // places
        if not points:
            return torch.zeros_like(h)
        weight = self.weight.to(h.dtype)
        out = torch.zeros_like(h[:, :points])
        indices = around.index.unflatten(1, (places, points)).unbind(1)
        shares: Sequence[Tensor | None] = (None,) * places
        if around.weight is not None:
            shares = around.weight.unflatten(1, (places, points)).unbind(1)
        for o, (index, share) in enumerate(zip(indices, shares, strict=True)):
            out = out + weight[o] * Neighbours(index, share).look_up(h)
        return F.pad(out, (0, 0, 0, h.shape[1] - points))


class MixingFeedForward(nn.Module):
    """Two layers with a GELU between them; hidden channels are mixed with their neighbours before
    it."""

    def __init__(self, width: int, multiplier: int, *, places: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.into = nn.Linear(width, multiplier * width)
        self.mix = LocalMixing(multiplier * width, places) if places else None
        self.out = nn.Linear(multiplier * width, width)

    def forward(
        self, x: Float[Tensor, "B N d"], around: Neighbours | None = None
    ) -> Float[Tensor, "B N d"]:
        """The update that a residual connection adds."""
        hidden = self.into(self.norm(x))
        if self.mix is not None:
            hidden = hidden + self.mix(hidden, around)
        return self.out(F.gelu(hidden))


class RelayBlock(nn.Module):
    """X + Relay(LN(X)), then a feed-forward with local mixing."""

    def __init__(
        self, width: int, *, heads: int, latents: int, multiplier: int, places: int
    ) -> None:
        super().__init__()
        self.attend = RelayAttention(width, heads=heads, latents=latents)
        self.feed_forward = MixingFeedForward(width, multiplier, places=places)

    def forward(
        self,
        x: Float[Tensor, "B N d"],
        around: Neighbours | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """One block; `around` are the neighbours on the points' stencils."""
        x = x + self.attend(x, mask)
        return x + self.feed_forward(x, around)


class RelayEncoder(ParameterTokens):
    """X₀ = lift(position, values), then blocks at the points, then inducing points of full width:
    Z = Attention(Z_q, X_L, X_L)."""

    def __init__(
        self,
        width: int,
        position: FourierFeatures,
        *,
        channels: int,
        parameters: int,
        blocks: int,
        heads: int,
        latents: int,
        states: int,
        cross_heads: int,
        multiplier: int,
        places: int,
    ) -> None:
        super().__init__()
        self.position = position
        self.lift = Lift(position.width, channels, width)
        self.start_parameters(parameters, width)
        self.blocks = relay_blocks(blocks, width, heads, latents, multiplier, places)
        self.latents = nn.Parameter(0.02 * torch.randn(states, width))
        self.block = AttentionBlock(
            width, context=width, heads=cross_heads, multiplier=multiplier, gain=2.0
        )

    def forward(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        parameters: Float[Tensor, "B P"] | None,
        mask: Bool[Tensor, "B N"] | None,
        around: Neighbours | None,
    ) -> tuple[Float[Tensor, "B NP d"], Bool[Tensor, "B NP"] | None]:
        """X_L: features of the points, then of the parameters, and which of them are real."""
        x = self.lift(self.position(points), values).expand(len(values), -1, -1)
        x, mask = self.join(x, parameters, mask)
        for block in self.blocks:
            x = block(x, around, mask)
        return x, mask

    def compress(
        self, x: Float[Tensor, "B N d"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B Z d"]:
        """Z: one row for each inducing point."""
        return self.block(self.latents.unsqueeze(0), x, mask)


def relay_blocks(
    count: int, width: int, heads: int, latents: int, multiplier: int, places: int
) -> nn.ModuleList:
    """Blocks one after the other, each with weights of its own."""
    return nn.ModuleList(
        RelayBlock(width, heads=heads, latents=latents, multiplier=multiplier, places=places)
        for _ in range(count)
    )


class Affine(nn.Module):
    """scale ∘ x + shift for each channel; it starts as x itself unless `start` is called."""

    scale: Tensor
    shift: Tensor

    def __init__(self, channels: int, *, learnt: bool = True) -> None:
        super().__init__()
        for name, start in (("scale", torch.ones(channels)), ("shift", torch.zeros(channels))):
            if learnt:
                self.register_parameter(name, nn.Parameter(start))
            else:
                self.register_buffer(name, start)

    @torch.no_grad()
    def start(self, scale: Float[Tensor, " K"], shift: Float[Tensor, " K"]) -> None:
        """Set scale and shift."""
        self.scale.copy_(scale)
        self.shift.copy_(shift)

    def forward(self, x: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
        """scale ∘ x + shift, in the precision of x."""
        return x * self.scale + self.shift


class LocalDecoder(nn.Module):
    """u(y) = MLP(g + l): g comes from the latent state, l from the inputs near the query.

    g = Attention(y, Z, Z)
    l = W LN(Σ_j λ_j(y) X(x_j))                without time, or where features are stepped too
    l = (1 + s(t)) W LN(Σ_j λ_j X(x_j)) + b(t)     t: how long ago the inputs were seen
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        position: FourierFeatures,
        *,
        heads: int,
        multiplier: int,
        local: bool,
        steps: int,
    ) -> None:
        super().__init__()
        self.position = position
        self.lift = Lift(position.width, 0, width)
        self.block = AttentionBlock(
            width, context=width, heads=heads, multiplier=multiplier, gain=2.0
        )
        if local:
            self.norm_local = nn.LayerNorm(width)
            self.to_local = nn.Linear(width, width)
        self.steps = steps
        self.modulate = MLP((2, width, 2 * width)) if local and steps > 1 else None
        self.norm = nn.LayerNorm(width)
        self.head = MLP((width, width, outputs))

    def forward(
        self,
        state: Float[Tensor, "TB Z d"],
        queries: Float[Tensor, "B1 M E"],
        near: Float[Tensor, "B M d"] | None = None,
        age: Float[Tensor, " TB"] | None = None,
    ) -> Float[Tensor, "TB M K"]:
        """The fields at the queries. `near` are features of the inputs around them, which may be
        shared by several states of a sample; `age` is how many steps ago they were seen."""
        out = self.block(self.lift(self.position(queries)), state)
        if near is not None:
            out = out + self._local(near, age, len(out))
        return self.head(self.norm(out))

    def _local(self, near: Tensor, age: Tensor | None, rows: int) -> Tensor:
        local = self.to_local(self.norm_local(near))
        if self.modulate is not None:
            assert age is not None
            seen = torch.stack([age / self.steps, age.log1p()], -1)
            scale, shift = self.modulate(seen).unsqueeze(1).chunk(2, -1)
            scale, shift = (t.unflatten(0, (-1, len(local))) for t in (scale, shift))
            return (local * (1 + scale) + shift).flatten(0, 1)
        return local.repeat(rows // len(local), 1, 1)
