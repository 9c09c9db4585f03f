"""The exponential average of the weights."""

import pytest
import torch

from ipot.evaluation.evaluate import evaluate
from ipot.run_folder import Run
from ipot.training import checkpoint
from ipot.training.step import Average
from training.toys import CPU, fit, model, stacked


def test_agrees_with_the_recursion_by_hand():
    network = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.constant_(network.weight, 0.0)
    average, mean = Average(network, 0.75), 0.0
    for count, value in enumerate((1.0, -2.0, 5.0, 0.5, 4.0, 4.0, 1.0, *[3.0] * 40), start=1):
        torch.nn.init.constant_(network.weight, value)
        average.update()
        decay = min(0.75, count / (count + 9))
        mean = decay * mean + (1 - decay) * value
        assert average.mean["weight"].item() == pytest.approx(mean, rel=1e-12)


def test_swapping_twice_changes_nothing():
    network = model()
    average = Average(network, 0.9)
    for p in network.parameters():
        p.data.add_(1.0)
    average.update()
    live = [p.clone() for p in network.parameters()]
    mean = [m.clone() for m in average.mean.values()]
    average.swap()
    for p, m in zip(network.parameters(), mean, strict=True):
        assert torch.equal(p, m)
    average.swap()
    for p, before in zip(network.parameters(), live, strict=True):
        assert torch.equal(p, before)
    for m, before in zip(average.mean.values(), mean, strict=True):
        assert torch.equal(m, before)


def test_validation_and_the_best_weights_use_the_average(tmp_path):
    result = fit(tmp_path, average=0.9, epochs=3, validate_every=3)
    run = Run(tmp_path)
    last, _ = checkpoint.load(run.last)
    average, live = (checkpoint.of_prefix(name, last) for name in ("average", "model"))
    best, state = checkpoint.load(run.best)
    assert average.keys() <= best.keys()
    for name, value in average.items():
        assert torch.equal(best[name], value)
    assert any(not torch.equal(live[name], average[name]) for name in average)

    network = model()
    checkpoint.load_weights(network, best, run.best)
    error = evaluate(network, stacked(4, seed=1), device=CPU).relative_l2
    assert error == pytest.approx(result.validation, rel=1e-6)
    assert state["validation"] == result.best_validation == result.validation


def test_averaging_does_not_touch_the_training_itself(tmp_path):
    fit(tmp_path / "plain", validate_every=1)
    fit(tmp_path / "averaged", validate_every=1, average=0.9)
    plain, averaged = (
        checkpoint.of_prefix("model", checkpoint.load(tmp_path / name / "last.safetensors")[0])
        for name in ("plain", "averaged")
    )
    assert all(torch.equal(plain[name], averaged[name]) for name in plain)
