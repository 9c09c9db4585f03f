"""Systems side by side: a table, a page, and a picture of error against time, size and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipot import files
from ipot.errors import DataError
from ipot.recipes.compare_table import Comparison, Row
from ipot.report.curves import MARKERS, scale_axis, tidy
from ipot.report.labels import SIZE, Mark, name_ends, name_points
from ipot.report.style import COLOURS, FAINT, Axes, Figure, Sheet, look, save
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
PUBLISHED = (
    " Published errors come from a full schedule on the original files: what others reached, not "
    "this experiment."
)
WORTHLESS = 2.0
"""Errors beyond this are drawn at the edge: an answer of zero would be better."""


def columns(found: Comparison) -> tuple[str, ...]:
    """What a comparison has to say of its systems."""
    quoted = any(row.published is not None for row in found.rows)
    there = {"peak GiB": _has_peaks(found), "published": quoted}
    return tuple(name for name in COLUMNS if there.get(name, True))


def cells(found: Comparison) -> tuple[list[list[object]], list[str]]:
    """Rows for a table, best first and answers without a model last, and the footnotes below it."""
    shown, rows = columns(found), []
    marks: dict[str, str] = {}
    for row in found.rows:
        texts = [text for text in (row.reason, *row.notes) if text]
        # What is said of several systems is said once.
        signs = [marks.setdefault(text, _mark(len(marks) + 1)) for text in texts]
        values = _values(row) | {"model": " ".join([row.model, *signs])}
        rows.append([values[name] for name in shown])
    simple = {**found.references, "the mean field": found.mean_field}
    for name, error in simple.items():
        values = {"model": name, "test error": _written(error, ".5f")}
        rows.append([values.get(name) for name in shown])
    return rows, [f"{sign} {text}" for text, sign in marks.items()]


def _values(row: Row) -> dict[str, object]:
    return {
        "parameters": row.parameters,
        "epochs": row.epochs,
        "s/epoch": _written(row.epoch_seconds, "#.3g"),
        "set-up s": _written(row.setup_seconds, ".1f"),
        "peak GiB": _written(row.peak_gib, ".2f"),
        "test error": _written(row.error, ".5f"),
        "published": _written(row.published, "g"),
    }


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
    return f"{name}: {words}" + (", sizes for a first look" if found.small else "")


def page(found: Comparison, command: str, language: str = "bash") -> str:
    """The comparison as Markdown, with all that is needed to read it."""
    (rows, footnotes), sources = cells(found), _sources(found.rows)
    data, terms, where = found.data, found.terms, found.environment
    parts = [
        f"# {heading(found)}",
        f"```{language}\n{command}\n```",
        f"ipot {where['ipot']}, torch {where['torch']}, Python {where['python']}, "
        f"{where['system']}; {found.device}, {where['threads']} CPU threads.",
        f"{data['train']} training samples, {'' if terms['augment'] else 'not '}augmented; "
        f"{data['validation']} for validation, {data['test']} for the test. Data seed "
        f"{data['seed']}, training seed {terms['seed']}.",
        markdown(columns(found), rows).rstrip(),
        "  \n".join([*footnotes, *found.remarks]),
        "The test error is the relative L2, with the weights that did best on validation samples. "
        "The minutes count validations, and not the set-up (compiling, capturing)."
        + (PUBLISHED if sources else ""),
        "\n".join(sources),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(found: Comparison, folder: Path, command: str, language: str = "bash") -> list[str]:
    """The page and, where a system was scored, the picture; their names."""
    files.write_text(folder / "compare.md", page(found, command, language))
    if all(row.error is None for row in found.rows):
        return ["compare.md"]
    save(comparison(found), folder / "compare.png")
    return ["compare.md", "compare.png"]


def table_lines(found: Comparison) -> list[str]:
    """The table in lines of plain text, and what is said below it."""
    rows, footnotes = cells(found)
    table = markdown(columns(found), rows).rstrip().splitlines()
    return [heading(found), *table, *footnotes, *found.remarks]


def _sources(rows: Sequence[Row]) -> list[str]:
    """Where the published errors stand, each source once."""
    sources: dict[str, list[str]] = {}
    for row in rows:
        if row.source:
            sources.setdefault(row.source, []).append(row.model)
    return [f"- {', '.join(models)}: {source}" for source, models in sources.items()]


def comparison(found: Comparison) -> Figure:
    """Panels with one axis of errors: against time, parameters and, of a GPU, peak memory."""
    rows = [row for row in found.rows if row.error is not None]
    if not rows:
        raise DataError("there is nothing to draw: no system of the comparison has an error")
    with look():
        across = {"parameters (millions)": [_millions(row) for row in rows]}
        if _has_peaks(found):
            across["peak memory (GiB)"] = [row.peak_gib for row in rows]
        sheet = Sheet(5.0 + 3.5 * len(across), 4.0)
        sheet.title(heading(found), 0.65)
        time = sheet.axes(0.65, 0.6, 3.0, 2.8)
        ends = _draw_curves(time, rows)
        time.set(ylabel="relative $L^2$ error", xlabel="seconds of training")
        time.set_title("on validation samples, while training")
        ends += _share_errors(time, found, rows)
        tidy(time)
        panels = []
        for i, (label, places) in enumerate(across.items()):
            axes = sheet.axes(5.2 + 3.55 * i, 0.6, 3.0, 2.8)
            marks = _draw_points(axes, rows, places)
            axes.set(xlabel=label)
            axes.set_title("on test samples, at the end")
            _share_errors(axes, found, rows)
            tidy(axes)
            panels.append((axes, marks))
        # What fits where depends on the scales, so names come last.
        name_ends(time, ends)
        for axes, marks in panels:
            name_points(axes, marks)
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
        "clip_on": False,
    }


def _share_errors(axes: Axes, found: Comparison, rows: Sequence[Row]) -> list[Mark]:
    """One axis of errors for every panel, and the answers without a model as lines across it; what
    they are called, at their right ends."""
    errors = [error for row in rows for _, error in row.curve]
    errors += [row.error for row in rows if row.error is not None]
    simple = {name: min(error, WORTHLESS) for name, error in _simple(found).items()}
    for error in simple.values():
        axes.axhline(error, color=FAINT, linewidth=0.9, linestyle=(0, (5, 3)), zorder=2)
    limits = [*(min(error, WORTHLESS) for error in errors), *simple.values()]
    scale_axis(axes, "y", limits, True, room=0.06)
    right = axes.get_xlim()[1]
    return [Mark(name, right, error, FAINT) for name, error in simple.items()]


def _simple(found: Comparison) -> dict[str, float]:
    """The errors of answers without a model, by name."""
    known = {**found.references, "the mean field": found.mean_field}
    return {name: error for name, error in known.items() if error is not None}


def _has_peaks(found: Comparison) -> bool:
    """Whether memory can be compared: on a CPU it is that of the whole process, data and all."""
    return found.device != "cpu" and any(row.peak_gib is not None for row in found.rows)
