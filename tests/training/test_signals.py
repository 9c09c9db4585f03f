"""SIGINT and SIGTERM end a run cleanly, at the step they came in."""

import os
import signal
from multiprocessing import active_children

import pytest

from ipot.training import checkpoint
from ipot.training.trainer import Stopped
from training.toys import EVERYTHING, Kill, assert_same_run, fit

LAST_OF_AN_EPOCH, LAST_OF_ALL = 5, 11


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs that nothing stopped, by their data; each is made once."""
    folder = tmp_path_factory.mktemp("whole")

    def made(data="stacked", **settings):
        name = "-".join((data, *settings))
        if not (folder / name).exists():
            fit(folder / name, data=data, **settings, **EVERYTHING)
        return folder / name

    return made


@pytest.mark.parametrize(
    ("step", "number", "data"),
    [
        (4, signal.SIGINT, "stacked"),
        (4, signal.SIGTERM, "ragged"),
        (LAST_OF_AN_EPOCH, signal.SIGTERM, "stacked"),
        (LAST_OF_AN_EPOCH, signal.SIGINT, "ragged"),
        (LAST_OF_ALL, signal.SIGINT, "stacked"),
        (LAST_OF_ALL, signal.SIGTERM, "ragged"),
    ],
)
def test_stops_and_goes_on_from_the_very_step(tmp_path, whole, data, number, step):
    with pytest.raises(Stopped, match="--resume") as stopped:
        fit(tmp_path / "stopped", data=data, objective=Kill(step, number), **EVERYTHING)
    assert stopped.value.signal == number
    assert checkpoint.load(tmp_path / "stopped" / "last.safetensors")[1]["step"] == step + 1
    fit(tmp_path / "stopped", data=data, **EVERYTHING)
    assert_same_run(tmp_path / "stopped", whole(data))


def test_stopped_twice_in_one_epoch(tmp_path, whole):
    for _ in range(2):
        with pytest.raises(Stopped):
            fit(tmp_path / "stopped", objective=Kill(0, signal.SIGTERM), **EVERYTHING)
    fit(tmp_path / "stopped", **EVERYTHING)
    assert_same_run(tmp_path / "stopped", whole())


class KillTwice(Kill):
    """An impatient user."""

    def act(self, loss):
        return super().act(super().act(loss))


def test_a_second_signal_does_not_wait(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, objective=KillTwice(1, signal.SIGINT))


def test_handlers_are_put_back(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    fit(tmp_path, epochs=1)
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", objective=Kill(1, signal.SIGTERM))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


class KillGroup(Kill):
    """What Ctrl-C does in a terminal: the loader's workers get the signal as well."""

    def act(self, loss):
        for child in active_children():
            os.kill(child.pid, self.number)
        return super().act(loss)


def test_workers_survive_the_signal(tmp_path, whole):
    settings = {"data": "ragged", "workers": 2, **EVERYTHING}
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", objective=KillGroup(4, signal.SIGINT), **settings)
    fit(tmp_path / "stopped", **settings)
    assert_same_run(tmp_path / "stopped", whole("ragged", workers=2))
