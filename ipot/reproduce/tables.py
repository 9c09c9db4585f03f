"""Results as tables: Markdown, JSON and LaTeX, with the printed numbers beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ipot.bench.scale import slope
from ipot.report import tables
from ipot.reproduce.items import ITEMS, Job
from ipot.reproduce.jobs import Way, minutes, with_data
from ipot.reproduce.records import Result

STAND_IN = "†"
"""Marks numbers on data that stand in for the paper's."""
NOTE = (
    f"{STAND_IN} on `era5_synthetic`, which stands in for ERA5: made-up weather, whose errors are "
    "no reproduction of the number in brackets."
)
COLUMNS = ("cell", "ours", "paper", "state", "parameters", "s an epoch", "GiB", "cost", "command")


def ours(result: Result) -> str:
    """Our number with its spread over seeds, and how it departs from the paper's way."""
    if result.cell.measurement:
        return _measured(result)
    if not result.errors:
        return "not run" if result.state == "not run" else result.state.split(":")[0]
    mean = tables.scientific(statistics.fmean(result.errors))
    if len(result.errors) > 1:
        mean += f" ± {statistics.stdev(result.errors):.0e}"
    return mean + f" [{result.way}]" * bool(result.way) + STAND_IN * bool(result.stand_in)


def printed(result: Result) -> str:
    """The number of the paper."""
    number = result.cell.published
    if number is None:
        return "no number"
    if number.error is None:
        return number.remarks.get("error", "no number")
    return tables.scientific(number.error) + "?" * (not number.trusted("error"))


def _measured(result: Result) -> str:
    """What was measured: the last size and how it grows; or what was scored."""
    if not result.records:
        return "not run" if result.state == "not run" else result.state
    record = result.records[0]
    if not record["rows"]:
        return ", ".join(tables.percent(error) for error in record["tests"].values())
    timed = [row for row in record["rows"] if row["ms"] is not None]
    last = timed[-1]
    words = [f"{last['ms']:.3g} ms at {last['points']:g} points"]
    if last["above_gib"] is not None:
        words.append(f"{last['above_gib']:.2g} GiB")
    power = slope([(row["points"], row["ms"]) for row in timed])
    words += [] if power is None else [f"grows as n^{power:.2f}"]
    words += [row["reason"] for row in record["rows"] if row["reason"]]
    return ", ".join(words)


def matrix(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """A table like the paper's: a row for every system, a column for every condition."""
    columns = list(dict.fromkeys(r.cell.row for r in results))
    rows = list(dict.fromkeys(r.cell.column for r in results))
    found = {(r.cell.column, r.cell.row): f"{ours(r)} ({printed(r)})" for r in results}
    return ["", *columns], [[row, *(found.get((row, c), "") for c in columns)] for row in rows]


def details(results: Sequence[Result], *, gpu: bool = True) -> list[list[str]]:
    """A row for every cell: what it takes, what there is of it."""
    return [
        [
            r.cell.name,
            ours(r),
            printed(r),
            r.state + f", {r.way}" * bool(r.way),
            _effort(r, "parameters", 1e6, "{:.2f} M"),
            _effort(r, "seconds", 1.0, "{:.3g}"),
            _effort(r, "memory", 1.0, "{:.3g}"),
            cost(r, gpu=gpu),
            f"`ipot reproduce {r.cell.name}`",
        ]
        for r in results
    ]


def _effort(result: Result, name: str, unit: float, form: str) -> str:
    """Ours and, in brackets, the paper's: its seconds and memory are those of an RTX 3090."""
    number = result.cell.published
    theirs = None if number is None else getattr(number, name)
    brackets = f" ({form.format(theirs / unit)})" if theirs else ""
    if not result.errors:
        return brackets.strip()
    record = result.records[0]
    mine = {
        "parameters": record.get("parameters"),
        "seconds": record["seconds"] / max(1, record["epochs"]),
        "memory": record.get("gib"),
    }[name]
    return ("-" if mine is None else form.format(mine / unit)) + brackets


def cost(result: Result, *, gpu: bool = True) -> str:
    """What one seed takes: as it took, or about as it will."""
    if result.errors:
        record = result.records[0]
        return f"{tables.seconds(record['seconds'])} ({record['machine']})"
    if result.cell.impossible:
        return ""
    if result.cell.job is None:
        return "about 1 min"
    known, place = minutes(_at_hand(result), gpu=gpu)
    return "unknown" if known is None else f"about {tables.seconds(60 * known)} ({place})"


def _at_hand(result: Result) -> Job:
    assert result.cell.job is not None
    return with_data(result.cell.job, {})


def markdown(item: str, results: Sequence[Result]) -> str:
    """An item for a page: the paper's table with ours beside it, then every cell."""
    mine = [r for r in results if r.cell.item == item]
    parts = [f"{ITEMS[item][0].upper()}{ITEMS[item][1:]}."]
    if any(r.cell.published for r in mine):
        parts.append("Ours (the paper's):\n\n" + tables.markdown(*matrix(mine)).strip())
    if any(r.cell.job and r.cell.job.problem == "era5" for r in mine):
        parts.append(NOTE)
    parts.append(tables.markdown(list(COLUMNS), details(mine)).strip())
    return "\n\n".join(parts)


def latex(item: str, results: Sequence[Result]) -> str:
    """An item as a LaTeX table, ours beside the printed numbers in brackets."""
    columns, rows = matrix([r for r in results if r.cell.item == item])
    lines = [_row(columns), r"\hline", *(_row(row) for row in rows)]
    body = "\n".join(lines)
    return (
        f"% {item}: {ITEMS[item]}; ours (the paper's)\n"
        f"\\begin{{tabular}}{{l{'c' * (len(columns) - 1)}}}\n{body}\n\\end{{tabular}}\n"
    )


_SPECIAL = {"_": r"\_", "%": r"\%", "±": r"$\pm$", STAND_IN: r"$^\dagger$", "°": r"$^\circ$"}
_SPECIAL |= {"&": r"\&", "#": r"\#", "^": r"\^{}", "≫": r"$\gg$"}


def _row(cells: Sequence[str]) -> str:
    texts = ("".join(_SPECIAL.get(c, c) for c in cell) for cell in cells)
    return " & ".join(texts) + r" \\"


def as_json(results: Sequence[Result], way: Way) -> list[dict[str, Any]]:
    """Every cell with all that is known of it, for programs."""
    return [
        {
            "cell": r.cell.name,
            "command": f"ipot reproduce {r.cell.name}" + " --small" * way.small,
            "state": r.state,
            "ours": list(r.errors),
            "mean": statistics.fmean(r.errors) if r.errors else None,
            "metric": r.cell.measurement.kind if r.cell.measurement else r.cell.asks,
            "published": None if r.cell.published is None else _number(r.cell.published),
            "budget": r.way or None,
            "stand_in": r.stand_in or None,
            "cost": cost(r),
            "records": [record["id"] for record in r.records],
        }
        for r in results
    ]


def _number(number: Any) -> dict[str, Any]:
    return {k: v for k, v in asdict(number).items() if v not in (None, "", {})}
