"""Open your own data as one data set: arrays, xarray objects, files and folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data.argument_checks import listed, path_given
from ipot.data.own import Dataset
from ipot.errors import DataError, UnknownName, shown
from ipot.formats import Case, CaseReader, Trajectories, kind_of, read_cases
from ipot.formats.cases import Where, dataset_of, fields_of
from ipot.formats.detect import is_labelled as holds_labelled
from ipot.formats.series.description import Series, split_series
from ipot.formats.series.samples import from_xarray
from ipot.formats.trajectories import Windows, windows_of
from ipot.formats.xarray_files import is_labelled, open_series

FRAMES = ("history", "lead", "every", "stride")
"""Options of trajectories."""
SERIES = (
    *(*FRAMES, "static", "space", "time", "sample"),
    *("season", "max_samples", "memory"),
)
"""Options of labelled arrays."""
PLACES = ("periods", "geographic")
"""Options of all others."""
TRAIN = 0.8
"""Of a series in time, the part that is learned from; the rest lies after it."""


@dataclass(frozen=True)
class OpenedData:
    """A data set, how its parts may be told apart, and what its columns are called at home."""

    data: Dataset
    parts: tuple[Dataset, Dataset, Dataset | None] | None = None
    """To learn from, to choose by, to score with, where samples are not independent."""
    series: Series | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def open_data(
    source: Any,
    *,
    inputs: str | Sequence[str] = (),
    targets: Any = (),
    parameters: str | Sequence[str] = (),
    where: Where = "points",
    name: str | None = None,
    split: bool = True,
    **options: Any,
) -> OpenedData:
    """A data set from a data set, an xarray object, or the path of a file or folder.

    `inputs`, `targets` and `parameters` name variables, fields or columns. The options are those of
    `from_xarray` (history, lead, every, ...) for labelled arrays, of `windows_of` for trajectories,
    and `periods` and `geographic` of `Dataset.from_arrays` for the rest. Without `split` parts are
    not told apart, as for data that a model is scored on.
    """
    _refuse_unknown(options)
    if isinstance(source, Dataset):
        given = {"inputs": inputs, "targets": targets, "parameters": parameters, **options}
        if told := [n for n, value in given.items() if not _nothing(value)]:
            raise DataError(f"{', '.join(told)}: an ipot.Dataset knows its columns; leave it out")
        return OpenedData(source)
    if is_labelled(source):
        return _labelled(source, inputs, targets, parameters, name, options, split)
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            f"data must be an ipot.Dataset, an xarray object or a path, got "
            f"{type(source).__name__}. Arrays become a data set by ipot.Dataset.from_arrays."
        )
    path = path_given("data", source)
    named = name or path.stem
    if holds_labelled(path):
        return _labelled(open_series(path), inputs, targets, parameters, named, options, split)
    if is_labelled(targets):
        raise DataError(
            f"targets of their own are for labelled arrays, and {path} is of the kind "
            f"{kind_of(path)}: name fields of it"
        )
    found = read_cases(path)
    notes = tuple(getattr(found, "notes", ()))
    fields = {"inputs": _names("inputs", inputs), "targets": _names("targets", targets)}
    scalars = _names("parameters", parameters)
    if isinstance(found, Trajectories):
        _refuse_foreign(options, FRAMES, f"{path}, which holds trajectories")
        windows = windows_of(found, **fields, parameters=scalars or None, name=named, **options)
        parts = _apart(windows) if split else None
        return OpenedData(windows.data, parts, columns=windows.columns, notes=notes)
    _refuse_time(options, path)
    _refuse_foreign(options, PLACES, f"{path}, which holds cases")
    data = dataset_of(found, **fields, parameters=scalars, where=where, name=named, **options)
    columns: dict[str, Any] = {"kind": "arrays"}
    if isinstance(found, CaseReader):
        answered = _where(found[0], fields["targets"], where)
        places: dict[str, Any] = {"where": answered, "inputs_where": where}
        if left_out := _left_out(found[0], data.spec.query_dimension):
            places["left_out"] = left_out
        columns = {"kind": "cases", **places, **fields, "parameters": scalars}
    return OpenedData(data, columns=columns, notes=notes)


def _labelled(
    source: Any,
    inputs: Any,
    targets: Any,
    parameters: Any,
    name: Any,
    options: dict[str, Any],
    split: bool,
) -> OpenedData:
    if not _nothing(parameters):
        raise DataError(
            "parameters: of labelled arrays, inputs without places are parameters; name them there"
        )
    _refuse_foreign(options, SERIES, "labelled arrays")
    if is_labelled(targets):
        options = {**options, "target_source": targets}
        targets = ()
    data, series = from_xarray(
        source,
        inputs=None if _nothing(inputs) else inputs,
        targets=None if _nothing(targets) else targets,
        name=name or "own data",
        **options,
    )
    if not split:
        return OpenedData(data, None, series, notes=series.notes)
    learnt, rest = split_series(data, series, TRAIN)
    half = len(rest) // 2
    parts = (learnt, rest, None)
    if half >= 10:
        later = range(half, len(rest))
        parts = (learnt, rest.select(range(half)), rest.select(later))
    return OpenedData(data, parts, series, notes=series.notes)


def _apart(windows: Windows) -> tuple[Dataset, Dataset, Dataset | None]:
    """Parts that share no trajectory, or where there is one alone, no frame."""
    data, names = windows.data, np.unique(windows.owners)
    if len(names) == 1:
        later = windows.starts >= windows.starts[min(round(TRAIN * len(data)), len(data) - 1)]
        earlier = windows.starts + windows.span <= windows.starts[later].min()
        if not earlier.any():
            raise DataError(
                f"{len(data)} windows of one trajectory share so many frames that none are left to "
                "validate on: lower --history or --lead, or give more trajectories"
            )
        rows = [np.flatnonzero(part).tolist() for part in (earlier, later)]
        return data.select(rows[0]), data.select(rows[1]), None
    order = np.random.default_rng(0).permutation(names)
    held = max(1, round(0.1 * len(names)))
    parts = 2 if len(names) >= 10 else 1

    def of(chosen: np.ndarray) -> Dataset:
        return data.select(np.flatnonzero(np.isin(windows.owners, chosen)).tolist())

    scored = of(order[held : 2 * held]) if parts == 2 else None
    if scored is None or len(scored) < 10:
        return of(order[held:]), of(order[:held]), None
    return of(order[2 * held :]), of(order[:held]), scored


def _where(case: Case, targets: Sequence[str], where: Where) -> Where:
    """Where targets are found: on cells, if they are not at points or cells were asked for."""
    places, _, _ = fields_of(case, targets, "target", where)
    return "points" if places is case.points else "cells"


def _left_out(case: Case, dimension: int) -> list[float]:
    """Where all cases lie along the coordinates that are the same in all of them."""
    return case.points[0, dimension:].astype(float).tolist() if len(case.points) else []


def _refuse_unknown(options: dict[str, Any]) -> None:
    known = sorted({*SERIES, *FRAMES, *PLACES})
    if unknown := [n for n in options if n not in known]:
        raise UnknownName(
            f"ipot.fit has no argument {', '.join(map(shown, unknown))}. For data of some kinds it "
            f"takes besides: {', '.join(known)}"
        )


def _refuse_foreign(options: dict[str, Any], known: Sequence[str], what: str) -> None:
    if foreign := [n for n in options if n not in known]:
        raise DataError(
            f"{', '.join(foreign)}: not for {what}. Leave it out; known are {', '.join(known)}."
        )


def _refuse_time(options: dict[str, Any], path: Path) -> None:
    found = [n for n in FRAMES if options.get(n) is not None]
    if found:
        raise DataError(
            f"{', '.join(found)}: {path} holds cases without time. Leave it out, or give frames as "
            "netCDF, Zarr or GRIB with a dimension of time."
        )


def _names(argument: str, names: Any) -> tuple[str, ...]:
    return () if _nothing(names) else listed(argument, names)


def _nothing(value: Any) -> bool:
    """Whether an argument was left out."""
    return value is None or (isinstance(value, str | list | tuple) and not len(value))
