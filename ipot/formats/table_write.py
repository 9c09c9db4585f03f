"""A case written as a table of text, in digits that read back as the same numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from ipot import files
from ipot.errors import DataError
from ipot.formats.case import Case
from ipot.formats.columns import table_of
from ipot.formats.limits import unwritable
from ipot.formats.table import LONGEST, MARK


def write_csv(path: Path, case: Case) -> None:
    """A case as a table, whole or not at all, in digits that read back as the same numbers."""
    columns, told = table_of(case, path)
    texts = [_texts(path, name, array) for name, array in columns.items()]
    mark = f"{MARK}{json.dumps(told)}\n"
    if len(mark) >= LONGEST:
        raise DataError(f"{path}: its names are too long for a table; write .h5 or .npz")
    try:
        with (
            files.atomic(path) as temporary,
            temporary.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file,
        ):
            file.write(mark)
            writer = csv.writer(
                file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", lineterminator="\n"
            )
            writer.writerow(columns)
            writer.writerows(zip(*texts, strict=True))
    except OSError as error:
        raise unwritable(path, error) from error


def _texts(path: Path, name: str, array: np.ndarray) -> list[str]:
    """The shortest digits that read back as the same numbers."""
    if array.dtype.kind != "f":
        return [str(int(v)) for v in array.tolist()]
    if not np.isfinite(array).all():
        raise DataError(
            f"{path}: {name} holds values that are not finite, which a table cannot hold. Remove "
            "these points, or write .h5 or .npz."
        )
    if array.dtype.itemsize < 8:
        short = [str(v) for v in array]
        # Read as a double and then rounded: in rare cases that is the neighbour.
        if np.array_equal(np.array(short, np.float64).astype(array.dtype), array):
            return short
    return [repr(v) for v in array.tolist()]
