"""Write the tables and figures of docs/accuracy.md from the ledger, or check that they agree.

    python tools/accuracy_tables.py             # write them
    python tools/accuracy_tables.py --check     # fail where the page has others

A problem has a table for each set of its settings, data and machine; a row is a system with its
settings and time of training, the shortest times first. Several seeds of the same settings are one
row, with their mean and spread. A figure has the validation errors of all runs of a problem against
the time of their training.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ipot.recipes import ledger  # noqa: E402
from ipot.recipes.experiment import experiment  # noqa: E402

LEDGER, PAGE = ROOT / "results" / "runs.json", ROOT / "docs" / "accuracy.md"
BEGIN = "<!-- tables: written by tools/accuracy_tables.py, not by hand -->"
END = "<!-- end of tables -->"
COLUMNS = ("minutes", "system", "settings", "test error", "seeds", "epochs", "GiB", "commit")
RULE = "|--:|---|---|--:|--:|--:|--:|---|"
FIGURES = "images/accuracy"
"""Where the page's figures lie, as the page names them."""
MARK = "Description"
"""The entry of a picture's metadata that says which numbers it shows: pixels depend on fonts."""
NO_MATTER = ("seed", "minutes", "validate_every", "save_seconds", "workers", "step")
"""Settings of training that make no other row."""
Record = dict[str, Any]


def tables(records: list[Record]) -> str:
    """Every problem's tables, in Markdown."""
    problems: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        problems[record["problem"]["name"]][_data(record)].append(record)
    drawn, parts = curves(records), []
    for problem in sorted(problems):
        parts.append(f"## {problem}")
        parts += [_table(data, problems[problem][data]) for data in sorted(problems[problem])]
        if problem in drawn:
            about = f"{problem}: validation error against time, all runs"
            parts.append(f"![{about}]({FIGURES}/{problem}.png)")
    return "\n\n".join(parts) or "The ledger is empty: nothing was run yet."


def curves(records: list[Record]) -> dict[str, dict[str, list[list[float]]]]:
    """The curves of every problem by what they are called: minutes and validation errors."""
    found: dict[str, dict[str, list[list[float]]]] = defaultdict(dict)
    for record in records:
        if not record.get("curve"):
            continue
        settings = _settings(record)
        words = [record["model"]["name"], "" if settings == "-" else settings, record["machine"]]
        words += [f"seed {record['seed']}"] if record["seed"] else []
        name = ", ".join(word for word in words if word)
        problem = record["problem"]["name"]
        while name in found[problem]:
            name += "\u2032"
        found[problem][name] = [[seconds / 60, error] for seconds, error in record["curve"]]
    return {problem: found[problem] for problem in sorted(found)}


def digest(lines: dict[str, list[list[float]]]) -> str:
    """A mark of the numbers in a figure."""
    return hashlib.sha256(json.dumps(lines, sort_keys=True).encode()).hexdigest()


def draw(lines: dict[str, list[list[float]]], path: Path) -> None:
    """A figure of a problem's curves."""
    from ipot.report.curves import draw_curve
    from ipot.report.style import Sheet, look

    series = {name: tuple(zip(*rows, strict=True)) for name, rows in lines.items()}
    names = {"xlabel": "minutes of training", "ylabel": "validation error (relative L2)"}
    path.parent.mkdir(parents=True, exist_ok=True)
    with look():
        sheet = Sheet(7.0, 3.2)
        draw_curve(sheet.axes(0.65, 0.1, 6.25, 2.65), series, **names)
        sheet.figure.savefig(path, dpi=150, metadata={MARK: digest(lines)})


def drawn(path: Path) -> str | None:
    """The mark of the numbers in a figure that was drawn before."""
    from PIL import Image

    if not path.is_file():
        return None
    with Image.open(path) as picture:
        return picture.info.get(MARK)


def _data(record: Record) -> str:
    """How much data of which settings of the problem, and the machine."""
    problem = record["problem"]
    data = record["data"] if isinstance(record["data"], dict) else {}
    words = [f"{data['train']} training samples"] if "train" in data else []
    changed = _changed(problem, "problem", problem["name"]).removeprefix(", ")
    return ", ".join([*words, *([changed] if changed else []), record["machine"]])


def _table(title: str, records: list[Record]) -> str:
    rows: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        kept = {k: v for k, v in record["training"].items() if k not in NO_MATTER}
        key = [record["training"].get("minutes"), record["model"], kept, record["preset"]]
        rows[json.dumps(key, sort_keys=True)].append(record)
    ordered = sorted(rows.values(), key=lambda row: (_minutes(row), _error(row)))
    lines = [f"### {title[0].upper()}{title[1:]}", "", _line(COLUMNS), RULE]
    lines += [_line(_cells(row)) for row in ordered]
    notes = [
        f"- {row[0]['model']['name']}, {_minutes(row):g} minutes, {name}: "
        f"{_spread([r['tests'][name] for r in some])}"
        for row in ordered
        for name in sorted({n for r in row for n in r["tests"]} - {ledger.AS_TRAINED})
        for some in [[r for r in row if name in r["tests"]]]
    ]
    commands = [*dict.fromkeys(r["command"] for row in ordered for r in row if r["command"])]
    lines += ["", *notes] if notes else []
    lines += ["", "```bash", *commands, "```"] if commands else []
    return "\n".join(lines)


def _minutes(row: list[Record]) -> float:
    """The time that runs were given, or else took."""
    given = row[0]["training"].get("minutes")
    return round(given or statistics.fmean(r["seconds"] for r in row) / 60, 1)


def _error(row: list[Record]) -> float:
    """What rows are sorted by: the mean test error, and those without one behind them."""
    scored = [r["tests"][ledger.AS_TRAINED] for r in row if ledger.AS_TRAINED in r["tests"]]
    return statistics.fmean(scored) if scored else 1e9 + row[0]["validation"]


def _cells(row: list[Record]) -> tuple[str, ...]:
    first = row[0]
    scored = [r["tests"][ledger.AS_TRAINED] for r in row if ledger.AS_TRAINED in r["tests"]]
    validated = _spread([r["validation"] for r in row]) + " (validation)"
    gib = [r["gib"] for r in row if r["gib"] is not None]
    return (
        f"{_minutes(row):g}",
        f"`{first['model']['name']}`",
        _settings(first),
        _spread(scored) if scored else validated,
        str(len(row)),
        f"{statistics.fmean(r['epochs'] for r in row):.0f}",
        f"{max(gib):.1f}" if gib else "-",
        ", ".join(dict.fromkeys(f"`{r['commit']}`" for r in row)),
    )


def _settings(record: Record) -> str:
    """What differs from the recipe of the system."""
    name, problem = record["model"]["name"], record["problem"]["name"]
    model = _changed(record["model"], "model", problem, name, record["preset"])
    own = {k: v for k, v in record["training"].items() if k not in (*NO_MATTER, "epochs")}
    training = _changed(own, "training", problem, name, record["preset"])
    preset = "" if record["preset"] == "default" else record["preset"]
    return ", ".join(part.removeprefix(", ") for part in (preset, model, training) if part) or "-"


def _changed(found: Record, group: str, problem: str, model: str = "ipot", preset="default") -> str:
    """The settings of a group that its recipe has otherwise, as words behind a comma."""
    usual = experiment(problem, model, preset).as_dict()[group]
    words = [
        f"{k.replace('_', ' ')} {v}"
        for k, v in sorted(found.items())
        if k != "name" and usual.get(k) != v
    ]
    return "".join(f", {word}" for word in words)


def _spread(errors: list[float]) -> str:
    """A number of three digits, and the deviation over seeds."""
    mean = f"{statistics.fmean(errors):.3g}"
    return mean if len(errors) < 2 else f"{mean} ± {statistics.stdev(errors):.1g}"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def written(page: str, records: list[Record]) -> str:
    """The page with the tables of these records between its two marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{tables(records)}\n\n{END}{after}"


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail where they differ"
    )
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--page", type=Path, default=PAGE)
    flags = parser.parse_args()
    records = ledger.read(flags.ledger)
    page = flags.page.read_text(encoding="utf-8")
    new = written(page, records)
    stale = {
        path: lines
        for problem, lines in curves(records).items()
        for path in [flags.page.parent / FIGURES / f"{problem}.png"]
        if drawn(path) != digest(lines)
    }
    if not flags.check:
        flags.page.write_text(new, encoding="utf-8")
        for path, lines in stale.items():
            draw(lines, path)
    elif new != page or stale:
        names = [str(flags.page)] * (new != page) + [str(path) for path in stale]
        print(f"not as {flags.ledger} has it: {', '.join(names)}")
        print("run python tools/accuracy_tables.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
