"""A fitted network and a simple predictor, blended where that helps on validation samples.

Both are fitted to the samples of training, each by itself, so that neither can spoil the other. How
much each counts is chosen, channel by channel, on the samples that chose the network's weights; the
simple predictor stays out where it hardly helps. Its part can be all: a model is not behind a
straight line for want of time.

The simple predictor is a regression on the principal components of the inputs
(`ipot.evaluation.regression`) at places that are the same for all samples: their own where they
share a mesh, common ones elsewhere. Its numbers are held by a wrapper (`ipot.models._blend`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.evaluation.metrics import typical_where_zero
from ipot.evaluation.predict import predictions
from ipot.evaluation.regression import Regression, regress_table
from ipot.evaluation.sample_tables import CommonPlaces, Table
from ipot.models._blend import Blend, beside_simple, within_globe
from ipot.models._wrappers import wrap_globe
from ipot.models.base import Operator
from ipot.nn.globe import on_globe
from ipot.recipes.own_data import Splits
from ipot.spec import Spec

FEWEST_TRAINED = 10
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
        """What the predictor is: a kernel regression or a linear model."""
        return "kernel regression" if self.regression.choice.length > 0 else "linear model"

    def describe(self) -> str:
        """What it is, in words."""
        return f"a {self.kind} on {self.regression.choice.count} principal components of the inputs"


def simple_predictor(found: Sequence[Table], spec: Spec) -> SimplePredictor | None:
    """The predictor from the training data in tables; None where there is none of worth."""
    kinds = ((t, t.frame) for t in found if isinstance(t.frame, CommonPlaces))
    table, frame = next(((t, f) for t, f in kinds if not f.shape_counts), (None, None))
    if table is None or frame is None or len(table) < FEWEST_TRAINED:
        return None
    times, places, channels = table.shape
    first = table.data[0]
    if frame.queries.ndim != 2 or times != spec.steps or not table.width:
        return None
    # Two hundred components at least, of fields and of inputs.
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


SHARES = torch.linspace(0, 1, 21, dtype=torch.float64)
"""Parts of the simple predictor that are tried."""
HELPS = 0.98
"""Of the network's error on validation samples: less of a gain is chance."""
FEWEST = 10
"""Validation samples that it takes: as many as are held out where some are kept for scores as well.
Fewer choose by chance, and nothing would tell."""


@dataclass(frozen=True, eq=False)
class Blended:
    """A network and a simple predictor, and how much each counts."""

    model: Operator
    """Both; the network alone where the simple predictor does not help."""
    spec: Spec
    line: str
    """What the blend is, in words; empty where there is none."""
    kind: str
    """What the simple predictor is."""
    shares: dict[str, float]
    """How much it counts, by the outputs that vary."""
    parts: dict[str, Operator]
    """The network and the simple predictor, each alone."""


def blended(
    model: Operator,
    spec: Spec,
    splits: Splits,
    known: Sequence[Table],
    channels: Sequence[int],
) -> Blended | None:
    """A fitted model blended with a simple predictor where that helps; None if there is none to
    compare it with. `known` are the training data in tables, `channels` the outputs that vary."""
    if splits.validation is splits.train or len(splits.validation) < FEWEST:
        return None
    found, device = simple_predictor(known, spec), next(model.parameters()).device
    if found is None:
        return None
    held = splits.validation.data.to(device)
    made = _beside(model, spec, found)
    simple = _alone(made)
    share = best_shares(model, simple, held, channels, device)
    parts = {"the network alone": model, f"{found.kind} alone": simple}
    shares = {spec.outputs[i]: float(share[i]) for i in channels}
    if not bool(share.any()):
        return Blended(model, spec, "", found.kind, shares, parts)
    _inside(made).share.copy_(share)
    line = _said(share, spec, found, channels, len(held))
    return Blended(made, made.spec, line, found.kind, shares, parts)


def best_shares(
    model: Operator,
    simple: Operator,
    data: Dataset,
    channels: Sequence[int],
    device: torch.device,
) -> Tensor:
    """The share (K) of the simple predictor with which the relative errors are least."""
    count = len(model.spec.outputs)
    sums: list[Tensor] = []
    pairs = zip(
        predictions(model, data, batch=8, device=device),
        predictions(simple, data, batch=8, device=device),
        strict=True,
    )
    for (batch, own), (_, other) in pairs:
        counts = torch.ones(own.shape[0], 1, own.shape[2], 1, dtype=torch.float64, device=device)
        if batch.weights is not None:
            counts = counts * batch.weights[:, None, :, None]
        if batch.query_mask is not None:
            counts = counts * batch.query_mask[:, None, :, None]
        truth = batch.truth.double()
        off = torch.where(counts > 0, own.double() - truth, 0.0)
        apart = torch.where(counts > 0, other.double() - own.double(), 0.0)
        truth = truth.where(counts > 0, 0.0)
        products = (off * off, off * apart, apart * apart, truth * truth)
        sums.append(torch.stack([_sum(p, counts) for p in products]).cpu())
    own_square, both, apart_square, size = torch.cat(sums, 1)
    unit = typical_where_zero(size.sqrt())  # a field of zeros has no relative error
    errors = torch.zeros(len(SHARES), count, dtype=torch.float64)
    for i, w in enumerate(SHARES):
        left = (own_square + 2 * w * both + w * w * apart_square).clamp_min(0)
        errors[i] = (left.sqrt() / unit).sum(0)
    best = errors.argmin(0)
    helps = errors.gather(0, best[None])[0] < HELPS * errors[0]
    varies = torch.zeros(count, dtype=torch.bool)
    varies[list(channels)] = True
    return torch.where(helps & varies, SHARES[best], 0.0)


def _sum(numbers: Tensor, counts: Tensor) -> Tensor:
    """(B, K), over times and queries."""
    return (numbers * counts).sum((1, 2))


def _beside(model: Operator, spec: Spec, found: SimplePredictor) -> Operator:
    """A model in degrees, blended with a simple predictor whose share is still zero."""
    inner = within_globe(model)
    own = inner.spec
    inner.spec = replace(own, simple=found.sizes)
    made = beside_simple(inner)
    inner.spec = own
    assert isinstance(made, Blend)
    made.spec = replace(own, simple=found.sizes)
    made.to(next(model.parameters()).device)
    made.take(found.tensors)
    return wrap_globe(made, replace(spec, simple=found.sizes)).eval()


def _inside(model: Operator) -> Blend:
    made = within_globe(model)
    assert isinstance(made, Blend)
    return made


class _Simple(Operator):
    """The simple predictor without the model beside it."""

    def __init__(self, blend: Operator) -> None:
        super().__init__(blend.config, blend.spec)
        self.whole: Any = blend

    def forward(self, batch):
        """The simple predictor's answer."""
        blend = _inside(self.whole)
        seen = batch if self.whole is blend else self.whole.seen(batch)
        steps = blend.steps(batch.times)
        return blend.simple(blend.coefficients(seen), steps, seen.queries)


def _alone(made: Operator) -> Operator:
    return _Simple(made).eval()


def _said(
    share: Tensor, spec: Spec, found: SimplePredictor, channels: Sequence[int], samples: int
) -> str:
    parts = [f"{100 * float(share[i]):.0f} %" for i in channels]
    names = [f"{p} of {spec.outputs[i]}" for p, i in zip(parts, channels, strict=True)]
    whole = parts[0] if len(set(parts)) == 1 else ", ".join(names)
    return (
        f"blended with {found.describe()}: it counts {whole}, by what was best on {samples} "
        "validation samples"
    )
