"""The simple predictor that a network may start from, in the numbers that its wrapper holds.

Where all samples share their points and their queries, that is a regression on the principal
components of the inputs (`ipot.evaluation.kernels`). It is worth starting from only if it knows
something of samples that it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ipot.data.dataset import Dataset, Stacked
from ipot.data.statistics import Moments, Statistics
from ipot.evaluation.kernels import Regression, regress_fields
from ipot.evaluation.principal_components import Matrix
from ipot.evaluation.sample_tables import tables
from ipot.nn.globe import on_globe
from ipot.spec import Spec

WORTH = 0.9
"""Of the mean field's error, on samples held out: a predictor that is no better than this is not
started from."""
FEWEST = 10
"""Samples that it takes to hold some out."""
LARGEST = 2e7
"""Numbers of components or of fields that a model carries along."""


@dataclass(frozen=True, eq=False)
class SimpleStart:
    """A fitted predictor, and the sizes that a model's facts name it by."""

    regression: Regression
    sizes: tuple[int, ...]
    tensors: dict[str, Tensor]

    def describe(self) -> str:
        """What it is, in a line."""
        kind = "a kernel regression" if self.regression.choice.length > 0 else "a linear model"
        return (
            f"start: {kind} on {self.regression.choice.count} components of the inputs; the "
            "network learns the departure from it"
        )

    def departures(self, data: Dataset, statistics: Statistics) -> Statistics:
        """The scales of data whose outputs are departures from it."""
        found, mean, fields = Moments(), self.tensors["mean"], self.tensors["fields"]
        held, start = self.tensors["held_out"], 0
        for _, truth, _ in data.columns():
            some = held[start : start + len(truth)]
            start += len(truth)
            found.add(truth.cpu().double() - mean - torch.einsum("bq,qtmk->btmk", some, fields))
        own = {"output_mean": found.mean(), "output_scale": found.scale()}
        return Statistics(**statistics.tensors() | own)


def simple_start(train: Dataset, spec: Spec) -> SimpleStart | None:
    """What a network may start from; None where there is nothing of worth."""
    if not isinstance(train, Stacked) or not train.one_mesh or len(train) < FEWEST:
        return None
    whole = train.to("cpu").data
    times, places, channels = whole.truth.shape[1:]
    seen = whole.points.shape[1] if spec.channels else 0
    width = seen * spec.channels + len(spec.parameters)
    if times != spec.steps or whole.queries.ndim != 3 or not width:
        return None
    # Two hundred components at the least, of fields and of inputs.
    if 200 * max(width, times * places * channels) > LARGEST:
        return None
    (table,) = tables(train, spec)
    targets = whole.truth.flatten(1)
    size = whole.truth.double().square().mean((0, 1, 2)).sqrt()
    scale = torch.where(size > 0, 1 / torch.where(size > 0, size, 1.0), 1.0)
    found = regress_fields(
        Matrix(len(table), table.width, table.inputs),
        Matrix(len(table), targets.shape[1], lambda rows: targets[rows].double()),
        scale.repeat(times * places),
    )
    if found.choice.is_mean or not found.error < WORTH * found.mean_error:
        return None
    points, queries = whole.points[0], whole.queries[0]
    if spec.geographic:
        points, queries = on_globe(points), on_globe(queries)
    shape = (times, places, channels)
    mean, fields = found.mean.view(shape), found.fields.view(-1, *shape)
    # What is one number in all samples is that number, and not what rounding makes of it.
    low, high = torch.aminmax(whole.truth.flatten(0, 2), dim=0)
    mean = torch.where(low == high, low.double(), mean)
    fields = fields.masked_fill(low == high, 0.0)
    centre, factor = table.standards()
    weights = found.weights.float()
    tensors = {
        "places": points if spec.channels else points[:0],
        "queries": queries,
        "centre": centre,
        "scale": factor,
        "basis": found.basis,
        "known": found.known,
        "weights": weights,
        "rest": found.weights - weights.double(),
        "length": torch.tensor(max(found.choice.length, 0.0)),
        "mean": mean,
        "fields": fields,
        "held_out": found.held_out,
    }
    sizes = (seen, places, found.basis.shape[1], len(found.known), len(found.fields))
    return SimpleStart(found, sizes, tensors)
