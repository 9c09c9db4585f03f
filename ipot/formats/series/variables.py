"""Variables on common dimensions, inputs or targets: how their frames are read, in which units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ipot.data.quantities import Agreement, is_said
from ipot.data.scaling import Scaling, Span, label_of, scaling_of, warn_of
from ipot.errors import DataError
from ipot.formats.roles import find_columns, find_frames, role_of
from ipot.formats.series.frames import PIECE, Field, as_field, axis_of, fill
from ipot.formats.series.places import Places, assemble
from ipot.formats.series.windows import Axis
from ipot.formats.xarray_files import values_of

Job = tuple[Field, np.ndarray, np.ndarray]
"""A variable, the numbers of its frames (W, J), and where they go (W, J, points)."""

Key = tuple[int, str]
"""The data set of a variable, and its name."""


class NothingSeen(DataError):
    """All that goes in is missing."""


class Seen(NamedTuple):
    """What was seen of a variable while it was read."""

    span: Span
    some: np.ndarray
    """Finite numbers, taken evenly."""
    count: int
    """How many there are in all."""


@dataclass(frozen=True, eq=False)
class Variables:
    """The variables of one side, inputs or targets, on common dimensions."""

    moving: tuple[Field, ...]
    still: tuple[Field, ...]
    scalars: tuple[Field, ...]
    places: Places | None
    time: str | None
    sample: str | None
    axis: Axis | None
    members: int


def variables_of(
    data: Any,
    names: tuple[str, ...],
    what: str,
    time: str | None,
    sample: str | None,
    space: Sequence[str] | None,
) -> Variables:
    """Find out what the dimensions of some variables are, and refuse those that do not fit."""
    arrays = [data[name] for name in names]
    time, sample = find_frames(arrays, time, sample)
    if time is None and sample is None:
        dims = ", ".join(dict.fromkeys(str(d) for a in arrays for d in a.dims))
        raise DataError(
            f"{what} have no dimension of time or of samples among {dims}: name it with time= or "
            "sample=."
        )
    fields = [
        replace(as_field(n, a, time, sample), source=id(data))
        for n, a in zip(names, arrays, strict=True)
    ]
    frame = time or sample
    placed = [f for f in fields if f.space]
    for f in fields:
        if not f.space and f.frame != frame:
            raise DataError(f"{f.name} has neither places nor {frame}: it says nothing")
        if f.space and set(f.space) != set(placed[0].space):
            raise DataError(
                f"{f.name} is on ({', '.join(f.space)}) and {placed[0].name} on "
                f"({', '.join(placed[0].space)}): {what} must share their places. Interpolate one "
                "to the other (ds.interp), or leave it out."
            )
    places = None
    if placed:
        first = placed[0]
        taken = [d for d in (time, sample, "expver") if d]
        columns = find_columns(first.array, taken, space, first.name)
        places = assemble(columns, first.space, first.array, first.name)
        placed = [replace(f, space=places.dims) for f in placed]
    moving = tuple(f for f in placed if f.frame == frame)
    if what == "targets" and (len(moving) < len(fields) or not moving):
        lacking = ", ".join(f.name for f in fields if not f.space or f.frame != frame)
        raise DataError(f"targets must have places and {frame}; {lacking} lacks one of them")
    scalars = tuple(f for f in fields if not f.space)
    if not moving and not scalars:
        raise DataError(f"{what} must have {frame}; {', '.join(names)} have none")
    axis = axis_of(data, (moving + scalars)[0]) if time else None
    members = 1 if sample is None else int(data.sizes[sample])
    still = tuple(f for f in placed if f.frame != frame)
    return Variables(moving, still, scalars, places, time, sample, axis, members)


def input_jobs(
    side: Variables, numbers: np.ndarray, members: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[Job], list[Job]]:
    """Room for the values (W, N, C) and parameters (W, P) of windows, and what is to be read there.

    The jobs of what moves, and of what is static. Channels go frame by frame, and in a frame
    variable by variable: so a one-step model slides them.
    """
    count, history = numbers.shape
    width = len(side.moving)
    n = 0 if side.places is None else len(side.places)
    values = np.empty((count, n, width * history + len(side.still)), dtype=np.float32)
    scalars = np.empty((count, len(side.scalars) * history), dtype=np.float32)
    moving: list[Job] = []
    for i, field in enumerate(side.moving):
        out = np.moveaxis(values[:, :, i : width * history : width], 2, 1)
        moving.append((field, numbers, out))
    for i, field in enumerate(side.scalars):
        out = scalars[:, i * history : (i + 1) * history, None]
        moving.append((field, numbers, out))
    still: list[Job] = []
    for i, field in enumerate(side.still, start=width * history):
        wanted = members if field.frame else np.zeros(count, int)
        still.append((field, wanted[:, None], values[:, None, :, i]))
    return values, scalars, moving, still


def read_jobs(
    jobs: Sequence[Job], piece: int = PIECE, scalings: Mapping[Key, Scaling] | None = None
) -> dict[Key, Seen]:
    """Read every frame once, wherever it goes; refuse a variable that has no value.

    Variables with a scaling are put there in its units. What was seen is in those of the file.
    """
    together: dict[Key, list[Job]] = {}
    for job in jobs:
        together.setdefault(key_of(job[0]), []).append(job)
    found = {}
    for key, several in together.items():
        field = several[0][0]
        scaling = (scalings or {}).get(key)
        places = [(numbers, out) for _, numbers, out in several]
        low, high, missing, some = fill(field, places, piece, scaling)
        if low == np.inf:
            raise NothingSeen(
                f"{field.name} has no finite value in any frame that was read: all are missing "
                "(NaN). Leave it out, or check the file."
            )
        kind = field.array.dtype
        span = Span(low, high, float(np.finfo(kind).eps) if kind.kind == "f" else 0.0)
        frames = len(np.unique(np.concatenate([numbers.ravel() for numbers, _ in places])))
        found[key] = Seen(span, some, frames * field.points - missing)
    return found


def read_scaled(jobs: Sequence[Job], targets: Sequence[Field], piece: int) -> dict[Key, Scaling]:
    """Read all frames, and those of variables that float32 cannot hold well again, in other units.

    What units they need is known only when all was read; it is seldom that any are.
    """
    answers = {key_of(field) for field in targets}
    found = {}
    for key, (span, some, count) in read_jobs(jobs, piece).items():
        name = "targets" if key in answers else "inputs"
        scaling = scaling_of(name, [span], [key[1]])
        label = label_of(name, 0, 1, [key[1]])
        warn_of(label, span, some, count, scaling or Scaling.none(1))
        if scaling is not None:
            found[key] = scaling
    if found:
        read_jobs([job for job in jobs if key_of(job[0]) in found], piece, found)
    return found


def together(fields: Sequence[Field | None], found: Mapping[Key, Scaling]) -> Scaling | None:
    """The change of units of channels, by the variables that they are of; None has no change."""
    parts = [None if f is None else found.get(key_of(f)) for f in fields]
    if not any(parts):
        return None
    return Scaling(
        tuple(0.0 if p is None else p.offset[0] for p in parts),
        tuple(1.0 if p is None else p.scale[0] for p in parts),
    )


def channels_of(side: Variables, history: int) -> tuple[list[Field], list[Field]]:
    """The variables that the channels of values are of, and those of the parameters."""
    values = [*(list(side.moving) * history), *side.still]
    return values, [f for f in side.scalars for _ in range(history)]


def key_of(field: Field) -> Key:
    """What tells variables apart."""
    return field.source, field.name


def declared(array: Any) -> str:
    """The unit of a variable or a coordinate, where it says one that is none of time."""
    unit = str(array.attrs.get("units", ""))
    if array.dtype.kind not in "fiu" or " since " in unit or not is_said(unit):
        return ""
    return unit


def units_in(data: Any, names: Iterable[str]) -> dict[str, str]:
    """What variables and coordinates of these names declare."""
    return {n: unit for n in names if n in data.variables and (unit := declared(data[n]))}


def agree(parts: Sequence[Any], sources: Sequence[str]) -> list[Any]:
    """Data sets with every variable in the unit of the first that declares one."""
    found, units = [], dict[str, str]()
    for part, source in zip(parts, sources, strict=True):
        agreed = Agreement("the files before it")
        part = coordinates_in_units(part, units, agreed, source, like=found[:1])
        for name in part.data_vars:
            change = agreed.change(name, declared(part[name]), units.get(name, ""), source=source)
            if change is not None:
                attrs = {**part[name].attrs, "units": units[name]}
                part = part.assign({name: change.apply(part[name]).assign_attrs(attrs)})
        agreed.say()
        units = {**units_in(part, map(str, part.variables)), **units}
        found.append(part)
    return found


def coordinates_in_units(
    data: Any, wanted: Mapping[str, str], agreed: Agreement, source: str, like: Sequence[Any] = ()
) -> Any:
    """A data set with coordinates in wanted units; where `like` has the same but for rounding, its
    own. Longitude and latitude are left alone: in degrees is how they are taken anyway."""
    for name in map(str, data.coords):
        if role_of(data[name]) in ("longitude", "latitude") and not like:
            continue
        change = agreed.change(name, declared(data[name]), wanted.get(name, ""), source=source)
        if change is None:
            continue
        values = change.apply(values_of(data[name]).astype(np.float64))
        for other in like:
            same = values_of(other[name]) if name in other.coords else np.empty(0)
            if same.shape == values.shape and np.allclose(same, values, rtol=1e-5, atol=1e-5):
                values = same
        attrs = {**data[name].attrs, "units": wanted[name]}
        data = data.assign_coords({name: (data[name].dims, values, attrs)})
    return data


def fields_in_units(
    side: Variables, wanted: Mapping[str, str], agreed: Agreement, source: str
) -> Variables:
    """Variables that are converted as they are read."""
    made: dict[str, Any] = {}
    for kind in ("moving", "still", "scalars"):
        fields = []
        for f in getattr(side, kind):
            given = declared(f.array)
            change = agreed.change(f.name, given, wanted.get(f.name, ""), source=source)
            fields.append(replace(f, change=change))
        made[kind] = tuple(fields)
    return replace(side, **made)
