"""Quicker layers between points and a latent state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ipot.accelerate import cuda, fixed_mesh
from ipot.accelerate.chunks import Chunks, Streamed, chunk_size, streams
from ipot.accelerate.cpu import project as cpu_project
from ipot.accelerate.cpu.interface import readable
from ipot.accelerate.cuda import blocks as cuda_blocks
from ipot.accelerate.fixed_mesh import Folded, KeepsMesh, Known, for_product
from ipot.accelerate.layers.attention import Asked, Context, QuickBlock
from ipot.accelerate.projected import Ready, project_mesh, project_points
from ipot.accelerate.shared_mesh import Split, sums_of
from ipot.accelerate.twins import Accelerated, hooked, is_plain
from ipot.nn.latent import InducingPoints, Processor, QueryDecoder
from ipot.nn.points import FourierFeatures, Lift
from ipot.stopping import stop_if_asked


class QuickFourierFeatures(Accelerated, FourierFeatures):
    """Position features on a CPU, by a kernel or with each feature written only once."""

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... F"]:
        """Features of coordinates."""
        formula = x.requires_grad or torch.compiler.is_compiling()
        formula = formula or not readable(x, kinds=(x.dtype,))
        if formula or x.shape[-1] != len(self.centre):
            return super().forward(x)
        if cpu_project.has_kernel(self, x):
            found = cpu_project.features(x.reshape(1, -1, x.shape[-1]), cpu_project.waves(self))
            return found.view(*x.shape[:-1], self.width)
        return self._in_place((x - self.centre) / self.radius)

    def _in_place(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... F"]:
        """The formula to the last bit, with each feature written only once, since a CPU waits for
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


class QuickProcessor(Accelerated, Processor):
    """A processor whose parameters are packed once for a rollout, or whose rollout is one
    function."""

    def start(self) -> None:
        """Find out whether kernels can compute all of the blocks."""
        blocks = list(self)
        quick = all(is_plain(block, QuickBlock) and block.triton_whole for block in blocks)
        self.packs = bool(blocks) and quick and not hooked(self)
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
            stop_if_asked()
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


def _known_inside(layer: Any) -> bool:
    """True if an encoder or decoder is made of the block, position features and lift that are known
    here, without hooks on them."""
    position, lift = layer.position, layer.lift
    plain = is_plain(layer.block, QuickBlock) and layer.block.quick
    plain = plain and is_plain(position, QuickFourierFeatures, FourierFeatures)
    if lift is None:
        return plain and not hooked(position)
    return plain and is_plain(lift, Lift) and not hooked(position, lift)


class QuickInducingPoints(Accelerated, KeepsMesh, InducingPoints):
    """An encoder that computes a shared mesh once, and takes very many inputs in chunks."""

    block: Any
    sees_inputs = True

    def start(self) -> None:
        """Find out whether kernels can compute position features, lift and projections together."""
        self.known_inside = _known_inside(self)
        self.open = (
            self.known_inside and self.block.attend.open_context and not hooked(self.block.attend)
        )

    def forward(
        self,
        points: Float[Tensor, "B1 N D"] | Streamed,
        values: Float[Tensor, "B N C"] | Streamed,
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | Streamed | None = None,
    ) -> Float[Tensor, "B Z d"]:
        """A row for each inducing point."""
        if isinstance(points, Streamed):
            return self.stream(points.seen_with(parameters, mask))
        assert isinstance(values, Tensor)
        assert not isinstance(mask, Streamed)
        if not self.known_inside:
            return super().forward(points, values, parameters, mask)
        if streams(values.shape[0] * values.shape[1], values.device):
            return self.stream(
                Streamed((points, values, mask), parameters, _as_they_are(parameters))
            )
        context = None
        if parameters is None:
            context = self._in_one_go(points, values, mask)
        if context is None:
            context, mask = self._context(points, values, parameters, mask)
        return self.block(self.latents.unsqueeze(0), context, mask)

    @torch.compiler.disable
    def stream(self, inputs: Streamed) -> Float[Tensor, "B Z d"]:
        """The state from inputs in chunks, each prepared when it is needed."""
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
        """Features as the lift takes them, or with the sums that the projection of a shared mesh
        needs."""
        features = self.position(places)
        if self.lift is not None:
            return Known(places, for_product(features))
        operand = for_product(fixed_mesh.aligned(features))
        return Known(places, operand, features, sums_of(features))

    def _in_one_go(self, points: Tensor, values: Tensor, mask: Tensor | None) -> Context | None:
        """Keys and values straight from the inputs, if a kernel computes them."""
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
        """Tokens, in two parts if the mesh is shared, and their mask."""
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
        if known is not None and known.features is not None:
            return Split(known.features, values, known)
        return Split(self.position(points), values)

    def _chunks(self, inputs: Streamed, size: int) -> Chunks:
        """The tokens of points and values in chunks of `size` points, with their masks."""

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
    """A decoder whose queries are projected by a kernel, or kept folded for a fixed mesh."""

    block: Any
    sees_inputs = False

    def start(self) -> None:
        """Find out whether kernels can compute position features, lift and projection together."""
        self.known_inside = _known_inside(self)
        self.open = (
            self.known_inside and self.block.attend.open_query and not hooked(self.block.attend)
        )

    @property
    def lean(self) -> bool:
        """True if only the few outputs of a row are kept for the backward pass."""
        return self.head is None and self.target.triton

    def forward(
        self,
        state: Float[Tensor, "B Z d"],
        queries: Float[Tensor, "B1 M E"],
        mask: Bool[Tensor, "B Z"] | None = None,
    ) -> Float[Tensor, "B M K"]:
        """The fields at the queries; shared queries (a leading 1) are embedded once."""
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
        if cuda.available(places.device) and fixed_mesh.absorbs(part, self.position.width):
            width = fixed_mesh.columns(self.position.width)
        return Known(places, for_product(fixed_mesh.operand_of(features, part.norm.eps, width)))

    def keep(self, places: Float[Tensor, "1 N D"]) -> None:
        """Keep the features of these queries, if the next layers can be computed from them."""
        if self.known_inside:
            super().keep(places)

    def _asked(self, queries: Tensor, state: Tensor) -> Asked:
        """Queries in the form that the block takes."""
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
        wide = fixed_mesh.operand_of(features, part.norm.eps, fixed_mesh.columns(width))
        return Folded(for_product(wide))
