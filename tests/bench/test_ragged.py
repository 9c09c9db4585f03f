"""Uneven sizes beside equal ones, at small sizes."""

from __future__ import annotations

import pytest
import torch

from bench.cases import small
from ipot.bench import train, trainer_step
from ipot.bench.counts import Work
from ipot.bench.measuring import Timing
from ipot.data.dataset import Ragged, Stacked
from ipot.data.packed import Packed
from ipot.errors import DataError, OutOfMemory
from ipot.training.draws import Draws
from ipot.training.step import Step

CPU = torch.device("cpu")
WORK = Work(flops=1e9, bytes=1e6)


@pytest.fixture(autouse=True)
def uncounted(monkeypatch):
    """Counting takes longer than these steps, and is tested elsewhere."""
    monkeypatch.setattr(train, "training_work", lambda *args: WORK)
    monkeypatch.setattr(train, "training_work", lambda *args: WORK)


@pytest.fixture
def packed(monkeypatch):
    """As on a GPU, where uneven samples are packed; returns what was placed."""
    found = []

    def place(data, settings, device, dtype, say):
        data = data.astype(dtype)
        if isinstance(data, Ragged):
            data = Packed(data, device=CPU, batch=settings.batch)
        found.append(data)
        return data

    monkeypatch.setattr(train, "placed", place)
    return found


@pytest.fixture
def steps(monkeypatch):
    """All steps that were run: the data, whether on the clock, the samples and their box."""
    seen, call, on = [], Step.__call__, []

    def step(self, work, number, rate):
        seen.append((self.draws.data, bool(on), work.index.tolist(), work.box))
        call(self, work, number, rate)

    def timed(epoch, device, *, seconds):
        on.append(True)
        for _ in range(2):
            epoch()
        on.clear()
        return Timing(ms=12.0, low=11.0, high=14.0, best=10.0, calls=2)

    monkeypatch.setattr(Step, "__call__", step)
    monkeypatch.setattr(trainer_step, "time_calls", timed)
    return seen


@pytest.mark.parametrize("problem", ["burgers", "elasticity"])
def test_two_more_rows(terms, problem):
    settings = small(problem, precision="float64", batch=3)
    rows = train.measure_training(settings, terms, plain=False, ragged=0.5)
    assert [row.version for row in rows] == ["ours", "equal", "ragged"]
    first, equal, uneven = rows
    for row in (equal, uneven):
        assert (row.batch, row.points, row.queries) == (3, first.points, first.queries)
        assert (row.kind, row.precision, row.reason) == ("eager", "float64", "")
        assert row.epoch_seconds == pytest.approx(1e-3 * row.ms * (8 // 3))
        assert row.ratio == pytest.approx(row.ms / first.ms)
    # The same samples in the same batches: only the meshes are copied, and that changes nothing.
    assert equal.first_loss == pytest.approx(first.first_loss, rel=1e-12)
    assert uneven.first_loss != pytest.approx(first.first_loss, rel=1e-6)
    assert uneven.over_equal == pytest.approx(uneven.ms / equal.ms)
    assert first.over_equal is equal.over_equal is None
    assert equal.notes == ()
    assert "batches are collated, " in uneven.notes[0]


def test_the_default_preset_beside_the_plain_version(terms):
    rows = train.measure_training(small(preset="default"), terms, ragged=0.25)
    assert [row.version for row in rows] == ["ours", "plain", "equal", "ragged"]
    assert all(row.ms > 0 for row in rows)


def test_whole_epochs_are_timed_and_every_box_is_met_before(terms, packed, steps):
    settings = small(count=27, batch=2)
    *_, equal, uneven = train.measure_training(settings, terms, plain=False, ragged=0.5)
    stacked, boxed = packed
    assert len(stacked.data.points) == len(stacked.data.queries) == 27
    assert len(boxed.boxes) > 3
    met = {box for data, on, _, box in steps if data is boxed and not on}
    assert met == set(range(len(boxed.boxes)))
    for data, row in ((stacked, equal), (boxed, uneven)):
        timed = [index for of, on, index, _ in steps if of is data and on]
        assert len(timed) == 2 * 13
        for epoch in (timed[:13], timed[13:]):
            samples = [i for index in epoch for i in index]
            assert len(set(samples)) == len(samples) == 26
        assert row.ms == pytest.approx(12 / 13)
        assert (row.low_ms, row.high_ms) == (pytest.approx(11 / 13), pytest.approx(14 / 13))
    assert uneven.over_equal == pytest.approx(1.0)


@pytest.mark.usefixtures("steps")
def test_how_much_is_padding(terms, packed):
    settings = small("burgers", count=12, batch=3)
    *_, uneven = train.measure_training(settings, terms, plain=False, ragged=0.5)
    boxed = packed[-1]
    draws = Draws(boxed, settings.problem.spec, settings.training)
    held = real = 0
    for number in range(4):
        draw = draws(number)
        size = boxed.boxes[draw.box]
        held += 3 * (size.points + size.queries)
        real += sum(len(boxed[i].points) + len(boxed[i].queries) for i in draw.index.tolist())
    assert len(boxed.boxes) > 1
    padding = f"{100 * (held - real) / held:.1f} % of their rows padding"
    assert uneven.notes == (f"batches of {len(boxed.boxes)} sizes, {padding}",)


@pytest.mark.usefixtures("packed")
def test_equal_sizes_need_no_padding(terms):
    *_, uneven = train.measure_training(small("burgers"), terms, plain=False, ragged=0.0)
    assert uneven.notes == ("batches of 1 size, 0.0 % of their rows padding",)


@pytest.mark.parametrize("lost", [Stacked, Ragged])
def test_what_does_not_fit_is_said(terms, monkeypatch, lost):
    place = train.placed

    def fail(data, *rest):
        if isinstance(data, lost):
            raise OutOfMemory("the samples do not fit")
        return place(data, *rest)

    monkeypatch.setattr(train, "placed", fail)
    first, equal, uneven = train.measure_training(small("burgers"), terms, plain=False, ragged=0.5)
    missing, other = (equal, uneven) if lost is Stacked else (uneven, equal)
    assert missing.reason == "out of memory with 8 samples"
    assert missing.ms is missing.ratio is uneven.over_equal is None
    assert other.ms > 0
    assert first.ms > 0


def test_what_the_trainer_would_say_is_noted(terms, monkeypatch):
    place = train.placed

    def told(data, settings, device, dtype, say):
        if isinstance(data, Ragged):
            say("batches are collated on the CPU and steps run eagerly: their times differ")
        return place(data, settings, device, dtype, say)

    monkeypatch.setattr(train, "placed", told)
    _, equal, uneven = train.measure_training(small("burgers"), terms, plain=False, ragged=0.5)
    assert equal.notes == ()
    assert "their times differ" in uneven.notes[0]
    assert len(uneven.notes) == 2


@pytest.mark.parametrize("spread", [1.0, 1.5, -0.1, float("nan"), float("inf")])
def test_no_share_of_a_size(terms, spread):
    with pytest.raises(DataError, match="--ragged must be at least 0 and less than 1"):
        train.measure_training(small("burgers"), terms, ragged=spread)
