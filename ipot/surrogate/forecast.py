"""A trained model on labelled arrays: the answer has their dimensions, units and times.

frames = to_batch(series, ds)[0]                    # points, values, parameters, the last time
places = asked_places(series, on, frames)           # where to ask
queries = places.queries(series.west)
forecast = to_xarray(series, prediction, places, frames.last)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ipot.data.own_arrays import tensor
from ipot.data.quantities import Agreement
from ipot.errors import DataError, shown
from ipot.formats.roles import role_named, role_of
from ipot.formats.series.clock import in_one_unit
from ipot.formats.series.description import Series
from ipot.formats.series.latest_frames import LatestFrames, to_batch
from ipot.formats.series.places import Places, assemble
from ipot.formats.series.variables import coordinates_in_units
from ipot.formats.xarray_files import as_dataset, xarray
from ipot.samples import Sample
from ipot.surrogate.inputs import in_given_units, times_of
from ipot.surrogate.intervals import BOUNDS
from ipot.version import __version__

_GLOBE = ("longitude", "latitude")


def asked_places(series: Series, on: Any = None, frames: LatestFrames | None = None) -> Places:
    """Where to ask: where `on` says, where the targets were, or where the inputs are.

    `on` has the coordinates of the targets: a data set or array, its coordinates, or a dict of
    arrays. Arrays along dimensions of their own make a grid, along a common one stations.
    """
    if on is None:
        if series.places is not None:
            return series.places
        seen = None if frames is None else frames.places
        if seen is not None and seen.names == series.target_columns:
            return seen
        raise DataError(
            f"on is needed: say where to predict, with {' and '.join(series.target_columns)}"
        )
    data, agreed = _coordinates(on), Agreement("the model")
    data = coordinates_in_units(data, series.units, agreed, "on")
    agreed.say(stacklevel=4)
    columns = []
    for place, name in enumerate(series.target_columns):
        role = _GLOBE[place] if series.geographic and place < 2 else None
        columns.append(_column(data, name, role or role_named(name)))
    dims = list(dict.fromkeys(str(d) for c in columns for d in c.dims))
    if series.places is not None and set(dims) == set(series.places.dims):
        dims = list(series.places.dims)  # as the targets of training had them, rows of y first
    return assemble(columns, dims, data, "on")


def to_xarray(
    series: Series,
    prediction: np.ndarray,
    places: Places,
    last: Any = None,
    labels: list[Any] | None = None,
) -> Any:
    """A prediction (T, M, K) as a data array, or as a data set where there are several targets.

    Several of them (S, T, M, K) go along the dimension of samples, with these labels; where there
    is no time, `last` are the labels. Places without values are NaN.
    """
    xr, prediction = xarray(), np.asarray(prediction)
    # float64 where the model counts in other units than the data: there it is needed.
    kind = np.dtype("float64" if prediction.dtype == np.float64 else "float32")
    prediction = prediction.astype(kind, copy=False)
    if prediction.ndim not in (3, 4):
        raise DataError(f"prediction must be (T, M, K) or (S, T, M, K), got {prediction.shape}")
    several, k = prediction.ndim == 4, len(series.targets)
    rows = len(places) if places.used is None else int(places.used.sum())
    if prediction.shape[-2:] != (rows, k):
        raise DataError(
            f"prediction has {prediction.shape[-2]} places and {prediction.shape[-1]} variables; "
            f"there are {rows} places and {k} targets ({', '.join(series.targets)})"
        )
    whole = prediction
    if places.used is not None:
        whole = np.full((*prediction.shape[:-2], len(places), k), np.nan, dtype=kind)
        whole[..., places.used, :] = prediction
    whole = whole.reshape(*prediction.shape[:-2], *places.shape, k)
    time, sample = series.target_time or series.time or "time", series.sample or "sample"
    coordinates = _along_places(xr, places)
    dims = ([sample] if several else []) + [time] + list(places.dims)
    if several and series.clock is None and last is not None:
        coordinates[sample] = (sample, np.asarray(last))
    elif several and labels is not None and all(label is not None for label in labels):
        coordinates[sample] = (sample, np.asarray(labels))
    if series.clock is None:
        whole = whole.squeeze(len(dims) - len(places.dims) - 1)
        dims.remove(time)
    else:
        final = last[0] if several and isinstance(last, list | tuple) else last
        coordinates |= _along_time(xr, series, time, final, prediction.shape[-3])
    variables = {}
    for i, name in enumerate(series.targets):
        attrs = {**series.attributes.get(name, {}), "history": f"predicted by ipot {__version__}"}
        variables[name] = xr.Variable(dims, whole[..., i], attrs)
        variables[name].encoding = {"dtype": kind.name, "_FillValue": kind.type(np.nan)}
    attrs = {"Conventions": "CF-1.8", "history": f"predicted by ipot {__version__}"}
    out = xr.Dataset(variables, coords=coordinates, attrs=attrs)
    for name in out.coords:
        if out[name].dtype.kind == "f":
            out[name].encoding["_FillValue"] = None  # a coordinate has no gaps
    return out if k > 1 else out[series.targets[0]]


def _along_places(xr: Any, places: Places) -> dict[str, Any]:
    found = {n: xr.Variable(d, v, dict(a)) for n, (d, v, a) in places.coordinates.items()}
    if places.geographic:
        for name, role, side in zip(places.names, _GLOBE, ("east", "north"), strict=False):
            said = {"standard_name": role, "units": f"degrees_{side}"}
            found[name].attrs = said | found[name].attrs
    return found


def _along_time(xr: Any, series: Series, name: str, last: Any, count: int) -> dict[str, Any]:
    """The times of the frames, and that of the last one that was known."""
    clock = series.clock
    assert clock is not None
    if last is None:
        raise DataError("last is needed: the time of the last frame that went in")
    steps = [series.every * (i + 1) for i in range(count)] if series.lead else [0]
    times = [clock.after(last, s) for s in steps]
    dated = clock.kind in ("dates", "cftime")
    if clock.kind in ("dates", "duration"):
        *times, known = in_one_unit([*times, last])
        values, known = np.array(times), np.asarray(known)
    else:
        values = np.array(times, dtype=object if clock.kind == "cftime" else None)
        known = np.empty((), dtype=values.dtype)
        known[()] = last
    attrs = {"standard_name": "time", "axis": "T"} if dated else {}
    found = {name: xr.Variable(name, values, attrs)}
    if dated and series.lead:
        said = {"standard_name": "forecast_reference_time", "long_name": "time of the last input"}
        found["forecast_reference_time"] = xr.Variable((), known, said)
    return found


def _coordinates(on: Any) -> Any:
    """What `on` says, as a data set."""
    xr = xarray()
    if isinstance(on, xr.Coordinates):
        return on.to_dataset()
    if isinstance(on, xr.DataArray):
        return on.coords.to_dataset()
    if not isinstance(on, xr.Dataset) and isinstance(on, Mapping):
        coords = {}
        for name, values in on.items():
            plain = not isinstance(values, tuple | xr.DataArray | xr.Variable)
            values = np.asarray(values) if plain else values
            if plain and values.ndim > 1:
                raise DataError(
                    f"on[{shown(name)}] has {values.ndim} axes: name them, like "
                    f"{{{shown(name)}: (('y', 'x'), array)}}"
                )
            coords[name] = (name, values) if plain and values.ndim == 1 else values
        return xr.Dataset(coords=coords)
    return as_dataset(on, "on")


def _column(data: Any, name: str, role: str | None) -> Any:
    """A coordinate by its name, or by what it is."""
    if name in data.variables:
        return data[name]
    found = [v for v in data.variables if role is not None and role_of(data[v]) == role]
    found = [v for v in found if v in data.coords] or found
    if not found:
        have = ", ".join(map(str, data.variables)) or "nothing"
        raise DataError(f"on must say {name}; it has {have}")
    return data[next((v for v in found if v in data.dims), found[0])]


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
