"""Forecasts that need no model, to hold one against: the last frame again, and the season alone.

Both are scored by the code that scores models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ipot.data.dataset import Ragged, Stacked
from ipot.data.layout import Layout
from ipot.data.own import Dataset
from ipot.data.scaling import Scaling
from ipot.evaluation.evaluate import Scores, chosen, score
from ipot.formats.series.cycle import Cycle
from ipot.samples import Sample
from ipot.spec import Spec, frame_name


def score_forecasts(
    data: Dataset,
    held: Stacked | Ragged,
    layout: Layout,
    cycle: Cycle | None = None,
    scored: Sequence[int] | None = None,
) -> dict[str, Scores]:
    """The scores of simple forecasts of `held`, the samples of `data` as a model counts them; of
    some of the outputs alone where they are `scored`.

    persistence   where the last frame of the targets is among the inputs, at the same places
    climatology   where the season of the training data is known, at the same places
    """
    found: dict[str, Scores] = {}
    wanted = range(len(data.spec.outputs)) if scored is None else scored
    channels = last_frame(data.spec, layout)
    if channels is not None and _same_places(held):
        found["persistence"] = score(
            chosen(_pairs(held, _persistence(held, layout, channels)), wanted)
        )
    season = None if data.in_time is None else data.in_time.season
    if cycle is not None and season is not None and held.stacked:
        places = held[0].queries.cpu()
        if places.shape == cycle.places.shape and np.allclose(places, cycle.places, atol=1e-5):
            forecasts = (torch.from_numpy(cycle.at(row)) for row in season)
            found["climatology"] = score(chosen(_pairs(held, forecasts), wanted))
    return found


def last_frame(spec: Spec, layout: Layout) -> list[int] | None:
    """The channels that are the targets in the last frame that goes in; None where they are not."""
    if not layout.timed:
        return None
    found = []
    for name in spec.outputs:
        called = (frame_name(name, 0), f"{name}(t-0)", f"{name}[0]", name)
        at = [spec.inputs.index(n) for n in called if n in spec.inputs]
        found += at[:1]
    return found if len(found) == len(spec.outputs) else None


def _same_places(held: Stacked | Ragged) -> bool:
    return all(
        s.points.shape == s.queries.shape and torch.equal(s.points, s.queries)
        for s in ([held[0]] if held.stacked else (held[i] for i in range(len(held))))
    )


def _persistence(
    held: Stacked | Ragged, layout: Layout, channels: list[int]
) -> Iterator[torch.Tensor]:
    own, asked = layout.scaling("values"), layout.scaling("targets")
    if own is not None:
        own = Scaling(tuple(own.offset[i] for i in channels), tuple(own.scale[i] for i in channels))
    for i in range(len(held)):
        last = held[i].values[:, channels].cpu().double()
        if own is not None or asked is not None:
            plain = last.numpy() if own is None else own.undo(last, "values")
            plain = plain if asked is None else asked.apply(plain)
            last = torch.from_numpy(np.ascontiguousarray(plain)).double()
        yield last.expand(len(held[i].times), -1, -1)


def _pairs(held: Stacked | Ragged, forecasts: Iterator[torch.Tensor]) -> Iterator[tuple]:
    for i, forecast in enumerate(forecasts):
        sample: Sample = held[i]
        weights = None if sample.weights is None else sample.weights.cpu().unsqueeze(0)
        yield forecast.unsqueeze(0), sample.truth.cpu().unsqueeze(0), None, weights
