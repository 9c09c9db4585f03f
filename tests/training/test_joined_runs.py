"""Joined updates in the steps of a trainer: resumed, captured, counted."""

import signal

import pytest
import torch
from torch import nn

from ipot.training import execution
from ipot.training import step as step_module
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.objective import RelativeL2
from ipot.training.optimizer import JoinedAdamW, make_optimizer
from ipot.training.settings import Training
from ipot.training.step import Step
from ipot.training.trainer import Stopped
from training.toys import CPU, SPEC, Kill, contents, fit, model, packed, stacked
from training.twins import parted


@pytest.mark.parametrize("order", [(False, False), (True, True), (True, False), (False, True)])
def test_a_run_is_the_same_with_and_without_and_changes_over(tmp_path, monkeypatch, order):
    """Two halves of a run, each with joined parameters or without."""
    settings = {"average": 0.9, "clip": 0.1, "epochs": 4, "validate_every": 1}
    fit(tmp_path / "whole", **settings)
    join, seen = JoinedAdamW.join, []

    def perhaps(self, beside=()):
        if order[len(seen)]:
            join(self, beside)
        seen.append(self.joined)

    monkeypatch.setattr(JoinedAdamW, "join", perhaps)
    with pytest.raises(Stopped):
        fit(tmp_path / "halves", objective=Kill(5, signal.SIGTERM), **settings)
    fit(tmp_path / "halves", **settings)
    assert seen == list(order)
    (last, best, said), (other, also, told) = (
        contents(tmp_path / name) for name in ("whole", "halves")
    )
    for mine, theirs in ((last, other), (best, also)):
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(theirs[name], mine[name], rtol=1e-4, atol=1e-6)
    assert [row["step"] for row in said["rows"]] == [row["step"] for row in told["rows"]]


def make_step(mode, data, objective):
    network, settings = model(), Training(batch=4, step=mode)
    return Step(
        network,
        objective,
        make_optimizer(network, settings, list(objective.prepare(network, data)), CPU),
        Draws(data, SPEC, settings),
        settings,
        device=CPU,
        precision="float32",
        mode=mode,
        world=World(),
    )


class Fitful(RelativeL2):
    """A number of its own that learns from batches with few points alone."""

    def __init__(self, most):
        self.most, self.own = most, nn.Parameter(torch.ones(3))

    def prepare(self, network, data):
        return [{"params": [self.own]}]

    def __call__(self, network, batch):
        loss = super().__call__(network, batch)
        return loss + self.own.square().sum() if batch.values.shape[1] <= self.most else loss


def test_sizes_with_other_gradients_are_captured_again(monkeypatch):
    """What was captured with joined parameters does not know that their steps differ."""
    captured = []

    def run_at_once(work, *, rehearsals, before, pool):
        work()
        work()
        before()
        captured.append(made[-1].optimizer.joined)
        return work

    monkeypatch.setattr(execution, "no_compiler", lambda device: None)
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: None)
    monkeypatch.setattr(step_module, "recorded", run_at_once)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    made = []
    data = packed(40)
    sizes = sorted({data.gather(e.index, e.box).values.shape[1] for e in examples(data)})
    assert len(sizes) > 1
    for mode in ("graph", "eager"):
        made.append(make_step(mode, data, Fitful(sizes[0])))
        for number in range(8):
            made[-1](made[-1].draws(number), number, 1e-3)
    graph, eager = made
    count = len(examples(data))
    assert len(captured) == 2 * count
    assert captured[0]
    assert not any(captured[count:])
    for mine, theirs in zip(graph.parameters, eager.parameters, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
        state, expected = graph.optimizer.state[mine], eager.optimizer.state[theirs]
        assert state["step"] == expected["step"]


def examples(data):
    return list(Draws(data, SPEC, Training(batch=4)).examples())


def test_steps_of_the_trainer_are_joined():
    step = make_step("eager", stacked(), RelativeL2())
    for number in range(2):
        step(step.draws(number), number, 1e-3)
    state = step.optimizer.state.values()
    assert step.optimizer.joined
    assert len({entries["exp_avg"].untyped_storage().data_ptr() for entries in state}) == 1
    step.close()
    assert parted(step.parameters)
