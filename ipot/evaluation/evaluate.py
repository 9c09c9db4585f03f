"""Scores of a model on a data set, and of forecasts to compare it with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.errors import DataError
from ipot.evaluation.metrics import LARGEST, squared_error, typical_where_zero, unit_of
from ipot.evaluation.metrics import norm_of_any_size as norm
from ipot.evaluation.metrics import relative_l2_of_any_size as relative_l2
from ipot.evaluation.predict import in_evaluation_mode, predictions
from ipot.models.base import Operator


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Errors over a data set: relative L2, and root mean squares in the units of the field."""

    relative_l2: float
    """The paper's number: the mean over samples of one norm over times, queries and channels.
    Where the targets of a sample are zero throughout, its error is relative to the typical size of
    the others; it is absolute where those of all samples are."""
    per_sample: list[float] = field(repr=False)
    per_time: list[float]
    per_channel: list[float]
    rmse_per_time: list[float]
    """Over all samples, queries and channels, weighted where the samples carry weights."""
    weighted_relative_l2: float | None = None
    """With quadrature or area weights, where the samples carry them."""
    mse_per_time: list[float] = field(default_factory=list)
    """Mean squared errors without weights, over all samples, queries and channels."""

    references: dict[str, Scores] = field(default_factory=dict)
    """Those of simple forecasts of the same samples, by name, where the data are a forecast."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def evaluate(
    model: Operator,
    data: Dataset,
    *,
    batch: int = 16,
    device: torch.device | str = "cpu",
    finite: bool = False,
    symmetric: bool = False,
    channels: Sequence[int] | None = None,
) -> Scores:
    """Predict a whole data set and score it; with `finite`, refuse answers that are not; with
    `symmetric`, average them over the problem's symmetries. `channels` scores some of the outputs
    alone."""
    with in_evaluation_mode(model):
        how = {"finite": finite, "symmetric": symmetric}
        pairs = predictions(model, data, batch=batch, device=device, **how)
        rows = ((p, b.truth, b.query_mask, b.weights) for b, p in pairs)
        return score(rows if channels is None else chosen(rows, channels))


def chosen(pairs, channels: Sequence[int]) -> Iterator[tuple]:
    """Some channels of predictions and targets."""
    keep = list(channels)
    for prediction, target, mask, weights in pairs:
        yield prediction[..., keep], target[..., keep], mask, weights


def score(pairs) -> Scores:
    """Scores from (prediction, targets, mask, weights), batch by batch, in float64."""
    sample, time, channel, weighted = Errors(), Errors(), Errors(), Errors()
    squares, count = [], 0.0
    plain, rows_of_all = [], 0.0
    for prediction, target, mask, weights in pairs:
        p, t = prediction.double(), target.double()
        if mask is not None:  # anything may stand in the padding
            p = p.where(mask[:, None, :, None], t)
        sample.add(p, t, mask=mask)
        time.add(p, t, mask=mask, over=(2, 3))
        channel.add(p, t, mask=mask, over=(1, 2))
        w = None if weights is None else weights.double()
        if w is not None:
            weighted.add(p, t, mask=mask, weights=w)
        unit = float(unit_of(p - t))
        error, rows = squared_error(p / unit, t / unit, mask=mask, weights=w)
        squares.append((error, unit))
        count += rows
        error, rows = squared_error(p / unit, t / unit, mask=mask)
        plain.append((error, unit))
        rows_of_all += rows
    errors = sample.relative()
    return Scores(
        relative_l2=errors.mean().item(),
        per_sample=errors.tolist(),
        per_time=time.relative().mean(0).tolist(),
        per_channel=channel.relative().mean(0).tolist(),
        rmse_per_time=_root_mean(squares, count).tolist(),
        weighted_relative_l2=weighted.relative().mean().item() if weighted.found else None,
        mse_per_time=_root_mean(plain, rows_of_all).square().tolist(),
    )


class Errors:
    """Collects the relative errors of samples."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []
        self._sizes: list[Tensor] = []

    def add(self, prediction: Tensor, target: Tensor, **how: Any) -> None:
        """Add the errors of some samples, over the axes that `relative_l2` takes."""
        self.found.append(relative_l2(prediction, target, **how))
        self._sizes.append(norm(target, **how))

    def relative(self) -> Tensor:
        """The relative errors. Where a target is zero, the error is divided by the typical size of
        the other targets."""
        errors, sizes = torch.cat(self.found), torch.cat(self._sizes)
        typical = (errors / typical_where_zero(sizes)).clamp(max=LARGEST)
        return torch.where(sizes > 0, errors, typical)


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
    """Forecast, truth, mask and weights, in batches."""
    if len(forecast) != len(data):
        raise DataError(f"{name} forecasts {len(forecast)} samples, the data have {len(data)}")
    for start in range(0, len(data), batch):
        stop = min(start + batch, len(data))
        piece = data.batch(torch.arange(start, stop, device=forecast.device))
        yield forecast[start:stop], piece.truth, piece.query_mask, piece.weights


def _root_mean(squares: list[tuple[Tensor, float]], count: Any) -> Tensor:
    """The root of sums of squares over a count; each sum is in a unit of its own, mostly 1."""
    largest = max(unit for _, unit in squares)
    total = sum(error * (unit / largest) ** 2 for error, unit in squares)
    return largest * torch.as_tensor(total / count).sqrt()
