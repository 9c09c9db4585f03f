"""Tables for the terminal and for Markdown, and numbers written for people."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table
else:  # rich loads on first use; checkers at run time still find the name.
    Table = Any

# What the helpers below write: numbers, perhaps with a unit, an error bar, or minutes and seconds.
_PART = r"[-+]?\d[\d,.]*(e[-+]?\d+)?(x| ?(%|[KMGT]iB|B|h|min|s|ms|µs|ns))?"
_NUMBER = re.compile(rf"{_PART}(( ± | ){_PART})?")
Number = float | int  # strict checkers do not take an int for a float
_EMPTY = "\N{EN DASH}"


def percent(x: Number) -> str:
    """A share or a relative error: 0.0071 as `0.71 %`."""
    if not math.isfinite(x):
        return f"{x}"
    value = 100 * x
    size = abs(value)
    if size >= 100:
        return f"{value:.0f} %"
    if size >= 10:
        return f"{value:.1f} %"
    if size >= 0.1 or size == 0:
        return f"{value:.2f} %"
    return f"{value:.2g} %"


def scientific(x: Number) -> str:
    """Three digits and an exponent: 0.0071 as `7.10e-03`."""
    return f"{x:.2e}"


def seconds(x: Number) -> str:
    """A duration in the units a person would use."""
    if not math.isfinite(x):
        return f"{x}"
    if x < 0:
        return f"-{seconds(-x)}"
    if x >= 3599.5:
        hours, minutes = divmod(round(x / 60), 60)
        return f"{hours} h {minutes:02d} min"
    if x >= 99.95:
        minutes, rest = divmod(round(x), 60)
        return f"{minutes} min {rest:02d} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if x >= 0.9995 * scale:
            return f"{x / scale:.3g} {unit}"
    return f"{x / 1e-9:.3g} ns" if x else "0 s"


def bytes_(x: Number) -> str:
    """A size in powers of 1024."""
    size = float(x)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1023.5:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def count(x: int) -> str:
    """A whole number with its thousands apart."""
    return f"{x:,}"


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    caption: str | None = None,
) -> Table:
    """A table for the terminal; columns of numbers are flush right."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    cells = _cells(columns, rows)
    out = RichTable(
        title=Text(title),
        caption=None if caption is None else Text(caption),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        header_style="bold",
    )
    for name, right in zip(columns, _numeric(columns, cells), strict=True):
        out.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in cells:
        # Plain text: a name with [brackets] is not markup.
        out.add_row(*(Text(cell) for cell in row))
    return out


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A GitHub table; columns of numbers are flush right."""
    cells = _cells(columns, rows)
    right = _numeric(columns, cells)
    head = [_escape(name) for name in columns]
    body = [[_escape(cell) for cell in row] for row in cells]
    widths = [max(4, *(len(row[i]) for row in (head, *body))) for i in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (w - 1) + ":" if flush else "-" * w for w, flush in zip(widths, right, strict=True)
    ]
    return "\n".join(line(row) for row in (head, rule, *body)) + "\n"


def _cells(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[str]]:
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(
                f"a row of {len(row)} cells in a table of {len(columns)} columns: {row}"
            )
    return [[_text(cell) for cell in row] for row in rows]


def _text(cell: object) -> str:
    if cell is None:
        return _EMPTY
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return count(cell)
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)


def _numeric(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns hold numbers and nothing else."""

    def numbers(index: int) -> bool:
        known = [row[index] for row in cells if row[index] not in (_EMPTY, "", "nan", "inf")]
        return bool(known) and all(_NUMBER.fullmatch(cell) for cell in known)

    return [numbers(i) for i in range(len(columns))]


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
