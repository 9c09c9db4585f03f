"""Frames of a variable, read in pieces: data may be far larger than memory.

A frame is what a variable holds at one time, or in one sample where there is no time. Frames are
numbered over samples and times together, in the order of the file, and come as rows in the order
of the space dimensions, in the precision that they are stored in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ipot.data.quantities import Change
from ipot.data.scaling import LOOKED_AT, Scaling
from ipot.errors import DataError
from ipot.formats.roles import role_named, role_of
from ipot.formats.series.windows import Axis
from ipot.formats.xarray_files import values_of
from ipot.memory import free_memory

PIECE = 32 << 20
"""Bytes that are read at once."""

VERSIONS = "expver"
"""Where files of ERA5 keep final and preliminary data side by side: a frame is in one of them."""


@dataclass(frozen=True, eq=False)
class Field:
    """One variable with its dimensions sorted out."""

    name: str
    array: Any
    frame: str | None
    """The dimension of its frames: time, or samples where there is no time."""
    member: str | None
    """The dimension of samples that each have times."""
    space: tuple[str, ...]
    source: int = 0
    """Tells variables of one name in different data sets apart."""
    change: Change | None = None
    """To another unit than that of the file, in which its frames are read."""

    @property
    def points(self) -> int:
        """Values of one frame."""
        return int(np.prod([self.array.sizes[d] for d in self.space], dtype=int))

    @property
    def frames(self) -> int:
        """Frames of one member."""
        return 1 if self.frame is None else self.array.sizes[self.frame]

    def read(self, wanted: np.ndarray, piece: int = PIECE) -> Iterator[tuple[int, np.ndarray]]:
        """The frames of these numbers (sorted, each once), one by one, as rows (points)."""
        versions = self.array.sizes[VERSIONS] if VERSIONS in self.array.dims else 1
        each = self.points * versions * max(4, self.array.dtype.itemsize)
        length = self._length(max(1, piece // max(1, each)))
        members, times = np.divmod(wanted, self.frames)
        groups = members * self.frames + times // length
        for rows in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(groups)) + 1):
            block = self._block(int(members[rows[0]]), times[rows])
            for number, frame in zip(wanted[rows], block, strict=True):
                yield int(number), frame

    def _length(self, most: int) -> int:
        """Frames to read at once: whole chunks of the file, where some fit."""
        if self.frame is None:
            return 1
        axis = self.array.dims.index(self.frame)
        chunks = self.array.chunks or ()
        stored = self.array.encoding.get("chunksizes") or self.array.encoding.get("chunks")
        chunk = chunks[axis][0] if chunks else stored[axis] if stored else 1
        return most // chunk * chunk if chunk <= most else most

    def _block(self, member: int, times: np.ndarray) -> np.ndarray:
        """Frames (times, points) of one member."""
        place: dict[str, Any] = {}
        if self.frame is not None:
            place[self.frame] = as_slice(times)
        if self.member is not None:
            place[self.member] = member
        try:
            # Turned after it is read: readers turn lazily by slow ways.
            block = self.array.isel(place).load()
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:  # every reader has errors of its own
            raise DataError(
                f"{self.name} cannot be read from frame {int(times[0])} on; the file may be "
                f"truncated or damaged ({error})."
            ) from error
        lead = [d for d in (self.frame, VERSIONS) if d is not None and d in block.dims]
        values = block.transpose(*lead, *self.space).values
        if self.frame is None:
            values = values[None]
        if VERSIONS in lead:
            final = values[:, 0].copy()
            for later in range(1, values.shape[1]):
                final = np.where(np.isnan(final), values[:, later], final)
            values = final
        values = values if self.change is None else self.change.apply(values)
        return values.reshape(len(times), -1)


def as_slice(index: np.ndarray) -> slice | np.ndarray:
    """An index as a slice where it is one: readers are much quicker with it."""
    steps = np.unique(np.diff(index))
    if len(steps) > 1 or (len(steps) == 1 and steps[0] <= 0):
        return index
    step = int(steps[0]) if len(steps) else 1
    return slice(int(index[0]), int(index[-1]) + 1, step)


class Filled(NamedTuple):
    """What was seen of a variable while it was read, in the units of the file."""

    low: Any
    high: Any
    missing: int
    some: np.ndarray
    """Finite numbers, taken evenly."""


def fill(
    field: Field,
    jobs: Sequence[tuple[np.ndarray, np.ndarray]],
    piece: int = PIECE,
    scaling: Scaling | None = None,
) -> Filled:
    """Read each frame once and put it wherever it is wanted, in other units if given.

    A job is (numbers of frames (W, J), where they go (W, J, points)). Returns the smallest and the
    largest value as they are in the file, how many are not finite, and some of those that are;
    (inf, -inf) where none is.
    """
    wanted = np.unique(np.concatenate([numbers.ravel() for numbers, _ in jobs]))
    sorted_ = []
    for numbers, _ in jobs:
        order = np.argsort(numbers, axis=None, kind="stable")
        sorted_.append((order, numbers.ravel()[order]))
    low, high, missing, some = np.inf, -np.inf, 0, []
    step = max(1, len(wanted) * field.points // LOOKED_AT)
    for number, frame in field.read(wanted, piece):
        finite = np.isfinite(frame)
        whole = bool(finite.all())
        seen = frame if whole else frame[finite]
        if seen.size:
            low, high = min(low, seen.min().item()), max(high, seen.max().item())
        missing += frame.size - seen.size
        some.append(seen[number % step :: step].copy())
        with np.errstate(over="ignore", invalid="ignore"):
            frame = frame if scaling is None else scaling.apply(frame)
            frame = frame.astype(np.float32, copy=False)
        frame = frame if whole else np.where(finite, frame, np.float32(np.nan))
        for (order, places), (numbers, out) in zip(sorted_, jobs, strict=True):
            first, last = np.searchsorted(places, [number, number + 1])
            for place in order[first:last]:
                out[np.unravel_index(place, numbers.shape)] = frame
    return Filled(low, high, missing, np.concatenate(some))


def memory_left() -> int:
    """Bytes that this process may still take, by the machine, its container and its own limits."""
    free = free_memory()
    found = [4 << 30 if free is None else free]  # a system that does not say
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
            found.append(most - taken)
    return max(min(found), 1 << 20)


def as_field(name: str, array: Any, time: str | None, sample: str | None) -> Field:
    """A variable with its dimensions sorted; those of length one that say no place are dropped."""
    if len(set(array.dims)) < len(array.dims):
        raise DataError(
            f"{name} has a dimension twice ({', '.join(map(str, array.dims))}): it is damaged or a "
            "matrix and no field. Leave it out, or give each of its dimensions a name of its own."
        )
    for dim in map(str, array.dims):
        if dim in (time, sample):
            continue
        along = {role_of(c) for c in array.coords.values() if dim in c.dims} | {role_named(dim)}
        if array.sizes[dim] == 1 and not along & {"longitude", "latitude", "x", "y"}:
            array = array.isel({dim: 0})
        elif _closes_circle(array, dim):
            array = array.isel({dim: slice(None, -1)})
    for dim in array.dims:
        if not array.sizes[dim]:
            raise DataError(f"{name} is empty: {dim} has no entries")
    time = time if time in array.dims else None
    sample = sample if sample in array.dims else None
    space = tuple(str(d) for d in array.dims if d not in (time, sample, VERSIONS))
    frame, member = (time, sample) if time else (sample, None)
    return Field(name, array, frame, member, space)


def _closes_circle(array: Any, dim: str) -> bool:
    """Whether the last meridian along a dimension is the first one again, as in some files."""
    if dim not in array.coords or role_of(array[dim]) != "longitude" or array.sizes[dim] < 3:
        return False
    if array[dim].dtype.kind not in "fiu":
        return False  # refused where places are made of it
    values = values_of(array[dim]).astype(np.float64)
    return bool(abs(abs(values[-1] - values[0]) - 360) < 1e-3)


def axis_of(data: Any, field: Field) -> Axis:
    """The times that the frames of a variable are valid for."""
    array, dim = field.array, field.frame
    for name in (n for n in ("valid_time", dim) if n in array.coords):
        if array[name].dims == (dim,):
            return Axis(str(name), values_of(array[name]))
    return Axis(str(dim), np.arange(array.sizes[dim]), dated=False)
