"""A table of points as cases, and a case as a table that describes itself.

Columns `x`, `y`, `z` (or longitude and latitude) say where a point is, `case` or the like says
which case it belongs to, and every other column is a field. A Parquet file that we wrote carries a
description, by which fields of several components, parameters and units come back as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipot.errors import DataError
from ipot.formats.case import Case, CaseReader
from ipot.formats.names import CASES, axes_in, joined

VERSION = 1
MOST = 10_000
"""Columns of a table."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of numbers, and which case each row belongs to."""

    columns: Mapping[str, np.ndarray]
    cases: Sequence[str] | None
    case_name: str | None
    """The column that they came from."""
    told: Mapping[str, Any]
    """The description that we wrote, or nothing."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """The columns that make up one field."""

    columns: tuple[str, ...]
    rank: int = 1
    dtype: str = "float64"

    def of(self, table: Table, rows: int) -> np.ndarray:
        """(rows) or (rows, components)."""
        if self.rank == 1:
            return table.columns[self.columns[0]]
        if not self.columns:
            return np.empty((rows, 0), self.dtype)
        return np.stack([table.columns[n] for n in self.columns], axis=1)


def case_column(names: Sequence[str]) -> str | None:
    """The column that tells cases apart."""
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in CASES if name in by_lower), None)


def is_told(told: Any, names: Sequence[str]) -> bool:
    """Whether a description is ours and belongs to these columns: others may have edited them."""
    return (
        isinstance(told, dict)
        and told.get("version") == VERSION
        and told.get("columns") == list(names)
        and all(isinstance(told.get(key), list) for key in ("points", "fields"))
        and all(isinstance(told.get(key), dict) for key in ("dtypes", "parameters", "units"))
    )


def cases_of(table: Table, source: str, kind: str) -> CaseReader:
    """The cases of a table, in the order in which they first appear."""
    rows = len(next(iter(table.columns.values()), ()))
    if not rows:
        raise DataError(f"{source} has a header and no rows of numbers under it")
    notes = list(table.notes)
    places, fields = (
        _told_parts(table, source) if table.told else found_parts(list(table.columns), source)
    )
    groups, labels = _groups(table.cases, rows)
    named = table.cases is not None
    if table.cases is not None and len(labels) == rows > 1:
        if (table.case_name or "").lower() == "id":
            notes.append(f"{table.case_name}: left alone, it numbers points and not cases")
            (groups, labels), named = _groups(None, rows), False
        else:
            notes.append(
                f"every row is a case of its own, by {table.case_name}: if that numbers points, "
                "give the column another name"
            )
    points = places.of(table, rows)
    values = {name: part.of(table, rows) for name, part in fields.items()}
    units = {str(k): str(v) for k, v in table.told.get("units", {}).items()}
    parameters = {
        str(name): np.asarray(value["values"], value["dtype"])
        for name, value in table.told.get("parameters", {}).items()
    }

    def read(i: int) -> Case:
        return Case(
            points=points[groups[i]],
            fields={name: array[groups[i]] for name, array in values.items()},
            parameters=parameters,
            units=units,
            source=source if len(labels) == 1 else f"{source}, case {labels[i]}",
            name=labels[i] if named else "",
        )

    return CaseReader(read, labels, kind=kind, notes=notes)


def table_of(case: Case, path: object) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Columns of a case, and the description by which it is read back."""
    if case.mesh is not None or case.cell_fields:
        raise DataError(
            f"{path}: a table holds points and no cells. Write this case as .vtu, .h5 or .npz."
        )
    columns: dict[str, np.ndarray] = {}

    def add(name: str, array: np.ndarray, parts: Sequence[str]) -> list[str]:
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise DataError(f"{path}: {name} must hold real numbers, got {array.dtype}")
        used = []
        for i, part in enumerate(parts):
            while part in columns:
                part += "_"
            columns[part] = array if array.ndim == 1 else array[:, i]
            used.append(part)
        return used

    d = case.points.shape[1]
    if not d:
        raise DataError(f"{path}: points without coordinates cannot be written as a table")
    points = add("points", case.points, "xyz"[:d] if d <= 3 else [f"points:{i}" for i in range(d)])
    fields = []
    for name, array in case.fields.items():
        parts = [name] if array.ndim == 1 else [f"{name}:{i}" for i in range(array.shape[1])]
        fields.append([name, array.ndim, add(name, array, parts), array.dtype.name])
    if len(columns) > MOST:
        raise DataError(f"{path}: {len(columns)} columns; a table holds {MOST}. Write .h5 or .npz.")
    parameters = {}
    for name, array in case.parameters.items():
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise DataError(f"{path}: parameter {name} must hold real numbers, got {array.dtype}")
        parameters[name] = {"dtype": array.dtype.name, "values": array.tolist()}
    told = {
        "version": VERSION,
        "columns": list(columns),
        "dtypes": {name: array.dtype.name for name, array in columns.items()},
        "points": points,
        "fields": fields,
        "parameters": parameters,
        "units": dict(case.units),
    }
    return columns, told


def found_parts(names: Sequence[str], source: str) -> tuple[Part, dict[str, Part]]:
    """Places and fields by the names of columns."""
    fields = dict(joined(names))
    whole = next((n for n in fields if n.lower() == "points" and len(fields[n]) > 1), None)
    places = fields.pop(whole) if whole else axes_in(names)
    if not places:
        shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        raise DataError(
            f"{source}: none of its columns says where the points are. Name the coordinates "
            f"x, y, z or longitude, latitude; it has {shown}"
        )
    parts = {n: Part(columns, min(len(columns), 2)) for n, columns in fields.items()}
    return Part(places, 2), {name: part for name, part in parts.items() if name not in places}


def _told_parts(table: Table, source: str) -> tuple[Part, dict[str, Part]]:
    """Places and fields as the description has them."""
    try:
        places = Part(tuple(map(str, table.told["points"])), 2)
        fields = {
            str(name): Part(tuple(map(str, columns)), int(rank), str(dtype))
            for name, rank, columns, dtype in table.told["fields"]
        }
        for value in table.told["parameters"].values():
            if np.asarray(value["values"], value["dtype"]).ndim != 1:
                raise ValueError("a parameter is no row of numbers")
        for part in (places, *fields.values()):
            missing = set(part.columns) - set(table.columns)
            if missing or part.rank not in (1, 2) or np.dtype(part.dtype).kind not in "biuf":
                raise ValueError(f"no field has the columns {', '.join(part.columns)}")
            if not part.columns and (part is places or part.rank == 1):
                raise ValueError("a field without columns")
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(
            f"{source}: the description that ipot wrote into it is damaged ({error}). Remove it, "
            "or write the file again."
        ) from error
    return places, fields


def _groups(cases: Sequence[str] | None, rows: int) -> tuple[list[Any], list[str]]:
    """The rows of every case, in the order of first appearance."""
    if cases is None:
        return [slice(None)], ["0"]
    numbers: dict[str, int] = {}
    codes = np.fromiter((numbers.setdefault(c, len(numbers)) for c in cases), np.int64, rows)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(numbers)))
    return np.split(order, ends[:-1]), list(numbers)
