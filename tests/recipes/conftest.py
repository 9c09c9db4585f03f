from dataclasses import replace

import pytest
from training.toys import TINY

from ipot.data.store import Store
from ipot.recipes.experiment import experiment
from ipot.training import journal


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: None)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Nobody else works on this machine, as far as a comparison can tell."""
    monkeypatch.setattr("ipot.recipes.compare.busy_cores", lambda: (0.0, 2))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def small():
    """An experiment that takes a fraction of a second."""

    def make(model=TINY, data=None, **training):
        whole = experiment("training.toys")
        settings = {"epochs": 2, "batch": 4, "step": "eager", "validate_every": 1, **training}
        return replace(whole, model=model, training=replace(whole.training, **settings))

    return make
