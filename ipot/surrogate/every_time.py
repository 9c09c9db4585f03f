"""Forecasts from every time of a series, not only the last, into memory or into a file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ipot import files
from ipot.errors import DataError, RunError, Unsupported
from ipot.formats.roles import TIMES
from ipot.formats.series.clock import OFF, in_one_unit
from ipot.formats.series.description import Series
from ipot.formats.series.latest_frames import by_trained_names
from ipot.formats.series.variables import NothingSeen
from ipot.formats.xarray_files import as_dataset, values_of, xarray
from ipot.surrogate.forecast import forecast, named_bounds


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

    Their first dimension is the time of the last frame in, and with a lead the second is the step
    from there. With `out` they are written to that netCDF file as they come, and never held whole.
    Where all inputs of a time are missing, so is its answer.
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
    try:
        with files.atomic(out) as temporary:
            frame.to_netcdf(temporary, engine="netcdf4")
            with importlib.import_module("netCDF4").Dataset(temporary, "a") as file:
                held = {
                    str(n): _variable(file, str(n), a, dims) for n, a in first.data_vars.items()
                }
                _fill(held, series, chain([(index, first)], found))
    except (OSError, RuntimeError) as error:  # the second where netCDF meets a full disk
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"cannot write {out}: {reason}. Make room or choose another place."
        ) from error
    return xarray().open_dataset(out)


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
    """Put every answer in its place."""
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
    """Which of some numbers in order lie nearest to others."""
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
    """The number of a time and its answer, for each that has inputs."""
    for index, rows in enumerate(windows):
        frames = data.isel({time: rows}).load()
        try:
            parts = forecast(model, series, frames, level=level, **how)
        except NothingSeen:
            continue
        yield index, named_bounds(parts)


def _frame(series: Series, time: str, lasts: list[Any], first: Any) -> Any:
    """A data set of coordinates alone."""
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
