"""Folders that an earlier release wrote still load, and answer as they did."""

import logging

import numpy as np
import pytest

import ipot
from ipot.data.store import Store
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
    assert not [r for r in caplog.records if "new" in r.message]
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
