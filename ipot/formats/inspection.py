"""What is in cases, arrays, trajectories or series: ranges, sizes, what is missing, what looks odd.

Data are gone through in pieces, and of very much only a part, which is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data import gridded
from ipot.errors import DataError, shown
from ipot.formats.fields import Arrays, Case, CaseReader, Trajectories, TrajectoryField
from ipot.formats.inventory import (
    AT_ONCE,
    FIELD,
    FRAMES,
    PARAMETER,
    PLACES,
    Inventory,
    Tally,
    Variable,
    fit_command,
    of_cases,
    of_trajectories,
    span,
)
from ipot.formats.named_arrays import OWN
from ipot.formats.roles import MEMBERS, find_columns, find_frames, role_of
from ipot.formats.series.clock import find_clock, in_order, kind_of
from ipot.formats.series.frames import VERSIONS, Field, as_field, axis_of
from ipot.formats.series.windows import clock_of, plan
from ipot.formats.xarray_files import files_of, open_series, values_of

AT_MOST = 2**29
"""Bytes that are looked at."""


def inventory_of(path: str, found: CaseReader | Arrays | Trajectories) -> Inventory:
    """What is in it."""
    if isinstance(found, CaseReader):
        return _cases(path, found)
    return _arrays(path, found) if isinstance(found, Arrays) else _trajectories(path, found)


def _cases(path: str, cases: CaseReader) -> Inventory:
    chosen, notes = _some(cases)
    tallies: dict[tuple[str, str], Tally] = {}
    units: dict[str, str] = {}
    counts: list[int] = []
    known: dict[bytes, str] = {}
    absent: dict[tuple[str, str], list[str]] = {}
    places: set[bytes] = set()
    doubled, flat = 0, True
    levels: set[float] = set()
    for order, i in enumerate(chosen):
        case, name = cases[i], cases.names[i]
        counts.append(len(case.points))
        units |= case.units
        flat &= case.flat.shape[1] < case.points.shape[1]
        levels |= set(case.points[:1, -1].tolist())
        for role, rows, arrays in _parts(case):
            for key, array in arrays.items():
                if (role, key) not in tallies:
                    tallies[role, key] = Tally(role, rows)
                    absent[role, key] = [cases.names[j] for j in chosen[:order]]
                tallies[role, key].add(array)
        there = {(role, key) for role, _, arrays in _parts(case) for key in arrays}
        for key in tallies.keys() - there:
            absent[key].append(name)
        if len(case.points) <= AT_ONCE // 8:
            doubled += len(np.unique(case.points, axis=0)) < len(case.points)
        places.add(hashlib.blake2b(np.ascontiguousarray(case.points).tobytes()).digest())
        mark = _digest(case)
        if mark in known and len(notes) < 50:
            notes.append(f"cases {known[mark]} and {name} are the same: remove one of them")
        known.setdefault(mark, name)
    variables, usable = [], []
    for (role, name), tally in tallies.items():
        widest = max(tally.widths)
        rows = f"{span(tally.sizes)} {tally.rows}" if role != PARAMETER else ""
        parts = [f"{len(cases)} case{'s' if len(cases) > 1 else ''}", rows]
        if role == PARAMETER:
            widest = max(tally.sizes)
        parts.append(str(widest) if widest > 1 else "")
        named = cases.components.get(name, ())
        as_parameter = role == FIELD and tally.even and tally.low < tally.high and max(counts) > 1
        told = f"{PARAMETER} (the same at all points of a case)" if as_parameter else role
        shape = " x ".join(p for p in parts if p) + (f" ({', '.join(named)})" if named else "")
        variables.append(tally.variable(name, shape, units.get(name, ""), told))
        if not absent[role, name] and tally.learnable and not name.startswith("-"):
            usable.append(variables[-1])
        if not (role == PARAMETER and len(chosen) == 1):
            notes += tally.notes(name)
        if lost := absent[role, name]:
            notes.append(f"{name} is missing in {len(lost)} cases: {', '.join(lost[:5])}")
    if doubled:
        notes.append(
            f"points are there twice in {doubled} of {len(chosen)} cases: keep one of each"
        )
    if flat:
        same = "the last coordinate is the same for all points of a case"
        told = "and differs between cases: it is kept" if len(levels) > 1 else ": it is left out"
        notes.append(f"{same}{' ' if len(levels) > 1 else ''}{told}")
    if min(counts) == 0:
        notes.append("there are cases without points: remove them")
    return Inventory(
        path=path,
        kind=cases.kind,
        cases=len(cases),
        points=(min(counts), max(counts)),
        variables=tuple(variables),
        notes=(*cases.notes, *notes),
        suggestion=of_cases(path, usable, cases=len(cases), moving=len(places) > 1),
    )


def _some(cases: CaseReader) -> tuple[list[int], list[str]]:
    """Which cases are read: all, or evenly chosen ones where there is too much."""
    first = cases[0]
    size = sum(a.nbytes for _, _, arrays in _parts(first) for a in arrays.values())
    most = max(2, AT_MOST // max(1, size))
    if len(cases) <= most:
        return list(range(len(cases))), []
    chosen = sorted({round(i) for i in np.linspace(0, len(cases) - 1, most)})
    return chosen, [f"ranges are those of {len(chosen)} of {len(cases)} cases, evenly chosen"]


def _parts(case: Case) -> Iterator[tuple[str, str, Mapping[str, np.ndarray]]]:
    yield PLACES, "points", {"points": case.points}
    yield FIELD, "points", case.fields
    yield f"{FIELD}, on cells", "cells", case.cell_fields
    yield PARAMETER, "", case.parameters


def _digest(case: Case) -> bytes:
    mark = hashlib.blake2b(digest_size=16)
    for role, _, arrays in _parts(case):
        for name, array in arrays.items():
            mark.update(f"{role}/{name}/{array.shape}/{array.dtype}".encode(errors="replace"))
            mark.update(np.ascontiguousarray(array).data if array.size else b"")
    return mark.digest()


def _arrays(path: str, found: Arrays) -> Inventory:
    variables, notes = [], list(found.notes)
    whole = True
    roles = {"points": PLACES, "queries": PLACES, "values": "input", "targets": "target"}
    for name in OWN:
        value = getattr(found, name)
        if value is None:
            continue
        listed = value if isinstance(value, list) else [value]
        tally = Tally(roles.get(name, name.removesuffix("s") if name != "weights" else name))
        for array in listed:
            tally.add(array)
        shapes = sorted({array.shape for array in listed})
        shape = " x ".join(map(str, shapes[0])) or "1"
        if isinstance(value, list):
            more = f" to {' x '.join(map(str, shapes[-1]))}" if len(shapes) > 1 else ""
            shape = f"{len(listed)} cases x {shape}{more}"
        variables.append(tally.variable(name, shape, found.units.get(name, "")))
        notes += [n for n in tally.notes(name) if "components" not in n]
        whole &= not tally.missing
    return Inventory(
        path=path,
        kind=found.kind,
        cases=len(found),
        points=_sizes(found),
        variables=tuple(variables),
        notes=tuple(notes),
        suggestion=fit_command(path) if whole and len(found) > 1 else "",
    )


def _sizes(found: Arrays) -> tuple[int, int] | None:
    places = found.points if found.points is not None else found.queries
    if places is None:
        return None
    if not isinstance(places, list):
        # (samples, N, D) has N points; (H, W, D) with as many targets is a grid of H W.
        nodes = places.size // places.shape[-1] if places.ndim > 1 else len(places)
        stacked = places.ndim == 3 and len(places) == len(found.targets)
        count = places.shape[1] if stacked else nodes
        return count, count
    counts = [a.shape[-2] if a.ndim > 1 else len(a) for a in places]
    return min(counts), max(counts)


def _trajectories(path: str, found: Trajectories) -> Inventory:
    variables, notes = [], list(found.notes)
    places = Tally(PLACES)
    places.add(found.points)
    grid = " x ".join(map(str, found.grid))
    variables.append(places.variable("points", f"{grid} points ({', '.join(found.axes)})", ""))
    clock = Tally("time")
    clock.add(found.times)
    variables.append(clock.variable("time", f"{len(found.times)} times", ""))
    share = AT_MOST // max(1, len(found.fields))
    whole = []
    for name, stored in found.fields.items():
        tally = Tally(FIELD)
        parts = _pieces(stored, share)
        for trajectory, times in parts:
            for frame in stored.read(trajectory, times):
                tally.add(frame)
        frames = len(found) * (1 if stored.steady else len(found.times))
        if tally.seen < frames:
            notes.append(f"ranges of {name} are those of {tally.seen} of {frames} frames")
        over = "steady" if stored.steady else f"{len(found.times)} times"
        width = f" x {stored.shape[3]}" if stored.shape[3] > 1 else ""
        shape = f"{len(found)} trajectories x {over} x {grid}{width}"
        variables.append(tally.variable(name, shape, found.units.get(name, "")))
        notes += tally.notes(name)
        if tally.learnable and not name.startswith("-"):
            whole.append(name)
    for name, values in found.parameters.items():
        tally = Tally(PARAMETER)
        tally.add(values)
        variables.append(tally.variable(name, f"{len(found)} trajectories", ""))
    nodes = len(found.points)
    return Inventory(
        path=path,
        kind="HDF5 in The Well's layout",
        cases=len(found),
        points=(nodes, nodes),
        variables=tuple(variables),
        notes=tuple(notes),
        suggestion=of_trajectories(path, found, whole),
    )


def _pieces(stored: TrajectoryField, share: int) -> list[tuple[int, slice]]:
    """Frames that are looked at: all, or evenly chosen ones."""
    count, steps, nodes, width = stored.shape
    frame = max(1, nodes * width * stored.dtype.itemsize)
    steps = 1 if stored.steady else steps
    most = max(1, share // frame)
    stride = max(1, -(-count * steps // most))
    frames = range(0, count * steps, stride)
    return [(f // steps, slice(f % steps, f % steps + 1)) for f in frames]


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
            scalars += [(str(name), field)] if field.frame else []
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
    role = FIELD if field.frame else "static input"
    tally = Tally(role)
    for _, frame in field.read(wanted):
        if frame.dtype.kind not in "fiub":
            raise DataError(
                f"{shown(field.name)} says that it holds numbers and gives {frame.dtype}: the file "
                "is damaged, write or fetch it again"
            )
        tally.add(frame)
    missing = tally.missing
    seen = len(wanted) * field.points
    if missing == seen:
        notes.append(f"{field.name} has no value at all in what was looked at: leave it out")
    elif missing:
        notes.append(
            f"{field.name}: {100 * missing / seen:.2g} % of values are missing (NaN); such places "
            "are left out"
        )
    elif tally.low == tally.high:
        notes.append(f"{field.name} is {tally.low:g} everywhere: there is nothing to learn from it")
    plain = _plain(array, role)
    return replace(tally.variable(plain.name, plain.shape, plain.units), dtype=plain.dtype), notes


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
    values = values_of(array).astype(np.float64)
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
    where: Path | str,
    data: Any,
    good: list[tuple[str, Field]],
    scalars: list[tuple[str, Field]],
) -> str:
    """A command that works: windows as long as the series allows, or samples one by one."""
    names = [name for name, _ in good if not name.startswith("-")]
    if not names:
        return ""
    field = next(f for name, f in good if name == names[0])
    time, sample = find_frames([data[names[0]]])
    numbers = [n for n, f in scalars if f.frame == field.frame and not n.startswith("-")]
    if time is None:
        inputs = [*names[:-1][:1], *numbers]
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
            inputs = [names[0], *numbers]
            return fit_command(where, inputs=inputs, targets=names[:1], frames=k)
    return ""
