"""Answers of a model of somebody's own data, in the format asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ipot import files
from ipot.errors import DataError, RunError
from ipot.formats import Case, kind_of, read_cases, write_case, write_cases
from ipot.formats.arrays import DESCRIPTION, headers, read_arrays, write_arrays
from ipot.formats.case import Arrays, CaseReader, Trajectories
from ipot.formats.well_write import write_well
from ipot.labelled.opened import open_series
from ipot.surrogate.cases import arrays_as_cases, predict_case
from ipot.surrogate.surrogate import Interval, Surrogate
from ipot.surrogate.trajectories import KIND, after, carried_on, latest

TREES = (".h5", ".hdf5")
TABLES = (".csv", ".tsv", ".parquet", ".pq")
MANY = (*TREES, *TABLES)
"""What holds many cases in one file."""
ARGUMENTS = ("points", "values", "queries", "parameters")


def answer_own(
    model: Surrogate,
    source: Path,
    asked: Path | None,
    output: Path,
    *,
    interval: float | None = None,
    steps: int | None = None,
) -> dict[str, Any]:
    """Read, predict, write; says what was written."""
    if model.series is not None:
        return _series(model, source, asked, output, interval, steps)
    if steps is not None and not model.layout.timed:
        raise DataError("--steps: the model was trained on targets without times")
    if _plain(model, source):
        return _arrays(model, source, asked, output, interval, steps)
    found = read_cases(source)
    if isinstance(found, Trajectories):
        return _trajectories(model, found, asked, output, interval, steps)
    cases = _cases(source, found)
    queries = None if asked is None else _cases(asked, read_cases(asked))
    if queries is not None and len(queries) not in (1, len(cases)):
        raise DataError(
            f"--queries {asked} has {len(queries)} cases and --input {len(cases)}: give one mesh "
            "for all of them, or one for each"
        )

    def answer(i: int) -> Case:
        other = None if queries is None else queries[i if len(queries) > 1 else 0]
        return predict_case(model, cases[i], other, interval=interval, steps=steps)

    suffix = _suffix(asked or source)
    _write(output, [partial(answer, i) for i in range(len(cases))], cases.names, suffix)
    return {"output": str(output), "cases": len(cases), "outputs": list(model.spec.outputs)}


def _write(
    output: Path, answers: Sequence[Callable[[], Case]], names: Sequence[str], suffix: str
) -> None:
    """One case as a file, several as a folder of files that end in `suffix`, or as one HDF5 file or
    table; each is made when it is written."""
    names = names or [str(i) for i in range(len(answers))]
    if len(answers) == 1:
        write_case(output, answers[0]())
    elif output.suffix.lower() in MANY:
        write_cases(output, [answer() for answer in answers], names)
    elif output.suffix:
        raise DataError(
            f"--output {output}: {len(answers)} cases are written to a folder, or to one file "
            "that ends in .h5, .csv, .tsv or .parquet"
        )
    else:
        for name, answer in zip(names, answers, strict=True):
            write_case(output / f"{name}{suffix}", answer())


def _series(model, source, asked, output: Path, interval, steps) -> dict[str, Any]:
    """Labelled arrays in, a netCDF file out."""
    if output.suffix != ".nc":
        raise DataError(f"--output {output}: a forecast is written as .nc")
    on = None if asked is None else open_series(asked)
    found = model.predict(open_series(source), on=on, interval=interval, steps=steps)
    if isinstance(found, Interval):
        names = {"": found.prediction, "_low": found.low, "_high": found.high}
        parts = [
            _as_dataset(p).rename({n: f"{n}{s}" for n in _as_dataset(p)}) for s, p in names.items()
        ]
        whole = parts[0].assign({n: p[n] for p in parts[1:] for n in p})
    else:
        whole = _as_dataset(found)
    try:
        with files.atomic(output) as temporary:
            whole.to_netcdf(temporary, engine="netcdf4")
    except OSError as error:
        raise RunError(f"cannot write {output}: {error.strerror or error}") from error
    return {"output": str(output), "cases": 1, "outputs": list(model.spec.outputs)}


def _as_dataset(found: Any) -> Any:
    return found.to_dataset() if hasattr(found, "to_dataset") and hasattr(found, "name") else found


def _arrays(model, source, asked, output: Path, interval, steps) -> dict[str, Any]:
    """Arrays by the names of the arguments in; arrays out as .npz, and fields in other formats."""
    given = read_arrays(source)
    given = {name: array for name, array in given.items() if name in ARGUMENTS}
    if asked is not None:
        given["queries"] = _asked_arrays(asked)
    if output.suffix == ".npz":
        parts = _parts(model.predict(**given, interval=interval, steps=steps))
        places = given["queries"] if "queries" in given else given["points"]
        write_arrays(output, queries=places, **parts)
        return _said(model, output, parts)
    cases = arrays_as_cases(model, given, interval=interval, steps=steps)
    _write(output, [partial(cases.__getitem__, i) for i in range(len(cases))], (), ".npz")
    return {"output": str(output), "cases": len(cases), "outputs": list(model.spec.outputs)}


def _trajectories(model, source: Trajectories, asked, output: Path, interval, steps):
    """The last frames of every trajectory in, those behind them out."""
    columns = model.about.get("columns", {})
    if columns.get("kind") != KIND:
        raise DataError(
            f"{source.source} holds trajectories, and the model was not trained on such: give a "
            "file of the kind that it was trained on"
        )
    given: dict[str, Any] = latest(source, columns)
    whole = output.suffix.lower() in TREES
    if not whole and output.suffix != ".npz":
        raise DataError(f"--output {output}: trajectories are written as .h5 or .npz")
    if asked is not None:
        given["queries"] = _asked_arrays(asked)
        if whole:
            raise DataError(
                f"--output {output}: answers at --queries are written as .npz; an .h5 file of "
                "trajectories has the grid of the input"
            )
    found = model.predict(**given, interval=interval, steps=steps)
    parts = _parts(found)
    times = after(source, columns, parts["prediction"].shape[1])
    if whole:
        if interval is not None:
            raise DataError("--interval: bounds of trajectories are written as .npz")
        write_well(output, carried_on(source, columns, found))
    else:
        queries = given.get("queries", given["points"])
        write_arrays(output, queries=queries, times=times, **parts)
    return _said(model, output, parts) | {"cases": len(source)}


def _asked_arrays(path: Path) -> np.ndarray:
    other = read_arrays(path)
    if "queries" not in other:
        raise DataError(f"{path} has no array `queries`; it has {', '.join(other)}")
    return other["queries"]


def _parts(found: Any) -> dict[str, Any]:
    if isinstance(found, Interval):
        return {"prediction": found.prediction, "low": found.low, "high": found.high}
    return {"prediction": found}


def _said(model: Surrogate, output: Path, parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "output": str(output),
        "cases": 1,
        "outputs": list(model.spec.outputs),
        "shape": list(np.shape(parts["prediction"])),
    }


def _plain(model: Surrogate, path: Path) -> bool:
    """Whether a file or folder holds arrays by the names of the arguments, and not fields by names
    of their own, as a model of cases knows them."""
    kind = kind_of(path)
    if kind == "npz":
        names = set(headers(path))
        if DESCRIPTION in names:
            return False
    elif kind == "folder":
        names = {p.stem for p in path.glob("*.npy")}
    else:
        return kind == "npy"
    of_cases = model.about.get("columns", {}).get("kind") == "cases"
    return bool(names & ({"values", "queries"} if of_cases else {*ARGUMENTS}))


def _cases(path: Path, found: Any) -> CaseReader:
    if isinstance(found, Arrays | Trajectories):
        raise DataError(
            f"{path} holds arrays or trajectories, and the model takes cases: give a file of a case"
        )
    return found


def _suffix(path: Path) -> str:
    """The suffix of the cases in a folder, where it is one that can be written."""
    inside = sorted(p.suffix.lower() for p in path.iterdir()) if path.is_dir() else [path.suffix]
    for suffix in inside:
        if suffix in (".vtu", ".vtp", *TABLES, ".npz", *TREES):
            return suffix
    return ".npz"
