"""New data opened in the way of those that a model was trained on, to score it or to draw them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ipot.data.dataset import Ragged, Stacked
from ipot.data.own import Dataset
from ipot.data.own_given import is_whole, path_given
from ipot.errors import DataError, Unsupported, shown
from ipot.formats.detect import is_labelled as holds_labelled
from ipot.formats.open_data import OpenedData, open_data
from ipot.formats.series.description import Series
from ipot.formats.series.latest_frames import by_trained_names
from ipot.formats.trajectories import KIND
from ipot.formats.xarray_files import as_dataset, is_labelled, open_series
from ipot.samples import Sample
from ipot.spec import Spec

OF_TIME = ("history", "lead", "every", "season")
NAMED = ("static", "time", "sample")
"""What a series says of how its frames become samples."""


def open_as_trained(
    source: Any, *, spec: Spec, about: Mapping[str, Any], series: Series | None, targets: Any = None
) -> OpenedData:
    """Samples of a path or an xarray object, by the names that a model was trained with.

    `targets` are where the answers are, if elsewhere, as for stations in and a grid out.
    """
    if series is not None:
        return _of_series(source, series, targets)
    if targets is not None:
        raise DataError(
            "targets: the model was not trained on labelled arrays, and its answers are in the "
            "same file as its inputs: leave it out"
        )
    if is_labelled(source):
        raise Unsupported(
            "an xarray object was given, and the model was not trained on such: give a path or an "
            "ipot.Dataset"
        )
    columns = about.get("columns", {})
    told = {n: columns[n] for n in ("inputs", "targets", "parameters") if columns.get(n)}
    if columns.get("kind") == KIND:
        told |= {n: columns[n] for n in ("history", "lead", "every")}
    else:
        told |= {"where": columns.get("inputs_where", "points")}
        told |= {"geographic": True} if spec.geographic else {}
    return open_data(source, split=False, **told)


def _of_series(source: Any, series: Series, targets: Any) -> OpenedData:
    source = by_trained_names(series, _opened("data", source))
    answers = source if targets is None else _opened("targets", targets)
    if missing := [n for n in series.targets if n not in answers.variables]:
        there = ", ".join(map(str, answers.data_vars)) or "nothing"
        way = " Where they are in data of their own, give targets=... (--targets-from)."
        raise DataError(
            f"the answers to compare with are missing: {', '.join(missing)}; there is {there}."
            f"{way if targets is None else ''}"
        )
    options = {n: getattr(series, n) for n in NAMED if getattr(series, n)}
    if series.clock is not None:
        options |= {n: getattr(series, n) for n in OF_TIME}
    told: Any = series.targets
    if targets is not None:
        told = answers[list(series.targets)]
    inputs = (*series.inputs, *series.scalars)
    return open_data(source, inputs=inputs, targets=told, split=False, **options)


def _opened(name: str, given: Any) -> Any:
    """An xarray data set of an object of xarray or a path."""
    if isinstance(given, str | os.PathLike):
        path = path_given(name, given)
        if not holds_labelled(path):
            raise DataError(
                f"{name}={path}: the model was trained on labelled arrays; give netCDF, Zarr or "
                "GRIB like those"
            )
        return open_series(path)
    return as_dataset(given, name)


def one_sample(data: Any, index: int) -> Sample:
    """A sample, or the one of this number of many."""
    if isinstance(data, Sample):
        return data
    if not isinstance(data, Dataset | Stacked | Ragged):
        raise DataError(
            "sample must be an ipot.Sample, like data[0], an ipot.Dataset, an xarray object or a "
            f"path, got {type(data).__name__}"
        )
    if not is_whole(index) or not 0 <= index < len(data):
        raise DataError(
            f"sample {shown(index)}: the data have {len(data)}, which are counted from 0"
        )
    return data[int(index)]


def refuse_beside_path(told: Mapping[str, Any]) -> None:
    """Refuse arguments that a file has itself."""
    if given := [name for name, value in told.items() if value is not None]:
        raise DataError(f"{', '.join(given)}: a path was given, and what is in it goes in alone")
