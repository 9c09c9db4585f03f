"""Training steps, ours and plain, at small sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.cases import small
from ipot.bench import train
from ipot.bench import trainer_step as own
from ipot.bench.counts import Work
from ipot.bench.measuring import Memory
from ipot.bench.plain_model import PlainStep
from ipot.bench.samples import random_samples
from ipot.data.statistics import Statistics
from ipot.errors import DataError, RunError, UnknownName, Unsupported
from ipot.evaluation.metrics import relative_l2
from ipot.recipes.experiment import build, experiment
from ipot.training.draws import Draws
from ipot.training.step import Step

CPU = torch.device("cpu")
STEP = PlainStep.__call__


@pytest.fixture
def uncounted(monkeypatch):
    """Counting takes longer than these steps, and is tested elsewhere."""
    monkeypatch.setattr(train, "training_work", lambda *args: Work(flops=1e9, bytes=1e6))


@pytest.mark.usefixtures("uncounted")
@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize("problem", ["darcy", "navier_stokes"])
def test_both_versions_start_from_the_same_loss(terms, problem, preset):
    settings = small(problem, preset, precision="float64")
    ours, plain = train.measure_training(settings, terms)
    assert ours.difference < 1e-12
    assert ours.gradient_difference < 1e-8
    assert plain.gradient_difference is None
    assert ours.first_loss == pytest.approx(plain.first_loss, rel=1e-12)
    data = random_samples(settings.problem, 8).astype(torch.float64)
    model = build(settings, Statistics.of(data) if settings.normalize else None).double()
    draws = Draws(data, model.spec, settings.training)
    batch = draws.stacked_batch(draws(0))
    expected = relative_l2(model(batch), batch.truth).mean().item()
    assert plain.first_loss == pytest.approx(expected, rel=1e-12)


def test_an_epoch_has_its_last_batch_where_that_is_filled(terms):
    for last, steps in (("leave", 2), ("fill", 3)):
        (row,) = train.measure_training(small(batch=3, last_batch=last), terms, plain=False)
        assert row.epoch_seconds == pytest.approx(1e-3 * row.ms * steps)


def test_rows_say_all_there_is(terms):
    settings = small()
    ours, plain = train.measure_training(settings, terms)
    for row, version in ((ours, "ours"), (plain, "plain")):
        assert (row.problem, row.version, row.batch, row.steps) == ("darcy", version, 4, 1)
        assert (row.points, row.queries) == (17 * 17, 17 * 17)
        assert (row.kind, row.precision, row.reason, row.notes) == ("eager", "float32", "", ())
        assert row.low_ms <= row.ms <= row.high_ms
        assert row.epoch_seconds == pytest.approx(1e-3 * row.ms * 2)
        assert row.flops_per_second == pytest.approx(row.flops / row.ms * 1e3)
        assert row.of_flops == pytest.approx(row.flops_per_second / 1e12)
        assert row.of_bytes == pytest.approx(row.bytes / row.ms * 1e3 / 1e11)
        assert row.ratio == pytest.approx(row.ms / ours.ms)
    assert ours.difference < 1e-5
    assert ours.setup_seconds >= 0
    assert ours.flops == plain.flops > 1e8
    assert plain.difference is None


@pytest.mark.usefixtures("uncounted")
def test_ours_alone(terms):
    rows = train.measure_training(small(), terms, plain=False)
    assert [row.version for row in rows] == ["ours"]
    assert rows[0].difference is None
    assert rows[0].ratio == 1


@pytest.mark.usefixtures("uncounted")
def test_different_mathematics_shows(terms, monkeypatch):
    whole = train.first_in_pieces

    def other(*given):
        loss, gradients = whole(*given)
        return 1.25 * loss, [0.5 * g for g in gradients]

    monkeypatch.setattr(train, "first_in_pieces", other)
    ours, _ = train.measure_training(small(precision="float64"), terms)
    assert ours.difference == pytest.approx(0.2)
    assert ours.gradient_difference == pytest.approx(1.0)


@pytest.mark.usefixtures("uncounted")
def test_gradients_are_compared_as_they_are_clipped(terms):
    settings = small(precision="float64")
    for clip in (1e-3, 1e3):
        training = replace(settings.training, clip=clip)
        ours, _ = train.measure_training(replace(settings, training=training), terms)
        assert ours.gradient_difference < 1e-8


def limited(most, seen):
    """A plain step that runs out of memory with more samples than some."""
    step = STEP

    def call(self, draw):
        seen.append(len(draw.index))
        if len(draw.index) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return step(self, draw)

    return call


@pytest.mark.usefixtures("uncounted")
def test_a_plain_step_that_does_not_fit_is_halved_and_scaled(terms, monkeypatch):
    seen = []
    monkeypatch.setattr(PlainStep, "__call__", limited(3, seen))
    monkeypatch.setattr(train, "_affordable", lambda size, one, device: size)
    _, plain = train.measure_training(small(batch=8, precision="float64"), terms)
    assert seen[:3] == [8, 4, 2]
    assert set(seen[2:]) == {2}
    assert plain.batch == 8
    assert plain.notes == ("plain at batch 2, its time scaled to 8",)
    assert plain.epoch_seconds == pytest.approx(1e-3 * plain.ms)
    monkeypatch.setattr(PlainStep, "__call__", limited(8, seen))
    _, whole = train.measure_training(small(batch=8, precision="float64"), terms)
    assert plain.first_loss == pytest.approx(whole.first_loss, rel=1e-12)
    assert whole.notes == ()


@pytest.mark.usefixtures("uncounted")
def test_times_are_for_the_whole_batch(terms, monkeypatch):
    timings = []
    scaled = train.Timing.scaled

    def remember(self, factor):
        timings.append((self, factor))
        return scaled(self, factor)

    monkeypatch.setattr(train.Timing, "scaled", remember)
    monkeypatch.setattr(train, "_affordable", lambda size, one, device: 2)
    _, plain = train.measure_training(small(batch=8), terms)
    (timing, factor), *_ = timings
    assert factor == 4
    assert plain.ms == 4 * timing.ms


@pytest.mark.usefixtures("uncounted")
def test_nothing_fits(terms, monkeypatch):
    monkeypatch.setattr(PlainStep, "__call__", limited(0, []))
    monkeypatch.setattr(train, "_affordable", lambda size, one, device: size)
    ours, plain = train.measure_training(small(), terms)
    assert plain.reason == "out of memory at batch 1"
    assert plain.ms is plain.ratio is ours.difference is None
    assert ours.ms > 0


@pytest.mark.usefixtures("uncounted")
@pytest.mark.parametrize("told", [False, True])
def test_ours_does_not_fit(terms, monkeypatch, told):
    def fail(self, *args):
        error = torch.OutOfMemoryError("CUDA out of memory")
        if told:
            raise RunError("step 0: lower --training.batch") from error
        raise error

    monkeypatch.setattr(Step, "__call__", fail)
    ours, plain = train.measure_training(small(), terms)
    assert ours.reason == "out of memory at batch 4"
    assert plain.ms > 0
    assert plain.ratio is None


@pytest.mark.usefixtures("uncounted")
def test_what_the_trainer_would_say_is_noted(terms, monkeypatch):
    def chosen(settings, data, device, world, say):
        say("steps run eagerly: there is no C++ compiler")
        return "eager"

    monkeypatch.setattr(own, "choose", chosen)
    ours, plain = train.measure_training(small(), terms)
    assert ours.notes == ("steps run eagerly: there is no C++ compiler",)
    assert plain.notes == ()


@pytest.mark.usefixtures("uncounted")
@pytest.mark.parametrize("broken", [Step, PlainStep])
def test_other_failures_are_not_hidden(terms, monkeypatch, broken):
    def fail(self, *args):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(broken, "__call__", fail)
    monkeypatch.setattr(train, "_affordable", lambda size, one, device: size)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        train.measure_training(small(), terms)


@pytest.mark.parametrize(("free", "size"), [(100.0, 64), (40.0, 32), (1e-3, 1), (None, 64)])
def test_a_batch_that_memory_allows(monkeypatch, free, size):
    monkeypatch.setattr(train, "peak_of", lambda call, device: Memory(peak=9.0, above=1.0))
    monkeypatch.setattr(train, "free_memory", lambda device: free)
    assert train._affordable(64, lambda: None, CPU) == size


def test_what_cannot_be_measured():
    with pytest.raises(UnknownName, match=r"does not know the shape of sst's data.*darcy"):
        train.check_training(experiment("sst"), CPU)
    with pytest.raises(DataError, match="a batch of 9 is larger than the 8"):
        train.check_training(small(batch=9), CPU)
    with pytest.raises(Unsupported, match="--step graph needs a GPU"):
        train.check_training(small(step="graph"), CPU)


@pytest.mark.compile
def test_the_compiled_step_is_set_up_first(terms, traced_only):
    ours, _ = train.measure_training(small(step="compiled"), terms)
    assert ours.kind == "compiled"
    assert ours.setup_seconds > 1e-3 * ours.ms
    assert ours.difference < 1e-5
