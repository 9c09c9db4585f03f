"""Rollouts that grow during a run: how long they are and when, an exact resume, what is refused."""

import signal
from dataclasses import replace

import pytest
import torch
from models.toys import Config, Stencil

from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._wrappers import wrap
from ipot.recipes.experiment import build_model
from ipot.run_folder import Run
from ipot.training.objective import RelativeL2
from ipot.training.settings import Training
from ipot.training.trainer import Stopped, train
from ipot.training.unroll import first_steps, horizon, horizons
from tests.contracts.cases import small_config
from training import toys
from training.films import PROBLEM, films
from training.toys import CPU, Kill, assert_same_run


def test_lengths_double_up_to_the_whole():
    assert horizons(1) == [1]
    assert horizons(2) == [1, 2]
    assert horizons(5) == [1, 2, 4, 5]
    assert horizons(40) == [1, 2, 4, 8, 16, 32, 40]
    grown = [horizon(5, p / 12, 0.5) for p in range(12)]
    assert grown == [1, 1, 2, 2, 4, 4, 5, 5, 5, 5, 5, 5]
    assert horizon(5, 0.0, 0.0) == 5


def test_the_first_steps_of_a_batch():
    batch = films(3).data
    cut = first_steps(batch, 2)
    assert cut.times == batch.times[:2]
    assert torch.equal(cut.truth, batch.truth[:, :2])
    assert first_steps(batch, 5) is batch
    moving = replace(
        batch, queries=batch.queries.unsqueeze(1).expand(3, 5, -1, -1), query_grid=None
    )
    assert first_steps(moving, 2).queries.shape == (3, 2, 10, 1)


class Watched(RelativeL2):
    """Remembers how many steps it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, network, batch):
        self.asked.append(len(batch.times))
        return super().__call__(network, batch)


def fit(path, objective=None, network=None, **changes):
    torch.manual_seed(0)
    settings = Training(
        **{"epochs": 4, "batch": 4, "save_seconds": 0.0, "grow": 0.5, "average": 0.9} | changes
    )
    model = network or wrap(Stencil(Config(), PROBLEM.spec), Statistics.of(films()))
    run = Run.open(path) if path.exists() else Run.create(path, {})
    options = {"device": CPU, "objective": objective, "quiet": True}
    return train(model, films(), films(4, "validation"), settings, run, **options)


@pytest.mark.parametrize("name", [None, "ipot"])
def test_a_run_asks_for_longer_and_longer_rollouts(tmp_path, name):
    watched, network = Watched(), None
    if name:
        network = build_model(name, small_config(name), PROBLEM.spec)
    fit(tmp_path / "run", watched, network)
    assert watched.asked == [1, 1, 2, 2, 4, 4, 5, 5, 5, 5, 5, 5]
    pieces = Watched()
    fit(tmp_path / "pieces", pieces, unroll=2)
    assert pieces.asked == [1] * 6 + [2] * 6


def test_a_run_is_resumed_exactly(tmp_path):
    fit(tmp_path / "whole")
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", Kill(3, signal.SIGTERM))
    fit(tmp_path / "stopped")
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    fit(tmp_path / "at once", grow=0.0)
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "at once", tmp_path / "whole")


def test_what_cannot_grow_is_refused(tmp_path):
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(Unsupported, match="grow must lie in"):
            Training(grow=wrong)
    with pytest.raises(Unsupported, match=r"--training\.grow .* has one step"):
        toys.fit(tmp_path / "steady", grow=0.5)
    with pytest.raises(Unsupported, match=r"training\.unroll is 1"):
        fit(tmp_path / "forced", unroll=1)
