"""Labelled arrays as samples: windows of frames in, the frames after them out.

dataset, series = from_xarray(ds, inputs="t2m", targets="t2m", history=7, lead=7)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ipot.data.argument_checks import bytes_of, flag, listed, refuse_dimensions, whole
from ipot.data.own import Dataset
from ipot.data.quantities import Agreement
from ipot.errors import DataError
from ipot.formats.series import clock as clocks
from ipot.formats.series.dataset import WindowValues, join
from ipot.formats.series.description import Series
from ipot.formats.series.frames import PIECE, Field, memory_left
from ipot.formats.series.places import in_order
from ipot.formats.series.variables import (
    Variables,
    channels_of,
    coordinates_in_units,
    input_jobs,
    read_scaled,
    together,
    units_in,
    variables_of,
)
from ipot.formats.series.windows import Windows, clock_of, one_by_one, plan
from ipot.formats.xarray_files import as_dataset, names_of

_KEPT = ("units", "long_name", "standard_name")


def from_xarray(
    source: Any,
    *,
    inputs: str | Sequence[str] | None = None,
    targets: str | Sequence[str] | None = None,
    target_source: Any = None,
    history: int = 1,
    lead: int | None = None,
    every: int = 1,
    stride: int = 1,
    static: str | Sequence[str] = (),
    space: str | Sequence[str] | None = None,
    time: str | None = None,
    sample: str | None = None,
    season: bool = False,
    max_samples: int | None = None,
    memory: int | float | str | None = None,
    name: str = "own data",
) -> tuple[Dataset, Series]:
    """Samples from fields with named dimensions, and the description that goes with the model.

    inputs, targets  variables; inputs without time are static, those without places parameters
    target_source    where the targets are, if elsewhere: stations in, a grid out
    history, lead    frames in, oldest first, and frames out; with lead=0 the targets are at the
                     time of the last input. One each by default, and no lead where targets have a
                     source of their own
    every, stride    steps of the file between frames, and frames between windows
    season           adds the time of the year of the last input frame to the parameters
    space, time, sample   names of coordinates and dimensions, where they are not found; with
                     sample="time" every time is a sample of its own
    memory           bytes that samples may take, like 2e9 or "2GB"; a quarter of what is free
                     by default; windows are thinned out evenly to what fits

    Values that are not finite are missing: places that never have any are left out, others in the
    samples in which they miss one, and windows that are left with nothing. `Series.notes` says how
    many.
    """
    if lead is None:
        lead = 1 if target_source is None else 0
    history, lead = whole("history", history), whole("lead", lead, 0)
    every, stride = whole("every", every), whole("stride", stride)
    max_samples = None if max_samples is None else whole("max_samples", max_samples)
    season = flag("season", season)
    limit = memory_left() // 4 if memory is None else bytes_of("memory", memory)
    space = None if space is None else listed("space", space)
    refuse_dimensions(time, sample)
    source = as_dataset(source, "source")
    other = source if target_source is None else as_dataset(target_source, "target_source")
    fixed = names_of("static", static, source) if static else ()
    given = variables_of(
        source, names_of("inputs", inputs, source) + fixed, "inputs", time, sample, space
    )
    alone = other is source
    if not alone:
        agreed = Agreement("the inputs")
        coords = units_in(source, map(str, source.coords))
        other = coordinates_in_units(other, coords, agreed, "the targets")
        agreed.say()
    told = variables_of(
        other,
        names_of("targets", targets, other),
        "targets",
        time if alone or time in other.dims else None,
        sample if alone or sample in other.dims else None,
        space if alone else None,
    )
    _refuse_sides(given, told)
    if given.places is not None:
        told = replace(told, places=in_order(told.places, given.places.names))
    assert told.places is not None  # targets without places were refused
    if given.time is None or told.time is None or given.axis is None or told.axis is None:
        if (history, lead, every, stride) not in ((1, 1, 1, 1), (1, 0, 1, 1)) or season:
            raise DataError(
                "history, lead, every, stride and season are of time, and there is no dimension "
                f"of time: samples go along {given.sample}. Leave them out, or name it with time=."
            )
        lead, clock, windows = 0, None, one_by_one(given.members)
    else:
        clock = clock_of(given.axis)
        same = alone and np.array_equal(given.axis.times, told.axis.times)
        sizes = {"history": history, "lead": lead, "every": every, "stride": stride}
        windows = plan(
            given.axis,
            given.axis if same else told.axis,
            clock,
            members=given.members,
            **sizes,
        )
    windows, notes, piece = _fitting(windows, given, told, history, max_samples, limit)
    arrays = _read(given, told, windows, piece)
    moving, outputs = [f.name for f in given.moving], [f.name for f in told.moving]
    if alone and not lead and clock is not None and (copied := [n for n in outputs if n in moving]):
        names = ", ".join(copied)
        notes = (
            *notes,
            f"{names}: goes in and comes out at the same time, so there is nothing to learn; for a "
            "forecast say lead=1 (--lead 1) or more",
        )
    if season and clock is not None:
        angle = clocks.season(windows.last, clock.kind)
        beside = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
        arrays = arrays.with_parameters(beside)
    known = [f.name for f in (*given.moving, *given.still, *given.scalars)]
    series = Series(
        inputs=tuple(moving),
        targets=tuple(outputs),
        static=tuple(f.name for f in given.still),
        scalars=tuple(f.name for f in given.scalars),
        history=history,
        lead=lead,
        every=every,
        time=given.time if clock is not None and given.time else "",
        target_time=told.time or "",
        sample=given.sample or "",
        columns=() if given.places is None else given.places.names,
        geographic=told.places.geographic,
        season=season,
        clock=clock,
        attributes={f.name: _attributes(f) for f in told.moving},
        units=_units_of_places(given, told) | units_in(source, known),
        target_columns=told.places.names,
    )
    past = history if alone and moving == outputs and lead and clock is not None else 0
    when = None
    if clock is not None and clock.kind in ("dates", "cftime") and told.axis is not None:
        frames = told.axis.times[windows.targets % len(told.axis.times)]
        when = clocks.season(frames.ravel(), clock.kind).reshape(frames.shape)
    return join(arrays, series, given.places, told.places, windows, past, notes, name, when)


def _fitting(
    windows: Windows,
    given: Variables,
    told: Variables,
    history: int,
    max_samples: int | None,
    limit: int,
) -> tuple[Windows, list[str], int]:
    """As many windows as were asked for and as memory holds; what was left out; bytes to read."""
    notes = list(windows.notes)
    if max_samples is not None and len(windows) > max_samples:
        notes.append(
            f"{max_samples} of {len(windows)} windows are used, evenly spread (max_samples)"
        )
        windows = windows.thin(max_samples)
    inner = sum(f.points for f in given.moving) * history + sum(f.points for f in given.still)
    outer = sum(f.points for f in told.moving) * windows.targets.shape[1]
    # Beside the values a byte for each says whether it is there, and a piece of the file is held.
    each, piece = 4 * inner + 4 * outer + (inner + outer), max(1 << 16, min(PIECE, limit // 8))
    fits = max(0, limit - 2 * piece) // max(1, each)
    if fits < 1:
        raise DataError(
            f"one sample takes {each / 1e6:.3g} MB and memory={limit / 1e6:.3g} MB allows none: "
            "raise memory, shorten history or lead, or take a part or a coarser version "
            "(ds.isel, ds.coarsen)."
        )
    if fits < len(windows):
        notes.append(
            f"{fits} of {len(windows)} windows are used, evenly spread: all would take "
            f"{len(windows) * each / 1e9:.3g} GB and memory allows {limit / 1e9:.3g} GB"
        )
        windows = windows.thin(fits)
    return windows, notes, piece


def _read(given: Variables, told: Variables, windows: Windows, piece: int) -> WindowValues:
    """All values of all windows."""
    values, scalars, moving, still = input_jobs(given, windows.inputs, windows.members)
    places = 0 if told.places is None else len(told.places)
    steps, width = windows.targets.shape[1], len(told.moving)
    targets = np.empty((len(windows), steps, places, width), dtype=np.float32)
    asked = [(f, windows.targets, targets[..., i]) for i, f in enumerate(told.moving)]
    found = read_scaled([*moving, *still, *asked], told.moving, piece)
    fields, numbers = channels_of(given, windows.inputs.shape[1])
    scalings = {
        "values": together(fields, found),
        "targets": together(told.moving, found),
        "parameters": together(numbers, found),
    }
    return WindowValues(values=values, targets=targets, parameters=scalars, scalings=scalings)


def _refuse_sides(given: Variables, told: Variables) -> None:
    """Refuse inputs and targets whose samples do not go together."""
    if (given.time is None) != (told.time is None):
        raise DataError(
            f"inputs go along {given.time or given.sample} and targets along "
            f"{told.time or told.sample}: both need time, or both samples alone. Select one time."
        )
    if given.members != told.members:
        raise DataError(
            f"inputs have {given.members} samples and targets {told.members}: align them first "
            "(xarray.align)"
        )


def _units_of_places(given: Variables, told: Variables) -> dict[str, str]:
    """What coordinates are in, as they are taken: longitude and latitude in degrees."""
    found: dict[str, str] = {}
    for places in (told.places, given.places):
        for name in places.names if places is not None else ():
            unit = places.coordinates[name][2].get("units", "") if places is not None else ""
            found |= {name: unit} if unit else {}
    return found


def _attributes(field: Field) -> dict[str, str]:
    attrs = field.array.attrs
    found = {k: str(attrs[k]) for k in _KEPT if k in attrs}
    return {k: v for k, v in found.items() if v and v != "unknown"}
