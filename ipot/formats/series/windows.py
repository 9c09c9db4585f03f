"""Which frames go in and which come out: windows over time, or samples one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipot.errors import DataError
from ipot.formats.series.clock import OFF, Clock, find_clock, in_order, kind_of, said


@dataclass(frozen=True, eq=False)
class Axis:
    """The times of some frames, in the order of the file; plain numbers where there are none."""

    name: str
    times: np.ndarray
    dated: bool = True
    """Whether the frames have times and are not only counted."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Numbers of frames, a row for each window."""

    inputs: np.ndarray
    """(W, history): numbers over members and times, in the order of the file."""
    targets: np.ndarray
    """(W, lead), or one where the targets are at the time of the last input."""
    starts: np.ndarray
    """(W): the first frame, counted in steps between frames."""
    members: np.ndarray
    """(W): the sample that a window is of."""
    last: np.ndarray
    """(W): the time of the last input."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, rows: np.ndarray) -> Windows:
        """Some of them."""
        names = ("inputs", "targets", "starts", "members", "last")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def thin(self, most: int) -> Windows:
        """At most so many, evenly spread."""
        if len(self) <= most:
            return self
        return self.select(np.linspace(0, len(self) - 1, max(1, most)).round().astype(int))


def clock_of(axis: Axis) -> Clock:
    """The step of a time axis, whatever its order."""
    if not axis.dated:
        return Clock("none", "numbers", 1.0)
    kind_of(axis.times, axis.name)
    return find_clock(axis.times[in_order(axis.times, axis.name)], axis.name)


def plan(
    axis: Axis,
    target_axis: Axis,
    clock: Clock,
    *,
    history: int,
    lead: int,
    every: int,
    stride: int,
    members: int,
) -> Windows:
    """All windows without a gap: `history` frames, `every` steps apart, and the `lead` after them.

    With a lead of 0 the one target is at the time of the last input.
    """
    origin = axis.times[in_order(axis.times, axis.name)[0]]
    have = _numbered(axis, clock, origin, every)
    told = have if target_axis is axis else _numbered(target_axis, clock, origin, every)
    span = history + lead
    ahead = range(history, span) if lead else range(history - 1, history)
    last = max(have) if have else 0
    starts = range(0, max(0, last - history + 2), stride)
    # From frame to frame and not from step to step: two frames may be any number of steps apart.
    whole = [
        q
        for q in sorted(have)
        if q in starts and all(q + i in have for i in range(history)) and q + ahead[0] in told
    ]
    whole = [q for q in whole if all(q + i in told for i in ahead)]
    if not whole:
        raise DataError(_too_few(axis, target_axis, clock, history, lead, every, len(have)))
    inputs = np.array([[have[q + i] for i in range(history)] for q in whole])
    targets = np.array([[told[q + i] for i in ahead] for q in whole])
    possible = len(range(0, max(told) - ahead[-1] + 1, stride)) if told else 0
    possible = min(possible, len(starts))
    notes = []
    if lost := possible - len(whole):
        notes.append(
            f"{lost} of {possible} windows have a gap in time among their frames and are left out"
        )
    number = np.arange(members)
    sizes = len(axis.times), len(target_axis.times)
    return Windows(
        inputs=(number[:, None, None] * sizes[0] + inputs).reshape(-1, history),
        targets=(number[:, None, None] * sizes[1] + targets).reshape(-1, len(ahead)),
        starts=np.tile(np.array(whole), members),
        members=np.repeat(number, len(whole)),
        last=np.tile(axis.times[inputs[:, -1]], members),
        notes=tuple(notes),
    )


def one_by_one(count: int) -> Windows:
    """Samples without time."""
    number = np.arange(count)
    return Windows(number[:, None], number[:, None], np.zeros(count, int), number, number)


def _numbered(axis: Axis, clock: Clock, origin: Any, every: int) -> dict[int, int]:
    """Where in the file the frame of each step is; times between the steps are passed over."""
    in_order(axis.times, axis.name)
    if axis.dated:
        kind = kind_of(axis.times, axis.name)
        if kind != clock.kind:
            raise DataError(
                f"the times of inputs and targets are of different kinds ({clock.kind} and {kind} "
                f"in {axis.name}): decode both alike."
            )
        steps = clock.count(axis.times, origin)
    else:
        steps = axis.times.astype(np.float64)
    whole = np.rint(steps)
    fits = (np.abs(steps - whole) <= OFF) & (whole % every == 0)
    return {int(whole[i]) // every: int(i) for i in np.flatnonzero(fits)}


def _too_few(
    axis: Axis, target: Axis, clock: Clock, history: int, lead: int, every: int, have: int
) -> str:
    first, last = axis.times.min(), axis.times.max()
    beside = ""
    if target is not axis:
        beside = f", and targets from {said(target.times.min())} to {said(target.times.max())}"
    return (
        f"no window of {history} frames in and {lead} out: {axis.name} has {have} frames "
        f"{every} x {clock} apart from {said(first)} to {said(last)}{beside}. history={history} "
        f"and lead={lead} need {history + lead} in a row without a gap; ask for fewer, or give a "
        "longer series."
    )
