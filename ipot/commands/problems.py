"""`ipot problems`: what can be solved."""

from __future__ import annotations

from dataclasses import dataclass

from ipot import registry
from ipot.commands.common import emit, parse, show
from ipot.config import to_dict


@dataclass
class Problems:
    """List the problems: sizes, splits, symmetries and where their data come from.

    The settings of a problem are flags of `generate` and `train`: --problem.viscosity 1e-4.
    """

    json: bool = False
    """Print JSON instead of a table."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Problems, arguments, "problems")
    rows = [_facts(name) for name in registry.names("problems")]
    if flags.json:
        emit(rows)
        return
    from ipot.report.tables import table

    columns = ["problem", "in → out", "points", "steps", "train/val/test", "symmetries", "data"]
    cells = [
        [
            f"{r['name']}\n{r['about']}",
            f"{r['channels']} → {r['outputs']}",
            r["points"],
            r["steps"],
            "/".join(str(v) for v in r["splits"].values()),
            ", ".join(r["symmetries"]) or "none",
            r["source"],
        ]
        for r in rows
    ]
    show(table("Problems", columns, cells))


def _facts(name: str) -> dict:
    problem = registry.find("problems", name)
    spec = problem.spec
    settings = to_dict(problem)
    side, rank = settings.get("resolution"), spec.dimension
    return {
        "name": name,
        "about": problem.about,
        "dimension": rank,
        "points": " x ".join([str(side)] * rank) if side else "scattered",
        "channels": spec.channels,
        "outputs": len(spec.outputs),
        "steps": spec.steps,
        "parameters": list(spec.parameters),
        "splits": dict(problem.sizes),
        "symmetries": list(spec.symmetries),
        "provides": sorted(need.name.lower() for need in spec.provides),
        "source": problem.source,
        "settings": settings,
    }
