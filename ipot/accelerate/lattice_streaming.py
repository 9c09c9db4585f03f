"""A lattice for very many inputs: the sums of its places add up over chunks of the inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ipot.accelerate.chunks import EncodesInChunks, Prepare, streams
from ipot.accelerate.twins import hooked, is_closed
from ipot.models.base import Latent, without_queries
from ipot.models.lattice import Lattice
from ipot.nn.places import Sums, ToPlaces
from ipot.samples import Batch

ROWS_AT_ONCE = {"cpu": 1 << 16, "cuda": 1 << 22}
"""Samples times points of a chunk, unless given. Each has a row for every corner of its cell."""


class StreamedLattice(EncodesInChunks, Lattice):
    """Takes very many inputs in chunks. This is mixed into the accelerated model."""

    def encode(self, batch: Batch) -> Latent:
        """The state at time zero; chunk by chunk where points are very many."""
        if self.takes_chunks() and self.is_much(batch):
            return self.encode_in_chunks(batch)
        return super().encode(batch)

    def is_much(self, batch: Batch) -> bool:
        """True if there are too many points to take them all at once."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        return streams(batch.size * batch.values.shape[1], batch.values.device)

    def takes_chunks(self) -> bool:
        """True if `to_places` is the layer that this file knows, without hooks on it."""
        part = self.to_places
        own = type(part).sums is ToPlaces.sums and type(part).mean is ToPlaces.mean
        return own and not is_closed(part) and not hooked(part)

    @torch.no_grad()
    def encode_in_chunks(
        self, batch: Batch, prepare: Prepare = lambda batch: batch, at_once: int | None = None
    ) -> Latent:
        """The state of a batch whose chunks `prepare` turns into what the model takes."""
        device = next(self.parameters()).device
        at_once = at_once or ROWS_AT_ONCE.get(device.type, ROWS_AT_ONCE["cuda"])
        size, bare = max(1, at_once // batch.size), without_queries(batch)
        sums: Sums | None = None
        parameters: Tensor | None = None
        for start in range(0, batch.values.shape[1], size):
            chunk = prepare(_rows(bare, slice(start, start + size)))
            values, parameters = chunk.values[..., self.dropped :], chunk.parameters
            own = self.to_places.sums(chunk.points, values, chunk.point_mask)
            sums = own if sums is None else sums.plus(own)
        if sums is None:  # parameters alone
            return self.encode(prepare(bare))
        return self.initial(*self.to_places.mean(sums), parameters)


def _rows(batch: Batch, part: slice) -> Batch:
    """Some of the input points."""
    facts: dict[str, Any] = {"points": batch.points[:, part], "values": batch.values[:, part]}
    if batch.point_mask is not None:
        facts["point_mask"] = batch.point_mask[:, part]
    return replace(batch, **facts)
