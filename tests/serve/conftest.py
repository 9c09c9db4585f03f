"""Small models, saved once, and an application that serves them."""

import numpy as np
import pytest
from own import tiny

from serve.asking import Client, saved
from serve.running import Running
from serve.small import untrained


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Models by name, as they are served."""
    folder = tmp_path_factory.mktemp("served")
    x = np.random.default_rng(0).random((3, 20, 2))
    np.savez(folder / "samples.npz", points=x[:1], values=x[..., :1].astype(np.float16))
    models = {
        "darcy": (untrained("darcy"), {"samples": folder / "samples.npz"}),
        "navier_stokes": (untrained("navier_stokes"), {}),
        "burgers": (untrained("burgers"), {}),
        "elasticity": (untrained("elasticity"), {}),
        "sst": (untrained("sst"), {}),
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


@pytest.fixture(scope="session")
def running(served):
    """All of them, on 127.0.0.1, for tests that leave the server as it was."""
    found = Running(*served.values())
    yield found
    found.close()


@pytest.fixture
def start(served):
    """A server of one's own with some of the models, and with other limits."""
    made = []

    def begin(*models, **limits):
        made.append(Running(*(served[n] for n in models or ("darcy",)), **limits))
        return made[-1]

    yield begin
    for one in made:
        one.close()
