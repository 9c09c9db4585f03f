"""The inducing point operator transformer.

    Z₀ = Attention(Z_q, a, a)          encoder: learnable inducing points attend to the inputs
    Z_{t+1} = G_dt(Z_t)                processor: self-attention blocks, the same at every step
    u_t(y) = Attention(y, Z_t, Z_t)    decoder: any queries attend to the latent state

The cost is linear in inputs and queries, and the depth of the processor costs nothing at the
points. Lee and Oh, "Inducing Point Operator Transformer", AAAI 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._attentive import Attentive, Encoder, Prepare
from ipot.models._checks import positive
from ipot.models._local import start_local
from ipot.models._settings import Settings
from ipot.models.base import Latent, without_queries
from ipot.nn.chunks import chunk_size, streams
from ipot.nn.mesh import Laid
from ipot.nn.ready import Ready, project_mesh, project_points
from ipot.nn.split import Split
from ipot.samples import Batch
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes and choices of an IPOT; a preset changes some of them for a problem."""

    latents: int = 256
    """Inducing points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "latents")


class InducingPoints(Encoder):
    """Inducing points attend to the inputs."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.latents = nn.Parameter(0.02 * torch.randn(config.latents, config.width))
        self.block = self.attention(config, context=self.width)

    def state(
        self,
        tokens: Float[Tensor, "B N d"] | Split | Ready | Laid,
        mask: Bool[Tensor, "B N"] | None,
    ) -> Latent:
        """A row for each inducing point."""
        return Latent(self.block(self.latents.unsqueeze(0), tokens, mask))

    def ready(self, points: Tensor, values: Tensor) -> Ready | None:
        """Keys and values straight from the inputs, where a kernel makes them."""
        part = self.block.attend
        layers = (self.position, self.lift, part.norm_context, part.to_key_value)
        found = project_points(*layers, points, values)
        return None if found is None else Ready(found.projected)

    def _laid(self, points: Tensor, values: Tensor) -> Laid | None:
        """A mesh that all samples share, projected once, where a kernel goes on from there."""
        part = self.block.attend
        layers = (self.position, self.lift, part.norm_context, part.to_key_value)
        return project_mesh(*layers, points, values)

    def forward(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Latent:
        """The latent state of the inputs, which are taken in chunks where they are many."""
        if not streams(values.shape[0] * values.shape[1], values.device):
            laid = self._laid(points, values) if parameters is None and mask is None else None
            if laid is not None:
                return self.state(laid, None)
            return super().forward(points, values, parameters, mask)

        def as_they_are(points: Tensor, values: Tensor, mask: Tensor | None):
            return points, values, parameters, mask

        return self.stream((points, values, mask), parameters, as_they_are)

    @torch.compiler.disable
    def stream(
        self,
        inputs: tuple[Tensor, Tensor, Tensor | None],
        parameters: Tensor | None,
        prepare: Prepare,
        rows: int | None = None,
    ) -> Latent:
        """The same in chunks of about so many `rows` (samples times points), each prepared by
        itself: what goes in may lie on another device, and be larger than this one's memory."""
        size = chunk_size(
            self.latents.device,
            batch=len(inputs[1]),
            queries=len(self.latents),
            heads=self.block.attend.heads,
            rows=rows,
            count=inputs[1].shape[0] * inputs[1].shape[1],
        )
        chunks = self.chunks(inputs, parameters, prepare, size)
        return Latent(self.block(self.latents.unsqueeze(0), chunks))


class IPOT(Attentive):
    """Any points in, any queries out, through a small set of inducing points."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec, InducingPoints(config, spec))
        if config.local:
            start_local(self, spec)

    def encode_in_chunks(
        self, batch: Batch, prepare: Callable[[Batch], Batch], rows: int | None = None
    ) -> Latent:
        """The encoder's state, the inputs in chunks where they are many or lie elsewhere."""
        inputs = (batch.points, batch.values, batch.point_mask)
        count = batch.size * batch.values.shape[1]
        here = batch.values.device == self.encoder.latents.device
        if here and not (streams(count, batch.values.device) if rows is None else count > rows):
            return self.encode(prepare(batch))
        bare = without_queries(batch)

        def prepared(points: Tensor, values: Tensor, mask: Tensor | None):
            chunk = prepare(replace(bare, points=points, values=values, point_mask=mask))
            return chunk.points, chunk.values, chunk.parameters, chunk.point_mask

        return self.encoder.stream(inputs, batch.parameters, prepared, rows)


MODEL = IPOT
