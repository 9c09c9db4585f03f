"""Validation while training gives the number that evaluation gives, and keeps the best weights."""

from dataclasses import replace

import pytest
import torch

from ipot.errors import DataError
from ipot.evaluation.evaluate import evaluate
from ipot.run_folder import Run
from ipot.training import checkpoint, objective
from ipot.training.checkpoint import BestWeights
from ipot.training.journal import read
from ipot.training.objective import Validation
from ipot.training.trainer import Trainer
from training.toys import CPU, fit, model, packed, ragged, stacked


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("make", [stacked, ragged, packed])
@pytest.mark.parametrize("batch", [1, 5, 16])
def test_the_error_is_that_of_evaluate(make, keep, batch):
    data, network = make(19, seed=3), model().train()
    expected = evaluate(network, make(19, seed=3)).relative_l2
    held_out = Validation(data, CPU, keep=keep)
    held_out.batch = batch
    for _ in range(2):
        assert held_out(network) == pytest.approx(expected, rel=1e-6)
    assert network.training
    for p in network.parameters():
        p.data.mul_(1.5)
    assert held_out(network) == pytest.approx(evaluate(network, data).relative_l2, rel=1e-6)
    assert held_out(network) != pytest.approx(expected, rel=1e-3)


def test_an_error_beside_targets_of_zeros_is_as_large_as_evaluate_has_it():
    """In units in which other targets are large it would decide alone which weights are best."""
    samples = ragged(6).samples
    samples = [replace(s, targets=1e4 * s.truth) for s in samples]
    samples[2] = replace(samples[2], targets=0 * samples[2].truth)
    data, network = type(ragged(6))(samples), model()
    expected = evaluate(network, data)
    assert expected.per_sample[2] < 1
    for batch in (1, 6):
        held_out = Validation(data, CPU)
        held_out.batch = batch
        assert held_out(network) == pytest.approx(expected.relative_l2, rel=1e-5)


def test_kept_batches_hold_like_sizes():
    held_out = Validation(ragged(40), CPU, keep=True)
    held_out.batch = 8
    held_out(model())
    first, *_, last = held_out._kept
    assert first.values.shape[1] < last.values.shape[1] + last.queries.shape[1]
    assert held_out._kept is not None
    index = torch.cat([b.index for b in held_out._kept])
    assert index.sort().values.tolist() == list(range(40))


def test_a_batch_that_does_not_fit_is_halved(monkeypatch):
    asked = []

    def small(network, batch):
        asked.append(batch.size)
        if batch.size > 5:
            # As a prediction says it, that knows of nobody who would halve a batch.
            raise DataError("take fewer rows") from torch.OutOfMemoryError("CUDA out of memory")
        return predict(network, batch)

    predict = objective.predict
    monkeypatch.setattr(objective, "predict", small)
    held_out = Validation(stacked(16, seed=2), CPU)
    network = model()
    assert held_out(network) == pytest.approx(evaluate(network, stacked(16, seed=2)).relative_l2)
    assert asked[:2] == [16, 8]
    assert held_out.batch == 4
    for batch, error in ((1, torch.OutOfMemoryError("memory")), (8, RuntimeError("shapes"))):

        def fail(network, batch, error=error):
            raise error

        monkeypatch.setattr(objective, "predict", fail)
        held_out.batch = batch
        with pytest.raises(type(error)):
            held_out(network)
        assert held_out.batch == batch


def test_a_gpu_takes_as_many_samples_as_keep_it_busy():
    gpu = torch.device("cuda")
    for points, expected in ((12, objective.MOST), (2**13, 32), (2**18, 1), (2**19, 1)):
        assert objective._samples_at_once(stacked(1, points=points), gpu) == expected
    assert objective._samples_at_once(stacked(1, points=2**18), CPU) == objective.AT_ONCE
    largest = max(max(len(s.points), len(s.queries)) for s in ragged().samples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective, "ROWS", 3 * largest)
        assert objective._samples_at_once(ragged(), gpu) == 3


def weights(value):
    return {"w": torch.full((2,), value)}


def test_best_weights_are_written_at_once_and_then_before_long(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    path = tmp_path / "best.safetensors"
    best = BestWeights(path)

    def on_disk():
        tensors, state = checkpoint.load(path)
        return tensors["w"][0].item(), state["epoch"]

    live = weights(1.0)
    best.keep(live, {"epoch": 1})
    assert on_disk() == (1.0, 1)
    now += checkpoint.WRITE_EVERY / 2
    live["w"].fill_(2.0)
    best.keep(live, {"epoch": 2})
    live["w"].fill_(9.0)  # training goes on
    assert on_disk() == (1.0, 1)
    best.flush()
    assert on_disk() == (2.0, 2)
    now += checkpoint.WRITE_EVERY
    best.keep(live, {"epoch": 3})
    assert on_disk() == (9.0, 3)
    path.unlink()
    best.flush()
    assert not path.exists()


@pytest.mark.parametrize("how", ["end", "crash"])
def test_a_run_leaves_its_best_weights_however_it_ends(tmp_path, monkeypatch, how):
    from training.toys import Poison

    settings = {"epochs": 12, "validate_every": 1, "learning_rate": 1e-4, "save_seconds": 1e9}
    if how == "end":
        result = fit(tmp_path, **settings)
        expected = result.best_epoch
    else:
        with pytest.raises(Exception, match="not finite"):
            fit(tmp_path, objective=Poison(30), **settings)
        expected = 10
    state = checkpoint.load(tmp_path / "best.safetensors")[1]
    assert state["epoch"] == expected > 2


def test_time_that_runs_out_behind_an_epoch_ends_in_a_line(monkeypatch, tmp_path):
    """The last validation is written down, also where the clock passes the limit behind the line
    of its epoch, which was not validated."""
    minutes, calls = 1.0, []

    def clock(self, began):
        calls.append(began)
        return 1.0 if len(calls) == 1 else 60 * minutes + 1

    monkeypatch.setattr(Trainer, "_clock", clock)
    result = fit(tmp_path, epochs=100, batch=12, minutes=minutes, validate_every=50)
    rows = read(Run(tmp_path).metrics)
    assert [row["epoch"] for row in rows] == [1, 1]
    assert ["validation" in row for row in rows] == [False, True]
    assert rows[1]["validation"] == result.best_validation
    assert rows[1]["loss"] == rows[0]["loss"] == result.loss
