"""Folders that an earlier release wrote still load, and answer as they did."""

import logging

import numpy as np
import pytest
from own import tiny

import ipot
from ipot.data.store import Store
from ipot.errors import RunError
from ipot.recipes.running import ended, restore, resume
from ipot.run_folder import Run
from ipot.saved.folder import read_folder
from ipot.training import journal
from saved.old import HERE, copied, edit


def test_a_saved_model_of_before_loads_with_a_remark(caplog):
    with caplog.at_level(logging.WARNING, logger="ipot"):
        model = ipot.load(HERE / "saved", device="cpu")
    assert [r.message for r in caplog.records] == [
        f"{HERE / 'saved'} was saved before there were checksums, so that edits are not noticed: "
        "load and save it to add them"
    ]
    assert model.spec.name == "a test"
    assert model.scores["held_out"] == pytest.approx(0.3)


def test_saved_anew_it_has_checksums(tmp_path, caplog):
    ipot.load(HERE / "saved", device="cpu").save(tmp_path / "new")
    caplog.clear()
    before, after = read_folder(HERE / "saved")[0], read_folder(tmp_path / "new")[0]
    assert not [r for r in caplog.records if str(tmp_path) in r.message]
    for name, tensor in before.state_dict().items():
        assert np.array_equal(tensor, after.state_dict()[name])


@pytest.mark.parametrize("weights", ["best", "last"])
def test_a_run_of_before_loads(weights):
    loaded = ipot.load(HERE / "run", device="cpu", weights=weights)
    places = loaded.places()
    assert loaded.predict(places, np.ones((64, 1)), places).shape == (1, 64, 1)
    assert ended(Run(HERE / "run")).steps == 4
    assert [row["step"] for row in journal.read(Run(HERE / "run").metrics)] == [2, 4]


def test_a_run_of_before_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: None)
    folder = copied("run", tmp_path / "run")
    edit(folder, training__epochs=3)
    result = resume(folder, device="cpu", store=Store(tmp_path / "data"), quiet=True)
    assert (result.epochs, result.steps) == (3, 6)
    assert restore(folder)[1].training.epochs == 3


def test_a_fit_of_before_goes_on_to_the_same_end(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: None)
    folder, data = copied("fit_stopped", tmp_path / "fit"), tiny.data("mesh", 12)
    with pytest.raises(RunError, match=r"trained on other data than these"):
        ipot.fit(tiny.data("mesh", 13), resume=folder, device="cpu", quiet=True)
    with pytest.raises(RunError, match=r"training\.epochs is another"):
        ipot.fit(data, resume=folder, epochs=3, device="cpu", quiet=True)
    found = ipot.fit(data, resume=folder, device="cpu", quiet=True)
    whole = ipot.load(HERE / "fit", device="cpu")
    assert found.about["samples"] == whole.about["samples"]
    assert found.scores["validation"] == pytest.approx(whole.scores["validation"], rel=1e-4)
    for name, tensor in whole.model.state_dict().items():
        np.testing.assert_allclose(found.model.state_dict()[name], tensor, atol=1e-4)
    assert ipot.load(folder, device="cpu").spec == whole.spec


def test_a_fit_of_before_that_was_stopped_says_how_to_end_it():
    for path in (HERE / "fit_stopped", HERE / "fit_stopped" / "training"):
        with pytest.raises(RunError, match=r"a fit of an earlier release.*resume=.*fit_stopped'"):
            ipot.load(path, device="cpu")


def test_a_run_on_a_problem_is_not_resumed_as_a_fit(tmp_path):
    folder = copied("run", tmp_path / "run")
    with pytest.raises(RunError, match=r"of a built-in problem: `ipot train --resume .*run` goes"):
        ipot.fit(tiny.data("mesh"), resume=folder)


def test_a_finished_fit_of_before_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: None)
    folder = copied("fit", tmp_path / "fit")
    before = ipot.load(folder, device="cpu")
    found = ipot.fit(tiny.data("mesh", 12), resume=folder, device="cpu", quiet=True)
    for name, tensor in before.model.state_dict().items():
        assert np.array_equal(found.model.state_dict()[name], tensor)
