"""Predictions for files and folders: inputs read from a path, answers as arrays or files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ipot.data.argument_checks import path_given
from ipot.errors import DataError
from ipot.formats import Case, kind_of, read_cases, write_case, write_cases
from ipot.formats.fields import Arrays, CaseReader, Trajectories
from ipot.formats.limits import is_pattern, is_there, nothing_at
from ipot.formats.numpy_files import DESCRIPTION, headers, read_arrays, write_arrays, write_mapped
from ipot.formats.the_well import write_well
from ipot.formats.trajectories import KIND, after, as_trained, carried_on, latest
from ipot.formats.xarray_files import open_series
from ipot.surrogate.cases import arguments_of, arrays_as_cases, predict_case
from ipot.surrogate.encoded import Interval
from ipot.surrogate.forecast import named_bounds, netcdf_written
from ipot.surrogate.surrogate import Surrogate

ARGUMENTS = ("points", "values", "queries", "parameters")

TREES = (".h5", ".hdf5")
TABLES = (".csv", ".tsv", ".parquet", ".pq")
MANY = (*TREES, *TABLES)
"""What holds many cases in one file."""


class ManyCases(DataError):
    """Several cases were to be written to a file that holds one."""

    def __init__(self, output: Path, count: int) -> None:
        super().__init__(
            f"--out {output}: {count} cases are written to a folder, or to one file that ends in "
            ".h5, .csv, .tsv or .parquet"
        )
        self.count = count


def asked_in(model: Surrogate, path: Path) -> Any:
    """The inputs in a file or folder: labelled frames, a dict of arrays by the names of the
    arguments of `predict`, trajectories in the units of training, or cases."""
    if model.series is not None:
        return open_series(path)
    if holds_arguments(model, path):
        return arguments_in(model, path)
    found = read_cases(path)
    if isinstance(found, Arrays):
        raise DataError(f"{path} holds arrays, and the model takes cases: give a file of a case")
    if not isinstance(found, Trajectories):
        return found
    columns = model.about.get("columns", {})
    if columns.get("kind") != KIND:
        raise DataError(
            f"{path} holds trajectories, and the model was not trained on such: give a file of the "
            "kind that it was trained on"
        )
    return as_trained(found, columns, model.spec)


def predict_path(
    model: Surrogate,
    path: str | os.PathLike[str],
    *,
    on: Any = None,
    queries: Any = None,
    **how: Any,
) -> Any:
    """The answer of `Surrogate.predict` for a file or folder; for several cases a list."""
    path = path_given("points", path)
    if not is_pattern(path) and not is_there(path):
        raise DataError(
            f"points is text, taken for the path of a file or folder: {nothing_at(path)}"
        )
    if on is not None and model.series is None:
        raise DataError("on is for labelled arrays: say where to answer with queries=...")
    asked = asked_in(model, path)
    if model.series is not None:
        return model.predict(asked, queries=queries, on=on, **how)
    at: dict[str, Any] = {} if queries is None else {"queries": queries}
    if isinstance(asked, Trajectories):
        asked = latest(asked, model.about["columns"])
    if isinstance(asked, dict):
        return model.predict(**{**asked, **at, **how})
    answers = [model.predict(**{**arguments_of(model, case), **at, **how}) for case in asked]
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
    """The queries in a file of arrays."""
    other = read_arrays(path)
    if "queries" not in other:
        raise DataError(f"{path} has no array `queries`; it has {', '.join(other)}")
    return other["queries"]


def holds_arguments(model: Surrogate, path: Path) -> bool:
    """True if a file or folder holds arrays named after the arguments of `predict`, and not fields
    with names of their own."""
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


def answer_files(
    model: Surrogate,
    source: Path,
    output: Path,
    *,
    queries: Path | None = None,
    grid: int | None = None,
    all_times: bool = False,
    **terms: Any,
) -> dict[str, Any]:
    """Read the inputs from `source`, predict, and write `output`; says what was written.

    Answers are at the places in the file `queries`, on a regular `grid` of so many points a side,
    or where the inputs are; `all_times` answers every time of a series. The `terms` are those of
    `Surrogate.predict`: interval, steps, fill, rows, precision.
    """
    if grid is not None and queries is not None:
        raise DataError("--grid and --queries both say where to answer: give one of them")
    places = None if grid is None else _grid(model, grid)
    if model.series is not None:
        return _answer_series(model, source, queries, places, output, terms, all_times=all_times)
    if all_times:
        raise DataError("--all-times is for a model of a series in netCDF, Zarr or GRIB")
    asked = asked_in(model, source)
    if isinstance(asked, dict):
        return _answer_arrays(model, asked, queries, places, output, terms)
    if isinstance(asked, Trajectories):
        return _answer_trajectories(model, asked, queries, places, output, terms)
    return _answer_cases(model, source, asked, queries, places, output, terms)


def _answer_cases(
    model: Surrogate,
    source: Path,
    cases: CaseReader,
    queries: Path | None,
    places: Any,
    output: Path,
    terms: Any,
) -> dict[str, Any]:
    """Read cases, and write them with the answers as further fields."""
    others: Any = None if places is None else [Case(points=places, fields={})]
    if queries is not None:
        others = read_cases(queries)
        if not isinstance(others, CaseReader):
            raise DataError(
                f"{queries} holds arrays or trajectories, and the model takes cases: give a file "
                "of a case"
            )
    if others is not None and len(others) not in (1, len(cases)):
        raise DataError(
            f"--queries {queries} has {len(others)} cases and the input {len(cases)}: give one "
            "mesh for all of them, or one for each"
        )

    def answer(i: int) -> Case:
        other = None if others is None else others[i if len(others) > 1 else 0]
        return predict_case(model, cases[i], other, **terms)

    answers = [partial(answer, i) for i in range(len(cases))]
    # At places of their own the rows of an answer are not those of the input.
    rows = cases.rows if others is None else ()
    _write(output, answers, cases.names, _suffix(queries or source), rows)
    return _summary(model, output, len(cases))


def _grid(model: Surrogate, side: int) -> np.ndarray:
    """A regular grid over the domain of the queries, in the units of the data."""
    if side < 2:
        raise DataError(f"--grid needs at least 2 points a side, got {side}")
    lines = [torch.linspace(a, b, side) for a, b in model.spec.query_domain]
    rows = torch.cartesian_prod(*lines).reshape(-1, len(lines))
    scaling = model.layout.scaling("queries")
    return rows.numpy() if scaling is None else scaling.undo(rows, "queries")


def _write(
    output: Path,
    answers: Sequence[Callable[[], Case]],
    names: Sequence[str],
    suffix: str,
    rows: Sequence[np.ndarray] = (),
) -> None:
    """One case as a file, several as a folder of files that end in `suffix`, or as one HDF5 file or
    table, with its rows in the order of the table they came from; each is made when it is
    written."""
    names = names or [str(i) for i in range(len(answers))]
    if len(answers) == 1:
        write_case(output, answers[0]())
    elif output.suffix.lower() in MANY:
        write_cases(output, [answer() for answer in answers], names, rows)
    elif output.suffix:
        raise ManyCases(output, len(answers))
    else:
        for name, answer in zip(names, answers, strict=True):
            write_case(output / f"{name}{suffix}", answer())


def _answer_series(
    model: Surrogate,
    source: Path,
    queries: Path | None,
    places: Any,
    output: Path,
    terms: Any,
    *,
    all_times: bool,
) -> dict[str, Any]:
    """Read labelled arrays, and write the answers to a netCDF file."""
    if output.suffix != ".nc":
        raise DataError(f"--out {output}: a forecast is written as .nc")
    if places is not None:
        raise DataError("--grid: a forecast is on named coordinates; give a file by --queries")
    on = None if queries is None else open_series(queries)
    if all_times:
        found = model.predict(open_series(source), on=on, all_times=True, out=output, **terms)
        count, names = found.sizes[found[model.spec.outputs[0]].dims[0]], list(model.spec.outputs)
        found.close()
        return {"output": str(output), "cases": count, "outputs": names}
    found = model.predict(open_series(source), on=on, **terms)
    parts = list(found) if isinstance(found, Interval) else [found]
    whole = named_bounds(parts)
    with netcdf_written(output) as temporary:
        whole.to_netcdf(temporary, engine="netcdf4")
    return _summary(model, output, 1)


def _answer_arrays(
    model: Surrogate,
    given: dict[str, Any],
    queries: Path | None,
    places: Any,
    output: Path,
    terms: Any,
) -> dict[str, Any]:
    """Arrays by the names of the arguments in; arrays out as .npz or, mapped and never held whole,
    as .npy; fields in other formats."""
    if queries is not None:
        given["queries"] = queries_in(queries)
    if places is not None:
        given["queries"] = places
    how = dict(terms)
    asked = model.request(**given, steps=how.pop("steps", None), fill=how.pop("fill", None))
    count = len(asked.samples)
    if output.suffix == ".npy":
        if how.pop("interval", None) is not None:
            raise DataError("--interval: bounds are written as .npz, beside the prediction")
        shape = asked.shape(len(model.spec.outputs))
        found = write_mapped(output, shape, lambda out: model.answer(asked, **how, out=out))
        return _summary(model, output, count, found)
    if output.suffix == ".npz":
        parts = _parts(model.answer(asked, **how))
        if "queries" not in given:
            given["queries"] = model.places() if terms.get("fill") else given["points"]
        times = {"times": np.array(asked.samples[0].times)} if model.layout.timed else {}
        write_arrays(output, queries=given["queries"], **parts, **times)
        return _summary(model, output, count, parts["prediction"])
    cases = arrays_as_cases(model, given, **terms)
    _write(output, [partial(cases.__getitem__, i) for i in range(len(cases))], (), ".npz")
    return _summary(model, output, len(cases))


def _answer_trajectories(
    model: Surrogate,
    source: Trajectories,
    queries: Path | None,
    places: Any,
    output: Path,
    terms: Any,
) -> dict[str, Any]:
    """Read the last frames of every trajectory, and write the frames that follow."""
    columns = model.about["columns"]
    given: dict[str, Any] = latest(source, columns)
    whole = output.suffix.lower() in TREES
    if not whole and output.suffix != ".npz":
        raise DataError(f"--out {output}: trajectories are written as .h5 or .npz")
    if queries is not None or places is not None:
        given["queries"] = places if queries is None else queries_in(queries)
        if whole:
            raise DataError(
                f"--out {output}: answers at --queries or --grid are written as .npz; an .h5 "
                "file of trajectories has the grid of the input"
            )
    if whole and terms.get("interval") is not None:
        raise DataError("--interval: bounds of trajectories are written as .npz")
    found = model.predict(**given, **terms)
    parts = _parts(found)
    times = after(source, columns, parts["prediction"].shape[1])
    if whole:
        write_well(output, carried_on(source, columns, found))
    else:
        at = given.get("queries", given["points"])
        write_arrays(output, queries=at, times=times, **parts)
    return _summary(model, output, len(source), parts["prediction"])


def _parts(found: Any) -> dict[str, Any]:
    if isinstance(found, Interval):
        return {"prediction": found.prediction, "low": found.low, "high": found.high}
    return {"prediction": found}


def _summary(model: Surrogate, output: Path, cases: int, found: Any = None) -> dict[str, Any]:
    """What was written; for a single array also its shape and range."""
    said = {"output": str(output), "cases": cases, "outputs": list(model.spec.outputs)}
    if isinstance(found, np.ndarray):
        said |= {"shape": list(found.shape)}
        said |= {"minimum": float(found.min()), "maximum": float(found.max())}
    return said


def _suffix(path: Path) -> str:
    """The suffix of the cases in a folder, where it is one that can be written."""
    inside = sorted(p.suffix.lower() for p in path.iterdir()) if path.is_dir() else [path.suffix]
    for suffix in inside:
        if suffix in (".vtu", ".vtp", *TABLES, ".npz", *TREES):
            return suffix
    return ".npz"
