"""Tables of points as text: CSV with commas, semicolons or tabs between the columns.

The first line names the columns. Lines that begin with # are comments. Every refusal names the
line.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ipot import files
from ipot.errors import DataError, shown
from ipot.formats.fields import Case, CaseReader
from ipot.formats.limits import BROKEN, check_memory, damaged, unwritable
from ipot.formats.roles import case_column
from ipot.formats.tables import MOST, Table, cases_of, plain_columns

LONGEST = 2**22
"""Characters of a line."""

AT_ONCE = 50_000
"""Rows that are converted together."""

SEPARATORS = (",", ";", "\t")
QUOTED = re.compile(r'(?<![^,;\t])"(?:[^"]|"")*(?:"|$)')
"""Cells in which these separate nothing."""

ABSENT = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "--", "?"))


def read_csv(path: Path, *, lenient: bool = False) -> CaseReader:
    """The cases of a table. `lenient` reads missing values as NaN and notes how many there are."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogatepass", newline="") as file:
            return cases_of(_Reader(path, file, lenient).table(), str(path), "CSV table of points")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8 ({error}): save it as such") from error
    except (csv.Error, *BROKEN) as error:
        raise damaged(path, "a table", error) from error


class _Reader:
    """Goes through a table once, knowing the line it is at."""

    def __init__(self, path: Path, file: TextIO, lenient: bool) -> None:
        self.path, self.file, self.lenient = path, file, lenient
        self.line = 0
        self.comments: list[str] = []
        self.missing: dict[str, list[int]] = {}

    def table(self) -> Table:
        """All of it."""
        rows = self.rows()
        header, first = self.header(rows)
        header = [name.strip() for name in header]
        self.check_header(header)
        cases = case_column(header)
        pieces: list[list[Any]] = [[] for _ in header]
        labels: list[str] = []
        held = 0
        for lines, cells in self.chunks(rows, first, len(header)):
            for i, column in enumerate(zip(*cells, strict=True)):
                if header[i] == cases:
                    labels += [self.label(cell, n) for cell, n in zip(column, lines, strict=True)]
                    continue
                pieces[i].append(self.numbers(header[i], column, lines))
                held += pieces[i][-1].nbytes
            check_memory(str(self.path), 2 * held)
        columns = {
            name: np.concatenate(pieces[i]) if pieces[i] else np.empty(0)
            for i, name in enumerate(header)
            if name != cases
        }
        notes = [
            f"{name}: {len(lines)} missing values, the first in line {lines[0]}. Fill them in or "
            "remove these rows."
            for name, lines in self.missing.items()
        ]
        return Table(columns, labels if cases else None, cases, {}, tuple(notes))

    def rows(self) -> Iterator[list[str]]:
        """Rows of cells."""
        lines = self.lines()
        first = next(lines, None)
        if first is None:
            return
        bare = QUOTED.sub("", first)
        counts = [bare.count(s) for s in SEPARATORS]
        separator = SEPARATORS[counts.index(max(counts))]
        self.separator = separator
        yield from csv.reader(itertools.chain([first], lines), delimiter=separator, strict=True)

    def lines(self) -> Iterator[str]:
        """Lines without comments; a quoted cell may go over several."""
        quoted = False
        while line := self.file.readline(LONGEST):
            self.line += 1
            if len(line) >= LONGEST:
                raise DataError(
                    f"{self.path}: line {self.line} has over {LONGEST} characters: this is no "
                    "table of points. Write wide tables as .npz or .h5."
                )
            if not quoted and line.lstrip().startswith("#"):
                if len(self.comments) < 1000:
                    self.comments.append(line.strip())
                continue
            if not quoted and not line.strip():
                continue
            quoted ^= line.count('"') % 2 == 1
            yield line

    def header(self, rows: Iterator[list[str]]) -> tuple[list[str], list[str] | None]:
        """The names of the columns, and the first row if the names stood in a comment."""
        first = next(rows, None)
        if first is None:
            raise DataError(f"{self.path} holds no table: a line with names of columns is expected")
        if not all(_is_number(cell) for cell in first):
            return first, None
        # As numpy.savetxt writes a header.
        names = next(reversed(self.comments), "")
        cells = next(csv.reader([names.lstrip("# ")], delimiter=self.separator), [])
        if len(cells) == len(first) and not all(_is_number(cell) for cell in cells):
            return cells, first
        raise DataError(
            f"{self.path}: line {self.line} holds numbers; a first line with the names of the "
            f"{len(first)} columns is needed, like x,y,pressure"
        )

    def check_header(self, header: list[str]) -> None:
        """Refuse names that are missing or there twice."""
        if len(header) > MOST:
            raise DataError(
                f"{self.path} has {len(header)} columns; {MOST} are the most. A table has one row "
                "for each point and one column for each field."
            )
        seen: set[str] = set()
        for i, name in enumerate(header):
            if not name:
                raise DataError(f"{self.path}: column {i + 1} has no name in its first line")
            if name in seen:
                raise DataError(f"{self.path}: two columns are called {shown(name)}: rename one")
            seen.add(name)

    def chunks(
        self, rows: Iterator[list[str]], first: list[str] | None, width: int
    ) -> Iterator[tuple[list[int], list[list[str]]]]:
        """Rows with their lines, some thousands at a time."""
        lines, cells = ([], []) if first is None else ([self.line], [first])
        for row in rows:
            if len(row) != width:
                raise DataError(
                    f"{self.path}: line {self.line} has {len(row)} cells and the header {width}"
                )
            lines.append(self.line)
            cells.append(row)
            if len(cells) * width >= AT_ONCE * 8 or len(cells) >= AT_ONCE:
                yield lines, cells
                lines, cells = [], []
        if cells:
            yield lines, cells

    def numbers(self, name: str, column: Sequence[str], lines: list[int]) -> np.ndarray:
        """A piece of a column; what is no number is refused by its line."""
        try:
            found = np.fromiter(map(float, column), np.float64, len(column))
            if np.isfinite(found).all():
                return found
        except ValueError:
            pass
        return np.fromiter(
            (self.number(name, c, n) for c, n in zip(column, lines, strict=True)),
            np.float64,
            len(column),
        )

    def number(self, name: str, cell: str, line: int) -> float:
        """One cell, when something in its column is wrong."""
        if cell.strip().lower() in ABSENT:
            if self.lenient:
                self.missing.setdefault(name, []).append(line)
                return math.nan
            raise DataError(
                f"{self.path}: the value of {name} is missing in line {line}. Fill it in or remove "
                "the row."
            )
        try:
            value = float(cell)
        except ValueError:
            value = None
        if self.lenient and value is not None and not math.isfinite(value):
            self.missing.setdefault(name, []).append(line)
        elif value is None or not math.isfinite(value):
            hint = " Decimals are written with a point." if "," in cell else ""
            if value is None and not hint and any(c.isalpha() for c in cell):
                hint = " Columns hold numbers: give kinds as a column of 0 and 1 for each kind."
            raise DataError(
                f"{self.path}: {shown(cell)} in column {name} of line {line} is no finite number."
                f"{hint}"
            )
        return value

    def label(self, cell: str, line: int) -> str:
        """Which case a row belongs to."""
        if not cell.strip():
            raise DataError(f"{self.path}: line {line} does not say which case it belongs to")
        return cell.strip()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell.strip()
    return True


def write_csv(
    path: Path,
    cases: Sequence[Case],
    names: Sequence[str] | None = None,
    rows: Sequence[np.ndarray] = (),
) -> None:
    """Cases as a table, whole or not at all: a header and rows, and no line besides. `rows` are
    those of `plain_columns`."""
    columns = plain_columns(cases, names, path, rows)
    if sum(map(len, columns)) + 3 * len(columns) >= LONGEST:
        raise DataError(f"{path}: its names are too long for a table; write .h5 or .npz")
    texts = [_texts(array) for array in columns.values()]
    try:
        with (
            files.atomic(path) as temporary,
            temporary.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file,
        ):
            form = {"delimiter": "\t" if path.suffix.lower() == ".tsv" else ","}
            # Whoever reads tells by the first line what separates: names must not mislead.
            csv.writer(file, **form, **_lines(columns, *SEPARATORS)).writerow(columns)
            texts_alone = [a for a in columns.values() if a.dtype.kind == "O"]
            labels = [label for array in texts_alone for label in array]
            csv.writer(file, **form, **_lines(labels)).writerows(zip(*texts, strict=True))
    except OSError as error:
        raise unwritable(path, error) from error


def _lines(texts: Iterable[str], *marks: str) -> dict[str, Any]:
    """How lines are written: all quoted if some text holds a mark, or what else ends a line."""
    odd = any(mark in text for text in texts for mark in (*marks, "\r"))
    return {"lineterminator": "\n", "quoting": csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL}


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
