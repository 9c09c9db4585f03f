"""Which words name a model of the package, and that no word leads anywhere else."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import ipot
from ipot import trained
from ipot.data.layout import Layout
from ipot.errors import RunError, UnknownName
from ipot.surrogate.loading import folder_of

HOSTILE = (
    *("../x", "..", ".", "", "/etc", "/etc/passwd", "darcy/..", "./darcy", "darcy/", "Darcy"),
    *("a" * 300, "darcy\0", "~", "__pycache__", "*", "%2e%2e%2f", "..\\x", "dárcy"),
)


@pytest.fixture
def one(tmp_path, monkeypatch):
    """A package with one model in it, by the name `known`."""
    place = tmp_path / "package"
    (place / "known").mkdir(parents=True)
    (place / "known" / trained.CONFIG).write_text("{}")
    (place / "secret").mkdir()  # has no config.json
    monkeypatch.setattr(trained, "_HERE", place)
    trained.names.cache_clear()
    yield place / "known"
    trained.names.cache_clear()


def test_a_model_is_a_folder_with_a_config(one):
    assert trained.names() == ("known",)
    assert trained.folder("known") == one
    assert folder_of("known") == one


@pytest.mark.parametrize("word", HOSTILE)
def test_no_other_word_is_a_name(one, word):
    assert word not in trained.names()
    with pytest.raises(UnknownName) as refused:
        trained.folder(word)
    assert "known" in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("word", [w for w in HOSTILE if w not in ("", "..", ".", "~", "/etc")])
def test_other_words_are_folders_where_they_are_typed(one, word, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    if len(word) < 256 and "\0" not in word:
        assert folder_of(word) == Path(word)
    with pytest.raises(RunError) as refused:
        ipot.load(word)
    assert len(str(refused.value)) < 600


def test_a_folder_of_the_same_name_is_meant_by_a_dot(one, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING, "ipot"):
        assert folder_of("known") == one
        assert not caplog.records
        (tmp_path / "known").mkdir()
        assert folder_of("known") == one
        assert "./known" in caplog.text
        caplog.clear()
        assert folder_of("./known").resolve() == tmp_path / "known"
        assert folder_of(Path("known")).resolve() == tmp_path / "known"
        assert not caplog.records


def test_a_folder_that_is_not_there_is_told_of_the_names(one, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"Models in the package: known"):
        ipot.load("knwon")


def test_a_list_of_them_is_there_without_torch():
    code = "import ipot.trained as t, sys; t.names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_range_that_is_not_known_is_not_made_up():
    """Models that were saved before ranges were written down know mean and deviation alone."""
    points, model = [[0.25, 0.5], [0.75, 0.5]], ipot.load("darcy")
    told = "goes from 3000 to 3000, in training from 3 to 12"
    with pytest.warns(UserWarning, match=told):
        model.predict(points, [[3000.0], [3000.0]])
    model.layout = Layout(timed=True)
    told = r"goes from 3000 to 3000, in training it had 7\.\d+ with a deviation of 4\.5"
    with pytest.warns(UserWarning, match=told):
        model.predict(points, [[3000.0], [3000.0]])
