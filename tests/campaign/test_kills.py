"""The attacks by kills find what is broken on purpose, and nothing where nothing is."""

import os
import signal

import pytest

from campaign.attack import Lost, Place
from campaign.attacks import _operations, _prepared, kills
from campaign.attacks._victim import Foreign, Victim
from ipot import files
from ipot.errors import DataError
from ipot.training import checkpoint, journal

pytestmark = pytest.mark.plain

KILL = int(signal.SIGKILL)


@pytest.fixture
def attack(attempt):
    def run(operation, *changes, attack=kills.Kills, **more):
        attempt(attack(), operation, *changes, **more)

    return run


@pytest.mark.parametrize("operation", ["train", "generate"])
def test_nothing_is_found_where_nothing_happens(attack, operation):
    attack(operation)


def test_half_a_file_is_found(attack, monkeypatch, unsafe):
    monkeypatch.setattr(files, "atomic", unsafe)
    with pytest.raises(Lost, match="is half a file"):
        attack("generate", {"by": "size", "at": 20})


def test_a_state_that_is_not_restored_is_found(attack, monkeypatch):
    monkeypatch.setattr(checkpoint, "load_optimizer", lambda *given: None)
    with pytest.raises(Lost, match="ended otherwise than undisturbed"):
        attack("train", {"by": "event", "at": 0.6, "signal": KILL})


def test_rows_that_are_told_twice_are_found(attack, monkeypatch):
    write = journal.Journal.write

    def twice(self, row):
        write(self, row)
        write(self, row)

    monkeypatch.setattr(journal.Journal, "write", twice)
    with pytest.raises(Lost, match=r"metrics\.jsonl tells of some steps twice|otherwise.*rows"):
        attack("train", {"by": "event", "at": 0.7, "signal": KILL})


def test_what_is_left_behind_is_found(attack, monkeypatch):
    act = _operations.Generate.act

    def untidy(self, folder, shared):
        act(self, folder, shared)
        (folder / "store" / ".stray.tmp").touch()

    monkeypatch.setattr(_operations.Generate, "act", untidy)
    with pytest.raises(Lost, match=r"left behind: 1 .*stray"):
        attack("generate")


def test_other_errors_are_told_with_their_place(attack, monkeypatch):
    def fail(path, content):
        raise ZeroDivisionError

    monkeypatch.setattr(files, "write_json", fail)
    with pytest.raises(Foreign) as caught:
        attack("generate", {"by": "none"})
    assert caught.value.where == "ZeroDivisionError at store.py:_prepare"


def test_a_run_that_cannot_go_on_is_lost_and_not_refused(attack, monkeypatch):
    def refuse(*given, **named):
        raise DataError("no")

    monkeypatch.setattr(_operations, "resume", refuse)
    with pytest.raises(
        _prepared.Refused, match="going on was not possible: refused: DataError: no"
    ):
        attack("train", {"by": "event", "at": 0.5, "signal": KILL})


def test_a_signal_at_an_event_comes_every_time_at_the_same_one(shared, tmp_path):
    work = _prepared.Work("generate", shared, tmp_path)
    left = set()
    for _ in range(2):
        work.start()
        ended = work.victim({"by": "event", "at": 0.5, "signal": KILL}).wait()
        assert ended.how == "killed"
        assert os.WTERMSIG(ended.status) == KILL
        left.add(sum(path.suffix == ".safetensors" for path in work.folder.rglob("*")))
        _prepared.removed(work.folder)
    assert len(left) == 1
    assert 0 < left.pop() < 4


def test_of_two_processes_one_must_come_to_its_end(attack, monkeypatch):
    def refuse(self, folder, shared):
        raise DataError("the other is at work")

    monkeypatch.setattr(_operations.Generate, "act", refuse)
    with pytest.raises(Lost, match="neither of two processes"):
        attack("generate", attack=kills.Pairs, later=0.0)


def test_two_processes_that_damage_each_other_are_found(attack, monkeypatch):
    act = _operations.Generate.act

    def both(self, folder, shared):
        act(self, folder, shared)
        with (folder / "store" / "log.json").open("a") as file:
            file.write("{}\n")

    monkeypatch.setattr(_operations.Generate, "act", both)
    with pytest.raises(Lost, match=r"log\.json is half a file"):
        attack("generate", attack=kills.Pairs, later=0.0)


def test_two_processes_of_one_training_that_go_on_otherwise_are_found(tmp_path, monkeypatch):
    (tmp_path / "together").mkdir()
    kills._make_together(tmp_path / "together")
    place = Place(tmp_path, tmp_path / "scratch")
    place.scratch.mkdir()
    monkeypatch.setattr(checkpoint, "load_optimizer", lambda *given: None)
    change = {"by": "event", "at": 0.6, "signal": KILL, "rank": 0}
    with pytest.raises(Lost, match="ended otherwise than undisturbed"):
        kills.Together().run({"changes": [change]}, place)


def test_what_a_child_says_comes_back(tmp_path):
    def speak():
        raise DataError("not this")

    ended = Victim(speak, tmp_path).wait()
    assert (ended.how, ended.said) == ("refused", "DataError: not this")
    assert Victim(lambda: 1, tmp_path).wait().how == "refused"  # a command's exit status
    assert Victim(lambda: 143, tmp_path).wait().how == "stopped"
