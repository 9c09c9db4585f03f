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
    # Time is the third coordinate, and twenty frames resolve ten periods.
    "plasticity": {"bins": (8,), "max_frequency": (16.0,)},
    "shallow_water": {"blocks": 2, "cross_gain": 3.0},
    "era5": {"bins": (32,), "max_frequency": (64.0,), "blocks": 2},
    "era5_synthetic": {"bins": (32,), "max_frequency": (64.0,), "blocks": 2},
    # Windows overlap, and a few hundredths of the variance are all there is to explain: a small
    # model, with features that know basins and no more.
    "sst": {
        "latents": 32,
        "width": 32,
        "blocks": 1,
        "heads": 4,
        "cross_heads": 4,
        "cross_gain": 3.0,
        "local": False,
        "bins": (6,),
        "max_frequency": (6.0,),
    },
}
TRAINING: dict[str, dict[str, Any]] = {
    "burgers": {"epochs": 500, "batch": 20, "augment": True},
    "darcy": {"epochs": 400, "batch": 10, "augment": True},
    "navier_stokes": {"epochs": 300, "batch": 20, "queries": 0.25, "augment": True},
    "airfoil": {"epochs": 400, "batch": 10, "augment": True},
    "elasticity": {"epochs": 500, "batch": 10, "augment": True},
    "plasticity": {"epochs": 300, "batch": 10, "queries": 0.1, "augment": True},
    # Without its symmetries: a model that must also learn all turns needs far more than minutes.
    "shallow_water": {"epochs": 1000, "batch": 8, "queries": 0.25},
    # Five years are few: longer, and the windows are learnt by heart.
    "era5": {"epochs": 100, "batch": 10, "queries": 0.25},
    "era5_synthetic": {"epochs": 100, "batch": 10, "queries": 0.25},
    # Short: beyond this the validation error rises while the loss goes on falling.
    "sst": {
        "epochs": 11,
        "batch": 16,
        "weight_decay": 0.01,
        "average": 0.99,
        "points": 0.25,
        "queries": 0.03,
        "validate_every": 4,
    },
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
