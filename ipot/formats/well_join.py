"""Several files of The Well as one: a split of a data set is stored in many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ipot.errors import DataError
from ipot.formats.case import Trajectories, TrajectoryField


def joined(parts: Sequence[Trajectories], source: str) -> Trajectories:
    """The trajectories of files one behind the other, where grids, times and fields are alike."""
    first = parts[0]
    for part in parts[1:]:
        if (unlike := _unlike(first, part)) is not None:
            raise DataError(
                f"{part.source} has other {unlike} than {first.source}: files of one folder are "
                "read as one set, and must have the same. Give one of them, or put those that "
                "agree into a folder of their own."
            )
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    starts = np.cumsum([0, *(len(part) for part in parts)])
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return replace(
        first,
        fields={name: _field(name, parts, owners, starts) for name in first.fields},
        parameters={
            name: np.concatenate([part.parameters[name] for part in parts])
            for name in first.parameters
        },
        source=source,
        notes=(f"{len(parts)} files with {len(owners)} trajectories in all", *notes),
    )


def _field(
    name: str, parts: Sequence[Trajectories], owners: np.ndarray, starts: np.ndarray
) -> TrajectoryField:
    def read(trajectory: int, times: slice) -> np.ndarray:
        owner = int(owners[trajectory])
        return parts[owner].fields[name].pieces(trajectory - int(starts[owner]), times)

    found = parts[0].fields[name]
    dtype = np.result_type(*(part.fields[name].dtype for part in parts))
    return replace(found, shape=(len(owners), *found.shape[1:]), dtype=dtype, pieces=read)


def _unlike(one: Trajectories, other: Trajectories) -> str | None:
    """What two files do not share, in words."""
    if (one.axes, one.grid, one.grid_type) != (other.axes, other.grid, other.grid_type):
        return f"grids ({_grid(other)} and not {_grid(one)})"
    if not _close(one.points, other.points):
        return "coordinates"
    if not _close(one.times, other.times):
        return f"times ({_times(other)} and not {_times(one)})"
    if one.periods != other.periods:
        return "boundaries (periodic or not)"
    for what, left, right in (
        ("fields", _facts(one), _facts(other)),
        ("parameters", set(one.parameters), set(other.parameters)),
    ):
        if left != right:
            names = ", ".join(sorted(map(str, left ^ right)))
            return f"{what} ({names})"
    return None


def _facts(part: Trajectories) -> set[tuple[str, int, str]]:
    return {(n, f.shape[3], "steady" if f.steady else "") for n, f in part.fields.items()}


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    """Numbers that differ by rounding alone."""
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=1e-12)


def _grid(part: Trajectories) -> str:
    return " x ".join(map(str, part.grid))


def _times(part: Trajectories) -> str:
    return f"{len(part.times)} from {part.times[0]:g} to {part.times[-1]:g}"
