"""Two processes and one folder: the second is refused, waits, or goes on."""

import json
import os
import signal
import threading

import pytest
from test_lock import in_another_process
from training.toys import PROBLEM, assert_same_run

from ipot.errors import Busy, RunError
from ipot.lock import locked
from ipot.recipes.compare import compare, shared
from ipot.recipes.running import resume, run
from ipot.recipes.several_seeds import run_seeds
from ipot.run_folder import Run
from ipot.training.trainer import Trainer

QUIET = {"device": "cpu", "quiet": True}


def at_step(number, action):
    """Do something in the middle of a run."""
    take = Trainer._take_step

    def step(self, work):
        if self.state.step == number:
            action()
        take(self, work)

    return step


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".lock"}


def test_a_live_run_is_neither_resumed_nor_started_again(tmp_path, small, store, monkeypatch):
    settings, folder = small(save_seconds=0.0), tmp_path / "run"

    def train(ready):
        def pause():
            ready()
            signal.pause()

        monkeypatch.setattr(Trainer, "_take_step", at_step(4, pause))
        run(settings, folder, store=store, **QUIET)

    with in_another_process(train) as child:
        before = contents(folder)
        for start in (
            lambda: resume(folder, store=store, **QUIET),
            lambda: run(settings, folder, store=store, **QUIET),
            lambda: run(settings, folder, store=store, or_resume=True, **QUIET),
        ):
            with pytest.raises(Busy, match=rf"in use by process {child} on .*\(training since"):
                start()
        assert contents(folder) == before
    resume(folder, store=store, **QUIET)  # it was killed
    run(settings, tmp_path / "whole", store=store, **QUIET)
    assert_same_run(folder, tmp_path / "whole")
    assert ".lock" not in os.listdir(folder)


def test_comparisons_and_seeds_have_their_folder_for_themselves(tmp_path, small, store):
    said = []

    def other():
        try:
            run_seeds(small(), tmp_path, [0], store=store, **QUIET)
        except Busy as busy:
            said.append(str(busy))
        try:
            compare(shared("training.toys"), ["ipot"], tmp_path, minutes=1, store=store, **QUIET)
        except Busy as busy:
            said.append(str(busy))

    with locked(tmp_path, "x"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(said) == 2
    assert not store.root.exists()


def restarted(monkeypatch, count):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(count))


def attempt(action):
    child = os.fork()
    if not child:
        try:
            action()
            os._exit(0)
        except RunError:
            os._exit(3)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_restart_by_torchrun_goes_on(tmp_path, small, store, monkeypatch):
    settings, folder = small(epochs=4, save_seconds=0.0), tmp_path / "run"
    run(settings, tmp_path / "whole", store=store, **QUIET)

    def dies():
        monkeypatch.setattr(
            Trainer, "_take_step", at_step(7, lambda: os.kill(os.getpid(), signal.SIGKILL))
        )
        run(settings, folder, store=store, **QUIET)

    def goes_on(changed=settings):
        run(changed, folder, store=store, **QUIET)

    restarted(monkeypatch, 0)
    assert attempt(dies) == -signal.SIGKILL
    assert attempt(goes_on) == 3  # somebody else's first start is refused as ever
    restarted(monkeypatch, 1)
    assert attempt(lambda: goes_on(small(epochs=5, save_seconds=0.0))) == 3
    assert attempt(goes_on) == 0
    assert_same_run(folder, tmp_path / "whole")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"launch": "another"}))
    assert attempt(goes_on) == 3  # a run of before, which its first attempt was refused


def test_resume_or_start_refuses_other_settings_by_name(tmp_path, small, store):
    run(small(), tmp_path / "run", store=store, **QUIET)
    with pytest.raises(RunError, match=r"other settings \(training\.epochs\)"):
        run(small(epochs=3), tmp_path / "run", store=store, or_resume=True, **QUIET)
    with pytest.raises(RunError, match=r"other settings \(start_from: None, and not "):
        run(
            small(),
            tmp_path / "run",
            store=store,
            start_from=tmp_path / "run",
            or_resume=True,
            **QUIET,
        )
    assert run(small(), tmp_path / "run", store=store, or_resume=True, **QUIET).epochs == 2


def test_data_are_made_once_for_two_that_need_them(tmp_path, store, caplog):
    """The second waits for the first, which is killed half way, and makes the rest."""
    recipe = {"problem": "toy"}

    def make(indices, then=lambda: None):
        if indices.start:
            then()
        return PROBLEM.generate("train", indices, seed=0, device=None, resolution=None)

    def first(ready):
        def pause():
            ready()
            signal.pause()

        store.fetch(recipe, 4, lambda i: make(i, pause), piece=2)

    asked = []

    def noted(indices):
        asked.append(indices)
        return make(indices)

    with in_another_process(first) as child:
        threading.Timer(0.1, os.kill, (child, signal.SIGKILL)).start()
        found = store.fetch(recipe, 4, noted, piece=2)
    assert len(found["coefficients"]) == 4
    assert asked == [range(2, 4)]
    assert f"waiting for process {child}" in caplog.text
    assert ".lock" not in os.listdir(store.folder(recipe))


def test_reading_takes_no_lock(small, store, tmp_path, monkeypatch):
    """Which could not be had in a folder that cannot be written."""
    from ipot import api, lock
    from ipot.recipes.studies import Question, ask

    run(small(), tmp_path / "run", store=store, **QUIET)
    ask(tmp_path / "run", Question(), store=store, device="cpu")
    monkeypatch.setattr(lock, "_try", lambda *given: pytest.fail("a lock was taken"))
    ask(tmp_path / "run", Question(), store=store, device="cpu")
    api.load(tmp_path / "run", device="cpu")
    assert Run.open(tmp_path / "run")
