"""`ipot models`: what can be trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipot import registry
from ipot.commands.common import emit, parse, show
from ipot.config import to_dict
from ipot.errors import Unsupported
from ipot.models.base import parameter_count
from ipot.recipes import paper
from ipot.recipes.experiment import build_model, experiment


@dataclass
class Models:
    """List the models, their size for a problem and preset, and what each needs of the data.

    With --preset paper any of the paper's eight problems can be named, whether or not its data can
    be generated yet: the parameter counts need only the sizes in the paper's tables.
    """

    problem: str = "darcy"
    """The problem to size the models for."""
    preset: str = "default"
    """default or paper."""
    json: bool = False
    """Print JSON instead of a table."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Models, arguments, "models")
    rows = [_facts(name, flags.problem, flags.preset) for name in registry.names("models")]
    if flags.json:
        emit({"problem": flags.problem, "preset": flags.preset, "models": rows})
        return
    from ipot.report.tables import table

    columns = ["model", "parameters", "needs", "about"]
    cells = [
        [
            r["name"],
            f"{r['parameters']:,}" if r["parameters"] else r["unsupported"],
            ", ".join(r["needs"]) or "any points, any queries",
            r["about"],
        ]
        for r in rows
    ]
    show(table(f"Models for {flags.problem}, preset {flags.preset}", columns, cells))


def _facts(name: str, problem: str, preset: str) -> dict:
    kind = registry.find("models", name)
    about = (registry.module("models", name).__doc__ or "").strip().splitlines()[0]
    facts: dict[str, Any] = {
        "name": name,
        "about": about,
        "needs": sorted(need.value for need in kind.needs),
        "parameters": None,
    }
    try:
        if name == "ipot" and preset == "paper" and problem not in registry.names("problems"):
            config, spec = paper.model(problem), paper.spec(problem)
        else:
            settings = experiment(problem, name, preset)
            config, spec = settings.model, settings.problem.spec
        facts["parameters"] = parameter_count(build_model(name, config, spec))
        facts["config"] = to_dict(config)
    except Unsupported as error:
        facts["unsupported"] = str(error)
    return facts
