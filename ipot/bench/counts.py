"""What a piece of work needs at least: arithmetic and bytes, counted and not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from ipot.bench.plain_model import forward, plainly
from ipot.models.base import Operator
from ipot.samples import Batch

STATES = 2
"""Numbers that AdamW keeps for every weight."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Of one call."""

    flops: float | None
    """Of matrix products; None where a model cannot be counted without running it."""
    bytes: float


def training_work(model: Operator, batch: Batch) -> Work:
    """A step on a batch: the plain version's products forward and backward."""
    return Work(flops=training_flops(model, batch), bytes=training_bytes(model, batch))


def inference_work(model: Operator, batch: Batch, *, plain: bool) -> Work:
    """An answer to a batch: the plain version's products forward, or the model's own."""
    return Work(
        flops=inference_flops(model, batch, plain=plain), bytes=inference_bytes(model, batch)
    )


def training_flops(model: Operator, batch: Batch) -> float:
    """Products of the plain version, forward and backward."""
    weights = [p for p in model.parameters() if p.requires_grad]

    def count(piece: Batch) -> int:
        with _without_memory() as mode, FlopCounterMode(display=False) as counter:
            out = forward(model, _fake(piece, mode))
            torch.autograd.grad(out.sum(), weights, allow_unused=True)
        return counter.get_total_flops()

    def of_size(size: int) -> int:
        return _over(len(batch.times), lambda times: count(_cut(batch, size, times)))

    return float(_over(batch.size, of_size))


def inference_flops(model: Operator, batch: Batch, *, plain: bool) -> float | None:
    """Products of the plain version, or of the model as it is; None where it must be run."""

    def count(times: int) -> int:
        with _without_memory() as mode, FlopCounterMode(display=False) as counter:
            piece = _fake(_cut(batch, batch.size, times), mode)
            _ = forward(model, piece) if plain else model(piece)
        return counter.get_total_flops()

    trained = [p for p in model.parameters() if p.requires_grad]
    try:
        # The counter looks for gradients where weights have them, and there are none to find.
        model.requires_grad_(False)
        return float(_over(len(batch.times), count))
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        if plain:
            raise
        return None  # it looks at numbers on its way, of which there are none
    finally:
        for p in trained:
            p.requires_grad_(True)


def training_bytes(model: Operator, batch: Batch) -> float:
    """The fewest bytes that a step must move.

    Inputs, positions and targets are read once, predictions written once; weights are read and
    written once, gradients written once, the optimiser's numbers read and written once.
    Activations are not counted: in principle they need never leave the chip.
    """
    weights = _bytes(p for p in model.parameters() if p.requires_grad)
    return _read(batch, targets=True) + _answer(model, batch) + weights * (2 + 1 + 2 * STATES)


def inference_bytes(model: Operator, batch: Batch) -> float:
    """The fewest bytes that an answer must move: inputs and weights read, predictions written."""
    return _read(batch, targets=False) + _answer(model, batch) + _bytes(model.parameters())


def _read(batch: Batch, *, targets: bool) -> float:
    found = [batch.points, batch.values, batch.parameters, batch.targets if targets else None]
    same = batch.points is batch.queries or batch.asked_where_seen
    # Queries at the input points are the same numbers: they need not be read twice.
    found += [] if same else [batch.queries]
    return _bytes(t for t in found if t is not None)


def _answer(model: Operator, batch: Batch) -> float:
    rows = batch.size * len(batch.times) * batch.queries.shape[-2]
    return float(rows * len(model.spec.outputs) * batch.values.element_size())


def _bytes(tensors: Iterable[Tensor]) -> float:
    return float(sum(t.numel() * t.element_size() for t in tensors))


@contextmanager
def _without_memory() -> Iterator[FakeTensorMode]:
    """Tensors that have a shape and no numbers, and attention by its formula."""
    with plainly(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


def _fake(batch: Batch, mode: FakeTensorMode) -> Batch:
    """The batch in shape only."""
    found = {f.name: getattr(batch, f.name) for f in fields(batch)}
    tensors: dict[str, Any] = {
        k: mode.from_tensor(v) for k, v in found.items() if isinstance(v, Tensor)
    }
    return replace(batch, **tensors)


def _over(size: int, count: Callable[[int], int]) -> int:
    """The count for a size from those for one and two: each further one adds the same."""
    if size <= 2:
        return count(size)
    one, two = count(1), count(2)
    return one + (size - 1) * (two - one)


def _cut(batch: Batch, size: int, times: int) -> Batch:
    """The first samples of a batch and the first of its times, which follow each other."""

    def own(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[:size]

    names = ("values", "parameters", "point_mask", "query_mask")
    rows: dict[str, Any] = {name: own(getattr(batch, name)) for name in names}
    queries = batch.queries[:size]
    return replace(
        batch,
        points=batch.points[:size],
        queries=queries[:, :times] if queries.ndim == 4 else queries,
        times=batch.times[:times],
        targets=None,
        weights=None,
        index=None,
        **rows,
    )
