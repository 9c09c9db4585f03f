"""`ipot models`: what can be trained, and what is trained already.

Nothing here imports torch unless sizes are to be counted: models.json has those of the defaults.
"""

from __future__ import annotations

from typing import Any

from ipot import registry, safe_read, trained
from ipot.commands.flags.models import Models
from ipot.commands.output import is_emitted, refuse_there, show
from ipot.commands.parsing import parse
from ipot.commands.system_facts import COUNTED
from ipot.errors import Unsupported
from ipot.report.tables import percent


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Models, arguments, "models")
    refuse_there(flags.out, overwrite=flags.overwrite)
    if flags.trained:
        _list_trained(flags)
        return
    rows = _rows(flags.problem, flags.preset)
    if is_emitted({"problem": flags.problem, "preset": flags.preset, "models": rows}, flags):
        return
    from ipot.report.tables import table

    columns = ["model", "parameters", "published parameters", "needs", "about"]
    if not any(r["published_parameters"] for r in rows):
        columns.remove("published parameters")
    cells = [[_cells(r)[column] for column in columns] for r in rows]
    caption = "published: as printed, where a complex weight may count once; ours are real numbers"
    shown = caption if "published parameters" in columns else None
    show(table(f"Models for {flags.problem}, preset {flags.preset}", columns, cells, caption=shown))
    for r in rows:
        if r["parameters"] is None:
            print(f"{r['name']}: {r['unsupported'].split('. ')[0].rstrip('.')}.")


def _rows(problem: str, preset: str) -> list[dict[str, Any]]:
    """What is said of every system: read where it was counted before, else counted."""
    names, default = registry.names("models"), Models()
    if (problem, preset) == (default.problem, default.preset):
        rows = safe_read.read_json(COUNTED)
        if [row["name"] for row in rows] == names:  # no file of a new one has been added since
            return rows
    from ipot.commands.system_facts import facts

    return [facts(name, problem, preset) for name in names]


def _list_trained(flags: Models) -> None:
    """The models that come with the package."""
    default = Models()
    if (flags.problem, flags.preset) != (default.problem, default.preset):
        raise Unsupported(
            "--problem and --preset are for models that are yet to be trained: leave them out "
            "beside --trained, which lists all that there are"
        )
    rows = [trained.facts(name) for name in trained.names()]
    if is_emitted({"trained": rows}, flags):
        return
    from ipot.report.tables import bytes_, table

    columns = ["name", "model", "test error", "best simple answer", "samples", "minutes", "machine"]
    columns.append("size")
    cells = [
        [
            row["name"],
            row["model"],
            None if row["error"] is None else percent(row["error"]),
            _told(row["simple"]),
            row["test_samples"],
            None if row["seconds"] is None else f"{row['seconds'] / 60:.1f}",
            row["machine"],
            bytes_(row["folder_bytes"]),
        ]
        for row in rows
    ]
    caption = (
        "test error: mean relative L2 error on test samples, and what the best of the simple "
        "answers has on them; sst is scored by what damped persistence leaves to explain"
    )
    show(table("Trained models in the package", columns, cells, caption=caption))


def _told(simple: dict[str, Any] | None) -> str | None:
    """A simple answer with its error."""
    return None if simple is None else f"{percent(simple['error'])} ({simple['name']})"


def _cells(facts: dict) -> dict[str, str | None]:
    printed = facts["published_parameters"]
    return {
        "model": facts["name"],
        "parameters": f"{facts['parameters']:,}" if facts["parameters"] else None,
        "published parameters": f"{printed / 1e6:.2f} M" if printed else None,
        "needs": ", ".join(facts["needs"]) or "any points, any queries",
        "about": facts["about"],
    }
