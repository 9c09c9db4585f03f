"""Tables of points as Parquet files, through pyarrow (the extra `table`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipot import files
from ipot.data.guard import trial
from ipot.data.guard.hdf5 import READ
from ipot.errors import DataError
from ipot.formats.fields import Case, CaseReader
from ipot.formats.limits import BROKEN, check_memory, damaged, unwritable
from ipot.formats.roles import case_column
from ipot.formats.tables import MOST, Table, cases_of, is_told, plain_columns, table_of
from ipot.memory import SQUEEZED
from ipot.safe_read import parse_json

KEY = b"ipot"

PRELOAD = ("pyarrow.parquet",)

ABSURD = 2**30
"""Bytes of numbers that a table of any size may claim."""


def read_parquet(path: Path, *, lenient: bool = False) -> CaseReader:
    """The cases of a table. `lenient` reads missing values as NaN and notes how many there are."""
    pq = _pyarrow(path)
    trial.tried("ipot.formats.parquet:look", path)
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return cases_of(_table(path, file, lenient), str(path), "Parquet table of points")
    except BROKEN as error:
        raise damaged(path, "a Parquet file", error) from error


def look(path: str) -> None:
    """Read a file through, up to a bound; for a child process, since a page may claim any size."""
    import pyarrow.parquet as pq

    budget = READ
    with pq.ParquetFile(path, memory_map=True) as file:
        _refuse_absurd(Path(path), file)
        for batch in file.iter_batches(use_threads=False):
            budget -= batch.nbytes
            if budget < 0:
                break


def write_parquet(
    path: Path,
    cases: Sequence[Case],
    names: Sequence[str] | None = None,
    rows: Sequence[np.ndarray] = (),
) -> None:
    """Cases as a table, whole or not at all; `rows` are those of `plain_columns`.

    One that has no name describes itself; others are told apart by a column of a plain table.
    """
    pq = _pyarrow(path)
    import pyarrow as pa

    told: dict[str, Any] = {}
    if len(cases) == 1 and names is None and not cases[0].name:
        columns, told = table_of(cases[0], path)
    else:
        columns = plain_columns(cases, names, path, rows)
    try:
        table = pa.table({name: np.ascontiguousarray(a) for name, a in columns.items()})
        if told:
            table = table.replace_schema_metadata({KEY: json.dumps(told).encode()})
        with files.atomic(path) as temporary:
            pq.write_table(table, temporary)
    except BROKEN as error:
        raise unwritable(path, error) from error


def _table(path: Path, file: Any, lenient: bool) -> Table:
    import pyarrow as pa

    _refuse_absurd(path, file)
    schema, rows = file.schema_arrow, file.metadata.num_rows
    names = schema.names
    if len(set(names)) != len(names):
        raise DataError(f"{path}: two columns have the same name: rename one")
    told = _description(schema, names)
    cases = None if told else case_column(names)
    for field in schema:
        kind = field.type
        if field.name == cases or pa.types.is_boolean(kind):
            continue
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DataError(
                f"{path}: column {field.name} holds {kind} and no numbers. Remove it, or convert "
                "it to float64."
            )
    check_memory(str(path), 16 * rows * len(names))
    columns: dict[str, np.ndarray] = {}
    labels: list[str] | None = None
    notes = []
    for name in names:
        column = file.read(columns=[name]).column(0)
        if len(column) != rows:
            raise DataError(
                f"{path} claims {rows} rows, and its column {name} holds {len(column)}: it is "
                "damaged; write it again"
            )
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            said = f"{name}: {column.null_count} missing values, the first in row {row} (from 0)"
            if not lenient or name == cases:
                raise DataError(f"{path}: {said}. Fill them in or remove these rows.")
            notes.append(f"{said}. Fill them in or remove these rows.")
        if name == cases:
            labels = [str(v) for v in column.to_pylist()]
            continue
        values = column.to_numpy()
        if values.dtype.kind == "f" and not column.null_count:
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad) and not (lenient or told):
                raise DataError(
                    f"{path}: the value of {name} in row {bad[0]} (from 0) is no finite number. "
                    "Fill it in or remove the row."
                )
        columns[name] = values if values.dtype.kind in "biuf" else values.astype(np.float64)
    return Table(columns, labels, cases, told, tuple(notes))


def _refuse_absurd(path: Path, file: Any) -> None:
    """Refuse counts that are not those of a table: nothing but the footer was read for them."""
    rows, columns = file.metadata.num_rows, file.metadata.num_columns
    if columns > MOST:
        raise DataError(f"{path} has {columns} columns; {MOST} are the most")
    parts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    if rows < 0 or sum(parts) != rows or min(parts, default=0) < 0:
        raise DataError(
            f"{path} claims {rows} rows, and its parts {sum(parts)}: it is damaged; write it again"
        )
    # Run lengths stand for any number of rows, so that no ratio is a measure.
    if 8 * rows * columns > max(ABSURD, SQUEEZED * path.stat().st_size):
        raise DataError(
            f"{path} claims {rows} rows of {columns} columns in {path.stat().st_size} bytes: it is "
            "damaged, or made to exhaust memory"
        )


def _description(schema: Any, names: list[str]) -> dict[str, Any]:
    try:
        told = parse_json((schema.metadata or {})[KEY], "the description", error=DataError)
    except (KeyError, DataError):
        return {}
    return told if is_told(told, names) else {}


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"{path}: Parquet files need pyarrow, which is not installed: pip install 'ipot[table]'"
        ) from error
    return pyarrow.parquet
