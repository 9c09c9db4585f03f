"""Predictions for cases from files: the answer is the case with a further field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ipot.data.quantities import Agreement
from ipot.errors import DataError, warn_user
from ipot.formats.case_units import in_units
from ipot.formats.cases import Where, fields_of, scalars_of, source_of
from ipot.formats.fields import Case
from ipot.samples import Sample
from ipot.spec import Spec
from ipot.surrogate.answers import BOUNDS
from ipot.surrogate.inputs import in_given_units
from ipot.surrogate.surrogate import Surrogate


def predict_case(
    model: Surrogate,
    case: Case,
    other: Case | None = None,
    *,
    interval: float | None = None,
    steps: int | None = None,
    fill: str | None = None,
    **how: Any,
) -> Case:
    """A case with the answers of a model as fields beside those that it has.

    They are at the points, or on the cells if the targets of the training were there. With `other`,
    a case such as a finer mesh, they are at its places; nothing else is taken from it. A field of
    the same name that is there already stays, and the answer is called NAME_predicted, its bounds
    NAME_predicted_low and NAME_predicted_high. `fill` is that of `Surrogate.predict`; `how` are its
    `rows` and `precision`.
    """
    where = _where(model.about, "where")
    # Of another case only its places count: its fields and parameters are those of another input.
    target = case if other is None else replace(other, fields={}, cell_fields={}, parameters={})
    given = arguments_of(model, case, target)
    ((_, found),) = _answers(model, given, interval, steps=steps, fill=fill, **how)
    units = {**_units(found, model), **target.units}
    there = target.cell_fields if where == "cells" else target.fields
    named = {_beside(name, there, bounded=interval is not None): name for name in found}
    units |= {new: units[old] for new, old in named.items() if old in units}
    fields = {**there, **{new: found[old] for new, old in named.items()}}
    told = {"units": units, "name": case.name or target.name, "parameters": case.parameters}
    if where == "cells":
        return replace(target, cell_fields=fields, **told)
    return replace(target, fields=fields, **told)


def arguments_of(model: Surrogate, case: Case, target: Case | None = None) -> dict[str, Any]:
    """The arguments of `predict` for a case, at its own places or those of `target`."""
    spec, target = model.spec, target or case
    queries = _cut(_places(target, _where(model.about, "where")), spec.query_dimension, target)
    _remark_elsewhere(model, target)
    case = _as_trained(case, spec)
    given: dict[str, Any] = {}
    if not model.layout.alone:
        # Without inputs, the points tell cases apart; they are never those of cells.
        places, values = _inputs(case, spec, _where(model.about, "inputs_where"))
        given["points"] = _cut(places, spec.dimension, case)
        if spec.inputs:
            given["values"] = values[:, 0] if model.layout.flat_values else values
    if spec.parameters:
        numbers = _numbers(case, spec)
        given["parameters"] = numbers[0] if model.layout.flat_parameters else numbers
    return given | {"queries": queries}


def arrays_as_cases(
    model: Surrogate, given: Mapping[str, Any], *, interval: float | None = None, **how: Any
) -> list[Case]:
    """The answers to arrays as cases, one for each sample: places with a field for each channel."""
    scaling = model.layout.scaling("queries")
    return [
        Case(
            points=sample.queries.double().numpy()
            if scaling is None
            else scaling.undo(sample.queries, "queries"),
            fields=found,
            units=_units(found, model),
        )
        for sample, found in _answers(model, given, interval, **how)
    ]


def _answers(
    model: Surrogate,
    given: Mapping[str, Any],
    interval: float | None,
    *,
    steps: int | None = None,
    fill: str | None = None,
    **how: Any,
) -> list[tuple[Sample, dict[str, np.ndarray]]]:
    """Samples, and for each the answers by name, with bounds if they are asked for."""
    model.refuse_level(interval)
    samples = model.request(**given, steps=steps, fill=fill).samples
    parts = {"": model.answers(samples, **how)}
    if interval is not None:
        low, high = model.around(samples, parts[""], interval)
        parts |= {"_low": low, "_high": high}
    found = []
    for i, sample in enumerate(samples):
        named = [
            _named(in_given_units(model.layout, part[i]), model, suffix)
            for suffix, part in parts.items()
        ]
        found.append((sample, {k: v for fields in named for k, v in fields.items()}))
    return found


def _as_trained(case: Case, spec: Spec) -> Case:
    """A case with inputs and parameters in the units that the model was trained in."""
    names = *spec.inputs, *spec.parameters
    wanted = dict(zip(spec.inputs, spec.input_units, strict=False))
    wanted |= dict(zip(spec.parameters, spec.parameter_units, strict=False))
    agreed = Agreement("the model")
    case = in_units(case, names, wanted, agreed, source_of(case))
    agreed.say()
    return case


def _inputs(case: Case, spec: Spec, where: Where) -> tuple[np.ndarray, np.ndarray]:
    """Places and values (rows, channels), from fields by name or from arrays."""
    together = case.fields.get("values")
    if together is not None and not set(spec.inputs) & set(case.fields):
        together = together[:, None] if together.ndim == 1 else together
        if together.shape[1] == spec.channels:
            return case.points, together
    places, values, _ = fields_of(case, spec.inputs, "input", where)
    return places, values


def _numbers(case: Case, spec: Spec) -> np.ndarray:
    """The parameters of a case, by name or from an array."""
    together = case.parameters.get("parameters")
    if together is not None and np.shape(together) == (len(spec.parameters),):
        return together
    return scalars_of(case, spec.parameters)[0]


def _where(about: Mapping[str, Any], key: str) -> Where:
    return "cells" if about.get("columns", {}).get(key) == "cells" else "points"


def _places(case: Case, where: Where) -> np.ndarray:
    return case.centres() if where == "cells" else case.points


def _cut(places: np.ndarray, dimension: int, case: Case) -> np.ndarray:
    """The coordinates that the model takes: mesh files have three, even for a plane."""
    if places.shape[1] < dimension:
        raise DataError(
            f"{source_of(case)} has {places.shape[1]} coordinates, the model {dimension}"
        )
    rest = places[:, dimension:]
    if len(rest) and not (rest == rest[:1]).all():
        raise DataError(
            f"{source_of(case)} has {places.shape[1]} coordinates that vary, and the model was "
            f"trained on {dimension}"
        )
    return places[:, :dimension]


def _remark_elsewhere(model: Surrogate, case: Case) -> None:
    """Warn if coordinates that are left out differ from those of training, as in another slice."""
    dimension, known = model.spec.query_dimension, model.about.get("columns", {}).get("left_out")
    rest = case.points[:1, dimension:].ravel().tolist()
    for axis, (here, there) in enumerate(zip(rest, known or (), strict=False), start=dimension):
        if not math.isclose(here, there, rel_tol=1e-6, abs_tol=1e-12):
            said = f"coordinate {axis} is {here:g} at all points, and was {there:g} in all of"
            warn_user(
                f"{source_of(case)}: {said} training, so the model knows nothing of it: it is left "
                "out",
            )


def _named(answer: np.ndarray, model: Surrogate, suffix: str) -> dict[str, np.ndarray]:
    """An answer (T, M, K) by the names of its channels, and by time if it has times."""
    times = [f"_t{i + 1}" for i in range(len(answer))] if model.layout.timed else [""]
    return {
        f"{name}{time}{suffix}": answer[i, :, k]
        for i, time in enumerate(times)
        for k, name in enumerate(model.spec.outputs)
    }


def _beside(name: str, there: Mapping[str, Any], *, bounded: bool) -> str:
    """The name of an answer, or of its bound, in a case: if the case has a field of that name
    already, _predicted is added, for bounds too."""
    stem, last = name, ""
    for suffix in BOUNDS if bounded else ():
        if name.endswith(suffix):
            stem, last = name.removesuffix(suffix), suffix
    return f"{stem}_predicted{last}" if stem in there else name


def _units(found: Mapping[str, Any], model: Surrogate) -> dict[str, str]:
    """The units of named answers, from the channels that their names begin with."""
    spec = model.spec
    known = dict(zip(spec.outputs, spec.units, strict=False))
    count = max(1, len(found) // max(1, len(spec.outputs)))
    named = zip(found, [k for _ in range(count) for k in spec.outputs], strict=True)
    return {name: known[k] for name, k in named if known.get(k)}
