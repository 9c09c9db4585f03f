"""Arrays by name, as people save them: which are places, which are fields, which count cases.

Two layouts are known. Arrays called as the arguments of `ipot.Dataset.from_arrays` (`targets` is
among them) are taken as those. Otherwise places are looked for by name (`points`, `coords`, `pos`,
or `x`, `y`, `z`; on a grid these may be its axes), and every array is sorted by its shape: a field
of all cases (S, N) or (S, N, components), a field that they share (N), parameters (S) or (S, p).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ipot.errors import DataError
from ipot.formats.case import Arrays, Case, CaseReader
from ipot.formats.limits import check_numbers
from ipot.formats.places import Places, find_places, native

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


def _fits(shape: tuple[int, ...], places: Places) -> tuple[bool, int | None]:
    """Whether an array can be a field that all cases share, and of how many cases it can be."""
    shared, own = False, None
    for form in places.forms:
        k = len(form)
        shared |= tuple(shape[:k]) == form and len(shape) - k in (0, 1)
        if tuple(shape[1 : 1 + k]) == form and len(shape) - k in (1, 2):
            own = shape[0]
    return shared, own


def _cases(rest: Mapping[str, Any], places: Places, source: str) -> int | None:
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


def _rows(array: Any, places: Places | None) -> Callable[[int], np.ndarray]:
    return lambda i: _formed(array[i], places)


def _alike(array: Any, places: Places | None) -> Callable[[int], np.ndarray]:
    found = _formed(array[...], places)
    return lambda i: found


def _formed(array: Any, places: Places | None) -> np.ndarray:
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
