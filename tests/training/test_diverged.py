"""A loss that is not finite ends the run, says where, and spares the last checkpoint."""

import signal

import pytest
import torch

from ipot.errors import Diverged
from ipot.training import checkpoint
from ipot.training.trainer import Stopped
from training.toys import Kill, Poison, PoisonGradient, contents, fit

SETTINGS = {"epochs": 4, "save_seconds": 0.0, "validate_every": 1}


def assert_finite(path):
    for name in ("last", "best"):
        tensors, _ = checkpoint.load(path / f"{name}.safetensors")
        assert all(torch.isfinite(t).all() for t in tensors.values())


@pytest.mark.parametrize("step", [3, 7, 11])
@pytest.mark.parametrize("data", ["stacked", "ragged", "packed"])
def test_says_the_step_and_keeps_the_checkpoint(tmp_path, data, step):
    with pytest.raises(Diverged, match=rf"step {step} \(epoch {step // 3 + 1}\)") as error:
        fit(tmp_path, data=data, objective=Poison(step), **SETTINGS)
    assert error.value.step == step
    assert "learning-rate" in str(error.value)
    assert_finite(tmp_path)
    assert checkpoint.load(tmp_path / "last.safetensors")[1]["step"] == step


def test_can_be_resumed(tmp_path):
    with pytest.raises(Diverged):
        fit(tmp_path, objective=Poison(7), **SETTINGS)
    assert fit(tmp_path, **SETTINGS).steps == 12
    assert_finite(tmp_path)
    assert [row["epoch"] for row in contents(tmp_path)[2]["rows"]] == [1, 2, 3, 4]


def test_the_step_is_counted_from_the_start_of_the_run_after_a_resume(tmp_path):
    with pytest.raises(Stopped):
        fit(tmp_path, objective=Kill(4, signal.SIGTERM), **SETTINGS)
    with pytest.raises(Diverged) as error:
        fit(tmp_path, objective=Poison(7, done_so_far=5), **SETTINGS)
    assert error.value.step == 7


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("step", [7, 8, 11])
def test_a_gradient_that_is_not_finite_counts_as_well(tmp_path, step, clip):
    """The loss of that very step is finite; only the weights behind it are lost."""
    with pytest.raises(Diverged) as error:
        fit(tmp_path, objective=PoisonGradient(step), clip=clip, **SETTINGS)
    assert error.value.step == step
    assert_finite(tmp_path)


class PoisonAndKill(Poison):
    def act(self, loss):
        Kill(0, signal.SIGTERM).act(loss)
        return super().act(loss)


def test_a_signal_does_not_save_what_was_lost(tmp_path):
    with pytest.raises((Diverged, Stopped)):
        fit(tmp_path, objective=PoisonAndKill(7), **SETTINGS)
    assert_finite(tmp_path)
