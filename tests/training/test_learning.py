"""Training learns, whatever the data look like."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ipot.data.dataset import Stacked
from ipot.data.statistics import Statistics, mean_field
from ipot.evaluation.evaluate import evaluate
from ipot.evaluation.metrics import relative_l2
from ipot.run_folder import Run
from ipot.samples import Batch
from ipot.spec import Spec
from ipot.training import checkpoint, journal
from ipot.training.settings import Training
from ipot.training.trainer import train
from training.toys import CPU, SPEC, TINY, coefficients, field, fit, line, model, on_grid, stacked

SMALL = replace(TINY, width=32, bins=(1,))


def one_wave(count, seed):
    """The first mode alone, which is learnt in seconds."""
    return coefficients(count, seed) * torch.tensor([1.0, 0.0, 0.0] * 2)


def learn(path: Path, spec, data, held_out, **settings):
    training = Training(**{"batch": 8, "learning_rate": 2e-3, "step": "eager", **settings})
    network = model(spec, SMALL, statistics=Statistics.of(data))
    return train(network, data, held_out, training, Run(path), device=CPU, quiet=True)


def test_learns_far_below_the_mean_field(tmp_path):
    data, held_out = (on_grid(one_wave(*size), 8) for size in ((64, 0), (16, 1)))
    target = held_out.data.targets
    guess = relative_l2(mean_field(data).expand_as(target), target).mean()
    result = learn(tmp_path, SPEC, data, held_out, epochs=60)
    assert guess > 0.9
    assert result.best_validation < 0.1 * guess
    assert result.loss < 0.1 * guess


@pytest.mark.parametrize("data", ["ragged", "packed"])
def test_ragged_data_are_learnt(tmp_path, data):
    start = fit(tmp_path / "start", data=data, epochs=1).validation
    end = fit(tmp_path / "end", data=data, epochs=60, learning_rate=2e-3).loss
    assert end < 0.5 * start


def pure_numbers(count, seed):
    """No input points at all: two parameters in, a field out."""
    c, x = one_wave(count, seed), line(10)
    return Stacked(
        Batch(
            points=torch.zeros(1, 0, 1),
            values=torch.zeros(count, 0, 1),
            queries=x.view(1, -1, 1),
            targets=field(c, x, 0.5).view(count, 1, -1, 1),
            parameters=c[:, ::3],
        )
    )


def test_parameters_without_points(tmp_path):
    spec = Spec(
        name="series",
        inputs=("nothing",),
        outputs=("u",),
        domain=((0.0, 1.0),),
        periods=(1.0,),
        parameters=("cosine", "sine"),
    )
    result = learn(tmp_path, spec, pure_numbers(64, 0), pure_numbers(16, 1), epochs=20, points=0.5)
    assert result.best_validation < 0.6


def drifting(count, seed):
    """The input carried along with speed 1/4, asked at places that move as well."""
    c, x = one_wave(count, seed), line(8)
    times = (1.0, 2.0)
    places = torch.stack([x + 0.1 * t for t in times])
    fields = torch.stack([field(c, p - 0.25 * t) for p, t in zip(places, times, strict=True)], 1)
    return Stacked(
        Batch(
            points=x.view(1, -1, 1),
            values=field(c, x).unsqueeze(-1),
            queries=places.view(1, 2, -1, 1),
            targets=fields.unsqueeze(-1),
            times=times,
        )
    )


def test_queries_that_move(tmp_path):
    data, held_out = drifting(32, 0), drifting(8, 1)
    start = learn(tmp_path / "start", SPEC, data, held_out, epochs=1).validation
    result = learn(tmp_path / "end", SPEC, data, held_out, epochs=30, queries=0.5)
    assert result.best_validation < 0.6 * start


def test_queries_that_move_can_be_turned_by_a_symmetry(tmp_path):
    result = learn(tmp_path, SPEC, drifting(8, 0), drifting(4, 1), epochs=1, augment=True)
    assert result.steps == 1


@pytest.mark.parametrize("precision", ["float32", "float64", "bf16"])
def test_precisions(tmp_path, precision):
    network = model()
    result = fit(tmp_path, network=network, precision=precision)
    assert result.precision == precision
    wanted = torch.float64 if precision == "float64" else torch.float32
    assert {p.dtype for p in network.parameters()} == {wanted}
    assert result.loss == result.loss


def test_two_runs_are_the_same_run_and_another_seed_another(tmp_path):
    losses = [
        fit(tmp_path / name, seed=seed, points=0.5).loss
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert losses[0] == losses[1] != losses[2]


def test_training_leaves_the_callers_random_numbers_alone(tmp_path):
    network = model(SPEC, TINY)
    state = torch.get_rng_state()
    fit(tmp_path, network=network)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_best_weights_are_those_of_the_lowest_error(tmp_path):
    result = fit(tmp_path, epochs=12, validate_every=1, learning_rate=0.03, schedule="step")
    errors = [row["validation"] for row in journal.read(tmp_path / "metrics.jsonl")]
    lowest = min(errors)
    assert lowest < errors[-1] == result.validation
    assert result.best_validation == lowest
    assert result.best_epoch == errors.index(lowest) + 1
    best = model()
    checkpoint.load_weights(best, checkpoint.load(tmp_path / "best.safetensors")[0], tmp_path)
    assert evaluate(best, stacked(4, seed=1)).relative_l2 == pytest.approx(lowest, rel=1e-6)
