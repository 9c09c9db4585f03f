"""The same experiment with several seeds."""

import json
import statistics

import pytest
from training.toys import PROBLEM

from ipot.errors import RunError
from ipot.recipes.experiment import Experiment
from ipot.recipes.several_seeds import run_seeds
from ipot.run_folder import Run
from ipot.training.step import Step


@pytest.fixture
def seeds(tmp_path, store):
    return lambda settings, numbers: run_seeds(
        settings, tmp_path / "seeds", numbers, store=store, device="cpu", quiet=True
    )


def best(folder):
    return json.loads((folder / "result.json").read_text())["best_validation"]


def test_mean_and_spread(tmp_path, small, seeds):
    summary = seeds(small(), [3, 5, 8])
    folders = [tmp_path / "seeds" / f"seed-{n}" for n in (3, 5, 8)]
    errors = [best(folder) for folder in folders]
    assert len(set(errors)) == 3
    assert summary["mean"] == pytest.approx(sum(errors) / 3)
    assert summary["spread"] == pytest.approx(statistics.stdev(errors))
    assert [row["seed"] for row in summary["runs"]] == [3, 5, 8]
    assert json.loads((tmp_path / "seeds" / "seeds.json").read_text()) == summary
    for folder, seed in zip(folders, (3, 5, 8), strict=True):
        settings = Experiment.from_dict(Run.open(folder).config(), "")
        assert settings.training.seed == seed
        assert settings.problem == PROBLEM


def test_one_seed_has_no_spread(small, seeds):
    assert seeds(small(), [0])["spread"] == 0.0


def test_seeds_that_have_ended_are_not_trained_again(tmp_path, small, seeds, monkeypatch):
    seeds(small(), [0, 1])
    steps = []
    run = Step.__call__

    def count(self, work, number, rate):
        steps.append(number)
        run(self, work, number, rate)

    monkeypatch.setattr(Step, "__call__", count)
    rows = (tmp_path / "seeds" / "seed-0" / "metrics.jsonl").read_text()
    summary = seeds(small(), [0, 1, 2])
    assert steps == list(range(6))
    assert [row["seed"] for row in summary["runs"]] == [0, 1, 2]
    assert (tmp_path / "seeds" / "seed-0" / "metrics.jsonl").read_text() == rows


def test_seeds_of_another_experiment_are_not_mixed_in(small, seeds):
    seeds(small(), [0])
    with pytest.raises(RunError, match="learning_rate"):
        seeds(small(learning_rate=0.5), [0, 1])
