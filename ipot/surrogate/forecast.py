"""A trained model on labelled arrays: the answer has their dimensions, units and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ipot.data.own_arrays import tensor
from ipot.formats.series.answers import asked_places, to_xarray
from ipot.formats.series.description import Series
from ipot.formats.series.latest_frames import to_batch
from ipot.formats.xarray_files import as_dataset
from ipot.samples import Sample
from ipot.surrogate.inputs import in_given_units, times_of
from ipot.surrogate.intervals import BOUNDS


def forecast(
    model: Any,
    series: Series,
    source: Any,
    *,
    on: Any = None,
    steps: int | None = None,
    level: float | None = None,
    **how: Any,
) -> list[Any]:
    """The prediction of a `Surrogate` from the latest frames, and its bounds where a level is
    asked for; `how` are other arguments of `Surrogate.answers`."""
    frames = to_batch(series, source, model.layout)
    places = asked_places(series, on, frames[0])
    layout = model.layout
    queries = tensor("queries", places.queries(series.west), layout.scaling("queries"))
    times = times_of(model.spec, model.layout, steps)
    samples = [
        Sample(
            points=tensor("points", f.points, layout.scaling("points") if len(f.points) else None),
            values=tensor("values", f.values),
            queries=queries,
            times=times,
            parameters=None if f.parameters is None else tensor("parameters", f.parameters),
        )
        for f in frames
    ]
    answers = model.answers(samples, **how)
    found: list[list[Tensor]] = [answers]
    if level is not None:
        found += model.around(samples, answers, level)
    several = len(frames) > 1 or (bool(series.sample) and series.sample in source.dims)
    last = [f.last for f in frames] if several else frames[0].last
    return [
        to_xarray(
            series,
            np.stack([in_given_units(layout, a) for a in each])
            if several
            else in_given_units(layout, each[0]),
            places,
            last,
            [f.label for f in frames],
        )
        for each in found
    ]


def named_bounds(parts: Sequence[Any]) -> Any:
    """A prediction, and its bounds where there are any, as one data set: u, u_low and u_high."""
    whole = as_dataset(parts[0], "prediction")
    for part, suffix in zip(parts[1:], BOUNDS, strict=False):
        part = as_dataset(part, "bounds")
        whole = whole.assign({f"{name}{suffix}": part[name] for name in part.data_vars})
    return whole
