"""Where the points of named arrays are: one array of places, coordinates, or the axes of a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipot.errors import DataError
from ipot.formats.names import axes_in, whole_in

WIDEST = 8
"""Coordinates that a point has at most; more means that the axes are the other way round."""


@dataclass(frozen=True, eq=False)
class Places:
    """Where the points are: of all cases alike, or of each."""

    of: Callable[[int], np.ndarray]
    count: int
    cases: int | None = None
    grid: tuple[int, ...] | None = None
    used: tuple[str, ...] = ()

    @classmethod
    def alike(cls, points: np.ndarray, used: tuple[str, ...], grid=None) -> Places:
        """Places that all cases share."""
        return cls(lambda i: points, len(points), grid=grid, used=used)

    @property
    def forms(self) -> tuple[tuple[int, ...], ...]:
        """The shapes that a field on them can have."""
        return ((self.count,),) if self.grid is None else (self.grid, (self.count,))


def native(array: Any) -> np.ndarray:
    """An array in the machine's byte order."""
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def find_places(arrays: Mapping[str, Any], source: str) -> Places:
    """The places that arrays by name tell of."""
    name = whole_in(arrays)
    if name is not None:
        others = [tuple(a.shape) for n, a in arrays.items() if n != name]
        return _whole(name, arrays[name], others, source)
    axes = axes_in(arrays)
    others = [a.shape for n, a in arrays.items() if n not in axes]
    if not axes or not others:
        found = ", ".join(f"{n} {tuple(a.shape)}" for n, a in arrays.items()) or "no numbers"
        raise DataError(
            f"{source} does not say where its points are. It holds {found}. Add `points` (N, D), "
            "or coordinates `x`, `y`, `z`, or save `points`, `values` and `targets` as "
            "ipot.Dataset.from_arrays takes them."
        )
    shapes = [tuple(arrays[a].shape) for a in axes]
    if all(len(shape) == 1 for shape in shapes):
        lines = [native(arrays[a][...]) for a in axes]
        if len({len(line) for line in lines}) > 1 or _are_axes(lines, others):
            return _grid(axes, lines, others, source)
        points = np.stack(lines, axis=1)
        return Places.alike(points, axes)
    if len(set(shapes)) == 1:
        lines = [native(arrays[a][...]) for a in axes]
        if len(shapes[0]) == len(axes) and _is_meshgrid(lines):
            points = np.stack([line.ravel() for line in lines], axis=1)
            return Places.alike(points, axes, shapes[0])
        if len(shapes[0]) == 2:
            each = np.stack(lines, axis=-1)
            return _stacked(each, axes, others, source)
    said = ", ".join(f"{a} {shape}" for a, shape in zip(axes, shapes, strict=True))
    raise DataError(
        f"{source}: its coordinates {said} are neither those of single points nor the axes of "
        "a grid. If they are no coordinates, give them other names and add `points` (N, D)."
    )


def _whole(name: str, array: Any, others: list[tuple[int, ...]], source: str) -> Places:
    shape = tuple(array.shape)
    if len(shape) not in (1, 2, 3) or (len(shape) > 1 and not 0 < shape[-1] <= WIDEST):
        hint = " It looks transposed." if len(shape) > 1 and shape[-2] <= 3 < shape[-1] else ""
        raise DataError(
            f"{name} of {source} must be (N, D) for all cases or (cases, N, D), with at most "
            f"{WIDEST} coordinates; got {shape}.{hint}"
        )
    if len(shape) == 3:
        return _stacked(array, (name,), others, source)
    points = native(array[...]).reshape(shape[0], -1)
    return Places.alike(points, (name,))


def _stacked(
    array: Any, used: tuple[str, ...], others: list[tuple[int, ...]], source: str
) -> Places:
    """Places (A, B, D): B points in each of A cases, or a grid of A x B that all cases share.

    Fields tell: (cases, A, B) are on a grid. Where there are as many cases as the grid has rows,
    its coordinates do, unless its lines are curved.
    """
    form = tuple(array.shape[:2])
    on_grid = [s for s in others if s[1:3] == form and len(s) in (3, 4)]
    doubtful = [s for s in on_grid if s[:2] == form and len(s) == 3]
    if not on_grid:
        return Places(lambda i: native(array[i]), form[1], cases=form[0], used=used)
    straight = array.shape[2] == 2 and _is_meshgrid([native(array[..., i]) for i in (0, 1)])
    if len(doubtful) == len(on_grid) and not straight:
        raise DataError(
            f"{', '.join(used)} of {source} can be the places of {form[0]} cases or a grid of "
            f"{form[0]} x {form[1]}, and fields are {doubtful[0]}, which fits both. For a grid "
            "save points (N, D) and fields (cases, N), flat; for cases, fields (cases, N) for each "
            "component."
        )
    points = native(array[...]).reshape(form[0] * form[1], -1)
    return Places.alike(points, used, form)


def _are_axes(lines: list[np.ndarray], others: list[tuple[int, ...]]) -> bool:
    """Whether lines of one length are the axes of a grid that some field has."""
    if len(lines) < 2 or not all(len(x) > 1 and np.all(np.diff(x) > 0) for x in lines):
        return False
    return any(_place(tuple(len(x) for x in lines), shape) is not None for shape in others)


def _grid(axes: tuple[str, ...], lines: list[np.ndarray], others, source: str) -> Places:
    """A grid from its axes, in the order in which fields have them: (x, y) or (y, x).

    Of axes with 5 and 7 nodes, (5, 7, 5) has five components in the one order and is of five cases
    in the other. So the order is taken that explains more arrays, and components are few.
    """
    orders = [list(range(len(axes))), list(range(len(axes)))[::-1]]
    grids = [tuple(len(lines[a]) for a in order) for order in orders]
    for widest in (WIDEST, max((max(s, default=0) for s in others), default=0)):
        fits = [[s for s in others if _place(grid, s, widest) is not None] for grid in grids]
        if any(fits):
            break
    if grids[0] != grids[1] and len(fits[0]) == len(fits[1]) > 0:
        raise DataError(
            f"{source}: fields of the shape {fits[0][0]} can be on a grid ({', '.join(axes)}) or "
            f"({', '.join(reversed(axes))}). Save points (N, D) and fields (cases, N), flat."
        )
    best = int(len(fits[1]) > len(fits[0]))
    if fits[best]:
        nodes = np.meshgrid(*(lines[a] for a in orders[best]), indexing="ij")
        columns = [nodes[orders[best].index(a)].ravel() for a in range(len(axes))]
        return Places.alike(np.stack(columns, axis=1), axes, grids[best])
    sizes = ", ".join(f"{a} {len(line)}" for a, line in zip(axes, lines, strict=True))
    raise DataError(
        f"{source}: coordinates of different lengths ({sizes}) are the axes of a grid, and no "
        f"array has these axes; there are {', '.join(map(str, others))}"
    )


def _place(form: tuple[int, ...], shape: tuple[int, ...], widest: int | None = None) -> int | None:
    """Where in a shape a form stands, with at most one axis before it and one behind, of
    components, of which there are not more than `widest`."""
    for start in (0, 1):
        left = len(shape) - start - len(form)
        narrow = left == 0 or widest is None or shape[-1] <= widest
        if tuple(shape[start : start + len(form)]) == form and left in (0, 1) and narrow:
            return start
    return None


def _is_meshgrid(lines: list[np.ndarray]) -> bool:
    """Whether each coordinate varies along one axis, and no two along the same."""
    if not lines[0].size:
        return False
    varies = [
        [a for a in range(line.ndim) if not (line == np.take(line, [0], axis=a)).all()]
        for line in lines
    ]
    return all(len(v) == 1 for v in varies) and len({v[0] for v in varies}) == len(lines)
