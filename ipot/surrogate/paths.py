"""What the file or folder behind a path asks of a model: arrays, cases, trajectories, frames."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data.own_given import path_given
from ipot.errors import DataError
from ipot.formats import kind_of, read_cases
from ipot.formats.fields import Arrays, Trajectories
from ipot.formats.limits import is_pattern, is_there, nothing_at
from ipot.formats.numpy_files import DESCRIPTION, headers, read_arrays
from ipot.formats.trajectories import as_trained, latest
from ipot.formats.xarray_files import open_series
from ipot.surrogate.cases import arguments_of
from ipot.surrogate.surrogate import Surrogate

ARGUMENTS = ("points", "values", "queries", "parameters")


def predict_path(
    model: Surrogate,
    path: str | os.PathLike[str],
    *,
    on: Any = None,
    queries: Any = None,
    **how: Any,
) -> Any:
    """The answer of `Surrogate.predict` to what is in a file or folder; to several cases a list."""
    path = path_given("points", path)
    if not is_pattern(path) and not is_there(path):
        raise DataError(
            f"points is text, taken for the path of a file or folder: {nothing_at(path)}"
        )
    if model.series is not None:
        return model.predict(open_series(path), queries=queries, on=on, **how)
    if on is not None:
        raise DataError("on is for labelled arrays: say where to answer with queries=...")
    asked: dict[str, Any] = {} if queries is None else {"queries": queries}
    given: dict[str, Any]
    if holds_arguments(model, path):
        given = {**arguments_in(model, path), **asked, **how}
        return model.predict(**given)
    found = read_cases(path)
    if isinstance(found, Trajectories):
        columns = model.about.get("columns", {})
        found = as_trained(found, columns, model.spec)
        given = {**latest(found, columns), **asked, **how}
        return model.predict(**given)
    if isinstance(found, Arrays):
        raise DataError(f"{path} holds arrays, and the model takes cases: give a file of a case")
    answers = []
    for case in found:
        given = {**arguments_of(model, case), **asked, **how}
        answers.append(model.predict(**given))
    return answers[0] if len(answers) == 1 and not path.is_dir() else answers


def arguments_in(model: Surrogate, path: Path) -> dict[str, np.ndarray]:
    """Arrays by the names of the arguments of `predict`."""
    there = read_arrays(path)
    given = {name: array for name, array in there.items() if name in ARGUMENTS}
    needed = [*(["points"] * (not model.layout.alone)), *(["values"] * bool(model.spec.inputs))]
    if missing := [name for name in needed if name not in given]:
        raise DataError(f"{path} lacks {' and '.join(missing)}; it has {', '.join(there)}")
    return given


def queries_in(path: Path) -> np.ndarray:
    """The places that a file of arrays asks at."""
    other = read_arrays(path)
    if "queries" not in other:
        raise DataError(f"{path} has no array `queries`; it has {', '.join(other)}")
    return other["queries"]


def holds_arguments(model: Surrogate, path: Path) -> bool:
    """True if a file or folder holds arrays by the names of the arguments, and not fields by names
    of their own, as a model of cases knows them."""
    kind = kind_of(path)
    if kind == "npz":
        names = set(headers(path))
        if DESCRIPTION in names:
            return False
    elif kind == "folder":
        names = {p.stem for p in path.glob("*.npy")}
        if model.problem is not None and not any(p.is_file() for p in path.iterdir()):
            return True  # to be refused by what is expected there
    else:
        return kind == "npy"
    of_cases = model.about.get("columns", {}).get("kind") == "cases"
    wanted = {"values", "queries"} if of_cases else {*ARGUMENTS}
    return bool(names & wanted) or (model.problem is not None and kind == "npz")
