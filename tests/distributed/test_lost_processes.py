"""A process that is left alone ends before long and says why."""

from datetime import timedelta

import pytest
import torch.distributed as dist
from saved.old import copied
from training.toys import CPU

from distributed import lost
from distributed.lost import two
from ipot.cli import main
from ipot.errors import RunError
from ipot.recipes import running
from ipot.training import checkpoint
from ipot.training.distributed import world


def test_the_first_may_take_its_time_and_is_heard_when_it_refuses(tmp_path):
    said = two(lost.slow_first, tmp_path)
    assert said[0] == ["made", [1], "refused"]
    assert said[1] == ["made", None, "the first process of this run has ended: no such data"]


@pytest.mark.parametrize("scenario", [lost.killed_in_training, lost.stopped_in_training])
def test_who_is_left_in_training_ends_with_an_error(tmp_path, scenario):
    (words,) = two(scenario, tmp_path, survivors=(0,))[0]
    assert words.startswith("another process of this run has ended, or has not answered")
    assert "--resume" in words
    assert checkpoint.load(tmp_path / "run" / "last.safetensors")[1]["step"] == 3


def test_a_first_process_without_a_sign_of_life_is_not_waited_for(tmp_path):
    (words,) = two(lost.first_stopped, tmp_path, survivors=(1,))[1]
    assert "has not answered for 0.5 s: the first process gives no sign of life" in words


def test_the_patience_of_the_command_line_is_that_of_the_processes(tmp_path, monkeypatch):
    asked = []

    def stopped(place, patience):
        asked.append(patience)
        raise RunError("that will do")

    monkeypatch.setattr(running, "world", stopped)
    run = str(copied("run", tmp_path / "run"))
    for words in (["burgers", "--small", "--out", str(tmp_path / "new")], ["--resume", run]):
        assert main(["train", *words, "--device", "cpu", "--peer-timeout", "7"]) == 1
    assert asked == [7.0, 7.0]


def test_no_process_of_a_group_waits_longer(monkeypatch):
    asked = {}

    def stopped(backend, **options):
        asked.update(options)
        raise RunError("that will do")

    monkeypatch.setattr(dist, "init_process_group", stopped)
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: iter([(dist.HashStore(), 0, 2)]))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunError, match="that will do"), world(CPU, 7.0):
        pass
    assert asked["timeout"] == timedelta(seconds=7)
