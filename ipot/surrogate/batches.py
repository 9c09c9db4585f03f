"""Samples answered together in bounded memory, and error bounds from their answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ipot.data.dataset import Ragged, Stacked
from ipot.evaluation.conformal import Conformal, calibrate
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.samples import Batch, Sample, collate

AT_ONCE = 16
"""Samples that are answered together, at the most."""
ROWS_AT_ONCE = 1 << 20
"""Points, and queries times times, of samples that are answered together and padded to one size."""
WHOLE_ROWS = 1 << 21
"""Points, or queries times steps, that go to a GPU at once; more travel in chunks."""


def calibrated(model: Operator, data: Stacked | Ragged) -> Conformal:
    """Bounds from the errors of a model on samples that it has not seen; where all are asked at
    the same places, wide at those where the model is unsure."""
    samples = [data[i] for i in range(len(data))]
    predictions = [a for piece in pieces(samples) for a in answered(model, piece, joined(piece))]
    first = samples[0].queries
    shared = len(samples) > 1 and all(s.queries is first for s in samples)
    truths = [s.truth.cpu() for s in samples]
    return calibrate(predictions, truths, queries=first.cpu() if shared else None)


def answered(
    model: Operator,
    samples: Sequence[Sample],
    batch: Batch,
    *,
    rows: int | None = None,
    out: Tensor | None = None,
) -> list[Tensor]:
    """The fields of some samples, which are padded to one size in a batch.

    `rows` are the points or queries taken at once; a single answer is written to `out`, if given.
    """
    device = next(model.parameters()).device
    most = max(batch.values.shape[1], batch.queries.shape[-2] * len(batch.times))
    if rows is None and device.type != "cpu" and most <= WHOLE_ROWS:
        batch = batch.to(device)  # small enough to go there at once, and to be replayed there
    place = None if out is None else out.unsqueeze(0)
    answer = predict(model, batch, rows=rows, out=place, finite=True)
    if out is not None:
        return [out]
    answer = answer.float().cpu()
    return [a[:, : s.queries.shape[-2]] for a, s in zip(answer, samples, strict=True)]


def joined(samples: Sequence[Sample]) -> Batch:
    """Samples as a batch; one alone keeps its memory, which may be a file."""
    if len(samples) > 1:
        return collate(samples)
    given: dict[str, Any] = {f.name: getattr(samples[0], f.name) for f in fields(samples[0])}
    del given["units"]  # a batch has none
    for name, value in given.items():
        if isinstance(value, Tensor) and name != "edges":
            given[name] = value.unsqueeze(0)
    return Batch(**given | {"index": torch.tensor([samples[0].index])})


def pieces(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """Samples that are answered together: few enough to be padded to the largest of them."""
    piece: list[Sample] = []
    most = 0
    for sample in samples:
        rows = len(sample.points) + sample.queries.shape[-2] * len(sample.times)
        full = len(piece) == AT_ONCE or (len(piece) + 1) * max(most, rows) > ROWS_AT_ONCE
        if piece and full:
            yield piece
            piece, most = [], 0
        piece, most = [*piece, sample], max(most, rows)
    if piece:
        yield piece
