"""From cases to a data set: which fields are inputs, which are targets, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ipot.data.argument_checks import listed
from ipot.data.facts import named
from ipot.data.own import Dataset
from ipot.data.quantities import Agreement
from ipot.errors import DataError
from ipot.formats.case_units import in_units, learn
from ipot.formats.fields import Arrays, Case, CaseReader, Trajectories
from ipot.formats.limits import check_channels, check_memory
from ipot.formats.roles import components, unknown


def dataset_of(
    cases: CaseReader | Sequence[Case] | Arrays | Trajectories,
    *,
    inputs: Sequence[str] = (),
    targets: Sequence[str] = (),
    parameters: Sequence[str] = (),
    where: Where = "points",
    queries_from: CaseReader | Sequence[Case] | None = None,
    name: str = "own data",
    **facts: Any,
) -> Dataset:
    """A data set of the fields with these names.

    A field of several components gives as many channels, `name_x`, `name_y`, ...; one of them can
    be asked for by that name. `where` says which is meant where points and cells have a field of
    the same name; a field on cells is taken at their centres. A parameter is a number of the case
    or a field that is the same at all its points. `queries_from` are other cases, one for each,
    that have the targets. Without inputs the parameters, or else the places of the points, tell
    cases apart. Arrays need no names; those given choose channels. `facts` are further keywords of
    `Dataset.from_arrays`.
    """
    inputs, targets = listed("inputs", inputs), listed("targets", targets)
    parameters = listed("parameters", parameters)
    if isinstance(cases, Trajectories):
        raise DataError(
            f"{cases.source} holds trajectories: say how many frames go in and come out "
            "(--history, --lead)"
        )
    if isinstance(cases, Arrays):
        return _of_arrays(cases, inputs, targets, parameters, name, facts)
    if not targets:
        there = ", ".join(all_names(cases[0])) if len(cases) else "none"
        raise DataError(f"targets is empty: say which fields are learned; there are {there}")
    if not len(cases):
        raise DataError("there are no cases: nothing can be learned")
    if queries_from is not None and len(queries_from) != len(cases):
        raise DataError(
            f"queries_from has {len(queries_from)} cases and there are {len(cases)}: one for each "
            "is needed, in the same order"
        )
    found = _collected(cases, queries_from, inputs, targets, parameters, where)
    found.agreed.say()
    rows, labels = found.rows, found.labels
    _drop_flat([*rows["points"], *rows["queries"]], rows)
    given: dict[str, Any] = {"queries": _mesh(rows["queries"]), "targets": _even(rows["targets"])}
    if inputs or not parameters or not isinstance(_mesh(rows["points"]), np.ndarray):
        given["points"] = _mesh(rows["points"])
        if _same(rows["points"], rows["queries"]):
            del given["queries"]
    if inputs:
        given["values"] = _even(rows["values"])
    if parameters:
        given["parameters"] = np.stack(found.numbers)
    return Dataset.from_arrays(
        **given,
        inputs=labels["inputs"] if inputs else None,
        outputs=labels["outputs"],
        parameter_names=labels["parameter_names"] if parameters else None,
        units=_channel_units(found.units, [label for own in labels.values() for label in own])
        or None,
        name=name,
        **facts,
    )


class _Collected(NamedTuple):
    """What cases have under the names asked for."""

    rows: dict[str, list[np.ndarray]]
    """Points, values, queries and targets, case by case."""
    numbers: list[np.ndarray]
    """Their parameters."""
    labels: dict[str, tuple[str, ...]]
    """The channels that the names stand for."""
    units: dict[str, str]
    agreed: Agreement


def _collected(
    cases: Sequence[Case],
    queries_from: Sequence[Case] | None,
    inputs: Sequence[str],
    targets: Sequence[str],
    parameters: Sequence[str],
    where: Where,
) -> _Collected:
    """Read all cases, which must have the same components and fit into memory."""
    rows: dict[str, list[np.ndarray]] = {n: [] for n in ("points", "values", "queries", "targets")}
    numbers: list[np.ndarray] = []
    labels: dict[str, tuple[str, ...]] = {}
    units: dict[str, str] = {}
    held, agreed = 0, Agreement("other cases")
    for i in range(len(cases)):
        case = _agreed(cases[i], (*inputs, *targets, *parameters), units, agreed, i)
        asked = case
        if queries_from is not None:
            asked = _agreed(queries_from[i], targets, units, agreed, i)
        found: dict[str, tuple[str, ...]] = {}
        places, values, found["inputs"] = fields_of(case, inputs, "input", where)
        rows["points"].append(places)
        rows["values"].append(values)
        places, values, found["outputs"] = fields_of(asked, targets, "target", where)
        rows["queries"].append(places)
        rows["targets"].append(values)
        scalars, found["parameter_names"] = scalars_of(case, parameters)
        numbers.append(scalars)
        labels = labels or found
        if found != labels:
            raise DataError(
                f"{source_of(case, i)} has the channels {_said(found)}, and "
                f"{source_of(cases[0], 0)} has {_said(labels)}: all cases must "
                "have the same components"
            )
        held += sum(column[-1].nbytes for column in rows.values())
        check_memory(f"the data up to {source_of(case, i)}", held)
    return _Collected(rows, numbers, labels, units, agreed)


def _agreed(
    case: Case, names: Sequence[str], units: dict[str, str], agreed: Agreement, index: int
) -> Case:
    """A case in the units of those before it; what they do not say is learned from it."""
    case = in_units(case, names, units, agreed, source_of(case, index))
    learn(case, names, units)
    return case


def _of_arrays(
    arrays: Arrays,
    inputs: Sequence[str],
    targets: Sequence[str],
    parameters: Sequence[str],
    name: str,
    facts: Mapping[str, Any],
) -> Dataset:
    """Arrays as they are, or some of their channels."""
    given = {n: getattr(arrays, n) for n in ("points", "queries", "times", "weights")}
    timed = arrays.times is not None
    for array, key, chosen, flat, default in (
        ("values", "inputs", inputs, 1, "value"),
        ("targets", "outputs", targets, 2 if timed else 1, "target"),
        ("parameters", "parameter_names", parameters, 0, "parameter"),
    ):
        given[array], given[key] = _chosen(arrays, array, key, chosen, flat, default)
    for key in ("points", "values", "queries", "targets", "parameters", "weights"):
        _refuse_missing_in(arrays.files, key, given[key])
    told: dict[str, str] = {}
    for array, key in (
        ("values", "inputs"),
        ("parameters", "parameter_names"),
        ("targets", "outputs"),
    ):
        if unit := arrays.units.get(array, ""):
            told |= dict.fromkeys(given[key] or (), unit)
    given |= {"units": told or None, "name": name, **facts}
    return Dataset.from_arrays(**given)


def _refuse_missing_in(files: Sequence[str], name: str, given: Any) -> None:
    """Refuse values that are not finite by the file of a folder that they are in."""
    for file, array in zip(files, given if isinstance(given, list) else (), strict=False):
        one = Case(points=np.empty((0, 1)), source=file)
        array = np.atleast_1d(array)
        _refuse_missing(one, (name,) * max(1, array.shape[-1]), array, name)


def _chosen(
    arrays: Arrays, array: str, key: str, chosen: Sequence[str], flat: int, default: str
) -> tuple[Any, Any]:
    """An array with the channels asked for, and their names; `flat` is its rank in one case
    without an axis for channels."""
    value, names = getattr(arrays, array), getattr(arrays, key) or None
    if value is None:
        if chosen:
            raise DataError(f"{arrays.source} has no {array}, and {', '.join(chosen)} is asked for")
        return None, None
    one = value[0]
    # With fewer axes than `flat` it has no channels; Dataset.from_arrays says what is missing.
    count = 1 if np.ndim(one) <= flat else one.shape[-1]
    check_channels(f"{array} of {arrays.source}", count)
    if not chosen:
        return value, names
    there = named(key, names, count, default)
    for name in chosen:
        if name not in there:
            raise unknown(name, f"channel of {array} called", arrays.source, there)
    index = [there.index(name) for name in chosen]
    if np.ndim(one) <= flat or index == list(range(count)):
        return value, list(chosen)
    pick = [v[..., index] for v in value] if isinstance(value, list) else value[..., index]
    return pick, list(chosen)


def _drop_flat(places: list[np.ndarray], rows: dict[str, list[np.ndarray]]) -> None:
    """Leave out last coordinates that are the same for all points of all cases: mesh files always
    have three, even of a plane."""
    widths = {p.shape[1] for p in places}
    if len(widths) > 1:
        return
    width = widths.pop()
    filled = [p for p in places if len(p)]
    while (
        width > 1
        and filled
        and all((p[:, width - 1] == filled[0][0, width - 1]).all() for p in filled)
    ):
        width -= 1
    for key in ("points", "queries"):
        rows[key] = [p[:, :width] for p in rows[key]]


def _even(arrays: list[np.ndarray]) -> Any:
    """One array where all have one size, and a list otherwise."""
    return np.stack(arrays) if len({a.shape for a in arrays}) == 1 else arrays


def _mesh(places: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """One array where all cases have the same places, and a list otherwise."""
    first = places[0]
    return first if all(p is first or np.array_equal(p, first) for p in places) else places


def _same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(a is b or np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _channel_units(units: Mapping[str, str], channels: Sequence[str]) -> dict[str, str]:
    """Units by channel: a component has those of its field."""
    out = {}
    for channel in channels:
        stem = channel.rpartition("_")[0]
        if unit := units.get(channel) or units.get(stem, ""):
            out[channel] = unit
    return out


def _said(found: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(label for labels in found.values() for label in labels)


Where = Literal["points", "cells"]

_AXES = tuple(f"coordinate {i}" for i in range(100))


def fields_of(
    case: Case, names: Sequence[str], what: str, where: Where
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Places, values (rows, channels) and names of channels of fields at one kind of place."""
    here = {"points": case.fields, "cells": case.cell_fields}
    other: Where = "cells" if where == "points" else "points"
    if not names:
        _refuse_missing(case, _AXES, case.points, "points")
        return case.points, np.empty((len(case.points), 0)), ()
    for place in (where, other):
        if all(_has(here[place], name) for name in names):
            found = [_channels(here[place], name) for name in names]
            labels = tuple(label for _, own in found for label in own)
            if len(set(labels)) != len(labels):
                raise DataError(f"{what}s name a channel twice: {', '.join(labels)}")
            places = case.points if place == "points" else case.centres()
            for array, own in [(case.points, _AXES), *found]:
                _refuse_missing(case, own, array, "points" if array is case.points else place)
            return places, np.concatenate([array for array, _ in found], axis=1), labels
    for name in names:
        if not any(_has(arrays, name) for arrays in here.values()):
            raise unknown(name, f"{what} field", source_of(case), all_names(case))
    at = {p: [n for n in names if _has(here[p], n)] for p in here}
    raise DataError(
        f"{source_of(case)}: {what}s must all be at points or all on cells; at points are "
        f"{', '.join(at['points'])}, on cells {', '.join(at['cells'])}. Bring them to one."
    )


def _refuse_missing(case: Case, labels: Sequence[str], array: np.ndarray, place: str = "") -> None:
    """Refuse values that are not finite by where they came from: what is made of all cases knows
    their numbers alone. A case whose file is not known is left to those who know its argument."""
    finite = np.isfinite(array) if array.dtype.kind == "f" else None
    if finite is None or finite.all() or not case.source:
        return
    row, *channel = (int(i) for i in np.argwhere(~finite)[0])
    at = f" in row {row} of the {place} (from 0)" if place else ""
    several = f", {int((~finite).sum())} of {array.size} values are not finite" if place else ""
    label = labels[min(channel[-1] if channel else 0 if place else row, len(labels) - 1)]
    raise DataError(
        f"{source_of(case)}: {label} holds {array[~finite][0]}{at}{several}. Leave those points "
        "out, or this case, or fill them in."
    )


def _has(arrays: Mapping[str, np.ndarray], name: str) -> bool:
    return name in arrays or _component(arrays, name) is not None


def _component(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    """One component of a field, asked for as name_x or name_0."""
    stem, _, last = name.rpartition("_")
    array = arrays.get(stem)
    if array is None or array.ndim != 2:
        return None
    width = array.shape[1]
    index = "xyz".find(last) if len(last) == 1 and width <= 3 else -1
    if last.isascii() and last.isdigit() and len(last) < 6:
        index = int(last)
    return array[:, index : index + 1] if 0 <= index < width else None


def _channels(arrays: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    if name not in arrays:
        found = _component(arrays, name)
        assert found is not None
        return found, (name,)
    array = arrays[name]
    array = array[:, None] if array.ndim == 1 else array
    check_channels(f"the field {name}", array.shape[1])
    return array, components(name, array.shape[1])


def scalars_of(case: Case, names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The numbers of a case with these names, and what they are called one by one."""
    found: list[np.ndarray] = []
    labels: list[str] = []
    for name in names:
        if name in case.parameters:
            array = np.atleast_1d(case.parameters[name])
            check_channels(f"the parameter {name} of {source_of(case)}", len(array))
            own = (name,) if len(array) == 1 else tuple(f"{name}_{i}" for i in range(len(array)))
            _refuse_missing(case, own, array)
            found.append(array)
            labels += own
            continue
        arrays = next((a for a in (case.fields, case.cell_fields) if _has(a, name)), None)
        if arrays is None:
            raise unknown(name, "parameter", source_of(case), [*case.parameters, *all_names(case)])
        array, own = _channels(arrays, name)
        _refuse_missing(case, own, array, "points" if arrays is case.fields else "cells")
        if not len(array) or not (array == array[:1]).all():
            raise DataError(
                f"{source_of(case)}: {name} differs from point to point and is no parameter of the "
                "case: give it as an input"
            )
        found.append(array[0])
        labels += own
    return np.concatenate(found) if found else np.empty(0), tuple(labels)


def all_names(case: Case) -> list[str]:
    """The fields of a case, for messages."""
    return [*case.fields, *(f"{name} (on cells)" for name in case.cell_fields)]


def source_of(case: Case, index: int | None = None) -> str:
    """What to call a case in messages."""
    return case.source or ("this case" if index is None else f"case {index}")
