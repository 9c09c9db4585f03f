"""Trajectories cut into pieces: from teacher forcing (pieces of one step) to whole rollouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.errors import DataError, Unsupported
from ipot.models.base import Operator
from ipot.samples import Batch, collate
from ipot.spec import Spec
from ipot.training.settings import Training


def pieces(batch: Batch, spec: Spec, steps: int, chosen: Int[Tensor, "B P"] | None = None) -> Batch:
    """A batch of P pieces for each sample, (B P) in all, that start from true frames.

    The frames that a piece starts from are the inputs, or targets of the steps before it; channels
    after the past frames stay. `chosen` are the numbers of each sample's pieces, by default all;
    what is left of a trajectory after the last whole piece is not used. If `steps` are all of the
    batch's times, the batch is returned as it is.
    """
    times, frame = len(batch.times), len(spec.outputs)
    if steps == times:
        return batch
    _refuse(batch, spec, steps)
    history, device = spec.history, batch.values.device
    past = batch.values[..., : history * frame].unflatten(-1, (history, frame)).transpose(1, 2)
    frames = torch.cat([past, batch.truth.to(past.dtype)], 1)
    if chosen is None:
        chosen = torch.arange(times // steps, device=device).expand(batch.size, -1)
    # Piece p sees frames p k ... p k + h - 1 and is asked for the next k.
    window = steps * chosen.unsqueeze(-1) + torch.arange(history + steps, device=device)
    sample = torch.arange(batch.size, device=device).view(-1, 1, 1)
    cut, count = frames[sample, window], chosen.shape[1]
    values = cut[:, :, :history].transpose(2, 3).flatten(3).flatten(0, 1)
    targets = cut[:, :, history:].flatten(0, 1)
    static = batch.values[..., history * frame :]

    def again(tensor: Tensor | None) -> Any:
        if tensor is None or (tensor.shape[0] == 1 and batch.size != 1):
            return tensor
        return tensor.repeat_interleave(count, 0)

    return replace(
        batch,
        points=again(batch.points),
        values=torch.cat([values, static.repeat_interleave(count, 0)], -1),
        queries=again(batch.queries),
        targets=targets,
        times=tuple(spec.dt * (k + 1) for k in range(steps)),
        parameters=again(batch.parameters),
        weights=again(batch.weights),
        point_mask=again(batch.point_mask),
        query_mask=again(batch.query_mask),
        edges=_edges(batch, count),
        index=again(batch.index),
    )


def horizons(steps: int) -> list[int]:
    """The lengths of a growing rollout: doubled again and again, and finally the full length."""
    found = [1]
    while 2 * found[-1] < steps:
        found.append(2 * found[-1])
    return [*found, steps] if steps > 1 else found


def horizon(steps: int, progress: float, grow: float) -> int:
    """The steps of a rollout at a progress in [0, 1] through a run; it grows over the part `grow`.

    All lengths but the full one have the same share of that part.
    """
    lengths = horizons(steps)
    if progress >= grow:
        return steps
    return lengths[int(progress / grow * (len(lengths) - 1))]


def first_steps(batch: Batch, steps: int) -> Batch:
    """The batch with its first steps only."""
    if steps >= len(batch.times):
        return batch
    queries = batch.queries[:, :steps] if batch.queries.ndim == 4 else batch.queries
    return replace(
        batch, times=batch.times[:steps], targets=batch.truth[:, :steps], queries=queries
    )


def examine(data: Dataset, spec: Spec, steps: int) -> None:
    """Refuse trajectories that cannot be cut into pieces, before training starts."""
    first = collate([data[0]])
    pieces(first, spec, steps)
    if steps < len(first.times) and not torch.equal(first.points, first.queries):
        raise DataError(
            "true frames are needed at the input points, and the queries lie elsewhere. "
            "Leave --training.unroll out."
        )


def refuse_growth(model: Operator, settings: Training) -> None:
    """Refuse growing rollouts for steady problems, and for systems with their own objective."""
    spec = model.spec
    if spec.steps == 1 or settings.unroll == 1:
        said = "training.unroll is 1" if spec.steps > 1 else f"{spec.name} has one step"
        raise Unsupported(f"--training.grow lengthens rollouts, and {said}: leave it out")
    if model.objective() is not None:
        raise Unsupported(
            f"--training.grow is for systems that are trained by the error of their answers, and "
            f"{model.name} is not: leave it out"
        )


def _refuse(batch: Batch, spec: Spec, steps: int) -> None:
    if not spec.history:
        raise Unsupported(
            f"{spec.name} has no past frames among its inputs, so a rollout cannot start in its "
            "middle: leave --training.unroll out"
        )
    if steps > len(batch.times):
        raise Unsupported(f"--training.unroll {steps} of only {len(batch.times)} steps")
    if batch.values.shape[1] != batch.truth.shape[2] or batch.queries.ndim == 4:
        raise DataError(
            f"true frames are needed at the input points: {batch.values.shape[1]} points, "
            f"{batch.truth.shape[2]} queries. Leave --training.unroll out."
        )
    apart = [t / spec.dt - (i + 1) for i, t in enumerate(batch.times)]
    if max(map(abs, apart)) > 1e-6 * len(apart):
        raise DataError(f"pieces of a rollout need every step of it, got the times {batch.times}")


def _edges(batch: Batch, count: int) -> Tensor | None:
    """The edges repeated for every piece, numbered over the rows of the larger batch."""
    if batch.edges is None:
        return None
    rows = batch.values.shape[1]
    sample, node = batch.edges // rows, batch.edges % rows
    return torch.cat([(sample * count + p) * rows + node for p in range(count)], 1)
