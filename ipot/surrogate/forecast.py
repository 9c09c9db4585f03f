"""Predictions for labelled arrays: answers have their dimensions, units and times.

frames = to_batch(series, ds)[0]                    # points, values, parameters, the last time
places = asked_places(series, on, frames)           # where to ask
queries = places.queries(series.west)
forecast = to_xarray(series, prediction, places, frames.last)

`forecast` answers from the latest frames, `forecast_every_time` from every time of a series, into
memory or into a file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ipot import files
from ipot.data.arrays import tensor
from ipot.data.quantities import Agreement
from ipot.errors import DataError, RunError, Unsupported, shown
from ipot.formats.roles import TIMES, role_named, role_of
from ipot.formats.series.clock import OFF, in_one_unit
from ipot.formats.series.description import Series
from ipot.formats.series.latest_frames import LatestFrames, by_trained_names, to_batch
from ipot.formats.series.places import Places, assemble
from ipot.formats.series.variables import NothingSeen, coordinates_in_units
from ipot.formats.xarray_files import as_dataset, values_of, xarray
from ipot.samples import Sample
from ipot.surrogate.answers import BOUNDS
from ipot.surrogate.inputs import in_given_units, times_of
from ipot.version import __version__

_GLOBE = ("longitude", "latitude")


def asked_places(series: Series, on: Any = None, frames: LatestFrames | None = None) -> Places:
    """The places to predict at: those of `on`, of the targets in training, or of the inputs.

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
    agreed.say()
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

    Several predictions (S, T, M, K) lie along the dimension of samples, with labels from `last` if
    there is no time. Places without values are NaN.
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
    """The times of the frames, and the time of the last known frame."""
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
    """The coordinates in `on`, as a data set."""
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
    """A coordinate, found by its name or by its role, such as latitude."""
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
    """A prediction and its bounds, if any, as one data set: u, u_low and u_high."""
    whole = as_dataset(parts[0], "prediction")
    for part, suffix in zip(parts[1:], BOUNDS, strict=False):
        part = as_dataset(part, "bounds")
        whole = whole.assign({f"{name}{suffix}": part[name] for name in part.data_vars})
    return whole


def forecast_every_time(
    model: Any,
    series: Series,
    source: Any,
    *,
    level: float | None = None,
    out: Path | None = None,
    **how: Any,
) -> Any:
    """The answers of a `Surrogate` from every time that has its history, as one xarray data set.

    Their first dimension is the time of the last input frame, and with a lead the second is the
    step from there. With `out` they are written to that netCDF file one by one and never held
    whole. If all inputs of a time are missing, so is its answer.
    """
    given = as_dataset(source, "frames")
    if out is not None:
        _refuse_own_input(out, (given, how.get("on")))
    data = by_trained_names(series, given)
    time, windows, lasts = _windows(series, data)
    found = _answers(model, series, data, time, windows, level, how)
    index, first = next(found, (0, None))
    if first is None:
        raise DataError("every input place misses a value (NaN) at every time")
    frame = _frame(series, time, lasts, first)
    dims = (time, *(["step"] if series.lead else []), *map(str, first[next(iter(first))].dims[1:]))
    sizes = {**first.sizes, **frame.sizes}
    shape = tuple(sizes[d] for d in dims)
    if out is None:
        held = {str(n): np.full(shape, np.nan, a.dtype) for n, a in first.data_vars.items()}
        _fill(held, series, chain([(index, first)], found))
        return frame.assign({n: (dims, held[str(n)], a.attrs) for n, a in first.data_vars.items()})
    with netcdf_written(out) as temporary:
        frame.to_netcdf(temporary, engine="netcdf4")
        with importlib.import_module("netCDF4").Dataset(temporary, "a") as file:
            held = {str(n): _variable(file, str(n), a, dims) for n, a in first.data_vars.items()}
            _fill(held, series, chain([(index, first)], found))
    return xarray().open_dataset(out)


@contextmanager
def netcdf_written(out: Path) -> Iterator[Path]:
    """A temporary path, renamed to `out` when everything has been written."""
    try:
        with files.atomic(out) as temporary:
            yield temporary
    except (OSError, RuntimeError) as error:  # the second where netCDF meets a full disk
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"cannot write {out}: {reason}. Make room or choose another place."
        ) from error


def _refuse_own_input(out: Path, sources: Iterable[Any]) -> None:
    """Refuse to write the answers over a file that they are made from."""
    for source in sources:
        if isinstance(source, str | Path):
            origins = {str(source)}
        elif hasattr(source, "coords"):
            held = [source, *getattr(source, "variables", source.coords).values()]
            origins = {str(one.encoding["source"]) for one in held if "source" in one.encoding}
        else:
            continue
        if out.resolve() in {Path(origin).resolve() for origin in origins}:
            raise DataError(f"out={out} is among the inputs: choose another place")


def _fill(held: dict[str, Any], series: Series, found: Iterable[tuple[int, Any]]) -> None:
    """Write every answer to its place in the file."""
    for index, answer in found:
        for name, place in held.items():
            values = answer[name].values
            place[index] = values if series.lead else values[0]


def _variable(file: Any, name: str, like: Any, dims: tuple[str, ...]) -> Any:
    """A new variable of a netCDF file, empty."""
    made = file.createVariable(name, like.dtype, dims, fill_value=like.dtype.type(np.nan))
    made.setncatts({key: value for key, value in like.attrs.items() if key != "_FillValue"})
    return made


def _windows(series: Series, data: Any) -> tuple[str, list[np.ndarray], list[Any]]:
    """The dimension of time, and for each time with its history where its frames are."""
    clock = series.clock
    if clock is None:
        raise Unsupported(
            "the model was trained on samples without time, and answers all of them as it is: "
            "leave out all_times (--all-times)"
        )
    if series.sample and series.sample in data.dims:
        raise Unsupported(
            f"all times are answered of one series, and there are several along {series.sample}: "
            f"select one, like ds.isel({series.sample}=0)"
        )
    time = next((n for n in dict.fromkeys((series.time, *TIMES)) if n in data.dims), None)
    if time is None:
        raise DataError(f"frames must have the dimension {series.time}; there is none")
    dated = time in data.coords
    times = values_of(data[time]) if dated else np.arange(data.sizes[time])
    steps = clock.count(times, times.min()) if dated else times.astype(float)
    # Each time looks for its own history: a series may go on at other hours than it began with.
    known, latest = np.unique(steps[::-1], return_index=True)  # of times that are twice the last
    rows = len(steps) - 1 - latest
    back = np.array([series.every * i for i in reversed(range(series.history))])
    near = _nearest(known, known[:, None] - back)
    whole = (np.abs(known[near] - (known[:, None] - back)) <= OFF).all(axis=1)
    if not whole.any():
        raise DataError(
            f"no time has its history: {series.history} frames, {series.every} x {clock} apart, "
            f"among the {len(times)} given"
        )
    return time, list(rows[near[whole]]), [times[i] for i in rows[whole]]


def _nearest(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each `wanted` number, which of the `known` ones, which are sorted, is nearest."""
    right = np.searchsorted(known, wanted).clip(0, len(known) - 1)
    left = (right - 1).clip(0)
    return np.where(wanted - known[left] < known[right] - wanted, left, right)


def _answers(
    model: Any,
    series: Series,
    data: Any,
    time: str,
    windows: list[np.ndarray],
    level: float | None,
    how: dict[str, Any],
) -> Iterator[tuple[int, Any]]:
    """The number of each time that has inputs, and its answer."""
    for index, rows in enumerate(windows):
        frames = data.isel({time: rows}).load()
        try:
            parts = forecast(model, series, frames, level=level, **how)
        except NothingSeen:
            continue
        yield index, named_bounds(parts)


def _frame(series: Series, time: str, lasts: list[Any], first: Any) -> Any:
    """A data set with coordinates only."""
    ahead = series.target_time or series.time or "time"
    places = {n: c for n, c in first.coords.items() if n != "forecast_reference_time"}
    own = {n: c.variable for n, c in places.items() if ahead not in c.dims}
    clock, xr = series.clock, xarray()
    assert clock is not None
    known = in_one_unit(lasts) if clock.kind in ("dates", "duration") else np.asarray(lasts)
    dated = clock.kind in ("dates", "cftime")
    attrs = {"standard_name": "time", "axis": "T"} if dated else {}
    if not series.lead:
        return xr.Dataset(coords={**own, time: (time, known, attrs)}, attrs=first.attrs)
    count = first.sizes[ahead]
    steps = [series.every * (i + 1) for i in range(count)]
    valid = [clock.after(last, s) for last in lasts for s in steps]
    shape = (len(lasts), count)
    flat = in_one_unit(valid) if clock.kind in ("dates", "duration") else np.asarray(valid)
    step = np.array([clock.step * s for s in steps])
    if clock.unit == "seconds":
        step = (1e9 * step).round().astype("timedelta64[ns]")
    told = {"standard_name": "forecast_reference_time"} if dated else {}
    coords = {
        **own,
        time: (time, known, {**told, "long_name": "time of the last input"}),
        "step": ("step", step, {"long_name": "from the last input to the answer"}),
        "valid_time": ((time, "step"), flat.reshape(shape), attrs),
    }
    return xr.Dataset(coords=coords, attrs=first.attrs)
