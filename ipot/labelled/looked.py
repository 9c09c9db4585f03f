"""What is in files of fields with named dimensions, and what could be learned from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data import gridded
from ipot.errors import DataError
from ipot.formats.case import Inventory, Variable
from ipot.formats.suggest import FRAMES, fit_command
from ipot.labelled.clock import find_clock, in_order, kind_of
from ipot.labelled.columns import find_columns
from ipot.labelled.frames import VERSIONS, Field
from ipot.labelled.named import as_field, axis_of, find_frames
from ipot.labelled.opened import files_of, open_series
from ipot.labelled.places import MEMBERS, role_of
from ipot.labelled.windows import clock_of, plan

WHOLE = 64 << 20
"""Bytes of a variable up to which all of it is looked at."""
LOOKED_AT = 16
"""Frames of a larger one that are."""


def inspect_series(where: Path | str) -> Inventory:
    """What is in the files: variables, dimensions, ranges, gaps in time, missing values."""
    data = open_series(where)
    paths = files_of(Path(where))
    numeric = [n for n, a in data.data_vars.items() if a.dtype.kind in "fiub" and _is_field(a)]
    arrays = [data[n] for n in numeric]
    time, sample = find_frames(arrays) if arrays else (None, None)
    variables, notes, sizes, good, scalars = [], [], [], [], []
    for name in data.coords:
        variables.append(_coordinate(data[name]))
    for name in data.data_vars:
        if name not in numeric:
            variables.append(_plain(data[name], "left alone"))
            continue
        field = as_field(str(name), data[name], time, sample)
        if not field.space:
            variables.append(_plain(data[name], "parameter" if field.frame else "left alone"))
            scalars += [str(name)] if field.frame else []
            continue
        found, note = _looked_at(field, data[name])
        variables.append(found)
        notes += note
        sizes.append(field.points)
        if field.frame and found.low is not None:
            good.append((str(name), field))
    if time is not None and good:
        notes = [*_times(data, good[0][1]), *notes]
    if good:
        notes += _where(good[0][1], time, sample)
    first = good[0][1] if good else None
    return Inventory(
        path=str(where),
        kind=" and ".join(sorted({gridded.kind_of(p) for p in paths}))
        + (f", {len(paths)} files" if len(paths) > 1 else ""),
        cases=first.frames if first is not None else 1,
        points=(min(sizes), max(sizes)) if sizes else None,
        variables=tuple(variables),
        notes=tuple(notes),
        suggestion=_suggestion(where, data, good, scalars),
    )


def _is_field(array: Any) -> bool:
    """Whether it has dimensions, and none of them twice, as matrices of errors have."""
    return 0 < len(array.dims) == len(set(array.dims))


def _looked_at(field: Field, array: Any) -> tuple[Variable, list[str]]:
    """A variable with its range, of some frames where there are many."""
    members = array.sizes[field.member] if field.member else 1
    count, notes = field.frames * members, []
    wanted = np.arange(count)
    if array.nbytes > WHOLE and count > LOOKED_AT:
        wanted = np.unique(np.linspace(0, count - 1, LOOKED_AT).round().astype(int))
        notes.append(f"{field.name}: ranges are those of {len(wanted)} of {count} frames")
    low, high, total, number, missing = np.inf, -np.inf, 0.0, 0, 0
    for _, frame in field.read(wanted):
        finite = frame[np.isfinite(frame)]
        missing += frame.size - finite.size
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total, number = total + float(finite.sum(dtype=np.float64)), number + finite.size
    seen = len(wanted) * field.points
    if missing == seen:
        notes.append(f"{field.name} has no value at all in what was looked at: leave it out")
    elif missing:
        notes.append(
            f"{field.name}: {100 * missing / seen:.2g} % of values are missing (NaN); such places "
            "are left out"
        )
    elif low == high:
        notes.append(f"{field.name} is {low:g} everywhere: there is nothing to learn from it")
    found = _plain(array, "input or target" if field.frame else "static input")
    found = replace(found, missing=missing)
    if number:
        found = replace(found, low=low, high=high, mean=total / number)
    return found, notes


def _plain(array: Any, role: str) -> Variable:
    shape = " x ".join(f"{n} {d}" for d, n in array.sizes.items()) or "one value"
    units = str(array.attrs.get("units", ""))
    return Variable(
        name=str(array.name), role=role, shape=shape, dtype=str(array.dtype), units=units
    )


def _coordinate(array: Any) -> Variable:
    role = role_of(array)
    known = {"time": "time", None: "left alone"}.get(role, "places")
    found = _plain(array, known)
    if known != "places" or array.size > WHOLE // 8 or not array.size:
        return found
    values = np.asarray(array.values, dtype=np.float64)
    missing = int((~np.isfinite(values)).sum())
    if missing == values.size:
        return replace(found, missing=missing)
    low, high, mean = np.nanmin(values), np.nanmax(values), np.nanmean(values)
    return replace(found, low=float(low), high=float(high), mean=float(mean), missing=missing)


def _times(data: Any, field: Field) -> list[str]:
    """From when to when, how far apart, and what is wrong with that."""
    axis = axis_of(data, field)
    if not axis.dated:
        return [f"{axis.name} has no coordinate: frames are counted"]
    try:
        kind_of(axis.times, axis.name)
        times = axis.times[in_order(axis.times, axis.name)]
        clock = find_clock(times, axis.name)
    except DataError as error:
        return [str(error)]
    said = f"{axis.name}: {len(times)} frames from {_stamp(times[0])} to {_stamp(times[-1])}"
    if len(times) < 2:
        return [said]
    notes = [f"{said}, {clock} apart"]
    steps = np.rint(clock.count(times, times[0])).astype(int)
    gaps = np.flatnonzero(np.diff(steps) > 1)
    if len(gaps):
        lost = int(steps[-1]) + 1 - len(times)
        notes.append(
            f"{axis.name} has {len(gaps)} gaps ({lost} frames missing), the first after "
            f"{_stamp(times[gaps[0]])}: windows do not reach across them"
        )
    if not np.array_equal(times, axis.times):
        notes.append(f"{axis.name} is not in order; it will be sorted")
    return notes


def _where(field: Field, time: str | None, sample: str | None) -> list[str]:
    try:
        columns = find_columns(
            field.array, [d for d in (time, sample, VERSIONS) if d], None, field.name
        )
    except DataError as error:
        return [str(error)]
    bare = [str(c.name) for c in columns if str(c.name) not in field.array.coords]
    if bare:
        return [f"{', '.join(bare)} has no coordinates: places are counted from 0"]
    return []


def _stamp(time: Any) -> str:
    return str(time).removesuffix(".000000000").replace("T", " ")


def _suggestion(
    where: Path | str, data: Any, good: list[tuple[str, Field]], scalars: list[str]
) -> str:
    """A command that works: windows as long as the series allows, or samples one by one."""
    names = [name for name, _ in good if not name.startswith("-")]
    if not names:
        return ""
    field = next(f for name, f in good if name == names[0])
    time, sample = find_frames([data[names[0]]])
    if time is None:
        inputs = [n for n in (*names[:-1], *scalars) if not n.startswith("-")][:1]
        several = inputs and field.frames > 1
        return fit_command(where, inputs=inputs, targets=names[-1:]) if several else ""
    apart = sample is not None and sample.lower() not in MEMBERS and data.sizes[sample] > 1
    try:
        find_columns(field.array, [d for d in (time, sample, VERSIONS) if d], None, field.name)
        axis = axis_of(data, field)
        clock = clock_of(axis)
    except DataError:  # said among the notes
        return ""
    for k in FRAMES:
        sizes = {"history": k, "lead": k, "every": 1, "stride": 1}
        try:
            starts = plan(axis, axis, clock, members=1, **sizes).starts
        except DataError:
            continue
        # The later part of a series is held out, and shares no frame with what is learned from.
        if apart or 0.8 * np.ptp(starts) > 2 * k:
            return fit_command(where, inputs=names[:1], targets=names[:1], frames=k)
    return ""
