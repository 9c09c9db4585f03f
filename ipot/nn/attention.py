"""Attention as a layer, and the block around it.

Models touch points only through here and the masks, so that how ragged rows are laid out can
change without them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.nn import absorbed, fused, mesh, swift
from ipot.nn.absorbed import Folded
from ipot.nn.chunks import Chunks
from ipot.nn.folded import called, product_dtype, project_folded
from ipot.nn.paths import attend, attend_narrow, by_the_book
from ipot.nn.ready import Projected, Ready
from ipot.nn.split import Split, project
from ipot.nn.streaming import attend_chunks

THIN = 16
"""Channels up to which rows count as thin."""
Context = Split | Chunks | Ready | mesh.Laid
"""What can be attended to besides tokens as they are."""
Asked = Tensor | Projected | Folded
"""What can attend."""


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
        query: Float[Tensor, "Bq M d"] | Projected | Folded,
        context: Float[Tensor, "B N c"] | Context | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B M o"]:
        """Attend. A query with a leading 1 is projected once and serves the whole batch; a context
        in chunks has masks of its own."""
        if isinstance(context, Tensor) and self._narrow(_rows(query), context):
            return self._attend_narrow(query, context, mask)
        return self.to_out(self.attended(query, context, mask))

    def attended(
        self, query: Asked, context: Tensor | Context | None, mask: Tensor | None
    ) -> Float[Tensor, "B M i"]:
        """The same before its output projection."""
        if isinstance(context, Chunks):
            return self._stream(self.query_of(query), context)
        if self.norm_context is None:
            normed = self.norm(query)
            return attend(self.to_query(normed), self.to_key_value(normed), self.heads, mask)
        asked = self.query_of(query)
        layers = (self.norm_context, self.to_key_value)
        if isinstance(context, Split) and mesh.fits(asked, context, mask, self.heads, layers):
            context = mesh.lay(context, *layers)
        if isinstance(context, mesh.Laid):
            return mesh.attend(asked, context, *layers, self.heads)
        return attend(asked, self.pairs_of(context), self.heads, mask)

    def absorbs(self, queries: Float[Tensor, "Bq M F"], context: Float[Tensor, "B N c"]) -> bool:
        """Whether queries that need no gradient had better come as `Folded`, with this context."""
        rows, features = queries.shape[1:]
        return self._narrow(rows, context) and absorbed.goes(self, features, context)

    def query_of(self, query: Asked) -> Float[Tensor, "Bq M i"]:
        """Queries behind their norm and projection."""
        if isinstance(query, Projected):
            return query.projected
        if isinstance(query, Folded):
            return project_folded(query.operand, self.norm, self.to_query)
        return fused.project(query, self.norm, self.to_query)

    def pairs_of(self, context: Any) -> Float[Tensor, "B N p"]:
        """Keys and behind them values. The norm of a cross-attention's context is part of it."""
        norm = self.norm_context
        if isinstance(context, Ready):
            return context.pairs
        if isinstance(context, Split):
            assert norm is not None
            return project(context, norm, self.to_key_value)
        if norm is None:
            return self.to_key_value(context)
        return fused.project(context, norm, self.to_key_value)

    def _stream(self, query: Tensor, chunks: Chunks) -> Tensor:
        layers = (self.to_key_value, self.norm_context)
        own = [w for layer in layers if layer is not None for w in layer.parameters()]
        chunks = replace(chunks, weights=(*chunks.weights, *own))
        return attend_chunks(query, chunks, self.pairs_of, self.heads)

    def _narrow(self, queries: int, context: Tensor) -> bool:
        """Whether to project values before they are averaged and not behind: few of them, to
        fewer channels than they have."""
        if self.norm_context is None or by_the_book():
            return False
        small = self.to_out.out_features * self.heads < self.to_out.in_features
        return small and context.shape[1] < queries

    def _attend_narrow(self, query: Asked, context: Tensor, mask: Tensor | None) -> Tensor:
        query, pairs = self._met(query, context)
        inner = query.shape[-1]
        # Not a product of matrices, which would be rounded: a mean of values may be much smaller
        # than they are, and what is left of it after rounding is all that comes out.
        weight = self.to_out.weight.unflatten(1, (self.heads, -1)).transpose(0, 1)
        # One for each sample, so that its gradient is summed in two stages: in one, over all rows
        # of a long rollout for a few hundred numbers, it took a sixth of a step.
        weight = weight.expand(len(pairs), 1, -1, -1, -1)
        value = pairs[..., inner:].unflatten(-1, (self.heads, 1, -1))
        value = (value.to(weight.dtype) * weight).sum(-1).flatten(2)
        out = attend_narrow(query, pairs[..., :inner], value, self.heads, mask)
        return out.unflatten(-1, (self.heads, -1)).sum(2) + self.to_out.bias

    def _met(self, query: Asked, context: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and, keys before values, what they meet: in the channels of a head, or in those
        of features where the keys absorb the projection of these."""
        if isinstance(query, Folded):
            operand = query.operand
            alike = operand.dtype == product_dtype(context.dtype, context.device)
            if alike and absorbed.goes(self, self.to_query.in_features, context):
                return operand, absorbed.pairs(self, operand, context)
        return self.query_of(query), self.pairs_of(context)


def _rows(query: Asked) -> int:
    if isinstance(query, Tensor):
        return query.shape[1]
    return (query.operand if isinstance(query, Folded) else query.projected).shape[1]


def thin_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """norm(x), in simple operations where rows are thin: torch's has a program for each row."""
    width = x.shape[-1]
    if width == 1:
        return norm.bias.view((1,) * x.ndim)
    if width > THIN:
        return norm(x)
    x = x.to(norm.weight.dtype)
    x = x - x.mean(-1, keepdim=True)
    scale = (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
    return x * scale * norm.weight + norm.bias


class GatedFeedForward(nn.Module):
    """Two layers with a GELU gate between them, behind a LayerNorm of their own if there is one."""

    gated = True

    def __init__(self, width: int, multiplier: int, *, norm: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.into = nn.Linear(width, 2 * multiplier * width)
        self.out = nn.Linear(multiplier * width, width)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """The update that a residual connection adds; the same for all rows where they have one
        channel, of which a norm leaves nothing but its own bias."""
        if isinstance(self.norm, nn.LayerNorm) and not by_the_book():
            if x.shape[-1] == 1 and not called(self.norm, self.into, self.out):
                return self._constant().view((1,) * x.ndim)
            normed = thin_norm(x, self.norm)
        else:
            normed = self.norm(x)
        x, gate = self.into(normed).chunk(2, dim=-1)
        return self.out(x * F.gelu(gate))

    def _constant(self) -> Float[Tensor, " 1"]:
        """The same for one channel, number by number: products of matrices so small take as long
        to start as large ones."""
        assert isinstance(self.norm, nn.LayerNorm)
        bias = self.norm.bias
        if torch.is_grad_enabled():
            # Its scale has a gradient of zero, and must have one where several processes wait for
            # each other's gradients.
            bias = bias + 0 * self.norm.weight
        hidden = self.into.weight[:, 0] * bias + self.into.bias
        x, gate = hidden.chunk(2)
        return (self.out.weight[0] * x * F.gelu(gate)).sum() + self.out.bias


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
        self,
        y: Asked,
        x: Tensor | Context | None = None,
        mask: Tensor | None = None,
        packed: fused.Packed | None = None,
    ) -> Float[Tensor, "B M o"]:
        """One block; `x` and its `mask` are the context of a cross-attention. `packed` has the
        parameters of a self-attention, where they were packed for several calls."""
        before = y if isinstance(y, Tensor) else y.tokens
        if before is not None and fused.fits_itself(self, before):
            return fused.apply(self, packed or fused.pack(self), before, mask)
        if before is not None and fused.fits(self, before):
            return fused.finish(self, before, self.attend.attended(y, x, mask))
        if before is not None and swift.fits_itself(self, before):
            return swift.apply(self, before, mask)
        if before is not None and swift.fits(self, before):
            return swift.finish(self, before, self.attend.attended(y, x, mask))
        update = self.attend(y, x, mask)
        out = before + update if self.residual else update
        return out + self.feed_forward(out)
