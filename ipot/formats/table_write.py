"""Cases written as a plain table of text, in digits that read back as the same numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ipot import files
from ipot.errors import DataError
from ipot.formats.case import Case
from ipot.formats.limits import unwritable
from ipot.formats.plain import plain_columns
from ipot.formats.table import LONGEST


def write_csv(path: Path, cases: Sequence[Case], names: Sequence[str] | None = None) -> None:
    """Cases as a table, whole or not at all: a header and rows, and no line besides."""
    columns = plain_columns(cases, names, path)
    if sum(map(len, columns)) + 3 * len(columns) >= LONGEST:
        raise DataError(f"{path}: its names are too long for a table; write .h5 or .npz")
    texts = [_texts(array) for array in columns.values()]
    try:
        with (
            files.atomic(path) as temporary,
            temporary.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file,
        ):
            writer = csv.writer(
                file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", lineterminator="\n"
            )
            writer.writerow(columns)
            writer.writerows(zip(*texts, strict=True))
    except OSError as error:
        raise unwritable(path, error) from error


def _texts(array: np.ndarray) -> list[str]:
    """The shortest digits that read back as the same numbers; text as it is."""
    if array.dtype.kind == "O":
        return array.tolist()
    if array.dtype.kind != "f":
        return [str(int(v)) for v in array.tolist()]
    if array.dtype.itemsize < 8:
        short = [str(v) for v in array]
        # Read as a double and then rounded: in rare cases that is the neighbour.
        if np.array_equal(np.array(short, np.float64).astype(array.dtype), array):
            return short
    return [repr(v) for v in array.tolist()]
