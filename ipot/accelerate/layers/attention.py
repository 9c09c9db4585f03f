"""Quicker attention, feed-forwards and blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.accelerate import fixed_mesh
from ipot.accelerate.attention import attend, attend_narrow, attention
from ipot.accelerate.chunks import Chunks
from ipot.accelerate.cpu import blocks as cpu_blocks
from ipot.accelerate.cuda import blocks as cuda_blocks
from ipot.accelerate.fixed_mesh import Folded, product_dtype, project_folded
from ipot.accelerate.projected import Projected, Ready
from ipot.accelerate.shared_mesh import (
    Laid,
    Split,
    attend_laid,
    attends_itself,
    lay,
    project,
)
from ipot.accelerate.streaming import attend_chunks
from ipot.accelerate.twins import Accelerated, are_plain_layers, hooked, is_plain
from ipot.nn.attention import AttentionBlock, GatedFeedForward, MultiHead
from ipot.nn.slices import PhysicsAttention

THIN = 16
"""Channels up to which rows count as thin."""
Context = Split | Chunks | Ready | Laid
"""What can be attended to besides tokens as they are."""
Asked = Tensor | Projected | Folded
"""What can attend."""


class QuickMultiHead(Accelerated, MultiHead):
    """Multi-head attention by the quickest implementation for its sizes."""

    def start(self) -> None:
        """Find out whether kernels can compute the projections."""
        own = [self.norm, self.to_query]
        seen = [self.to_key_value, *([] if self.norm_context is None else [self.norm_context])]
        self.open_query, self.open_context = are_plain_layers(*own), are_plain_layers(*seen)
        self.open = self.open_query and self.open_context
        # Values are projected before they are averaged and not after where that is to fewer
        # channels than they have.
        self.narrows = (
            self.norm_context is not None
            and is_plain(self.to_out, nn.Linear)
            and self.to_out.bias is not None
            and self.to_out.out_features * self.heads < self.to_out.in_features
        )

    def forward(
        self,
        query: Float[Tensor, "Bq M d"] | Projected | Folded,
        context: Float[Tensor, "B N c"] | Context | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B M o"]:
        """Attend. A query with a leading 1 is projected once for the whole batch; a context in
        chunks brings its own masks."""
        if isinstance(context, Tensor) and self._narrow(_rows(query), context):
            return self._attend_narrow(query, context, mask)
        return self.to_out(self.attended(query, context, mask))

    def attended(
        self, query: Asked, context: Tensor | Context | None, mask: Tensor | None
    ) -> Float[Tensor, "B M i"]:
        """The attention before its output projection."""
        if isinstance(context, Chunks):
            return self._stream(self.query_of(query), context)
        if self.norm_context is None:
            normed = self.norm(query)
            pairs = self.to_key_value(normed)
            return attend(self.target, self.to_query(normed), pairs, self.heads, mask)
        asked = self.query_of(query)
        layers = (self.norm_context, self.to_key_value)
        split = isinstance(context, Split) and self.open_context
        if split and attends_itself(self.target, asked, context, mask, self.heads):
            context = lay(context, *layers)
        if isinstance(context, Laid):
            return attend_laid(asked, context, *layers, self.heads)
        return attend(self.target, asked, self.pairs_of(context), self.heads, mask)

    def absorbs(self, rows: int, features: int, context: Float[Tensor, "B N c"]) -> bool:
        """True if this many queries without gradient should be given as `Folded`."""
        return self._narrow(rows, context) and self._absorbs(features)

    def _absorbs(self, features: int) -> bool:
        """True if our kernels compute it: only they leave out the gradient of the queries."""
        return self.target.triton and self.open and fixed_mesh.absorbs(self, features)

    def query_of(self, query: Asked) -> Float[Tensor, "Bq M i"]:
        """Queries, normalised and projected."""
        if isinstance(query, Projected):
            return query.projected
        if isinstance(query, Folded):
            return project_folded(query.operand, self.norm, self.to_query)
        return self._project(query, self.norm, self.to_query, self.open_query)

    def pairs_of(self, context: Any) -> Float[Tensor, "B N p"]:
        """Keys and values, packed. The norm of a cross-attention's context is part of it."""
        norm = self.norm_context
        if isinstance(context, Ready):
            return context.pairs
        if norm is None:
            return self.to_key_value(context)
        if isinstance(context, Split):
            if self.open_context:
                return project(context, norm, self.to_key_value)
            context = context.joined()
        return self._project(context, norm, self.to_key_value, self.open_context)

    def _project(self, x: Tensor, norm: nn.LayerNorm, linear: nn.Linear, plain: bool) -> Tensor:
        """linear(norm(x)), in one kernel where there is one."""
        if plain and self.target.cpp and cpu_blocks.projects_rounded(x, norm, linear):
            return cpu_blocks.project_rounded(x, norm, linear)
        if plain and self.target.triton and cuda_blocks.projects(x, norm, linear.out_features):
            return cuda_blocks.project(x, norm, [linear.weight], linear.bias)
        return linear(norm(x))

    def _stream(self, query: Tensor, chunks: Chunks) -> Tensor:
        layers = (self.to_key_value, self.norm_context)
        own = [w for layer in layers if layer is not None for w in layer.parameters()]
        chunks = replace(chunks, weights=(*chunks.weights, *own))
        return attend_chunks(self.target, query, chunks, self.pairs_of, self.heads)

    def _narrow(self, queries: int, context: Tensor) -> bool:
        return self.narrows and context.shape[1] < queries

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
        out = attend_narrow(self.target, query, pairs[..., :inner], value, self.heads, mask)
        return out.unflatten(-1, (self.heads, -1)).sum(2) + self.to_out.bias

    def _met(self, query: Asked, context: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, and packed keys and values: in the channels of a head, or in those of the
        features if the keys absorb the projection."""
        norm = self.norm_context
        if isinstance(query, Folded) and norm is not None:
            operand = query.operand
            alike = operand.dtype == product_dtype(context.dtype, context.device)
            if alike and self._absorbs(self.to_query.in_features):
                weights, bias = fixed_mesh.absorbing_weights(self, operand.shape[-1])
                return operand, cuda_blocks.project(context, norm, weights, bias)
        return self.query_of(query), self.pairs_of(context)


def _rows(query: Asked) -> int:
    if isinstance(query, Tensor):
        return query.shape[1]
    return (query.operand if isinstance(query, Folded) else query.projected).shape[1]


class QuickGatedFeedForward(Accelerated, GatedFeedForward):
    """A gated feed-forward that is quick for rows of few channels, for which torch's LayerNorm
    starts a program each."""

    norm: Any

    def start(self) -> None:
        """Find out whether the update of rows of one channel follows from the parameters alone."""
        self.open = are_plain_layers(self.norm, self.into, self.out)
        self.constant = self.open and self.into.bias is not None and self.out.bias is not None

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """The update that a residual connection adds. For rows of one channel, of which a norm
        leaves only its bias, it is the same for all."""
        if not self.open or x.shape[-1] > THIN:
            return super().forward(x)
        if x.shape[-1] == 1 and self.constant:
            return self._constant().view((1,) * x.ndim)
        x, gate = self.into(thin_norm(x, self.norm)).chunk(2, dim=-1)
        return self.out(x * F.gelu(gate))

    def _constant(self) -> Float[Tensor, " 1"]:
        """The update of rows of one channel, without matrix products, which take as long to launch
        as large ones."""
        bias = self.norm.bias
        if torch.is_grad_enabled():
            # Its scale has a gradient of zero, and must have one where several processes wait for
            # each other's gradients.
            bias = bias + 0 * self.norm.weight
        hidden = self.into.weight[:, 0] * bias + self.into.bias
        x, gate = hidden.chunk(2)
        return (self.out.weight[0] * x * F.gelu(gate)).sum() + self.out.bias


def thin_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """LayerNorm in simple operations, for rows of a few channels."""
    x = x.to(norm.weight.dtype)
    x = x - x.mean(-1, keepdim=True)
    scale = (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
    return x * scale * norm.weight + norm.bias


class QuickBlock(Accelerated, AttentionBlock):
    """An attention block with fused kernels, if there are any for its sizes."""

    attend: Any

    def start(self) -> None:
        """Choose the kernels."""
        self.quick = isinstance(self.attend, QuickMultiHead)
        known = self.quick and not hooked(self.attend, self.feed_forward)
        known = known and type(self.feed_forward) is QuickGatedFeedForward
        triton, cpp = known and self.target.triton, known and self.target.cpp
        self.triton_whole = triton and cuda_blocks.applies(self)
        self.triton_finish = triton and cuda_blocks.finishes(self)
        self.cpp_whole = cpp and cpu_blocks.applies(self)
        self.cpp_finish = cpp and cpu_blocks.finishes(self)

    def forward(
        self,
        y: Asked,
        x: Tensor | Context | None = None,
        mask: Tensor | None = None,
        packed: cuda_blocks.PackedBlock | None = None,
    ) -> Float[Tensor, "B M o"]:
        """One block; `x` and its `mask` are the context of a cross-attention. `packed` has the
        parameters of a self-attention, if they were packed for several calls."""
        before = y if isinstance(y, Tensor) else y.tokens
        if before is not None and self.triton_finish:
            if self.triton_whole:
                return cuda_blocks.apply(self, packed or cuda_blocks.pack(self), before, mask)
            return cuda_blocks.finish(self, before, self.attend.attended(y, x, mask))
        if before is not None and self.cpp_finish and cpu_blocks.may_read(before):
            if self.cpp_whole:
                return cpu_blocks.apply(self.target, self, before, mask)
            return cpu_blocks.finish(self, before, self.attend.attended(y, x, mask))
        update = self.attend(y, x, mask)
        out = before + update if self.residual else update
        return out + self.feed_forward(out)


class QuickPhysicsAttention(Accelerated, PhysicsAttention):
    """Attention among slices by torch's fused operator, or the formula in training on a CPU."""

    def attention(
        self,
        query: Float[Tensor, "B H S e"],
        key: Float[Tensor, "B H S e"],
        value: Float[Tensor, "B H S e"],
    ) -> Float[Tensor, "B H S e"]:
        """softmax(Q Kᵀ / √e) V."""
        return attention(self.target, query, key, value)
