"""Slips of the pen when a model is fitted, saved or loaded: refused by name, before any harm."""

import os
import re

import numpy as np
import pytest
import torch
from surrogate.test_encoded import built

import ipot
from ipot.device import choose
from ipot.errors import DataError, IpotError, RunError, UnknownName, Unsupported
from ipot.own import fit as fitting
from ipot.own.folder import working_folder
from ipot.own.sizing import plan
from ipot.recipes.experiment import Data, Experiment
from ipot.recipes.own_data import OWN_DATA, OwnData, split
from ipot.run_folder import TRAINING, Run

from . import tiny

CPU = torch.device("cpu")
REPLACED = "is the current folder or one around it.*choose a folder inside it"


# ---- the folder that one is in


@pytest.mark.parametrize("target", [".", "..", "../here", "link", "absolute", "a/.."])
def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch, target):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    if target == "link":
        (tmp_path / "link").symlink_to(here)
        target = "../link"
    if target == "a/..":
        (here / "a").mkdir()
    target = str(here) if target == "absolute" else target
    before = sorted(here.iterdir())
    with pytest.raises(RunError, match=f"out={re.escape(target)} {REPLACED}"):
        tiny.quick(tiny.data("mesh"), out=target)
    with pytest.raises(RunError, match=REPLACED):
        built("mesh").save(target)
    assert os.getcwd() == str(here)
    assert sorted(here.iterdir()) == before
    assert os.path.samefile(here, ".")


def test_a_run_is_not_gone_on_with_from_within(tmp_path, monkeypatch):
    begun(tmp_path)
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(RunError, match=f"{REPLACED}, or change to another one first"),
        working_folder(None, "."),
    ):
        pass


def test_a_folder_inside_or_beside_the_current_one_is_written(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for target in ("model", "../beside", tmp_path / "far"):
        built("mesh").save(target)
        ipot.load(target, device="cpu")
    here.joinpath("model").rename(tmp_path / "moved")
    here.rmdir()  # there is none any more, which is no concern of other places
    built("mesh").save(tmp_path / "again")


# ---- arguments


@pytest.mark.plain
@pytest.mark.parametrize("name", ["out", "resume"])
@pytest.mark.parametrize(
    ("path", "message"), [("", " is empty: say where"), (3, " must be a path"), (b"x", " must be")]
)
def test_folders_of_a_fit_that_are_none(name, path, message):
    with pytest.raises(DataError, match=name + message):
        tiny.quick(tiny.data("mesh"), **{name: path})


@pytest.mark.plain
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quiet": "no"}, "quiet must be True or False, got 'no'"),
        ({"quiet": 1}, "quiet must be True or False, got 1"),
        ({"minutes": True}, "minutes must be a positive number, got True"),
        ({"minute": 5}, "ipot.fit has no argument 'minute'. Did you mean minutes?"),
        ({"epoch": 3}, "no argument 'epoch'. Did you mean epochs?"),
        ({"target": "u"}, "no argument 'target'. Did you mean targets?"),
        ({"histroy": 3}, "no argument 'histroy'. Did you mean history?"),
        ({"period": {0: 1.0}}, "no argument 'period'. Did you mean periods?"),
        (
            {"model": 3},
            """model must be the name of a model or a dictionary of settings, like {"width": 96}""",
        ),
        ({"model": ""}, "unknown model ''. Known: "),
        (
            {"training": [3]},
            """training must be a dictionary of settings, like {"batch": 20}, got""",
        ),
        ({"model": {"width": "64"}}, "model.width must be a whole number, got '64'"),
        ({"model": {"width": 64.0}}, "model.width must be a whole number, got 64.0"),
        ({"model": {"bins": 4}}, "model.bins must be a list of a whole number, got 4"),
        ({"model": {"tied": "no"}}, "model.tied must be true or false, got 'no'"),
        ({"model": {"decoder": "wide"}}, "model.decoder must be 'full' or 'narrow', got 'wide'"),
        ({"training": {"batch": "20"}}, "training.batch must be a whole number, got '20'"),
        ({"training": {"clip": "1"}}, "training.clip must be a number or None, got '1'"),
        ({"training": {"clip": float("nan")}}, "training.clip is nan"),
        ({"training": {"seed": b"1"}}, "training.seed holds a bytes"),
    ],
    ids=lambda part: str(part) if isinstance(part, dict) else "",
)
def test_settings_of_a_fit_are_refused_before_data_are_read(monkeypatch, changes, message):
    monkeypatch.setattr(fitting, "working_folder", lambda *a, **k: pytest.fail("work has begun"))
    with pytest.raises(IpotError) as caught:
        tiny.quick("nowhere", **changes)
    assert message in str(caught.value)


def test_an_argument_like_no_other_is_refused_with_those_that_are():
    with pytest.raises(UnknownName, match=r"no argument 'xyz'\. .* takes besides: every, geograph"):
        tiny.quick(tiny.data("mesh"), xyz=3)


def begin(folder, found, data):
    """The run folder of a fit that has just begun."""
    parts = split(data, 0)
    settings = Experiment(
        problem=OwnData.of(data, parts),
        model=found.model,
        training=found.training,
        data=Data(**parts.counts()),
        problem_name=OWN_DATA,
    )
    Run.create(folder / TRAINING, settings.as_dict())


@pytest.mark.plain
def test_settings_of_numpy_are_as_good_as_others(tmp_path):
    """Tuples, lists and numbers of any library; all are written down as plain ones."""
    model = {"width": np.int64(16), "bins": [3], "max_frequency": np.array([8.0])}
    data, training = (
        tiny.data("mesh"),
        {"clip": None, "learning_rate": np.float32(0.5), "warmup": 0},
    )
    given = {"minutes": np.float32(0.5), "epochs": np.int64(3)}
    found = plan(data, device=CPU, model=model, training=training, **given)
    assert (found.model.width, found.model.bins, found.model.max_frequency) == (16, (3,), (8.0,))
    assert (found.training.clip, found.training.learning_rate) == (None, 0.5)
    begin(tmp_path, found, data)


@pytest.mark.plain
def test_a_model_is_not_overwritten_by_a_word(tmp_path):
    folder = built("mesh").save(tmp_path / "m")
    before = folder.stat().st_ino
    for word in ("no", 1, None):
        with pytest.raises(DataError, match="overwrite must be True or False"):
            built("mesh").save(folder, overwrite=word)
    assert folder.stat().st_ino == before


@pytest.mark.plain
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": "bestt"}, "unknown weights 'bestt'. Known: best, last"),
        ({"weights": None}, "unknown weights None"),
        ({"weights": "last"}, "a saved model, which has its best weights alone"),
        ({"trusted": "no"}, "trusted must be True or False, got 'no'"),
    ],
)
def test_a_saved_model_is_loaded_as_it_was_said(tmp_path, arguments, message):
    folder = built("mesh").save(tmp_path / "m")
    with pytest.raises(IpotError) as caught:
        ipot.load(folder, device="cpu", **arguments)
    assert message in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there(name):
    with pytest.raises(Unsupported) as caught:
        choose(name)
    assert str(caught.value) == f"device {name}: torch sees no GPU here; use cpu or auto"


# ---- a run that was stopped


def begun(folder):
    """What a fit leaves behind that was stopped before its first checkpoint."""
    data = tiny.data("mesh")
    found = plan(data, device=CPU, model=tiny.TINY, epochs=1)
    begin(folder, found, data)


@pytest.mark.parametrize("name", ["run", "training"])
def test_a_fit_without_weights_is_no_model_yet(tmp_path, name):
    folder = tmp_path / name
    begun(folder)
    for path in (folder, folder / TRAINING):
        with pytest.raises(RunError, match="the run has not been saved yet"):
            ipot.load(path, device="cpu")
    with pytest.raises(RunError, match="data of your own, which are not in it: go on with") as told:
        ipot.resume(folder / TRAINING, device="cpu")
    assert f"ipot.fit(data, resume={str(folder)!r})" in str(told.value)
    with pytest.raises(RunError, match="data of your own, which are not in it"):
        ipot.resume(folder, device="cpu")
    with pytest.raises(RunError, match="give the folder around it") as told:
        ipot.fit(tiny.data("mesh"), resume=folder / TRAINING)
    assert str(told.value).endswith(f"{folder}.")


def test_the_run_beside_a_saved_model_is_not_loaded_in_its_place(tmp_path):
    begun(tmp_path / "run")
    folder = built("mesh").save(tmp_path / "run")
    ipot.load(folder, device="cpu")
