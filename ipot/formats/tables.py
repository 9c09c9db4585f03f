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

from ipot.data.quantities import unit_in_name
from ipot.errors import DataError, shown
from ipot.formats.fields import Case, CaseReader
from ipot.formats.limits import check_memory
from ipot.formats.roles import axes_in, case_column, component_columns

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
    units = {name: unit for name in fields if (unit := unit_in_name(name)[1])}
    units |= {str(k): str(v) for k, v in table.told.get("units", {}).items()}
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

    turns = table.cases is not None and len(labels) > 1
    return CaseReader(read, labels, kind=kind, notes=notes, rows=groups if turns else ())


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
    fields = dict(component_columns(names))
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


CASE = "case"

WHOLE = 2**53
"""Whole numbers up to here are read back as they were."""


def plain_columns(
    cases: Sequence[Case],
    names: Sequence[str] | None,
    path: object,
    rows: Sequence[np.ndarray] = (),
) -> dict[str, np.ndarray]:
    """Columns by name; that of cases holds text, the others numbers.

    `rows` are the numbers that the rows of each case had in the table that it came from: with them
    all are in that order again.
    """
    each = [_columns(case, path) for case in cases]
    if not each:
        raise DataError(f"{path}: there are no cases to write")
    first = each[0]
    for case, columns in zip(cases, each, strict=True):
        if list(columns) != list(first):
            raise DataError(
                f"{path}: {case.source or 'a case'} has the columns {', '.join(columns)}, and the "
                f"first {', '.join(first)}: a table has the same in all. Write .h5 instead."
            )
    check_memory(str(path), 2 * sum(a.nbytes for columns in each for a in columns.values()))
    labels = _labels(cases, names, path)
    joined = {name: np.concatenate([columns[name] for columns in each]) for name in first}
    if labels is None:
        return joined
    counts = [len(case.points) for case in cases]
    joined = {CASE: np.repeat(np.array(labels, dtype=object), counts), **joined}
    if [len(r) for r in rows] != counts:
        return joined
    order = np.argsort(np.concatenate(rows), kind="stable")
    return {name: array[order] for name, array in joined.items()}


def _columns(case: Case, path: object) -> dict[str, np.ndarray]:
    """Coordinates, fields and parameters of one case."""
    if case.mesh is not None or case.cell_fields:
        raise DataError(
            f"{path}: a table holds points and no cells. Write this case as .vtu, .h5 or .npz."
        )
    n, d = case.points.shape
    if not d:
        raise DataError(f"{path}: points without coordinates cannot be written as a table")
    widths = [d, *(a.shape[1] for a in case.fields.values() if a.ndim > 1)]
    # Before any column is made: a view may repeat one number without end.
    if sum(widths) > MOST:
        raise DataError(
            f"{path}: points and fields have {sum(widths)} columns; a table holds {MOST}. Write "
            ".h5 or .npz."
        )
    _refuse_values(path, "points", case.points)
    places = tuple("xyz"[:d]) if d <= 3 else tuple(f"points:{i}" for i in range(d))
    found = dict(zip(places, case.points.T, strict=True))
    meant: dict[str, tuple[str, ...]] = {}
    numbers = {k: np.broadcast_to(v, (n, np.size(v))) for k, v in case.parameters.items()}
    for name, array in (*case.fields.items(), *numbers.items()):
        _refuse_values(path, name, array)
        array = array[:, None] if array.ndim == 1 else array
        width = array.shape[1]
        parts = (name,) if width == 1 else tuple(f"{name}:{i}" for i in range(width))
        if name in meant or any(part in found for part in parts):
            raise _unfit(path, name, "another column is called so")
        meant[name] = parts
        found |= dict(zip(parts, array.T, strict=True))
    if len(found) > MOST:
        raise DataError(f"{path}: {len(found)} columns; a table holds {MOST}. Write .h5 or .npz.")
    _refuse_names(path, places, meant, found)
    return found


def _refuse_values(path: object, name: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise DataError(f"{path}: {name} must hold real numbers, got {array.dtype}")
    check_memory(f"{path}: {name}", array.nbytes)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(
            f"{path}: {name} holds values that are not finite, which a table cannot hold. Remove "
            "these points, or write .h5 or .npz."
        )
    if array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > WHOLE:
        raise DataError(
            f"{path}: {name} holds whole numbers beyond 2**53, which a table cannot hold. Write "
            ".h5 or .npz."
        )


def _refuse_names(
    path: object,
    places: tuple[str, ...],
    meant: dict[str, tuple[str, ...]],
    found: dict[str, np.ndarray],
) -> None:
    """Refuse names that a reader would take for something else."""
    for name in meant:
        if not name or name != name.strip():
            raise _unfit(path, name, "names begin and end with a letter")
    if (column := case_column(list(found))) is not None:
        raise _unfit(path, column, "a column of this name tells cases apart")
    read, fields = found_parts(list(found), str(path))
    if (wrong := sorted(set(read.columns) ^ set(places))) or len(read.columns) != len(places):
        raise _unfit(path, (wrong or places)[0], "a column of this name is a coordinate")
    for name, parts in meant.items():
        if name not in fields or fields[name].columns != parts or not parts:
            raise _unfit(path, name, "it would be read as another field")


def _labels(cases: Sequence[Case], names: Sequence[str] | None, path: object) -> list[str] | None:
    """What cases are called in the table; nothing where there is one alone without a name."""
    found = [case.name for case in cases] if names is None else list(names)
    if len(cases) == 1 and not found[0]:
        return None
    found = [name or str(i) for i, name in enumerate(found)]
    if len(set(found)) != len(cases) or len(found) != len(cases):
        raise DataError(f"{path}: {len(cases)} cases need as many different names, got {found[:8]}")
    for name in found:
        if name != name.strip() or name.startswith("#"):
            raise _unfit(path, name, "as the name of a case it would be read as another")
    return found


def _unfit(path: object, name: str, why: str) -> DataError:
    return DataError(
        f"{path}: {shown(name)} cannot be a column of a plain table: {why}. Rename it, or write "
        ".h5 or .npz."
    )
