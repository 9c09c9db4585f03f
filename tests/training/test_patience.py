"""A run that validation ends: when, with which weights, and for good."""

import json

import pytest

from ipot.errors import RunError, Unsupported
from ipot.run_folder import Run
from ipot.training import checkpoint
from ipot.training.objective import Validation
from ipot.training.settings import Training
from training.toys import fit


@pytest.fixture
def errors(monkeypatch):
    """Validation errors as told, the last of them for ever."""
    told: list[float] = []

    def answer(self, model):
        return told.pop(0) if len(told) > 1 else told[0]

    monkeypatch.setattr(Validation, "__call__", answer)
    return told


def rows(folder):
    return [json.loads(line) for line in Run(folder).metrics.read_text().splitlines()]


@pytest.mark.parametrize(("patience", "ends"), [(0.3, 5), (0.31, 6), (0.5, 7), (1.0, 10)])
def test_it_waits_for_its_part_of_the_run_behind_the_best(errors, tmp_path, patience, ends):
    errors += [3.0, 1.0, 2.0]
    result = fit(tmp_path, epochs=10, validate_every=1, patience=patience)
    assert (result.epochs, result.best_epoch) == (ends, 2)
    assert result.out_of_patience == (ends < 10)
    assert checkpoint.load(Run(tmp_path).best)[1]["epoch"] == 2
    assert [row["validation"] for row in rows(tmp_path)] == [3.0, 1.0] + [2.0] * (ends - 2)


def test_a_run_that_came_to_its_end_was_not_cut_short(errors, tmp_path, capsys):
    errors += [5.0, 4.0, 3.0, 2.0, 1.0, 2.0]
    result = fit(tmp_path, epochs=10, validate_every=1, patience=0.5, quiet=False)
    assert (result.epochs, result.best_epoch, result.out_of_patience) == (10, 5, False)
    assert "stopped early" not in capsys.readouterr().err


def test_a_better_one_starts_the_wait_again(errors, tmp_path):
    errors += [3.0, 4.0, 4.0, 2.0, 4.0]
    assert fit(tmp_path, epochs=10, validate_every=1, patience=0.4).epochs == 8


def test_none_goes_to_the_end(errors, tmp_path, capsys):
    errors += [1.0, 2.0]
    result = fit(tmp_path, epochs=10, validate_every=1)
    assert result.epochs == 10
    assert not result.out_of_patience
    assert "stopped early" not in capsys.readouterr().err


def test_it_is_said_and_stays_ended(errors, tmp_path, capsys):
    errors += [1.0, 2.0]
    settings = {"epochs": 10, "validate_every": 1, "patience": 0.3}
    first = fit(tmp_path, quiet=False, **settings)
    assert "stopped early: no lower validation error since epoch 1, for 30 %" in (
        capsys.readouterr().err
    )
    assert fit(tmp_path, **settings).steps == first.steps


def test_checkpoints_of_before_it_was_there_are_gone_on_with(tmp_path):
    fit(tmp_path, epochs=2)
    last = Run(tmp_path).last
    tensors, state = checkpoint.load(last)
    for name in ("best_progress", "out_of_patience"):
        del state[name]
    checkpoint.save(last, tensors, state)
    assert fit(tmp_path, epochs=4, patience=0.5).epochs == 4
    del state["step"]
    checkpoint.save(last, tensors, state)
    with pytest.raises(RunError, match=r"another version.*step"):
        fit(tmp_path, epochs=4)


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1.5, float("nan")])
def test_what_is_no_part_of_a_run_is_refused(wrong):
    with pytest.raises(Unsupported, match=r"training.patience must lie in \(0, 1\]"):
        Training(patience=wrong)
