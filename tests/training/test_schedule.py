"""The learning rate, and runs boxed by time under a clock of their own."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from ipot.training import journal, trainer
from ipot.training.settings import Training, learning_rate
from ipot.training.step import Step
from training.toys import Trouble, fit


@pytest.fixture
def rates(monkeypatch):
    """The learning rate of every step that is run."""
    seen = []
    run = Step.__call__

    def remember(self, work, number, rate):
        run(self, work, number, rate)
        assert all(group["lr"] == rate for group in self.optimizer.param_groups)
        seen.append(rate)

    monkeypatch.setattr(Step, "__call__", remember)
    return seen


def test_step_decay_halves_at_its_epochs(tmp_path, rates):
    fit(tmp_path, schedule="step", step_epochs=2, epochs=5, learning_rate=0.004)
    per_epoch = 3
    assert rates == [r for r in (0.004, 0.004, 0.002, 0.002, 0.001) for _ in range(per_epoch)]


def test_cosine_warms_up_and_falls_to_nothing(tmp_path, rates):
    fit(tmp_path, epochs=20, warmup=0.2, learning_rate=0.01)
    top = rates.index(max(rates))
    assert top == 12
    assert rates[0] == pytest.approx(0.0001)
    assert rates[top] == pytest.approx(0.01)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 0.01 * 2e-3


@pytest.mark.parametrize("warmup", [0.0, 0.02, 0.5])
def test_cosine_is_continuous_and_stays_in_its_bounds(warmup):
    settings = Training(warmup=warmup, learning_rate=1.0)
    curve = [learning_rate(settings, epoch=0.0, progress=i / 2000) for i in range(2001)]
    assert max(curve) == pytest.approx(1.0, abs=1e-3)
    assert curve[-1] == pytest.approx(0.0, abs=1e-12)
    assert max(abs(a - b) for a, b in itertools.pairwise(curve)) < 0.03
    assert learning_rate(settings, epoch=0.0, progress=1.5) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("warmup", [0.1, 0.3])
def test_one_cycle_is_that_of_torch(warmup):
    """Torch counts the peak and the end at whole steps: it is at step - 1 of a run of steps - 1."""
    steps, top = 401, 0.003
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, top, total_steps=steps, pct_start=(warmup * (steps - 1) + 1) / steps
    )
    settings = Training(schedule="one-cycle", warmup=warmup, learning_rate=top)
    for step in range(steps):
        found = learning_rate(settings, epoch=0.0, progress=step / (steps - 1))
        assert found == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-5, abs=1e-12)
        optimizer.step()
        if step < steps - 1:
            schedule.step()


def test_one_cycle_drives_a_run(tmp_path, rates):
    fit(tmp_path, epochs=20, schedule="one-cycle", warmup=0.3, learning_rate=0.01)
    assert rates[0] == pytest.approx(0.01 / 25)
    assert rates.index(max(rates)) == 18
    assert rates[-1] < 0.01 * 2e-3


class Clock(Trouble):
    """An objective whose every step takes a second, by the clock that it is."""

    def __init__(self):
        super().__init__(step=-1)
        self.now = 1000.0

    def __call__(self, network, batch):
        self.now += 1.0
        return super().__call__(network, batch)

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (trainer, journal):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.mark.parametrize("data", ["stacked", "ragged", "packed"])
def test_a_boxed_run_uses_its_minutes(tmp_path, rates, clock, data):
    result = fit(tmp_path, data=data, minutes=0.5, epochs=10_000, objective=clock, batch=5)
    assert result.steps == 30
    assert result.seconds == 30
    assert rates[-1] < 0.02 * max(rates)
    assert result.validation == result.validation


def test_a_boxed_run_that_ends_in_mid_epoch_validates_and_says_so(tmp_path, clock):
    result = fit(tmp_path, minutes=10 / 60, epochs=10_000, objective=clock)
    assert (result.steps, result.epochs) == (10, 3)
    rows = journal.read(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [3, 6, 9, 10]
    assert rows[-1]["validation"] == result.validation


def test_a_boxed_run_that_has_ended_does_not_go_on(tmp_path, clock):
    """Its last epoch is not whole, and must not be counted a second time."""
    settings = {"minutes": 10 / 60, "epochs": 10_000, "objective": clock}
    first = fit(tmp_path, **settings)
    before = (tmp_path / "metrics.jsonl").read_text()
    again = fit(tmp_path, **settings)
    assert again.steps == first.steps
    assert again.loss == first.loss
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_epochs_limit_a_boxed_run(tmp_path, clock):
    assert fit(tmp_path, minutes=60.0, epochs=2, objective=clock).steps == 6


def test_a_run_that_was_stopped_keeps_the_minutes_it_had_used(tmp_path, clock):
    fit(tmp_path, epochs=4, objective=clock)
    result = fit(tmp_path, minutes=0.5, epochs=10_000, objective=clock)
    assert (result.steps, result.seconds) == (30, 30)
