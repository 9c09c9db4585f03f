"""Samples answered together in bounded memory, and bounds around their answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.dataset import Ragged, Stacked
from ipot.data.own import Layout
from ipot.errors import DataError, Unsupported, shown
from ipot.evaluation.conformal import Conformal, calibrate
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.samples import Batch, Sample, collate
from ipot.spec import Spec
from ipot.surrogate.inputs import times_of

AT_ONCE = 16
"""Samples that are answered together, at most."""
ROWS_AT_ONCE = 1 << 20
"""Points, and queries times times, of samples that are answered together and padded to one size."""
WHOLE_ROWS = 1 << 21
"""Points, or queries times steps, that go to a GPU at once; more travel in chunks."""


def calibrated(model: Operator, data: Stacked | Ragged) -> Conformal:
    """Bounds from the errors of a model on samples that it has not seen. If all are asked at the
    same places, the bounds differ by place."""
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
    """The predicted fields of some samples, which are padded to one size in a batch.

    `rows` are the points or queries taken at once. The answer to a single sample is written to
    `out`, if given.
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
    """Samples as a batch. A single sample is not copied: it may be mapped from a file."""
    if len(samples) > 1:
        return collate(samples)
    given: dict[str, Any] = {f.name: getattr(samples[0], f.name) for f in fields(samples[0])}
    del given["units"]  # a batch has none
    for name, value in given.items():
        if isinstance(value, Tensor) and name != "edges":
            given[name] = value.unsqueeze(0)
    return Batch(**given | {"index": torch.tensor([samples[0].index])})


def pieces(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """Samples in groups that are answered together, small enough to be padded to their largest
    sample."""
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


BOUNDS = ("_low", "_high")
"""What is added to the name of a channel to name its bounds."""


def usable_bounds(bounds: Conformal | None, level: Any, *, fitted: bool) -> Conformal:
    """The bounds of a model for a level; refused if there are none. `fitted` says that its training
    held out samples for them."""
    if not isinstance(level, float | np.floating) or not 0 < level < 1:
        hint = ""
        if isinstance(level, int | float) and 1 < level < 100:
            hint = f": {level} % are interval={level / 100:g}"
        raise DataError(f"interval must lie between 0 and 1, like 0.9, got {shown(level)}{hint}")
    if bounds is None:
        why = ", since too few samples were held out of its training" if fitted else ""
        raise Unsupported(
            f"interval: this model has no bounds{why}. `model.calibrate(data)` makes them from "
            "samples that it was not trained on."
        )
    if level > bounds.highest_level + 1e-9:
        raise Unsupported(
            f"interval={level:g}: {bounds.samples} samples were held out, and can vouch for "
            f"{bounds.highest_level:.3g} at most. Ask for less, or make bounds from more "
            "samples by `model.calibrate(data)`."
        )
    return bounds


def refuse_taken_names(outputs: Sequence[str]) -> None:
    """Refuse outputs whose names clash with those of bounds: the bounds of u are u_low and
    u_high."""
    taken = [name for name in outputs for suffix in BOUNDS if f"{name}{suffix}" in outputs]
    if taken:
        raise Unsupported(
            f"interval: the bounds of {taken[0]} are called {taken[0]}_low and {taken[0]}_high, "
            "and the model has a channel of that name. Ask with arrays in Python, where bounds "
            "have no names, or train with other names of the outputs."
        )


def intervals(
    bounds: Conformal,
    level: float,
    samples: Sequence[Sample],
    answers: Sequence[Tensor],
    spec: Spec,
    layout: Layout,
) -> tuple[list[Tensor], list[Tensor]]:
    """The lower and the upper bounds of answers."""
    own = times_of(spec, layout)
    for sample in samples:
        if own[: len(sample.times)] != sample.times:
            raise Unsupported(
                f"interval: bounds are known at the times of training, {own}, and not at others: "
                "leave out steps=... or times=..."
            )
    both = [
        bounds.interval(answer, level, queries=sample.queries, spec=spec)
        for sample, answer in zip(samples, answers, strict=True)
    ]
    return [low for low, _ in both], [high for _, high in both]
