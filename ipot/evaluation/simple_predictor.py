"""A simple predictor in the numbers that a model's wrapper holds (`ipot.models._blend`).

It is a regression on the principal components of the inputs (`ipot.evaluation.kernels`) at places
that are the same for all samples: their own where they share a mesh, common ones elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ipot.evaluation.kernels import Regression, regress_table
from ipot.evaluation.sample_tables import CommonPlaces, Table
from ipot.nn.globe import on_globe
from ipot.spec import Spec

FEWEST = 10
"""Samples that it takes to hold some out."""
LARGEST = 2e7
"""Numbers of components or of fields that a model carries along."""


@dataclass(frozen=True, eq=False)
class SimplePredictor:
    """A fitted predictor, and the sizes that a model's facts name it by."""

    regression: Regression
    sizes: tuple[int, ...]
    tensors: dict[str, Tensor]

    @property
    def kind(self) -> str:
        """Its name."""
        return "kernel regression" if self.regression.choice.length > 0 else "linear model"

    def describe(self) -> str:
        """What it is, in words."""
        return f"a {self.kind} on {self.regression.choice.count} principal components of the inputs"


def simple_predictor(found: Sequence[Table], spec: Spec) -> SimplePredictor | None:
    """The predictor from the training data in tables; None where there is none of worth."""
    kinds = ((t, t.frame) for t in found if isinstance(t.frame, CommonPlaces))
    table, frame = next(((t, f) for t, f in kinds if not f.shape_counts), (None, None))
    if table is None or frame is None or len(table) < FEWEST:
        return None
    times, places, channels = table.shape
    first = table.data[0]
    if frame.queries.ndim != 2 or times != spec.steps or not table.width:
        return None
    # Two hundred components at the least, of fields and of inputs.
    if 200 * max(table.width, times * places * channels) > LARGEST:
        return None
    fitted = regress_table(table)
    if fitted.choice.is_mean:
        return None
    points, queries = frame.points, frame.queries
    if spec.geographic:
        points, queries = on_globe(points), on_globe(queries)
    points = points if spec.channels else points[:0]
    shape = (times, places, channels)
    mean, fields = fitted.mean.view(shape), fitted.fields.view(-1, *shape)
    centre, factor = table.standards()
    weights = fitted.weights.float()
    tensors = {
        "places": points.to(first.truth.dtype),
        "queries": queries.to(first.truth.dtype),
        "centre": centre,
        "scale": factor,
        "basis": fitted.basis,
        "known": fitted.known,
        "weights": weights,
        "rest": fitted.weights - weights.double(),
        "length": torch.tensor(fitted.choice.length),
        "mean": mean,
        "fields": fields,
    }
    sizes = (len(points), places, fitted.basis.shape[1], len(fitted.known), len(fields))
    return SimplePredictor(fitted, sizes, tensors)
