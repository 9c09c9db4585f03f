"""Systems side by side: a table, a page, and a picture of error against time, size and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipot.errors import DataError
from ipot.recipes.compare_table import Comparison, Row
from ipot.report.curves import MARKERS, scale_axis, tidy
from ipot.report.labels import SIZE, Mark, name_ends, name_points
from ipot.report.style import COLOURS, FAINT, Axes, Figure, Sheet, look
from ipot.report.tables import markdown

COLUMNS = (
    "model",
    "parameters",
    "epochs",
    "s/epoch",
    "set-up s",
    "peak GiB",
    "test error",
    "published",
)
# Colours come round again; a line then looks otherwise.
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)))
WORTHLESS = 2.0
"""Errors beyond this are drawn at the edge: an answer of zero would be better."""


def cells(found: Comparison) -> tuple[list[list[object]], list[str]]:
    """Rows for a table, best first and answers without a model last, and the footnotes below it."""
    rows: list[list[object]] = []
    marks: dict[str, str] = {}
    for row in found.rows:
        texts = [text for text in (row.reason, *row.notes) if text]
        # What is said of several systems is said once.
        signs = [marks.setdefault(text, _mark(len(marks) + 1)) for text in texts]
        rows.append([" ".join([row.model, *signs]), *_values(row)])
    simple = {**found.references, "the mean field": found.mean_field}
    for name, error in simple.items():
        rows.append([name, *[None] * 5, _written(error, ".5f"), None])
    return rows, [f"{sign} {text}" for text, sign in marks.items()]


def _values(row: Row) -> list[object]:
    return [
        row.parameters,
        row.epochs,
        _written(row.epoch_seconds, "#.3g"),
        _written(row.setup_seconds, ".1f"),
        _written(row.peak_gib, ".2f"),
        _written(row.error, ".5f"),
        _written(row.published, "g"),
    ]


def _written(value: float | None, how: str) -> str | None:
    return None if value is None else format(value, how).rstrip(".")


def _mark(number: int) -> str:
    """The sign of a footnote."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def heading(found: Comparison) -> str:
    """What was compared, in a line."""
    minutes, name = found.terms["minutes"], found.problem["name"]
    side = found.problem.get("resolution")
    seen = f"{found.data['train']} samples" + (f" at {side} a side" if side else "")
    words = f"{minutes:g} min of training each on {seen}, preset {found.preset}, {found.device}"
    return f"{name}: {words}"


def page(found: Comparison, command: str) -> str:
    """The comparison as Markdown, with all that is needed to read it."""
    rows, footnotes = cells(found)
    data, terms, where = found.data, found.terms, found.environment
    parts = [
        f"# {heading(found)}",
        f"```bash\n{command}\n```",
        f"ipot {where['ipot']}, torch {where['torch']}, Python {where['python']}, "
        f"{where['system']}; {found.device}, {where['threads']} CPU threads.",
        f"{data['train']} training samples, {'' if terms['augment'] else 'not '}augmented; "
        f"{data['validation']} for validation, {data['test']} for the test. Data seed "
        f"{data['seed']}, training seed {terms['seed']}.",
        markdown(COLUMNS, rows).rstrip(),
        "  \n".join(footnotes),
        "The test error is the relative L2, with the weights that did best on validation samples. "
        "The minutes count validations, and not the set-up (compiling, capturing). Published "
        "errors come from a full schedule on the original files: what others reached, not this "
        "experiment.",
        "\n".join(_sources(found.rows)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sources(rows: Sequence[Row]) -> list[str]:
    """Where the published errors stand, each source once."""
    sources: dict[str, list[str]] = {}
    for row in rows:
        if row.source:
            sources.setdefault(row.source, []).append(row.model)
    return [f"- {', '.join(models)}: {source}" for source, models in sources.items()]


def comparison(found: Comparison) -> Figure:
    """Three panels with one axis of errors: against time, parameters and peak memory."""
    rows = [row for row in found.rows if row.error is not None]
    if not rows:
        raise DataError("there is nothing to draw: no system of the comparison has an error")
    with look():
        sheet = Sheet(12.0, 4.0)
        sheet.title(heading(found), 0.65)
        time, size, memory = (sheet.axes(left, 0.6, 3.0, 2.8) for left in (0.65, 5.2, 8.75))
        ends = _draw_curves(time, rows)
        sizes = _draw_points(size, rows, [_millions(row) for row in rows])
        peaks = _draw_points(memory, rows, [row.peak_gib for row in rows])
        time.set(ylabel="relative $L^2$ error", xlabel="seconds of training")
        time.set_title("on validation samples, while training")
        size.set(xlabel="parameters (millions)")
        memory.set(xlabel="peak memory (GiB)")
        for axes in (time, size, memory):
            _share_errors(axes, found, rows)
            tidy(axes)
        for axes in (size, memory):
            axes.set_title("on test samples, at the end")
        # What fits where depends on the scales, so names come last.
        name_ends(time, ends)
        name_points(size, sizes)
        name_points(memory, peaks)
        if missing := [row.model for row in found.rows if row.error is None]:
            words = f"without an error: {', '.join(missing)}"
            sheet.text(0.65, 3.95, words, fontsize=SIZE, color=FAINT, va="bottom")
        return sheet.figure


def _millions(row: Row) -> float | None:
    return None if row.parameters is None else row.parameters / 1e6


def _draw_curves(axes: Axes, rows: Sequence[Row]) -> list[Mark]:
    """Validation errors over time, and where each curve ends."""
    ends = []
    for i, row in enumerate(rows):
        if not row.curve:
            continue
        x, y = zip(*((x, min(y, WORTHLESS)) for x, y in row.curve), strict=True)
        line = LINES[i // len(COLOURS) % len(LINES)]
        axes.plot(x, y, linestyle=line, zorder=3, color=_colour(i), linewidth=1.2)
        axes.plot(x[-1:], y[-1:], **_dot(i) | {"markersize": 4.5})
        ends.append(Mark(row.model, x[-1], y[-1], _colour(i)))
    places = [seconds for row in rows for seconds, _ in row.curve]
    scale_axis(axes, "x", places, True, room=0.02)
    return ends


def _draw_points(axes: Axes, rows: Sequence[Row], places: Sequence[float | None]) -> list[Mark]:
    """Test errors over something else that is known of the systems."""
    marks = []
    for i, (row, x) in enumerate(zip(rows, places, strict=True)):
        if x is not None and row.error is not None:
            marks.append(Mark(row.model, x, min(row.error, WORTHLESS), _colour(i)))
            axes.plot([x], [marks[-1].y], **_dot(i))
    # Air at the sides, which names need.
    scale_axis(axes, "x", [mark.x for mark in marks], True, room=0.22)
    return marks


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _dot(i: int) -> dict[str, Any]:
    """The looks of a system's point."""
    return {
        "color": _colour(i),
        "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)],
        "markersize": 6.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
        "linestyle": "none",
        "zorder": 4,
    }


def _share_errors(axes: Axes, found: Comparison, rows: Sequence[Row]) -> None:
    """One axis of errors for every panel, and the mean field on it."""
    errors = [error for row in rows for _, error in row.curve]
    errors += [row.error for row in rows if row.error is not None]
    if found.mean_field is not None:
        errors.append(found.mean_field)
        axes.axhline(found.mean_field, color=FAINT, linewidth=0.9, linestyle=(0, (5, 3)), zorder=2)
        axes.annotate(
            "the mean field",
            (0.985, found.mean_field),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=SIZE,
            color="#5a5a5a",
        )
    scale_axis(axes, "y", [min(error, WORTHLESS) for error in errors], True, room=0.06)
