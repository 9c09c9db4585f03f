"""A run that was stopped, however rudely, ends as if it had never been."""

import multiprocessing
import pickle
import signal

import pytest
import torch

from ipot.training import checkpoint
from ipot.training.draws import Draws
from ipot.training.objective import RelativeL2
from ipot.training.settings import Training
from ipot.training.trainer import Stopped
from training import toys
from training.toys import EVERYTHING, Kill, Trouble, assert_same_run, fit, ragged


def in_a_process_that_dies(path, step, *, start="fork", **settings):
    """Train until the process is killed in the middle of a step; nothing can be cleaned up."""
    options = {"objective": Kill(step, signal.SIGKILL), **settings}
    process = multiprocessing.get_context(start).Process(target=fit, args=(path,), kwargs=options)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("data", "start"), [("stacked", "spawn"), ("ragged", "fork"), ("packed", "fork")]
)
def test_killed_in_mid_epoch_and_resumed_is_bit_identical(tmp_path, data, start):
    """A process started afresh has another hash seed and no warm caches; a fork is quicker."""
    fit(tmp_path / "whole", data=data, **EVERYTHING)
    in_a_process_that_dies(tmp_path / "killed", 7, start=start, data=data, **EVERYTHING)
    state = checkpoint.load(tmp_path / "killed" / "last.safetensors")[1]
    assert state["step"] == 7
    fit(tmp_path / "killed", data=data, **EVERYTHING)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


WHOLE = EVERYTHING | {"points": 1.0, "queries": 1.0, "augment": False}
"""A mesh that stays the same: neighbours are found once, and a stencil is a convolution."""


@pytest.mark.parametrize(
    ("data", "settings"),
    [("stacked", EVERYTHING), ("stacked", WHOLE), ("packed", EVERYTHING)],
    ids=["some points", "a fixed mesh", "meshes that differ"],
)
def test_a_relay_that_was_killed_is_bit_identical(tmp_path, data, settings):
    fit(tmp_path / "whole", data=data, network=toys.relay(data), **settings)
    died = {"data": data, "network": toys.relay(data), **settings}
    in_a_process_that_dies(tmp_path / "killed", 7, **died)
    assert checkpoint.load(tmp_path / "killed" / "last.safetensors")[1]["step"] == 7
    # Its spacing is that of the run, whatever the first points are now.
    another = toys.relay(data)
    another.inner.surroundings.spacing.fill_(0.3)
    fit(tmp_path / "killed", data=data, network=another, **settings)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_killed_before_the_first_checkpoint_starts_over(tmp_path):
    settings = EVERYTHING | {"save_seconds": 1e9}
    fit(tmp_path / "whole", **settings)
    in_a_process_that_dies(tmp_path / "killed", 7, **settings)
    assert not (tmp_path / "killed" / "last.safetensors").exists()
    assert (tmp_path / "killed" / "metrics.jsonl").exists()
    fit(tmp_path / "killed", **settings)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_a_finished_run_is_left_as_it_is(tmp_path):
    first = fit(tmp_path, **EVERYTHING)
    before = toys.contents(tmp_path)
    never = Trouble(step=0)  # raises at its first call
    again = fit(tmp_path, objective=never, **EVERYTHING)
    after = toys.contents(tmp_path)
    assert after[2] == before[2]
    assert all(torch.equal(after[0][name], before[0][name]) for name in before[0])
    assert (again.loss, again.best_validation) == (first.loss, first.best_validation)


def test_workers_draw_what_the_loop_draws(tmp_path):
    settings = {"data": "ragged", **EVERYTHING, "epochs": 2}
    fit(tmp_path / "loop", **settings)
    fit(tmp_path / "workers", workers=2, **settings)
    assert_same_run(tmp_path / "workers", tmp_path / "loop")


def test_draws_travel_to_workers_that_are_not_forked():
    draws = Draws(ragged(), toys.SPEC, Training(batch=4))
    draws(0)
    there = pickle.loads(pickle.dumps(draws))
    assert torch.equal(there(1).index, draws(1).index)


class Weighted(RelativeL2):
    """An objective that learns a number of its own, beside the model."""

    def __init__(self):
        self.log_weight = torch.nn.Parameter(torch.zeros(()))

    def prepare(self, network, data):
        return [{"params": [self.log_weight]}]

    def __call__(self, network, batch):
        return super().__call__(network, batch) * self.log_weight.exp() - self.log_weight


class WeightedAndKilled(Weighted, Kill):
    def __init__(self, step):
        Weighted.__init__(self)
        Kill.__init__(self, step, signal.SIGTERM)


def test_parameters_of_the_objective_are_resumed_too(tmp_path):
    whole, resumed = Weighted(), Weighted()
    fit(tmp_path / "whole", objective=whole, epochs=4)
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", objective=WeightedAndKilled(7), epochs=4)
    fit(tmp_path / "stopped", objective=resumed, epochs=4)
    assert whole.log_weight != 0
    assert torch.equal(resumed.log_weight, whole.log_weight)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
