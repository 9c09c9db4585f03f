"""Many samples answered in bounded memory, and bounds from their errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from ipot.data.own import Dataset
from ipot.evaluation.conformal import Conformal, calibrate
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.samples import Batch, Sample, collate

AT_ONCE = 16
"""Samples that are answered together, at the most."""
ROWS_AT_ONCE = 1 << 20
"""Points, and queries times times, of samples that are answered together and padded to one size."""


def calibrated(model: Operator, data: Dataset) -> Conformal:
    """Bounds from the errors of a model on samples that it has not seen; where all are asked at
    the same places, wide at those where the model is unsure."""
    samples = list(data)
    predictions = [a for piece in pieces(samples) for a in answered(model, piece, collate(piece))]
    first = samples[0].queries
    shared = len(samples) > 1 and all(s.queries is first for s in samples)
    truths = [s.truth for s in samples]
    return calibrate(predictions, truths, queries=first if shared else None)


def answered(model: Operator, samples: Sequence[Sample], batch: Batch) -> list[Tensor]:
    """The fields of some samples, which are padded to one size in a batch."""
    device = next(model.parameters()).device
    answer = predict(model, batch.to(device), finite=True).float().cpu()
    return [a[:, : s.queries.shape[-2]] for a, s in zip(answer, samples, strict=True)]


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
