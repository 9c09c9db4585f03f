"""What is in cases, arrays or trajectories: ranges, sizes, what is missing, what looks odd.

Data are gone through in pieces, and of very much only a part, which is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from ipot.formats.case import (
    Arrays,
    Case,
    CaseReader,
    Inventory,
    Trajectories,
    TrajectoryField,
)
from ipot.formats.named import OWN
from ipot.formats.suggest import fit_command, of_cases, of_trajectories
from ipot.formats.tally import AT_ONCE, FIELD, PARAMETER, PLACES, Tally, span

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
    for order, i in enumerate(chosen):
        case, name = cases[i], cases.names[i]
        counts.append(len(case.points))
        units |= case.units
        flat &= case.flat.shape[1] < case.points.shape[1]
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
        as_parameter = role == FIELD and tally.even and tally.low < tally.high and max(counts) > 1
        shown = f"{PARAMETER} (the same at all points of a case)" if as_parameter else role
        shape = " x ".join(p for p in parts if p)
        variables.append(tally.variable(name, shape, units.get(name, ""), shown))
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
        notes.append("the last coordinate is the same for all points of a case: it is left out")
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
