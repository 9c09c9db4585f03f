"""Small models of the package's problems, with weights as they are drawn: quick to save and to ask,
and as good as any where numbers are compared with Python's."""

from dataclasses import replace

import numpy as np
import torch

import ipot
from ipot.recipes.experiment import build

SIZES = {
    "ipot": {"width": 16, "latents": 8, "heads": 2, "cross_heads": 2, "blocks": 1},
    "lattice": {"width": 8, "most_width": 16, "blocks": 1, "heads": 2},
    "lno": {"width": 16, "modes": 8, "blocks": 1, "heads": 2},
}

PROBLEMS = {
    "airfoil": {"size": 45, "resolution": 45, "tolerance": 0.02},
    "burgers": {"size": 64, "resolution": 32},
    "darcy": {"size": 33, "resolution": 17},
    "elasticity": {},
    "navier_stokes": {"size": 16, "resolution": 8, "steps": 3},
    "plasticity": {"size": 21, "mass_scaling": 100.0},
    "shallow_water": {"size": 16, "resolution": 8, "steps": 3, "t_start": 2, "hours": 8},
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


def samples(problem, count=2):
    """Samples of a small problem as arrays, as `samples.npz` beside a model has them."""
    found = untrained(problem).problem
    cpu, resolution = torch.device("cpu"), getattr(found, "resolution", None)
    fields = found.generate("test", range(count), seed=0, device=cpu, resolution=resolution)
    data = found.dataset(fields, None, None)
    names = ("points", "values", "queries", "targets")
    return {
        name: np.stack([getattr(data[i], name).numpy() for i in range(count)]) for name in names
    }
