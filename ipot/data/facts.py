"""Facts found in data: the box they lie in, their periods, their grid, the step of their times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.argument_checks import is_whole, items, text
from ipot.data.arrays import array, is_listed, spans_of
from ipot.data.dataset import Ragged, Stacked
from ipot.data.scaling import HELD, TINIEST, Scaling, Span, middle, power_of_two
from ipot.errors import DataError, shown, warn_user
from ipot.spec import Bounds

BESIDE = 1e20
"""Times their own extent that points and queries may lie apart: no domain is so much larger than
what is looked at in it."""


def named(argument: str, names: Any, count: int, default: str) -> tuple[str, ...]:
    """Names for channels: those given, which must be as many and differ, or numbered ones."""
    if names is None:
        return (default,) if count == 1 else tuple(f"{default}_{i}" for i in range(count))
    names = (names,) if isinstance(names, str) else names
    # A set has no order, and a mapping has more than names.
    if not isinstance(names, Iterable) or isinstance(names, Mapping | Set | bytes):
        raise DataError(f"{argument} must be a list of names, got {shown(names)}")
    names = tuple(text(f"{argument}[{i}]", n) for i, n in enumerate(items(argument, names)))
    if len(names) != count:
        raise DataError(f"{argument} names {len(names)} channels, and there are {count}")
    if len(set(names)) != len(names):
        raise DataError(f"{argument} names a channel twice: {', '.join(names)}")
    return names


def bounds(data: Stacked | Ragged, *, geographic: bool = False) -> tuple[Bounds, Bounds]:
    """The boxes that points and queries lie in: one for both where they have as many coordinates.

    A side without extent is given one, so that it can be divided by.
    """
    if isinstance(data, Stacked):
        points, queries = [data.data.points], [data.data.queries]
    else:
        points = [s.points for s in data.samples]
        queries = [s.queries for s in data.samples]
    if not queries[0].shape[-1]:
        raise DataError("queries have no coordinates: give a column for each, (M, 1) on a line")
    if len(points[0]) and points[0].shape[-1] == queries[0].shape[-1]:
        box = _box([*points, *queries])
        boxes = box, box
    else:
        asked = _box(queries)
        boxes = (_box(points) if any(p.numel() for p in points) else asked), asked
    if geographic:
        for box in dict.fromkeys(boxes):
            _refuse_not_geographic(box)
            if in_radians(box):
                (west, east), (south, north) = box[:2]
                warn_user(
                    f"geographic: longitudes go from {west:.4g} to {east:.4g} and latitudes from "
                    f"{south:.4g} to {north:.4g}, which looks like radians; degrees are expected "
                    "(numpy.rad2deg). If the places do lie so near 0° N, 0° E, nothing is wrong.",
                )
    return boxes


def periods_of(
    periods: Any, domain: Bounds, name: str, scale: Sequence[float] = ()
) -> tuple[float | None, ...]:
    """A period or None for every coordinate, from {axis: period} or a list with one for each.

    `scale` is what the coordinates of the domain were divided by, if they were.
    """
    if periods is None:
        return (None,) * len(domain)
    if not isinstance(periods, Mapping):
        if isinstance(periods, str | Set) or not isinstance(periods, Iterable):
            raise DataError(
                f"periods must be like {{0: 1.0}}, {{axis: period}}, or a list with a period or "
                f"None for each coordinate, got {shown(periods)}"
            )
        listed = items("periods", periods)
        if len(listed) != len(domain):
            raise DataError(
                f"periods has {len(listed)} entries for {len(domain)} coordinates: give a period "
                "or None for each, or {axis: period}"
            )
        periods = dict(enumerate(listed))
    found: list[float | None] = [None] * len(domain)
    for axis, period in periods.items():
        if not is_whole(axis) or axis not in range(len(domain)):
            raise DataError(
                f"periods names axis {shown(axis)}; {name} have axes 0 to {len(domain) - 1}"
            )
        if period is not None:
            found[axis] = _period(axis, period, domain[axis], name, scale[axis] if scale else 1.0)
    return tuple(found)


def _period(axis: int, period: Any, bounds: tuple[float, float], name: str, scale: float) -> float:
    """One that is a length, and not less than what it is to hold."""
    if isinstance(period, Tensor | np.ndarray) and not period.ndim:
        period = period.item()
    if isinstance(period, bool) or not isinstance(period, Real):
        raise DataError(f"periods: that of axis {axis} must be a number, got {shown(period)}")
    try:
        length = float(period)
    except OverflowError:  # a whole number that float64 cannot hold
        length = math.inf
    low, high = (scale * end for end in bounds)
    if not (math.isfinite(length) and length > 0):
        wanted = "finite" if length > 0 else "positive"
        raise DataError(f"periods: that of axis {axis} must be {wanted}, got {shown(period)}")
    if high - low > length * (1 + 1e-6):
        raise DataError(
            f"periods: {name} reach from {low:g} to {high:g} along axis {axis}, more than its "
            f"period {length:g}"
        )
    return length / scale


def place_scalings(
    points: Any, queries: Any, *, geographic: bool
) -> tuple[Scaling | None, Scaling | None]:
    """What to take off points and queries that lie far from zero for their extent, as map grids do,
    and what to divide them by where float32 has no such numbers: the same for both where they have
    as many coordinates. Longitude and latitude stay as they are."""
    found = [_extent(name, a) for name, a in (("points", points), ("queries", queries))]
    here, there = found
    kept = 2 if geographic else 0
    if here is not None and there is not None and len(here) == len(there):
        both = [a.join(b) for a, b in zip(here, there, strict=True)]
        _refuse_apart(here, there, _place_scaling("points", both, kept), kept)
        here = there = both
    return _place_scaling("points", here, kept), _place_scaling("queries", there, kept)


def _refuse_apart(points: list[Span], queries: list[Span], both: Scaling | None, kept: int) -> None:
    """Refuse points or queries that are nothing beside the others, as in other units; a warning
    where they merely fall together, counted from the origin that both have."""
    both = both or Scaling.none(len(points))
    for i, (here, there) in enumerate(zip(points, queries, strict=True)):
        offset, scale = both.offset[i], both.scale[i]
        for name, own in (("points", here), ("queries", there)):
            left = max(abs(own.low - offset), abs(own.high - offset))
            rounded = max(HELD * float(left), TINIEST * scale)
            if i < kept or not own.spread or own.is_noise or 2 * rounded <= float(own.spread):
                continue
            said = (
                f"points reach from {here.low:g} to {here.high:g} along axis {i} and queries from "
                f"{there.low:g} to {there.high:g}: beside the others, {name} cannot be told apart "
                "in float32. Check that both are in the same units."
            )
            if float(here.join(there).spread) > BESIDE * float(own.spread):
                raise DataError(said)
            warn_user(said)


def _place_scaling(name: str, axes: list[Span] | None, kept: int) -> Scaling | None:
    pairs = []
    for i, axis in enumerate(axes or ()):
        offset = 0.0
        if i >= kept and axis.is_far:
            # A round number where that is near enough: it is shown to people.
            centre = axis.low / 2 + axis.high / 2
            offset = float(np.round(centre))
            if abs(centre - offset) > axis.spread:
                offset = 0.0 if axis.is_noise else middle(axis)
        left = max(abs(axis.low - offset), abs(axis.high - offset))
        pairs.append((offset, 1.0 if i < kept else power_of_two(left)))
    if all(pair == (0.0, 1.0) for pair in pairs):
        return None
    return Scaling(tuple(o for o, _ in pairs), tuple(s for _, s in pairs))


def grid_of(points: Tensor) -> tuple[int, ...] | None:
    """The shape of the lattice that points (N, D) are row by row, if they are one."""
    count, dimension = points.shape
    if dimension not in (1, 2, 3) or count < 2**dimension:
        return None
    if dimension == 1:
        return (count,) if bool((points.diff(dim=0) > 0).all()) else None
    shape, left = [], points
    for axis in range(dimension):
        lines = torch.unique_consecutive(left[:, axis])
        if len(lines) < 2 or len(left) % len(lines) or not bool((lines.diff() > 0).all()):
            return None
        shape.append(len(lines))
        left = left[: len(left) // len(lines)]
    if math.prod(shape) != count:
        return None
    nodes = points.reshape(*shape, dimension)
    for axis in range(dimension):
        first = nodes[..., axis].movedim(axis, 0).reshape(shape[axis], -1)
        if not bool((first == first[:, :1]).all()):
            return None
    return tuple(shape)


def is_straight(places: np.ndarray) -> bool:
    """Whether places (H, W, ..., D) are the nodes of a grid with straight lines, in whatever order
    and direction: every coordinate changes along one axis at most, and every axis changes one."""
    axes = places.ndim - 1
    if not 1 < axes <= places.shape[-1] or not places.size:
        return False
    changed = []
    for coordinate in np.moveaxis(places, -1, 0):
        along = [a for a in range(axes) if (coordinate != coordinate.take([0], axis=a)).any()]
        if len(along) > 1:
            return False
        changed += along
    long = {a for a in range(axes) if places.shape[a] > 1}
    # A single row of a grid has one coordinate that changes; rows of one sample have all of them.
    row = len(long) < axes
    return set(changed) == long and not (row and len(changed) != 1)


def _box(places: Sequence[Tensor]) -> Bounds:
    places = [p.reshape(-1, p.shape[-1]) for p in places if p.numel()]
    low = torch.stack([p.amin(0) for p in places]).amin(0).double()
    high = torch.stack([p.amax(0) for p in places]).amax(0).double()
    # Half a unit, but more where numbers are so large that float32 would not notice it.
    half = torch.where(high <= low, (low.abs() * 2.0**-22).clamp(min=0.5), 0.0)
    low, high = low - half, high + half
    return tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))


def _extent(name: str, given: Any) -> list[Span] | None:
    """The span of every coordinate."""
    if given is None:
        return None
    listed = is_listed(given)
    arrays = [array(name, a) for a in given] if listed else [array(name, given)]
    arrays = [a[..., None] if a.ndim == 1 else a for a in arrays if a.size and a.ndim]
    if not arrays or len({a.shape[-1] for a in arrays}) > 1:
        return None
    return spans_of(name, arrays, arrays[0].shape[-1])


def in_radians(box: Bounds) -> bool:
    """Whether longitudes and latitudes in a box can be angles in radians. Degrees like these are
    places in the Gulf of Guinea."""
    (west, east), (south, north) = box[:2]
    full, half = math.pi + 1e-3, math.pi / 2 + 1e-3
    one_turn = (west >= -full and east <= full) or (west >= -1e-3 and east <= 2 * full)
    return one_turn and -half <= south and north <= half


def _refuse_not_geographic(box: Bounds) -> None:
    if len(box) < 2:
        raise DataError("geographic: expected longitude and latitude, got one coordinate")
    (west, east), (south, north) = box[:2]
    if south < -90.01 or north > 90.01:
        raise DataError(
            f"geographic: the second coordinate must be the latitude, -90 to 90 degrees, got "
            f"{south:g} to {north:g}. The order is (longitude, latitude)."
        )
    if west < -360.01 or east > 720.01:
        raise DataError(
            f"geographic: the first coordinate must be the longitude in degrees, got {west:g} to "
            f"{east:g}"
        )


MOST_STEPS = 1000
"""From 0 to the last time."""
PRINTED = 1e-3
"""Of a step that times may be off it where their smallest gap is one: by printed digits."""
ROUNDED = 2e-7
"""Of the last time that times may be off a finer step: as float32 rounds."""


def times_given(times: Any) -> tuple[float, ...]:
    """An argument `times` as whole steps."""
    found = array("times", times)
    if found.ndim != 1 or not len(found):
        raise DataError(f"times must be a list of numbers, got shape {found.shape}")
    return snapped(tuple(float(t) for t in found))


def step_of(times: tuple[float, ...]) -> tuple[float, int]:
    """The largest step that all times are multiples of, and how many the last one is."""
    if not all(math.isfinite(t) and t > 0 for t in times) or list(times) != sorted(set(times)):
        raise DataError(
            f"times must be positive and increase, got {_shown(times)}. Time 0 is the input itself."
        )
    gap = float(min(np.diff([0.0, *times])))
    count = times[-1] / gap
    if count > MOST_STEPS or _off(times, np.asarray([count]))[0] > PRINTED:
        # The times need not be next to each other: 2 and 5 are steps of 1.
        counts = np.arange(1, MOST_STEPS + 1)
        fitting = counts[_off(times, counts) <= ROUNDED * counts]
        if not len(fitting):
            raise DataError(
                f"times must be whole multiples of one step, {MOST_STEPS} at most: "
                f"{_shown(times)}. For other times make time one more coordinate of the queries."
            )
        count = fitting[0]
    # The last time knows the step best.
    return times[-1] / round(count), round(count)


def snapped(times: tuple[float, ...]) -> tuple[float, ...]:
    """Times as exact multiples of their step."""
    step, _ = step_of(times)
    return tuple(step * round(t / step) for t in times)


def _off(times: tuple[float, ...], counts: np.ndarray) -> np.ndarray:
    """How far, in steps, the times are off whole ones where the last is so many of them."""
    found = np.multiply.outer(counts, np.asarray(times) / times[-1])
    return np.abs(found - found.round()).max(-1)


def _shown(times: Sequence[float]) -> str:
    shown = ", ".join(f"{t:g}" for t in times[:6])
    return f"({shown}{', ...' if len(times) > 6 else ''})"
