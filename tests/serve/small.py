"""Small models of the package's problems, with weights as they are drawn: quick to save and to ask,
and as good as any where numbers are compared with Python's."""

from dataclasses import replace

import ipot
from ipot.recipes.experiment import build

SIZES = {
    "ipot": {"width": 16, "latents": 8, "heads": 2, "cross_heads": 2, "blocks": 1},
    "lattice": {"width": 8, "most_width": 16, "blocks": 1, "heads": 2},
}

PROBLEMS = {
    "airfoil": {"size": 45, "resolution": 45},
    "burgers": {"size": 64, "resolution": 32},
    "darcy": {"size": 33, "resolution": 17},
    "elasticity": {},
    "navier_stokes": {"size": 16, "resolution": 8, "steps": 3},
    "plasticity": {},
    "shallow_water": {"resolution": 8, "steps": 3},
    "sst": {"steps": 4},
}
"""Settings that make a problem small."""


def untrained(problem, model="ipot", **settings):
    """A model of a problem."""
    found = ipot.experiment(problem, model)
    found = replace(
        found,
        model=replace(found.model, **SIZES[model]),
        problem=replace(found.problem, **PROBLEMS[problem] | settings),
    )
    return ipot.Surrogate.of_experiment(build(found), found)
