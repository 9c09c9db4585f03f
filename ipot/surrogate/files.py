"""Answers of a trained model to files, in the format that the output ends in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ipot import files
from ipot.errors import DataError, RunError
from ipot.formats import Case, read_cases, write_case, write_cases
from ipot.formats.fields import Arrays, CaseReader, Trajectories
from ipot.formats.numpy_files import write_arrays, write_mapped
from ipot.formats.the_well import write_well
from ipot.formats.trajectories import KIND, after, as_trained, carried_on, latest
from ipot.formats.xarray_files import open_series
from ipot.surrogate.cases import arrays_as_cases, predict_case
from ipot.surrogate.encoded import Interval
from ipot.surrogate.forecast import named_bounds
from ipot.surrogate.paths import arguments_in, holds_arguments, queries_in
from ipot.surrogate.surrogate import Surrogate

TREES = (".h5", ".hdf5")
TABLES = (".csv", ".tsv", ".parquet", ".pq")
MANY = (*TREES, *TABLES)
"""What holds many cases in one file."""


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
    if holds_arguments(model, source):
        return _answer_arrays(model, source, queries, places, output, terms)
    found = read_cases(source)
    if isinstance(found, Trajectories):
        return _answer_trajectories(model, found, queries, places, output, terms)
    cases, others = _cases(source, found), None
    if queries is not None:
        others = _cases(queries, read_cases(queries))
    elif places is not None:
        others = [Case(points=places, fields={})]
    if others is not None and len(others) not in (1, len(cases)):
        raise DataError(
            f"--queries {queries} has {len(others)} cases and the input {len(cases)}: give one "
            "mesh for all of them, or one for each"
        )

    def answer(i: int) -> Case:
        other = None if others is None else others[i if len(others) > 1 else 0]
        return predict_case(model, cases[i], other, **terms)

    suffix = _suffix(queries or source)
    answers = [partial(answer, i) for i in range(len(cases))]
    # At places of their own the rows of an answer are not those of the input.
    _write(output, answers, cases.names, suffix, cases.rows if others is None else ())
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
        raise DataError(
            f"--out {output}: {len(answers)} cases are written to a folder, or to one file "
            "that ends in .h5, .csv, .tsv or .parquet"
        )
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
    """Labelled arrays in, a netCDF file out."""
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
    try:
        with files.atomic(output) as temporary:
            whole.to_netcdf(temporary, engine="netcdf4")
    except (OSError, RuntimeError) as error:  # the second where netCDF meets a full disk
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"cannot write {output}: {reason}. Make room or choose another place."
        ) from error
    return _summary(model, output, 1)


def _answer_arrays(
    model: Surrogate, source: Path, queries: Path | None, places: Any, output: Path, terms: Any
) -> dict[str, Any]:
    """Arrays by the names of the arguments in; arrays out as .npz or, mapped and never held whole,
    as .npy; fields in other formats."""
    given = arguments_in(model, source)
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
    """The last frames of every trajectory in, those behind them out."""
    columns = model.about.get("columns", {})
    if columns.get("kind") != KIND:
        raise DataError(
            f"{source.source} holds trajectories, and the model was not trained on such: give a "
            "file of the kind that it was trained on"
        )
    source = as_trained(source, columns, model.spec)
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
    """What was written: of one array also its shape and range."""
    said = {"output": str(output), "cases": cases, "outputs": list(model.spec.outputs)}
    if isinstance(found, np.ndarray):
        said |= {"shape": list(found.shape)}
        said |= {"minimum": float(found.min()), "maximum": float(found.max())}
    return said


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
