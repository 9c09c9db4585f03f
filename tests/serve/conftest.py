"""Small models, saved once, and an application that serves them."""

from dataclasses import replace

import numpy as np
import pytest
from own import tiny

import ipot
from ipot.recipes.experiment import build
from serve.asking import Client, saved

SMALL = {"width": 16, "latents": 8, "heads": 2, "cross_heads": 2, "blocks": 1}


def untrained(problem, **settings):
    """A model of a problem, with weights as they are drawn."""
    found = ipot.experiment(problem, "ipot")
    found = replace(
        found,
        model=replace(found.model, **SMALL),
        problem=replace(found.problem, **settings),
    )
    return ipot.Surrogate.of_experiment(build(found), found)


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Models by name, as they are served."""
    folder = tmp_path_factory.mktemp("served")
    x = np.random.default_rng(0).random((3, 20, 2))
    np.savez(folder / "samples.npz", points=x[:1], values=x[..., :1].astype(np.float16))
    models = {
        "darcy": (untrained("darcy", size=33, resolution=17), {"samples": folder / "samples.npz"}),
        "navier_stokes": (untrained("navier_stokes", size=16, resolution=8, steps=3), {}),
        "burgers": (untrained("burgers", size=64, resolution=32), {}),
        "elasticity": (untrained("elasticity"), {}),
    }
    found = {
        name: saved(folder, model, name, problem=name, title=name.title(), **facts)
        for name, (model, facts) in models.items()
    }
    for kind in ("mesh", "times", "parameters", "uneven"):
        model = tiny.quick(tiny.data(kind, 40), epochs=1)
        found[kind] = saved(folder, model, kind, title="Own data")
    return found


@pytest.fixture
def client(served):
    """All of them, with the limits as they are."""
    found = Client(*served.values())
    yield found
    found.close()


@pytest.fixture
def make_client(served):
    """One of them or more, with other limits."""
    made = []

    def make(*names, **limits):
        made.append(Client(*(served[n] for n in names or ("darcy",)), **limits))
        return made[-1]

    yield make
    for one in made:
        one.close()
