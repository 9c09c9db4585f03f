"""What `ipot models` says of a system: counted by building it, which imports torch.

python -m ipot.commands.system_facts        # writes models.json, where the defaults are counted
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ipot import files, registry
from ipot.commands.flags.models import Models
from ipot.errors import Unsupported
from ipot.typed_json import to_dict

COUNTED = Path(__file__).with_name("models.json")
"""The facts of all systems for the default problem and preset: a list needs no torch."""


def facts(name: str, problem: str, preset: str) -> dict[str, Any]:
    """A system for a problem: its size, beside what is printed, and what it needs of the data."""
    from ipot.models.base import parameter_count
    from ipot.recipes import paper
    from ipot.recipes.experiment import build_model, experiment

    kind = registry.find("models", name)
    about = (registry.module("models", name).__doc__ or "").strip().splitlines()[0]
    found: dict[str, Any] = {
        "name": name,
        "about": about,
        "needs": sorted(need.value for need in kind.needs),
        "parameters": None,
        "published_parameters": _published(name, problem),
    }
    if preset == "authors" and name != "ipot":
        found["unsupported"] = "the preset `authors` is IPOT's alone"
        return found
    try:
        if name == "ipot" and preset == "paper" and problem not in registry.names("problems"):
            config, spec = paper.model(problem), paper.spec(problem)
        else:
            settings = experiment(problem, name, preset)
            config, spec = settings.model, settings.problem.spec
        found["parameters"] = parameter_count(build_model(name, config, spec))
        found["config"] = to_dict(config, infinite=True)
    except Unsupported as error:
        found["unsupported"] = str(error)
    return found


def _published(name: str, problem: str) -> int | None:
    """The count that a paper prints for a model on the problem as it is by default."""
    from ipot.recipes import published

    viscosity = None
    if "." in problem or problem in registry.names("problems"):
        viscosity = getattr(registry.find("problems", problem), "viscosity", None)
    found = published.quoted(problem, name, "parameters", viscosity=viscosity)
    return found.parameters if found else None


def write() -> None:
    """Count the defaults anew; a test says when that is needed."""
    default = Models()
    rows = [facts(name, default.problem, default.preset) for name in registry.names("models")]
    files.write_text(COUNTED, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    write()
