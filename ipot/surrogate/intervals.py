"""Intervals around answers: which levels a model can vouch for, and the bounds at a level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ipot.data.own import Layout
from ipot.errors import DataError, Unsupported, shown
from ipot.evaluation.conformal import Conformal
from ipot.samples import Sample
from ipot.spec import Spec
from ipot.surrogate.inputs import times_of

BOUNDS = ("_low", "_high")
"""What the bounds of a channel are called by, behind its name, where they have names."""


def usable_bounds(bounds: Conformal | None, level: Any, *, fitted: bool) -> Conformal:
    """The bounds of a model, if it has any that can vouch for a level; `fitted` says that samples
    were to be held out of its training for them."""
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
            f"{bounds.highest_level:.3g} at the most. Ask for less, or make bounds from more "
            "samples by `model.calibrate(data)`."
        )
    return bounds


def refuse_taken_names(outputs: Sequence[str]) -> None:
    """Refuse outputs with the names that bounds have: those of u are called u_low and u_high."""
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
