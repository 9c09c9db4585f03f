"""Means and scales of the training data, in float64 and safe on constant channels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ipot.errors import DataError
from ipot.samples import Sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Statistics:
    """Mean and scale of every channel; a scale is never zero. Those of outputs may also be given at
    each point of a grid, (M, K) instead of (K)."""

    input_mean: Tensor
    input_scale: Tensor
    output_mean: Tensor
    output_scale: Tensor
    parameter_mean: Tensor
    parameter_scale: Tensor

    @classmethod
    def identity(cls, channels: int, outputs: int, parameters: int = 0) -> Statistics:
        """No normalisation at all."""
        sizes = {"input": channels, "output": outputs, "parameter": parameters}
        return cls(
            **{f"{k}_mean": torch.zeros(n, dtype=torch.float64) for k, n in sizes.items()},
            **{f"{k}_scale": torch.ones(n, dtype=torch.float64) for k, n in sizes.items()},
        )

    @classmethod
    def of(cls, data, *, since: tuple[int, int] | None = None, each: bool = False) -> Statistics:
        """The statistics of a data set, over all its samples, points and times.

        With `since`, numbers of past frames and of channels in each, outputs are changes since the
        last past frame, or those of `each` step.
        """
        inputs, outputs, parameters = Moments(), Moments(), Moments()
        for values, targets, scalars in data.columns():
            inputs.add(values)
            outputs.add(targets if since is None else _changes(values, targets, since, each))
            parameters.add(scalars)
        return cls(
            input_mean=inputs.mean(),
            input_scale=inputs.scale(),
            output_mean=outputs.mean(),
            output_scale=outputs.scale(),
            parameter_mean=parameters.mean(),
            parameter_scale=parameters.scale(),
        )

    def inputs_as_outputs(self, frames: slice) -> tuple[Tensor, Tensor]:
        """The scale and shift that take past frames, some of the inputs, from the scales of inputs
        to those of outputs: both are the same physical field."""
        repeats = len(self.input_mean[frames]) // len(self.output_mean)
        mean, scale = (t.repeat(repeats) for t in (self.output_mean, self.output_scale))
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        return self.input_scale[frames] / scale, (self.input_mean[frames] - mean) / scale

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _changes(values: Tensor, targets: Tensor, since: tuple[int, int], each: bool) -> Tensor:
    """Targets (..., T, M, K) as changes of values (..., N, C); between steps where queries are not
    the points, so that the frame before the first one is not known there."""
    history, channels = since
    frame = values[..., (history - 1) * channels : history * channels].unsqueeze(-3)
    if frame.shape[-2] == targets.shape[-2]:
        frames = torch.cat([frame, targets.to(frame.dtype)], -3)
        return frames.diff(dim=-3) if each else frames[..., 1:, :, :] - frame
    if targets.shape[-3] > 1:
        return targets.diff(dim=-3) if each else targets - targets[..., :1, :, :]
    return targets


def at_each_point(data) -> tuple[Tensor, Tensor]:
    """Mean and scale (M, K) of the answer at each query, over samples that share their queries."""
    first: Sample = data[0]
    moments = Moments()
    for index in range(len(data)):
        sample = data[index]
        if not (sample.queries is first.queries or torch.equal(sample.queries, first.queries)):
            raise DataError(
                "--training.each-point needs samples with the same queries in the same order, and "
                f"those of sample {index} are others: leave it out"
            )
        moments.add(sample.truth[0].reshape(1, -1))
    sizes = first.truth.shape[1:]
    return moments.mean().view(sizes), moments.scale().view(sizes)


class Moments:
    """Running mean and spread of rows, merged piece by piece without cancellation."""

    def __init__(self) -> None:
        self.count = 0
        self._mean = torch.zeros(0, dtype=torch.float64)
        self._squares = torch.zeros(0, dtype=torch.float64)

    def add(self, rows: Tensor | None) -> None:
        """Take in rows (..., channels)."""
        if rows is None:
            return
        if rows.numel() == 0:
            if not self.count:
                self._mean = self._squares = torch.zeros(rows.shape[-1], dtype=torch.float64)
            return
        rows = rows.detach().reshape(-1, rows.shape[-1]).double()
        count, mean = len(rows), rows.mean(0).cpu()
        squares = (rows - mean.to(rows.device)).square().sum(0).cpu()
        if self.count:
            gap, total = mean - self._mean, self.count + count
            squares = self._squares + squares + gap.square() * self.count * count / total
            mean = self._mean + gap * count / total
        self._mean, self._squares = mean, squares
        self.count += count

    def mean(self) -> Tensor:
        """The mean of every channel."""
        return self._mean

    def scale(self) -> Tensor:
        """The standard deviation, or 1 where a channel is constant up to rounding."""
        deviation = (self._squares / max(1, self.count)).sqrt()
        constant = deviation <= 1e-7 * self._mean.abs()
        return torch.where(constant, torch.ones_like(deviation), deviation)


def mean_field(data) -> Tensor | None:
    """The average target (T, M, K) where all samples share their queries: what a guess without
    any input would answer. None where queries differ."""
    first: Sample = data[0]
    total = torch.zeros_like(first.truth, dtype=torch.float64)
    for index in range(len(data)):
        sample = data[index]
        if sample.queries.shape != first.queries.shape or not torch.equal(
            sample.queries, first.queries
        ):
            return None
        total += sample.truth
    return (total / len(data)).to(first.truth.dtype)
