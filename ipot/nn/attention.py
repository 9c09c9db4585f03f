"""Attention and the block around it.

Models touch points only through here and the masks, so that how ragged rows are laid out can
change without them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B H M e"],
    key: Float[Tensor, "B H N e"],
    value: Float[Tensor, "B H N e"],
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B H M e"]:
    """softmax(Q Kᵀ / √e) V over the real keys, by the path that is quickest on the device.

    The fused kernel is best on a GPU and for inference anywhere. Its backward on a CPU is an order
    of magnitude slower than the three plain operations, so training on a CPU writes them out.
    """
    if query.device.type == "cpu" and torch.is_grad_enabled() and query.requires_grad:
        return plain_attention(query, key, value, mask)
    bias = None if mask is None else mask[:, None, None, :]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


def plain_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """The same by its formula: the reference for every other path."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
    return scores.softmax(-1) @ value


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
        """Attend. A query with a leading 1 is projected once and serves the whole batch."""
        query = self.norm(query)
        context = query if self.norm_context is None else self.norm_context(context)
        q = self._split(self.to_query(query))
        k, v = (self._split(x) for x in self.to_key_value(context).chunk(2, dim=-1))
        out = attention(q.expand(k.shape[0], -1, -1, -1), k, v, mask)
        return self.to_out(out.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class GatedFeedForward(nn.Module):
    """Two layers with a GELU gate between them, behind a LayerNorm of their own if there is one."""

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
    """The same without a gate: two layers with a GELU between them."""

    def __init__(self, width: int, multiplier: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.into = nn.Linear(width, multiplier * width)
        self.out = nn.Linear(multiplier * width, width)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """The update that a residual connection adds."""
        return self.out(F.gelu(self.into(self.norm(x))))


class AttentionBlock(nn.Module):
    """O = Y + Attn(LN(Y), LN(X), LN(X)), then O + FF(LN(O)).

    `context` is the width of X, None for self-attention. Without `residual` the first Y is left
    out, which is the only way where the block changes the width (`out`). `bias` gives all
    projections one; without `gated` the feed-forward is plain.
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
    ) -> None:
        super().__init__()
        out = out or width
        if head_width is None:
            if width % heads:
                raise ValueError(f"a width of {width} does not divide among {heads} heads")
            head_width = width // heads
        self.residual = residual
        self.attend = MultiHead(
            width,
            context=context,
            heads=heads,
            head_width=head_width,
            out=out,
            gain=gain,
            bias=bias,
        )
        self.feed_forward = (GatedFeedForward if gated else FeedForward)(out, multiplier)

    def forward(
        self, y: Tensor, x: Tensor | None = None, mask: Tensor | None = None
    ) -> Float[Tensor, "B M o"]:
        """One block; `x` and its `mask` are the context of a cross-attention."""
        update = self.attend(y, x, mask)
        out = y + update if self.residual else update
        return out + self.feed_forward(out)
