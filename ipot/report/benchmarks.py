"""Measurements of speed as tables, and a picture of how time and memory grow with points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipot.bench.infer import SOME
from ipot.bench.rows import OURS, Report, Row
from ipot.bench.scale import ENOUGH, LARGE, series, slope
from ipot.errors import DataError
from ipot.report.curves import draw_curve
from ipot.report.style import Figure, Sheet, look
from ipot.report.tables import count, percent, scientific

Cell = Callable[[Row], object]


def _number(value: float | None, digits: int = 3) -> str | None:
    """Plainly written, to so many digits."""
    if value is None:
        return None
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    text = f"{value:#.{digits}g}" if abs(value) < 10 ** (digits - 1) else f"{value:,.0f}"
    return text.rstrip(".")


def _spread(row: Row) -> str | None:
    """The median, and half of what the middle half of the calls spans."""
    if row.ms is None or row.low_ms is None or row.high_ms is None:
        return None
    return f"{_number(row.ms)} ± {(row.high_ms - row.low_ms) / 2:.2g}"


def _rate(value: float | None, unit: float) -> str | None:
    return None if value is None else _number(value / unit)


def _share(value: float | None) -> str | None:
    return None if value is None else percent(value)


def _times(row: Row) -> str | None:
    return None if row.ratio is None else f"{_number(row.ratio)}x"


RATES: tuple[tuple[str, Cell], ...] = (
    ("TFLOP/s", lambda row: _rate(row.flops_per_second, 1e12)),
    ("of top", lambda row: _share(row.of_flops)),
    ("GB/s", lambda row: _rate(row.bytes_per_second, 1e9)),
    ("of top", lambda row: _share(row.of_bytes)),
)
ANSWERS: tuple[tuple[str, Cell], ...] = (
    ("points", lambda row: count(row.points)),
    ("ms", _spread),
    ("÷ ours", _times),
    ("ns/point", lambda row: _number(row.ns_per_point)),
    ("GiB", lambda row: _number(row.peak_gib)),
    ("above", lambda row: _number(row.above_gib)),
    *RATES,
)
COLUMNS: dict[str, tuple[tuple[str, Cell], ...]] = {
    "train": (
        ("batch", lambda row: row.batch),
        ("ms a step", _spread),
        ("s an epoch", lambda row: _number(row.epoch_seconds)),
        ("÷ ours", _times),
        ("GiB", lambda row: _number(row.peak_gib)),
        ("set-up s", lambda row: _number(row.setup_seconds)),
        *RATES,
    ),
    "infer": ANSWERS,
    "scale": ANSWERS,
    "generate": (
        ("samples", lambda row: row.batch),
        ("samples/s", lambda row: _number(row.samples_per_second)),
        ("ms", _spread),
        ("÷ ours", _times),
        ("GiB", lambda row: _number(row.peak_gib)),
        ("GB/s", lambda row: _rate(row.bytes_per_second, 1e9)),
    ),
    "serve": (
        ("clients", lambda row: row.kind),
        ("points", lambda row: count(row.points)),
        ("ms", _spread),
        ("÷ alone", _times),
        ("answers/s", lambda row: _number(row.samples_per_second)),
        ("GiB", lambda row: _number(row.peak_gib)),
        ("grown by", lambda row: _number(row.above_gib)),
    ),
}


def cells(report: Report) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of the table; what has no numbers stands below it, with its reason."""
    columns: list[tuple[str, Cell]] = [("version", lambda row: row.version)]
    if len(_problems(report)) > 1:
        columns.insert(0, ("problem", lambda row: row.problem))
    columns += COLUMNS[report.task]
    rows = [[cell(row) for _, cell in columns] for row in report.rows if not row.reason]
    return [name for name, _ in columns], rows


def _problems(report: Report) -> list[str]:
    return list(dict.fromkeys(row.problem for row in report.rows))


def heading(report: Report) -> str:
    """What was measured and where."""
    names = _problems(report)
    what = f"{report.task} {names[0]}" if len(names) == 1 else report.task
    top = report.ceilings
    return (
        f"{what} on {report.device}; at best {_rate(top.flops, 1e12)} TFLOP/s in {top.dtype}, "
        f"{_rate(top.bytes, 1e9)} GB/s"
    )


def remarks(report: Report) -> list[str]:
    """What a table has no column for: reasons, notes, differences, and what follows from all."""
    lines = [_how(report.rows)]
    for row in report.rows:
        where = f"{row.problem}, {count(row.points)} points" if row.points else row.problem
        lines += [f"{where}, {row.version}: {text}" for text in (row.reason, *row.notes) if text]
    lines += [_difference(row) for row in report.rows if row.difference is not None]
    lines += [
        f"{row.problem}: ragged batches take {row.over_equal:.2f} times as long as equal ones "
        "with as many points"
        for row in report.rows
        if row.over_equal is not None
    ]
    if mean := report.summary.get("geometric_mean"):
        lines.append(f"geometric mean of the plain version's times over ours: {_number(mean)}")
    if report.task == "scale":
        lines += _growth(report.summary)
    return [line for line in dict.fromkeys(lines) if line]


def _how(rows: Sequence[Row]) -> str:
    """In which way and precision each version ran."""
    found: dict[str, list[str]] = {}
    for row in rows:
        words = ", ".join(part for part in (row.kind, row.precision) if part)
        if words and not row.reason and words not in found.setdefault(row.version, []):
            found[row.version].append(words)
    return "; ".join(f"{version}: {' and '.join(words)}" for version, words in found.items())


def _difference(row: Row) -> str:
    what = "first loss" if row.first_loss is not None else "answer"
    # Answers are compared at a few points, whatever the size that is timed.
    points = row.points if row.first_loss is not None else min(row.points, SOME)
    where = f"{row.problem}, {count(points)} points"
    off = scientific(row.difference or 0.0)
    if row.gradient_difference is not None:
        off += f" and from its first gradient by {scientific(row.gradient_difference)}"
    return f"{where}: {row.version} differs from the plain version's {what} by {off}, relative"


def _growth(summary: dict[str, Any]) -> list[str]:
    lines = []
    for version in summary["time_slope"]:
        found = {what: summary[f"{what}_slope"][version] for what in ("time", "memory")}
        words = [f"{what} as n^{p:.2f}" for what, p in found.items() if p is not None]
        if words:
            lines.append(f"{version} grows, over its largest sizes: {', '.join(words)}")
    if not lines:
        lines.append(f"no version has {ENOUGH} sizes: nothing to say of how they grow")
    change = summary["drift"]
    if change is None:
        lines.append(f"fewer than two sizes from {LARGE:g} points on: nothing to say of linearity")
    else:
        lines.append(f"{OURS}: time per point changes by {100 * change:+.1f} % from {LARGE:g} on")
    return lines


def drawn(rows: Sequence[Row]) -> bool:
    """True if there is anything to draw."""
    return any(row.ms is not None for row in rows)


PANELS = (
    ("ms", "time", "milliseconds for one sample"),
    ("above_gib", "memory", "GiB above the inputs"),
)


def scaling(rows: Sequence[Row], *, title: str | None = None) -> Figure:
    """Two panels, time and memory against points, with the slope of every version."""
    versions = list(dict.fromkeys(row.version for row in rows if row.ms is not None))
    if not versions:
        raise DataError("there is nothing to draw: no version of the measurement has a time")
    with look():
        sheet = Sheet(8.6, 3.5)
        sheet.title(title, 0.65)
        for left, (name, what, label) in zip((0.65, 5.0), PANELS, strict=True):
            axes = sheet.axes(left, 0.6, 3.4, 2.4)
            lines = {version: series(rows, version, name) for version in versions}
            drawn = {
                f"{version}{_words(pairs)}": ([x for x, _ in pairs], [y for _, y in pairs])
                for version, pairs in lines.items()
                if pairs
            }
            if not drawn:  # a system that does not tell how much memory is used
                axes.set_axis_off()
                axes.text(0.5, 0.5, f"{what}: not known here", ha="center", va="center")
                continue
            draw_curve(axes, drawn, xlabel="points $n$", ylabel=label, logx=True, title=what)
        return sheet.figure


def _words(pairs: Sequence[tuple[int, float]]) -> str:
    found = slope(pairs)
    return "" if found is None else f" $\\propto n^{{{found:.2f}}}$"
