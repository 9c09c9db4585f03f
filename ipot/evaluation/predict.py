"""Predictions in bounded memory: any number of samples, queries and steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.errors import DataError
from ipot.models.base import LatentOperator, Operator
from ipot.samples import Batch
from ipot.spec import Need

QUERIES_AT_ONCE = 1 << 18
"""Rows (samples times queries) that a decoder answers in one go."""


@torch.inference_mode()
def predict(
    model: Operator, batch: Batch, *, rows: int = QUERIES_AT_ONCE
) -> Float[Tensor, "B T M K"]:
    """A batch's fields, the queries in chunks so that memory does not grow with their number.

    A latent model encodes and steps once and decodes chunk by chunk; any other one that takes free
    queries is called once for each chunk. Chunked equals whole up to rounding.
    """
    chunk = max(1, rows // batch.size)
    count = batch.queries.shape[-2]
    if count <= chunk and count * len(batch.times) * batch.size <= rows:
        return model(batch)
    if isinstance(model, LatentOperator):
        return _decode_in_chunks(model, batch, chunk)
    if Need.SAME_POINTS in model.needs or count <= chunk:
        return model(batch)
    return torch.cat([model(_ask(batch, s)) for s in _slices(count, chunk)], dim=2)


def predictions(
    model: Operator, data: Dataset, *, batch: int, device: torch.device | str
) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch of a data set, in order, with the model's answer."""
    if batch < 1:
        raise DataError(f"at least one sample at a time, got a batch of {batch}")
    home = device if not data.stacked else data[0].values.device
    for start in range(0, len(data), batch):
        index = torch.arange(start, min(start + batch, len(data)), device=home)
        piece = data.batch(index).to(device)
        yield piece, predict(model, piece)


def _decode_in_chunks(model: LatentOperator, batch: Batch, chunk: int) -> Tensor:
    states = model.rollout(batch)
    count, moving = batch.queries.shape[-2], batch.queries.ndim == 4
    frames = []
    for step, latent in enumerate(states):
        queries = batch.queries[:, step] if moving else batch.queries
        pieces = [model.decode(latent, queries[:, part]) for part in _slices(count, chunk)]
        frames.append(torch.cat(pieces, dim=1))
    return torch.stack(frames, dim=1)


def _slices(count: int, chunk: int) -> list[slice]:
    return [slice(s, min(s + chunk, count)) for s in range(0, count, chunk)]


def _ask(batch: Batch, part: slice) -> Batch:
    """The batch with some of its queries and no targets."""
    mask = batch.query_mask
    return replace(
        batch,
        queries=batch.queries[..., part, :],
        targets=None,
        weights=None,
        query_mask=None if mask is None else mask[:, part],
        query_grid=None,
    )
