"""Arrays by name, as people save them: which are places, which are fields, which count cases.

Two layouts are known. Arrays called as the arguments of `ipot.Dataset.from_arrays` (`targets` is
among them) are taken as those. Otherwise places are looked for by name (`points`, `coords`, `pos`,
or `x`, `y`, `z`; on a grid these may be its axes), and every array is sorted by its shape: a field
of all cases (S, N) or (S, N, components), a field that they share (N), parameters (S) or (S, p).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipot.errors import DataError
from ipot.formats.fields import Arrays, Case, CaseReader
from ipot.formats.limits import check_numbers
from ipot.formats.roles import axes_in, whole_in

OWN = ("points", "values", "queries", "targets", "parameters", "times", "weights")

NAMES = ("inputs", "outputs", "parameter_names")


def sorted_out(
    arrays: Mapping[str, Any], source: str, kind: str, *, one: bool = False
) -> Arrays | CaseReader:
    """Arrays by name, as `Dataset.from_arrays` takes them or as cases; `one` says that they are
    a single case, which has no axis for cases."""
    if "targets" in arrays:
        return own_arrays(arrays, source, kind, one=one)
    return named_cases(arrays, source, kind, one=one)


def own_arrays(arrays: Mapping[str, Any], source: str, kind: str, *, one: bool = False) -> Arrays:
    """Arrays of our own layout."""
    told: dict[str, Any] = {name: _names(arrays, name, source) for name in NAMES if name in arrays}
    for name in OWN:
        if name in arrays:
            check_numbers(f"{name} of {source}", arrays[name].dtype)
            told[name] = native(arrays[name][...])
            if told[name].ndim == 0 and not one:
                raise DataError(f"{name} of {source} is a single number: an axis of cases is meant")
    others = [name for name in arrays if name not in (*OWN, *NAMES)]
    notes = [f"{', '.join(others)}: left alone beside the arrays of our layout"] if others else []
    units = {n: str(u) for n in OWN if (u := getattr(arrays.get(n), "units", ""))}
    _refuse_empty(told, source)
    return Arrays(**told, units=units, kind=kind, source=source, notes=tuple(notes))


def _refuse_empty(told: Mapping[str, Any], source: str) -> None:
    """Refuse arrays without a number: every size of the others is counted by theirs."""
    for name, given in told.items():
        for array in given if isinstance(given, list) else [given]:
            if 0 in getattr(array, "shape", ()):
                raise DataError(
                    f"{source}: {name} is empty, with the shape {tuple(array.shape)}. Write an "
                    "array with numbers, or leave it out."
                )


def named_cases(
    arrays: Mapping[str, Any], source: str, kind: str, *, one: bool = False
) -> CaseReader:
    """Cases of places and named fields."""
    empty = [n for n, a in arrays.items() if 0 in a.shape]
    notes = [f"{n}: left alone, it is empty, {tuple(arrays[n].shape)}" for n in empty]
    arrays = {n: a for n, a in arrays.items() if n not in empty}
    numbers = {n: a for n, a in arrays.items() if a.dtype.kind in "biuf" and a.dtype.itemsize <= 8}
    places = find_places(numbers, source)
    notes += [f"{n}: left alone, it holds {a.dtype}" for n, a in arrays.items() if n not in numbers]
    rest = {n: a for n, a in numbers.items() if n not in places.used}
    cases = None if one else _cases(rest, places, source)
    fields: dict[str, Callable[[int], np.ndarray]] = {}
    parameters: dict[str, Callable[[int], np.ndarray]] = {}
    for name, array in rest.items():
        shared, own = _fits(array.shape, places)
        if not one and own == cases is not None:
            fields[name] = _rows(array, places)
        elif shared:
            if cases == places.count > 1:
                raise _ambiguous(name, source, cases)
            fields[name] = _alike(array, places)
        elif cases is not None and len(array.shape) in (1, 2) and array.shape[0] == cases:
            parameters[name] = _rows(array, None)
        elif len(array.shape) == 0 or (cases is None and len(array.shape) == 1):
            parameters[name] = _alike(array, None)
        else:
            notes.append(
                f"{name}: left alone, its shape {tuple(array.shape)} fits neither "
                f"{places.count} points nor {cases or 1} cases"
            )
    if not fields and not parameters:
        shapes = ", ".join(f"{n} {tuple(a.shape)}" for n, a in rest.items())
        if one:
            raise DataError(
                f"{source} is one case of a folder, has {places.count} points and no field on "
                f"them: {shapes or 'nothing else'}. Fields are ({places.count}) or "
                f"({places.count}, components); a file of many cases is given by its own name."
            )
        raise DataError(
            f"{source} has places ({', '.join(places.used)}, {places.count} points) and no field "
            f"on them: {shapes or 'nothing else'}. Fields are (cases, {places.count}) or "
            f"(cases, {places.count}, components). For targets at several times save `points`, "
            "`values`, `targets` (cases, times, points, channels) and `times`."
        )
    units = {n: str(a.units) for n, a in numbers.items() if getattr(a, "units", "")}

    def read(i: int) -> Case:
        return Case(
            points=places.of(i),
            fields={name: of(i) for name, of in fields.items()},
            parameters={name: np.atleast_1d(of(i)) for name, of in parameters.items()},
            units=units,
            source=source if cases is None else f"{source}, case {i}",
        )

    return CaseReader(read, [str(i) for i in range(cases or 1)], kind=kind, notes=notes)


def _fits(shape: tuple[int, ...], places: ArrayPlaces) -> tuple[bool, int | None]:
    """Whether an array can be a field that all cases share, and of how many cases it can be."""
    shared, own = False, None
    for form in places.forms:
        k = len(form)
        shared |= tuple(shape[:k]) == form and len(shape) - k in (0, 1)
        if tuple(shape[1 : 1 + k]) == form and len(shape) - k in (1, 2):
            own = shape[0]
    return shared, own


def _cases(rest: Mapping[str, Any], places: ArrayPlaces, source: str) -> int | None:
    """How many cases the arrays have; None for a single one, which has no axis for cases."""
    found = {name: _fits(array.shape, places) for name, array in rest.items()}
    sure = {name: own for name, (shared, own) in found.items() if own is not None and not shared}
    if places.cases is not None:
        sure[", ".join(places.used)] = places.cases
    if len(set(sure.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in sure.items())
        raise DataError(f"{source}: its arrays have different numbers of cases: {said}")
    if sure:
        return next(iter(sure.values()))
    # (N, N) alone: as many cases as points is likelier than as many components.
    return next((own for shared, own in found.values() if own is not None), None)


def _rows(array: Any, places: ArrayPlaces | None) -> Callable[[int], np.ndarray]:
    return lambda i: _formed(array[i], places)


def _alike(array: Any, places: ArrayPlaces | None) -> Callable[[int], np.ndarray]:
    found = _formed(array[...], places)
    return lambda i: found


def _formed(array: Any, places: ArrayPlaces | None) -> np.ndarray:
    """A field as (N) or (N, components), whatever the grid it came on."""
    array = native(array)
    for form in places.forms if places is not None else ():
        k = len(form)
        if array.shape[:k] == form and array.ndim - k in (0, 1):
            return array.reshape(math.prod(form), *array.shape[k:])
    return array


def _names(arrays: Mapping[str, Any], name: str, source: str) -> tuple[str, ...]:
    if arrays[name].dtype.kind not in "US" or len(arrays[name].shape) > 1:
        raise DataError(f"{name} of {source} must be a row of names, got {arrays[name].dtype}")
    array = np.asarray(arrays[name][...])
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    return tuple(str(n) for n in np.atleast_1d(array))


def _ambiguous(name: str, source: str, cases: int | None) -> DataError:
    return DataError(
        f"{name} of {source} has {cases} rows, and there are {cases} cases and {cases} points: it "
        "could be a field or a parameter. Leave a case out, or save `points`, `values`, `targets` "
        "and `parameters` as ipot.Dataset.from_arrays takes them."
    )


WIDEST = 8
"""Coordinates that a point has at most; more means that the axes are the other way round."""


@dataclass(frozen=True, eq=False)
class ArrayPlaces:
    """Where the points are: of all cases alike, or of each."""

    of: Callable[[int], np.ndarray]
    count: int
    cases: int | None = None
    grid: tuple[int, ...] | None = None
    used: tuple[str, ...] = ()

    @classmethod
    def alike(cls, points: np.ndarray, used: tuple[str, ...], grid=None) -> ArrayPlaces:
        """The same for all cases."""
        return cls(lambda i: points, len(points), grid=grid, used=used)

    @property
    def forms(self) -> tuple[tuple[int, ...], ...]:
        """The shapes that a field on them can have."""
        return ((self.count,),) if self.grid is None else (self.grid, (self.count,))


def native(array: Any) -> np.ndarray:
    """An array in the machine's byte order."""
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def find_places(arrays: Mapping[str, Any], source: str) -> ArrayPlaces:
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
        return ArrayPlaces.alike(points, axes)
    if len(set(shapes)) == 1:
        lines = [native(arrays[a][...]) for a in axes]
        if len(shapes[0]) == len(axes) and _is_meshgrid(lines):
            points = np.stack([line.ravel() for line in lines], axis=1)
            return ArrayPlaces.alike(points, axes, shapes[0])
        if len(shapes[0]) == 2:
            each = np.stack(lines, axis=-1)
            return _stacked(each, axes, others, source)
    said = ", ".join(f"{a} {shape}" for a, shape in zip(axes, shapes, strict=True))
    raise DataError(
        f"{source}: its coordinates {said} are neither those of single points nor the axes of "
        "a grid. If they are no coordinates, give them other names and add `points` (N, D)."
    )


def _whole(name: str, array: Any, others: list[tuple[int, ...]], source: str) -> ArrayPlaces:
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
    return ArrayPlaces.alike(points, (name,))


def _stacked(
    array: Any, used: tuple[str, ...], others: list[tuple[int, ...]], source: str
) -> ArrayPlaces:
    """Places (A, B, D): B points in each of A cases, or a grid of A x B that all cases share.

    Fields tell: (cases, A, B) are on a grid. Where there are as many cases as the grid has rows,
    its coordinates do, unless its lines are curved.
    """
    form = tuple(array.shape[:2])
    on_grid = [s for s in others if s[1:3] == form and len(s) in (3, 4)]
    doubtful = [s for s in on_grid if s[:2] == form and len(s) == 3]
    if not on_grid:
        return ArrayPlaces(lambda i: native(array[i]), form[1], cases=form[0], used=used)
    straight = array.shape[2] == 2 and _is_meshgrid([native(array[..., i]) for i in (0, 1)])
    if len(doubtful) == len(on_grid) and not straight:
        raise DataError(
            f"{', '.join(used)} of {source} can be the places of {form[0]} cases or a grid of "
            f"{form[0]} x {form[1]}, and fields are {doubtful[0]}, which fits both. For a grid "
            "save points (N, D) and fields (cases, N), flat; for cases, fields (cases, N) for each "
            "component."
        )
    points = native(array[...]).reshape(form[0] * form[1], -1)
    return ArrayPlaces.alike(points, used, form)


def _are_axes(lines: list[np.ndarray], others: list[tuple[int, ...]]) -> bool:
    """Whether lines of one length are the axes of a grid that some field has."""
    if len(lines) < 2 or not all(len(x) > 1 and np.all(np.diff(x) > 0) for x in lines):
        return False
    return any(_place(tuple(len(x) for x in lines), shape) is not None for shape in others)


def _grid(axes: tuple[str, ...], lines: list[np.ndarray], others, source: str) -> ArrayPlaces:
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
        return ArrayPlaces.alike(np.stack(columns, axis=1), axes, grids[best])
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
