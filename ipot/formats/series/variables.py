"""Variables on common dimensions, inputs or targets, and how their frames are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ipot.data.outliers import warn_of
from ipot.data.scaling import Scaling, Span, label_of, scaling_of
from ipot.errors import DataError
from ipot.formats.roles import find_columns, find_frames
from ipot.formats.series.frames import PIECE, Field, as_field, axis_of, fill
from ipot.formats.series.places import Places, assemble
from ipot.formats.series.windows import Axis

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
