"""Attention as a layer, and the block around it.

Models touch points only through here and the masks, so that how ragged rows are laid out can
change without them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.nn.paths import attend, by_the_book
from ipot.nn.split import Split, project


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
        context: Float[Tensor, "B N c"] | Split | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B M o"]:
        """Attend. A query with a leading 1 is projected once and serves the whole batch."""
        query = self.norm(query)
        if isinstance(context, Split):
            pairs = project(context, self.norm_context, self.to_key_value)
        else:
            context = query if self.norm_context is None else self.norm_context(context)
            pairs = self.to_key_value(context)
        query = self.to_query(query)
        if self._narrow(query, pairs):
            return self._attend_narrow(query, pairs, mask)
        return self.to_out(attend(query, pairs, self.heads, mask))

    def _narrow(self, query: Tensor, pairs: Tensor) -> bool:
        """Whether to project values before they are averaged and not behind: few of them, to
        fewer channels than they have."""
        few = pairs.shape[1] < query.shape[1]
        small = self.to_out.out_features * self.heads < self.to_out.in_features
        return few and small and not by_the_book()

    def _attend_narrow(self, query: Tensor, pairs: Tensor, mask: Tensor | None) -> Tensor:
        inner = query.shape[-1]
        weight = self.to_out.weight.unflatten(1, (self.heads, -1))
        value = pairs[..., inner:].unflatten(-1, (self.heads, -1))
        value = torch.einsum("bnhe,ohe->bnho", value, weight.to(value.dtype)).flatten(2)
        narrow = torch.cat([pairs[..., :inner], value], -1)
        out = attend(query, narrow, self.heads, mask)
        return out.unflatten(-1, (self.heads, -1)).sum(2) + self.to_out.bias


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
        self, y: Tensor, x: Tensor | Split | None = None, mask: Tensor | None = None
    ) -> Float[Tensor, "B M o"]:
        """One block; `x` and its `mask` are the context of a cross-attention."""
        update = self.attend(y, x, mask)
        out = y + update if self.residual else update
        return out + self.feed_forward(out)
