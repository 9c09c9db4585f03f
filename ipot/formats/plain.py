"""Cases as a plain table that any program reads: a header, then a row for each point.

The columns are `case` where cases have names, coordinates, fields and parameters, which are then
the same in all rows of a case. What would be read back as something else is refused by its name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ipot.errors import DataError, shown
from ipot.formats.case import Case
from ipot.formats.columns import MOST, case_column, found_parts
from ipot.formats.limits import check_memory

CASE = "case"
WHOLE = 2**53
"""Whole numbers up to here are read back as they were."""


def plain_columns(
    cases: Sequence[Case], names: Sequence[str] | None, path: object
) -> dict[str, np.ndarray]:
    """Columns by name; that of cases holds text, the others numbers."""
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
    rows = [len(case.points) for case in cases]
    return {CASE: np.repeat(np.array(labels, dtype=object), rows), **joined}


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
