"""Forecasts that a model is held against, scored by the code that scores the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.errors import DataError
from ipot.evaluation.evaluate import Scores, score


def score_references(
    references: Mapping[str, Tensor], data: Dataset, *, batch: int = 16
) -> dict[str, Scores]:
    """The scores of named forecasts (S, T, M, K) for the samples of a data set."""
    return {name: score(_pairs(name, f, data, batch)) for name, f in references.items()}


def leads(steps: int) -> list[int]:
    """The steps worth a column: powers of two, and the last."""
    powers = [2**k for k in range(steps.bit_length()) if 2**k <= steps]
    return powers if powers[-1] == steps else [*powers, steps]


def _pairs(name: str, forecast: Tensor, data: Dataset, batch: int) -> Iterator[tuple]:
    """Forecast, truth, mask and weights, some samples at a time."""
    if len(forecast) != len(data):
        raise DataError(f"{name} forecasts {len(forecast)} samples, the data have {len(data)}")
    for start in range(0, len(data), batch):
        stop = min(start + batch, len(data))
        piece = data.batch(torch.arange(start, stop, device=forecast.device))
        yield forecast[start:stop], piece.truth, piece.query_mask, piece.weights
