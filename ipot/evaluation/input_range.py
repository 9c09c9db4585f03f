"""A warning that names the input channels which are far outside of their range in training."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ipot.data.own_layout import Layout
from ipot.data.quantities import looks_like
from ipot.models._wrappers import Normalized
from ipot.models.base import Operator
from ipot.samples import Sample
from ipot.spec import Spec

MARGIN = 3.0
"""Times the range of training that inputs may lie outside of it before that is remarked on."""
DEVIATIONS = 20.0
"""Standard deviations from the mean that stand for this, in models that do not know their range."""

Ends = tuple[Tensor, Tensor]
"""The smallest and the largest number of every channel, in float64."""


def seen_in_training(model: Operator, layout: Layout | None = None) -> dict[str, Ends]:
    """The range of values and parameters in training, from the layout of a model or its scales."""
    found: dict[str, Ends] = {}
    scales = next((m for m in model.modules() if isinstance(m, Normalized)), None)
    for name, prefix in (("values", "input"), ("parameters", "parameter")):
        low, high = ((), ()) if layout is None else layout.span(name)
        if low:
            found[name] = torch.tensor(low).double(), torch.tensor(high).double()
        elif scales is not None:
            mean, scale = (
                getattr(scales, f"{prefix}_{n}").double().cpu() for n in ("mean", "scale")
            )
            # Half of it on either side, and once more as a margin.
            reach = DEVIATIONS * scale / (1 + 2 * MARGIN)
            found[name] = mean - reach, mean + reach
    return found


def ends_of(samples: Iterable[Sample]) -> dict[str, Ends]:
    """The range of values and parameters in samples; a tensor that they share is read once."""
    found: dict[str, Ends] = {}
    read: set[int] = set()
    for sample in samples:
        for name in ("values", "parameters"):
            column = getattr(sample, name)
            if column is None or not column.numel() or id(column) in read:
                continue
            read.add(id(column))
            low, high = torch.aminmax(column.reshape(-1, column.shape[-1]), dim=0)
            if name in found:
                low, high = torch.minimum(low, found[name][0]), torch.maximum(high, found[name][1])
            found[name] = low, high
    return {n: (low.double().cpu(), high.double().cpu()) for n, (low, high) in found.items()}


def warn_unlike(
    given: dict[str, Ends],
    seen: dict[str, Ends],
    spec: Spec,
    layout: Layout | None = None,
    *,
    stacklevel: int = 3,
) -> None:
    """Give one warning that names the channels which are far outside of their range in training."""
    said = []
    for name, labels, units in (
        ("values", spec.inputs, spec.input_units),
        ("parameters", spec.parameters, spec.parameter_units),
    ):
        if name not in given or name not in seen:
            continue
        (low, high), (least, most) = given[name], seen[name]
        if len(low) != len(least):
            continue  # of another model, which is refused by name where the batch is looked at
        # A channel that never changed says nothing of its range, but any other value is new.
        margin = torch.where(most > least, MARGIN * (most - least), 1e-3 * most.abs())
        far = (low < least - margin) | (high > most + margin)
        scaling = None if layout is None else layout.scaling(name)
        for i, label in enumerate(labels):
            ends = [_given(scaling, end, i) for end in (low, high, least, most)]
            other = None
            if i < len(units):
                other = looks_like(units[i], (ends[0], ends[1]), (ends[2], ends[3]))
            if not far[i] and other is None:
                continue
            unit = f" {units[i]}" if i < len(units) else ""
            said.append(
                f"{label} ({name}) goes from {ends[0]:.6g} to {ends[1]:.6g}, in training from "
                f"{ends[2]:.6g} to {ends[3]:.6g}{unit}"
                + (f": this looks like {other}" if other is not None else "")
            )
    if said:
        warnings.warn(
            f"inputs far outside of those that the model has seen: {'; '.join(said)}. The answer "
            "is an extrapolation, not to be trusted; check the units.",
            stacklevel=stacklevel,
        )


def _given(scaling: Any, numbers: Sequence[float] | Tensor, channel: int) -> float:
    """A number in the units that it was given in."""
    held = float(numbers[channel])
    return held if scaling is None else held * scaling.scale[channel] + scaling.offset[channel]
