"""Our own settings: untied processor, lifted inputs, full-width decoder, normalised fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ipot.models import ipot
from ipot.training.settings import Training

# What differs from the defaults of Config and Training, problem by problem. A problem that is not
# listed takes the defaults as they are.
MODEL: dict[str, dict[str, Any]] = {
    "burgers": {"bins": (32,), "blocks": 2},
    "darcy": {"bins": (32,), "max_frequency": (32.0,)},
    "navier_stokes": {"bins": (12,), "blocks": 2, "cross_gain": 3.0},
}
TRAINING: dict[str, dict[str, Any]] = {
    "burgers": {"epochs": 500, "batch": 20, "augment": True},
    "darcy": {"epochs": 400, "batch": 10, "augment": True},
    "navier_stokes": {"epochs": 300, "batch": 20, "queries": 0.25, "augment": True},
}


@dataclass(frozen=True)
class Recipe:
    """The settings that a preset gives."""

    model: Any
    training: Training
    normalize: bool = True


def recipe(problem: str) -> Recipe:
    """IPOT at its best known settings for a problem."""
    return Recipe(
        replace(ipot.Config(), **MODEL.get(problem, {})),
        replace(Training(), **TRAINING.get(problem, {})),
    )
