"""Quicker versions of the layers in `ipot.nn`, of the same parameters.

Each is a subclass that overrides `forward` and is made from a layer by `ipot.accelerate.twins`.
`start` looks at target, sizes and hooks once; what is left for a call are the sizes of its tensors.
Between encoder and attention, and between decoder and attention, travel other things than tokens:
keys and values straight from the points (`Ready`), tokens of a shared mesh in two parts (`Split`,
`Laid`), queries that are folded or projected already, inputs in chunks. Nobody else sees these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.accelerate import cuda, folded
from ipot.accelerate.attention import attend, attend_narrow, attention
from ipot.accelerate.chunks import Chunks, Streamed, chunk_size, streams
from ipot.accelerate.cpu import blocks as cpu_blocks
from ipot.accelerate.cpu import project as cpu_project
from ipot.accelerate.cuda import blocks as cuda_blocks
from ipot.accelerate.fixed_mesh import KeepsMesh, Known
from ipot.accelerate.folded import Folded, for_product, product_dtype, project_folded
from ipot.accelerate.projected import (
    Projected,
    Ready,
    has_kernel,
    project_mesh,
    project_points,
    waves,
)
from ipot.accelerate.shared_mesh import (
    Laid,
    Split,
    attend_laid,
    attends_itself,
    lay,
    project,
    sums_of,
)
from ipot.accelerate.streaming import attend_chunks
from ipot.accelerate.target import Target
from ipot.accelerate.twins import are_plain_layers, hooked, is_plain
from ipot.nn.attention import AttentionBlock, GatedFeedForward, MultiHead
from ipot.nn.fourier import FourierFeatures
from ipot.nn.latent import InducingPoints, Processor, QueryDecoder
from ipot.nn.points import Lift
from ipot.nn.slices import PhysicsAttention

THIN = 16
"""Channels up to which rows count as thin."""
Context = Split | Chunks | Ready | Laid
"""What can be attended to besides tokens as they are."""
Asked = Tensor | Projected | Folded
"""What can attend."""


class Accelerated:
    """A layer that knows what it is quick for."""

    target: Target

    def start(self) -> None:
        """Decide what does not depend on a call. The children are there, quicker ones too."""


class QuickFourierFeatures(Accelerated, FourierFeatures):
    """Position features on a CPU, each written once."""

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... F"]:
        """Features of coordinates."""
        formula = x.requires_grad or torch.compiler.is_compiling() or x.device.type != "cpu"
        if formula or x.shape[-1] != len(self.centre):
            return super().forward(x)
        if has_kernel(self, x):
            rows = x.reshape(1, -1, x.shape[-1])
            return cpu_project.features(rows, waves(self)).view(*x.shape[:-1], self.width)
        return self._in_place((x - self.centre) / self.radius)

    def _in_place(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... F"]:
        """The formula to the last bit, each feature written once: what a CPU waits for is
        memory."""
        first, count = len(self.raw), self.matrix.shape[1]
        out = torch.empty(*x.shape[:-1], self.width, dtype=x.dtype)
        with torch.autocast("cpu", enabled=False):
            # Of each sum only one term is not zero, so a product rounds nothing more.
            phase = (x @ self.matrix.to(x.dtype)).mul_(math.pi)
        out[..., :first] = x[..., self.raw]
        torch.sin(phase, out=out[..., first : first + count])
        torch.cos(phase, out=out[..., first + count :])
        return out


class QuickMultiHead(Accelerated, MultiHead):
    """Multi-head attention by the quickest way there is."""

    def start(self) -> None:
        """Look whether projections can be computed from their parameters."""
        own = [self.norm, self.to_query]
        seen = [self.to_key_value, *([] if self.norm_context is None else [self.norm_context])]
        self.open_query, self.open_context = are_plain_layers(*own), are_plain_layers(*seen)
        self.open = self.open_query and self.open_context
        # Values are projected before they are averaged and not behind where that is to fewer
        # channels than they have.
        self.narrows = (
            self.norm_context is not None
            and is_plain(self.to_out, nn.Linear)
            and self.to_out.out_features * self.heads < self.to_out.in_features
        )

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
        """The attention before its output projection."""
        if isinstance(context, Chunks):
            return self._stream(self.query_of(query), context)
        if self.norm_context is None:
            normed = self.norm(query)
            pairs = self.to_key_value(normed)
            return attend(self.target, self.to_query(normed), pairs, self.heads, mask)
        asked = self.query_of(query)
        layers = (self.norm_context, self.to_key_value)
        if isinstance(context, Split) and self.open_context:
            if attends_itself(self.target, asked, context, mask, self.heads):
                context = lay(context, *layers)
        if isinstance(context, Laid):
            return attend_laid(asked, context, *layers, self.heads)
        return attend(self.target, asked, self.pairs_of(context), self.heads, mask)

    def absorbs(self, rows: int, features: int, context: Float[Tensor, "B N c"]) -> bool:
        """True if so many queries that need no gradient had better come as `Folded`."""
        return self._narrow(rows, context) and self._absorbs(features)

    def _absorbs(self, features: int) -> bool:
        """By our kernels alone, which leave a gradient out."""
        return self.target.triton and self.open and folded.absorbs(self, features)

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
        """Queries, and packed keys and values: in the channels of a head, or in those of features
        where the keys absorb the projection of these."""
        if isinstance(query, Folded):
            operand = query.operand
            alike = operand.dtype == product_dtype(context.dtype, context.device)
            if alike and self._absorbs(self.to_query.in_features):
                weights, bias = folded.absorbing_weights(self, operand.shape[-1])
                return operand, cuda_blocks.project(context, self.norm_context, weights, bias)
        return self.query_of(query), self.pairs_of(context)


def _rows(query: Asked) -> int:
    if isinstance(query, Tensor):
        return query.shape[1]
    return (query.operand if isinstance(query, Folded) else query.projected).shape[1]


class QuickGatedFeedForward(Accelerated, GatedFeedForward):
    """A gated feed-forward of thin rows, whose norms torch has a program for each of."""

    def start(self) -> None:
        """Look whether what one channel gives can be computed from the parameters."""
        self.normed = isinstance(self.norm, nn.LayerNorm)
        self.open = self.normed and are_plain_layers(self.norm, self.into, self.out)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """The update that a residual connection adds; the same for all rows where they have one
        channel, of which a norm leaves nothing but its own bias."""
        if not self.open or x.shape[-1] > THIN:
            return super().forward(x)
        if x.shape[-1] == 1:
            return self._constant().view((1,) * x.ndim)
        x, gate = self.into(thin_norm(x, self.norm)).chunk(2, dim=-1)
        return self.out(x * F.gelu(gate))

    def _constant(self) -> Float[Tensor, " 1"]:
        """The update of one channel, number by number: products of matrices so small take as long
        to start as large ones."""
        bias = self.norm.bias
        if torch.is_grad_enabled():
            # Its scale has a gradient of zero, and must have one where several processes wait for
            # each other's gradients.
            bias = bias + 0 * self.norm.weight
        hidden = self.into.weight[:, 0] * bias + self.into.bias
        x, gate = hidden.chunk(2)
        return (self.out.weight[0] * x * F.gelu(gate)).sum() + self.out.bias


def thin_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """norm(x) in simple operations, for rows of a few channels."""
    x = x.to(norm.weight.dtype)
    x = x - x.mean(-1, keepdim=True)
    scale = (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
    return x * scale * norm.weight + norm.bias


class QuickBlock(Accelerated, AttentionBlock):
    """An attention block by fused kernels, where there are any for its sizes."""

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
        packed: cuda_blocks.Packed | None = None,
    ) -> Float[Tensor, "B M o"]:
        """One block; `x` and its `mask` are the context of a cross-attention. `packed` has the
        parameters of a self-attention, where they were packed for several calls."""
        before = y if isinstance(y, Tensor) else y.tokens
        if before is not None and self.triton_finish:
            if self.triton_whole:
                return cuda_blocks.apply(self, packed or cuda_blocks.pack(self), before, mask)
            return cuda_blocks.finish(self, before, self.attend.attended(y, x, mask))
        if before is not None and self.cpp_finish and before.dtype == torch.float32:
            if self.cpp_whole:
                return cpu_blocks.apply(self.target, self, before, mask)
            return cpu_blocks.finish(self, before, self.attend.attended(y, x, mask))
        update = self.attend(y, x, mask)
        out = before + update if self.residual else update
        return out + self.feed_forward(out)


class QuickProcessor(Accelerated, Processor):
    """Blocks whose parameters are packed once for a rollout, or whose steps are one function."""

    def start(self) -> None:
        """Look whether kernels can do all of the blocks."""
        blocks = list(self)
        quick = all(is_plain(block, QuickBlock) and block.triton_whole for block in blocks)
        self.packs = quick and not hooked(self)
        self.rolls = self.packs and self.target.training and cuda_blocks.alike(blocks)

    def roll(
        self,
        state: Float[Tensor, "B Z d"],
        wanted: Sequence[int],
        mask: Bool[Tensor, "B Z"] | None = None,
    ) -> list[Float[Tensor, "B Z d"]]:
        """The states after some numbers of steps."""
        if not self.packs or torch.compiler.is_compiling():
            return super().roll(state, wanted, mask)
        if self.rolls and mask is None and self._differentiated(state):
            return list(cuda_blocks.roll(list(self), self.repeats, state, wanted).unbind())
        packed, states = [cuda_blocks.pack(block) for block in self], []
        for step in range(1, wanted[-1] + 1):
            for _ in range(self.repeats):
                for block, parameters in zip(self, packed, strict=True):
                    state = block(state, None, mask, parameters)
            if step == wanted[len(states)]:
                states.append(state)
        return states

    def _differentiated(self, state: Tensor) -> bool:
        if not torch.is_grad_enabled():
            return False
        return state.requires_grad or any(p.requires_grad for p in self.parameters())


class QuickInducingPoints(Accelerated, KeepsMesh, InducingPoints):
    """An encoder that takes a shared mesh once, and inputs in chunks where they are many."""

    sees_inputs = True

    def start(self) -> None:
        """Look whether positions, lift and projections can be computed in one go."""
        inside = [self.position, *([] if self.lift is None else [self.lift])]
        known = is_plain(self.block, QuickBlock) and self.block.quick
        known = known and is_plain(self.position, QuickFourierFeatures, FourierFeatures)
        known = known and (self.lift is None or is_plain(self.lift, Lift)) and not hooked(*inside)
        self.known_inside = known
        self.open = known and self.block.attend.open_context and not hooked(self.block.attend)

    def forward(
        self,
        points: Float[Tensor, "B1 N D"] | Streamed,
        values: Float[Tensor, "B N C"] | Streamed,
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B Z d"]:
        """A row for each inducing point."""
        if isinstance(points, Streamed):
            return self.stream(points)
        assert isinstance(values, Tensor)
        if not self.known_inside:
            return super().forward(points, values, parameters, mask)
        if streams(values.shape[0] * values.shape[1], values.device):
            return self.stream(Streamed((points, values, mask), parameters, _as_they_are(parameters)))
        context = None
        if parameters is None:
            context = self._in_one_go(points, values, mask)
        if context is None:
            context, mask = self._context(points, values, parameters, mask)
        return self.block(self.latents.unsqueeze(0), context, mask)

    @torch.compiler.disable
    def stream(self, inputs: Streamed) -> Float[Tensor, "B Z d"]:
        """The state of inputs that are taken in chunks, each prepared by itself."""
        if not self.known_inside:
            points, values, parameters, mask = inputs.prepare(*inputs.rows)
            return super().forward(points, values, parameters, mask)
        size = chunk_size(
            self.target,
            batch=len(inputs.rows[1]),
            queries=len(self.latents),
            heads=self.block.attend.heads,
            rows=inputs.at_once,
            count=inputs.count,
        )
        return self.block(self.latents.unsqueeze(0), self._chunks(inputs, size))

    def given(self, places: Tensor) -> Known:
        """Features as the lift takes them, or with their sums as a shared mesh is projected."""
        features = self.position(places)
        if self.lift is not None:
            return Known(places, for_product(features))
        operand = for_product(folded.aligned(features))
        return Known(places, operand, features, sums_of(features))

    def _in_one_go(
        self, points: Tensor, values: Tensor, mask: Tensor | None
    ) -> Context | None:
        """Keys and values straight from the inputs, where a kernel makes them."""
        if not self.open:
            return None
        part = self.block.attend
        layers = (self.position, self.lift, part.norm_context, part.to_key_value)
        if mask is None:
            laid = project_mesh(self.target, *layers, points, values)
            if laid is not None:
                return laid
        return self._ready(points, values)

    def _ready(self, points: Tensor, values: Tensor) -> Ready | None:
        part = self.block.attend
        layers = (self.position, self.lift, part.norm_context, part.to_key_value)
        found = project_points(self.target, *layers, points, values)
        return None if found is None else Ready(found.projected)

    def _context(
        self,
        points: Tensor,
        values: Tensor,
        parameters: Tensor | None,
        mask: Tensor | None,
    ) -> tuple[Tensor | Split, Tensor | None]:
        """Tokens, in two parts where a mesh is shared, and their mask."""
        tokens = self._embed(points, values)
        if isinstance(tokens, Split):
            if tokens.shared and parameters is None:
                return tokens, mask
            tokens = tokens.joined()
        return self.join(tokens, parameters, mask)

    def _embed(self, points: Tensor, values: Tensor) -> Tensor | Split:
        known = self.known(points)
        if self.lift is not None:
            position = self.position(points) if known is None else known.operand
            return self.lift(position, values).expand(values.shape[0], -1, -1)
        position = self.position(points) if known is None else known.features
        return Split(position, values, known)

    def _chunks(self, inputs: Streamed, size: int) -> Chunks:
        """The tokens of points, values and their mask, made from so many points at a time."""

        def tokens(
            points: Tensor, values: Tensor, mask: Tensor | None
        ) -> tuple[Tensor | Split | Ready, Tensor | None]:
            points, values, _, mask = inputs.prepare(points, values, mask)
            ready = self._ready(points, values) if self.open else None
            if ready is not None:
                return ready, mask
            found = self._embed(points, values)
            if isinstance(found, Split) and not found.shared:
                found = found.joined()
            return found, mask

        def last() -> Tensor:
            points, values, _ = inputs.rows
            points, values, scalars, _ = inputs.prepare(points[:, :0], values[:, :0], None)
            none = self._embed(points, values)
            none = none.joined() if isinstance(none, Split) else none
            return self.join(none, scalars, None)[0]

        weights = [] if self.lift is None else list(self.lift.parameters())
        if inputs.parameters is not None:
            weights += [inputs.parameters, self.parameter_offset, self.parameter_slope]
        return Chunks(
            rows=inputs.rows,
            tokens=tokens,
            size=size,
            last=None if inputs.parameters is None else last,
            weights=tuple(weights),
        )


def _as_they_are(parameters: Tensor | None) -> Any:
    def prepare(points: Tensor, values: Tensor, mask: Tensor | None) -> Any:
        return points, values, parameters, mask

    return prepare


class QuickQueryDecoder(Accelerated, KeepsMesh, QueryDecoder):
    """A decoder whose queries come projected from a kernel, or folded from a fixed mesh."""

    sees_inputs = False

    def start(self) -> None:
        """Look whether positions, lift and projection can be computed in one go."""
        inside = [self.position, *([] if self.lift is None else [self.lift])]
        known = is_plain(self.block, QuickBlock) and self.block.quick
        known = known and is_plain(self.position, QuickFourierFeatures, FourierFeatures)
        known = known and (self.lift is None or is_plain(self.lift, Lift)) and not hooked(*inside)
        self.known_inside = known
        self.open = known and self.block.attend.open_query and not hooked(self.block.attend)

    @property
    def lean(self) -> bool:
        """True if a row leaves only its few outputs behind for the backward pass."""
        return self.head is None and self.target.triton

    def forward(
        self,
        state: Float[Tensor, "B Z d"],
        queries: Float[Tensor, "B1 M E"],
        mask: Bool[Tensor, "B Z"] | None = None,
    ) -> Float[Tensor, "B M K"]:
        """The fields at the queries; queries with a leading 1 are embedded once."""
        if not self.known_inside:
            return super().forward(state, queries, mask)
        out = self.block(self._asked(queries, state), state, mask)
        if self.head is not None:
            out = self.head(out)
        return out * self.scale

    def given(self, places: Tensor) -> Known:
        """Features as the lift takes them, or layer-normalised without scale and shift."""
        features, part = self.position(places), self.block.attend
        if self.lift is not None:
            return Known(places, for_product(features))
        width = None
        if cuda.available(places.device) and folded.absorbs(part, self.position.width):
            width = folded.columns(self.position.width)
        return Known(places, for_product(folded.fold(features, part.norm.eps, width)))

    def keep(self, places: Float[Tensor, "1 N D"]) -> None:
        """Keep what these queries give, where the layers behind can be computed from it."""
        if self.known_inside:
            super().keep(places)

    def _asked(self, queries: Tensor, state: Tensor) -> Asked:
        """Queries as the block takes them."""
        part = self.block.attend
        if self.open:
            layers = (self.position, self.lift, part.norm, part.to_query)
            asked = project_points(self.target, *layers, queries, keep=self.block.residual)
            if asked is not None:
                return asked
        known = self.known(queries)
        if self.lift is not None:
            return self.lift(self.position(queries) if known is None else known.operand)
        if known is not None and self.open:
            return Folded(known.operand)
        features = self.position(queries)
        rows, width = features.shape[1:]
        if features.requires_grad or not self.open or not part.absorbs(rows, width, state):
            return features
        wide = folded.fold(features, part.norm.eps, folded.columns(width))
        return Folded(for_product(wide))


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


QUICKER: dict[type[nn.Module], type[nn.Module]] = {
    FourierFeatures: QuickFourierFeatures,
    MultiHead: QuickMultiHead,
    GatedFeedForward: QuickGatedFeedForward,
    AttentionBlock: QuickBlock,
    Processor: QuickProcessor,
    InducingPoints: QuickInducingPoints,
    QueryDecoder: QuickQueryDecoder,
    PhysicsAttention: QuickPhysicsAttention,
}
"""The quicker version of a layer. A new one is a class here and a line in this table."""
