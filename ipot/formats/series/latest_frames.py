"""The latest frames of labelled arrays, as a model takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipot.data.layout import Layout
from ipot.data.quantities import Agreement
from ipot.data.scaling import Scaling, Span
from ipot.errors import DataError
from ipot.formats.roles import TIMES
from ipot.formats.series import clock as clocks
from ipot.formats.series.clock import OFF
from ipot.formats.series.description import Series
from ipot.formats.series.places import Places, in_order
from ipot.formats.series.variables import (
    Key,
    NothingSeen,
    Variables,
    channels_of,
    coordinates_in_units,
    fields_in_units,
    input_jobs,
    key_of,
    read_jobs,
    variables_of,
)
from ipot.formats.xarray_files import UNNAMED, as_dataset, names_of, values_of


@dataclass(frozen=True, kw_only=True, eq=False)
class LatestFrames:
    """What one prediction is made from."""

    points: np.ndarray
    """(N, D)"""
    values: np.ndarray
    """(N, C)"""
    parameters: np.ndarray | None
    """(P)"""
    last: Any
    """The time of the last frame, or the label of the sample where there is no time."""
    places: Places | None
    """Where the inputs are, those without values included."""
    label: Any = None
    """What the sample is called in its dimension, where it has names."""


def to_batch(series: Series, frames: Any, layout: Layout | None = None) -> list[LatestFrames]:
    """The latest frames of labelled arrays as a model takes them, for every sample there is; values
    and parameters in the units of a layout, if given."""
    data = by_trained_names(series, as_dataset(frames, "frames"))
    if series.clock is not None and series.clock.kind == "duration":
        data = data.drop_vars("valid_time", errors="ignore")  # steps are what was counted
    names = (*series.inputs, *series.scalars, *series.static)
    agreed = Agreement("the model")
    data = coordinates_in_units(data, series.units, agreed, "the frames given")
    time = _time_of(data, series)
    sample = series.sample if series.sample in data.dims else None
    if time is None and sample is None:
        sample = series.sample or "sample"
        moving = [n for n in (*series.inputs, *series.scalars) if sample not in data[n].dims]
        data = data.assign({n: data[n].expand_dims(sample) for n in moving})
    columns = series.columns if all(c in data.variables for c in series.columns) else None
    side = variables_of(
        data, names_of("inputs", names, data), "inputs", time, sample, columns or None
    )
    side = replace(side, places=in_order(side.places, series.columns))
    _refuse_places(series, side)
    _refuse_kinds(series, side)
    side = fields_in_units(side, series.units, agreed, "the frames given")
    agreed.say()
    numbers, last = _latest(series, side)
    members = np.arange(side.members)
    named = sample is not None and sample in data.coords
    labels = list(values_of(data[sample])) if named else [None] * side.members
    if series.clock is not None:
        numbers = members[:, None] * len(side.axis.times if side.axis else ()) + numbers
        lasts = [last] * side.members
    else:
        numbers = members[:, None]
        lasts = labels if named else list(members)
    values, scalars, moving, still = input_jobs(side, numbers, members)
    found = _scalings(side, series.history, layout or Layout())
    seen = read_jobs([*moving, *still], scalings=found)
    _refuse_too_large({key: one.span for key, one in seen.items()}, found)
    if series.season and series.clock is not None:
        angle = clocks.season(np.asarray([last]), series.clock.kind)
        beside = np.stack([np.cos(angle), np.sin(angle)], 1)
        scalars = np.concatenate([scalars, np.repeat(beside, len(scalars), 0)], 1)
    points = None if side.places is None else side.places.points(series.west)
    width = len(series.target_columns)
    found = [
        _one(points, v, s.astype(np.float32), last, side.places, width)
        for v, s, last in zip(values, scalars, lasts, strict=True)
    ]
    return [replace(f, label=label) for f, label in zip(found, labels, strict=True)]


def _scalings(side: Variables, history: int, layout: Layout) -> dict[Key, Scaling]:
    """The change of units of every variable, from those of the channels."""
    found: dict[Key, Scaling] = {}
    for fields, kind in zip(channels_of(side, history), ("values", "parameters"), strict=True):
        scaling = layout.scaling(kind)
        for i, field in enumerate(fields if scaling is not None else ()):
            assert scaling is not None
            found[key_of(field)] = Scaling((scaling.offset[i],), (scaling.scale[i],))
    return found


def _refuse_too_large(spans: dict[Key, Span], scalings: dict[Key, Scaling]) -> None:
    """Refuse numbers that float32 cannot hold: they would look like missing ones."""
    most = np.finfo(np.float32).max
    for key, span in spans.items():
        ends = np.array([span.low, span.high], float)
        scaling = scalings.get(key)
        held = ends if scaling is None else scaling.apply(ends)
        if (abs(held) > most).any():
            raise DataError(
                f"{key[1]} reaches from {span.low:g} to {span.high:g} in the frames given, far "
                "from all that the model was trained on: check its units"
            )


def by_trained_names(series: Series, data: Any) -> Any:
    """The data under the names that the model was trained with."""
    alone = len(series.inputs) == 1 and not series.static and not series.scalars
    # One of another name is another field; an array without a name can only be the input.
    if alone and list(data.data_vars) == [UNNAMED] and series.inputs[0] != UNNAMED:
        return data.rename({UNNAMED: series.inputs[0]})
    return data


def _time_of(data: Any, series: Series) -> str | None:
    """The dimension of time; one that is a single time is made again."""
    if series.clock is None:
        return None
    for name in dict.fromkeys((series.time, *TIMES)):
        if name in data.dims:
            return name
    raise DataError(
        f"frames must have the dimension {series.time}; there are "
        f"{', '.join(map(str, data.dims))}. Select with a list to keep it, like "
        f"ds.isel({series.time}=[-1])."
    )


def _refuse_places(series: Series, side: Variables) -> None:
    have = () if side.places is None else side.places.names
    globe = side.places is not None and side.places.geographic
    if len(have) != len(series.columns) or (have and globe != series.geographic):
        raise DataError(
            f"frames are at ({', '.join(have)}); the model takes ({', '.join(series.columns)})"
        )


def _refuse_kinds(series: Series, side: Variables) -> None:
    """Refuse variables that make other channels than in training, as after a broadcast."""
    wanted = len(series.inputs) * series.history + len(series.static), len(series.scalars)
    values, numbers = channels_of(side, series.history)
    if (len(values), len(numbers)) == (wanted[0], wanted[1] * series.history):
        return
    frame = side.time or side.sample
    kinds = {
        f"places and {frame}": (series.inputs, side.moving),
        f"{frame} and no places": (series.scalars, side.scalars),
        f"places and no {frame}": (series.static, side.still),
    }
    said = [
        f"{field.name} has {kind}, unlike in training"
        for kind, (names, found) in kinds.items()
        for field in found
        if field.name not in names
    ]
    raise DataError(
        f"frames: {'; '.join(said)}. Give every variable with the dimensions that it was trained "
        "with (`ds.where` gives all of them those of its condition)."
    )


def _latest(series: Series, side: Variables) -> tuple[np.ndarray, Any]:
    """Where in the file the frames of a forecast are, oldest first, and the last time."""
    clock, axis = series.clock, side.axis
    if clock is None or axis is None:
        return np.zeros(1, int), None
    times = axis.times
    kind = clocks.kind_of(times, axis.name)  # before anything is compared: it may be text
    last = times.max()
    back = -series.every * np.arange(series.history)[::-1]
    if axis.dated and clock.kind == kind:
        steps = clock.count(times, last)
    elif not axis.dated:
        steps = (times - last).astype(float)
    else:
        raise DataError(f"{axis.name} holds other times than those trained on ({clock.kind})")
    found = []
    for step in back:
        here = np.flatnonzero(np.abs(steps - step) <= OFF)
        if len(here) != 1:
            how = "missing" if not len(here) else "there twice"
            wanted = clock.after(last, int(step)) if axis.dated else f"frame {step}"
            raise DataError(
                f"a prediction needs {series.history} frames, {series.every} x {clock} apart, up "
                f"to {clocks.said(last)}; that of {clocks.said(wanted)} is {how}. "
                f"Frames given: {len(times)}."
            )
        found.append(int(here[0]))
    return np.array(found), last


def _one(
    points: np.ndarray | None,
    values: np.ndarray,
    scalars: np.ndarray,
    last: Any,
    places: Places | None,
    width: int,
) -> LatestFrames:
    """Without the points that miss a value."""
    if not np.isfinite(scalars).all():
        raise NothingSeen("a parameter is missing (NaN) in the frames given")
    parameters = scalars if len(scalars) else None
    if points is None:
        empty = np.zeros((0, width)), np.zeros((0, 0), np.float32)
        return LatestFrames(
            points=empty[0], values=empty[1], parameters=parameters, last=last, places=None
        )
    seen = np.isfinite(values).all(1)
    if not seen.any():
        raise NothingSeen("every input place misses a value (NaN) in the frames given")
    return LatestFrames(
        points=points[seen], values=values[seen], parameters=parameters, last=last, places=places
    )
