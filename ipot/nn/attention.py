"""Multi-head attention, and the block around it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "Bq H M e"],
    key: Float[Tensor, "B H N e"],
    value: Float[Tensor, "B H N f"],
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B H M f"]:
    """softmax(Q Kᵀ / √e) V over the real keys; a query with a leading 1 is shared by the whole
    batch."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
    return scores.softmax(-1) @ value


def split_heads(x: Float[Tensor, "B N He"], heads: int) -> Float[Tensor, "B H N e"]:
    """Channels of heads that lie side by side, as an axis of their own."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Float[Tensor, "B H N e"]) -> Float[Tensor, "B N He"]:
    """The inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)


class MultiHead(nn.Module):
    """Multi-head attention with LayerNorm on its query, key and value inputs.

    Query, key and value projections have no bias unless asked for, the output projection has one.
    Without `context` at construction it is self-attention: one norm serves all three. `gain`
    multiplies the initial query and key projections: at 1 the attention starts out almost uniform.
    """

    def __init__(
        self,
        width: int,
        *,
        context: int | None,
        heads: int,
        head_width: int,
        out: int,
        gain: float = 1.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        inner = heads * head_width
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.norm_context = None if context is None else nn.LayerNorm(context)
        self.to_query = nn.Linear(width, inner, bias=bias)
        self.to_key_value = nn.Linear(width if context is None else context, 2 * inner, bias=bias)
        self.to_out = nn.Linear(inner, out)
        with torch.no_grad():
            self.to_query.weight.mul_(gain)
            self.to_key_value.weight[:inner].mul_(gain)

    def forward(
        self,
        query: Float[Tensor, "Bq M d"],
        context: Float[Tensor, "B N c"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B M o"]:
        """Queries attend to the context, or to each other; `mask` says which rows of that are
        real."""
        y = self.norm(query)
        x = y if self.norm_context is None else self.norm_context(context)
        key, value = self.to_key_value(x).chunk(2, -1)
        q, k, v = (split_heads(t, self.heads) for t in (self.to_query(y), key, value))
        return self.to_out(join_heads(attention(q, k, v, mask)))


class RawSelfAttention(MultiHead):
    """Self-attention whose keys and values come from the rows as they are: only queries are
    normalised."""

    def forward(
        self,
        query: Float[Tensor, "Bq M d"],
        context: Float[Tensor, "B N c"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B M o"]:
        """Rows attend to each other; there is no context."""
        key, value = self.to_key_value(query).chunk(2, -1)
        asked = self.to_query(self.norm(query))
        q, k, v = (split_heads(t, self.heads) for t in (asked, key, value))
        return self.to_out(join_heads(attention(q, k, v, mask)))


class GatedFeedForward(nn.Module):
    """Two layers with a GELU gate between them, after a LayerNorm if `norm`."""

    def __init__(self, width: int, multiplier: int, *, norm: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.into = nn.Linear(width, 2 * multiplier * width)
        self.out = nn.Linear(multiplier * width, width)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """The update that a residual connection adds."""
        x, gate = self.into(self.norm(x)).chunk(2, dim=-1)
        return self.out(x * F.gelu(gate))


class FeedForward(nn.Module):
    """Two layers with a GELU between them, after a LayerNorm."""

    def __init__(self, width: int, multiplier: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.into = nn.Linear(width, multiplier * width)
        self.out = nn.Linear(multiplier * width, width)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """The update that a residual connection adds."""
        return self.out(F.gelu(self.into(self.norm(x))))


class NoFeedForward(nn.Module):
    """No update at all."""

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """Zero."""
        return torch.zeros_like(x)


class AttentionBlock(nn.Module):
    """O = Y + Attn(LN(Y), LN(X), LN(X)), then O + FF(LN(O)).

    `context` is the width of X, None for self-attention. Without `residual` the first Y is left
    out, as it must be where the block changes the width (`out`). `bias` gives all projections a
    bias; without `gated` the feed-forward has no gate; with a `multiplier` of 0 there is none. With
    `raw`, keys and values of a self-attention are not normalised.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        context: int | None = None,
        head_width: int | None = None,
        out: int | None = None,
        multiplier: int = 2,
        residual: bool = True,
        gain: float = 1.0,
        bias: bool = False,
        gated: bool = True,
        raw: bool = False,
    ) -> None:
        super().__init__()
        out = out or width
        if head_width is None:
            if width % heads:
                raise ValueError(f"a width of {width} does not divide among {heads} heads")
            head_width = width // heads
        self.residual = residual
        self.attend = (RawSelfAttention if raw else MultiHead)(
            width,
            context=context,
            heads=heads,
            head_width=head_width,
            out=out,
            gain=gain,
            bias=bias,
        )
        if multiplier:
            self.feed_forward = (GatedFeedForward if gated else FeedForward)(out, multiplier)
        else:
            self.feed_forward = NoFeedForward()

    def forward(
        self,
        y: Float[Tensor, "Bq M d"],
        x: Float[Tensor, "B N c"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B M o"]:
        """Rows `y` attend to the context `x`, or to each other; `mask` says what is real there."""
        out = self.attend(y, x, mask)
        if self.residual:
            out = y + out
        return out + self.feed_forward(out)
