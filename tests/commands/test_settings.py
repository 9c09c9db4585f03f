"""Any setting of a model and its training, said to `ipot fit`."""

import json
import re
from dataclasses import fields

import pytest
from own import files, tiny

import ipot
from ipot import registry
from ipot.cli import main
from ipot.commands.parsing import settings_said
from ipot.errors import UnknownName
from ipot.models.ipot import Config
from ipot.training.settings import Training

KINDS = {"model": Config, "training": Training}


def said(line):
    return settings_said(line.split(), KINDS, "fit", "ipot")


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)


@pytest.mark.parametrize(
    ("line", "model", "training", "rest"),
    [
        ("a.npz --out m", {}, {}, "a.npz --out m"),
        ("--model.width 64 a.npz --inputs a b", {"width": 64}, {}, "a.npz --inputs a b"),
        ("--model relay --model.width=32 a", {"width": 32}, {}, "--model relay a"),
        ("--model.bins 4 8 --out m", {"bins": (4, 8)}, {}, "--out m"),
        ("--model.no-local --model.tied a", {"local": False, "tied": True}, {}, "a"),
        ("a --training.patience None", {}, {"patience": None}, "a"),
        ("--training.learning-rate 1e-3 a", {}, {"learning_rate": 1e-3}, "a"),
        ("--training.learning_rate 1e-3 a", {}, {"learning_rate": 1e-3}, "a"),
        # Sizes that do not go with the defaults of the class, of which none is left in the end.
        ("--model.width 36 --model.heads 6", {"width": 36, "heads": 6}, {}, ""),
        ("--model.width 36", {"width": 36}, {}, ""),
    ],
)
def test_what_is_said_and_nothing_else(line, model, training, rest):
    assert said(line) == ({"model": model, "training": training}, rest.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--model.widht 64",
            r"--model\.widht: the model ipot has no setting 'widht'\. Did you mean --model\.width\?"
            r" Known: .*latents",
        ),
        ("--training.bach 4", r"the training has no setting 'bach'.*--training\.batch\?"),
        ("--training.no-batch", r"no setting 'no_batch'"),
        ("--model. 4", "no setting ''"),
    ],
)
def test_one_that_there_is_not_is_refused_by_name(line, message):
    with pytest.raises(UnknownName, match=message):
        said(line)


@pytest.mark.parametrize("line", ["--model.width abc", "--model.width", "--training.decay up"])
def test_values_of_another_kind_are_refused(line, capsys):
    with pytest.raises(SystemExit) as stop:
        said(line)
    assert stop.value.code == 2
    assert line.split()[0] in capsys.readouterr().err


def test_another_system_with_settings_of_its_own(tmp_path, capsys):
    """From the words to the run, and again in Python."""
    path, out = files.npz(tmp_path / "a.npz"), tmp_path / "m"
    sizes = ["--model", "deeponet", "--model.width", "12", "--model.layers", "2"]
    words = ["fit", str(path), "--epochs", "1", "--device", "cpu", "--out", str(out), *sizes]
    assert main([*words, "--training.batch", "3"]) == 0, capsys.readouterr().err
    config = json.loads((out / "training" / "config.json").read_text())
    assert config["model"]["name"] == "deeponet"
    assert (config["model"]["width"], config["model"]["layers"]) == (12, 2)
    assert config["training"]["batch"] == 3
    told = {"model": {"name": "deeponet", "width": 12, "layers": 2}, "training": {"batch": 3}}
    model = tiny.quick(str(path), epochs=1, **told)
    assert model.config == ipot.load(out, device="cpu").config
    # A run that goes on has a model already, and its settings are those that are meant.
    assert (
        main(["fit", str(path), "--device", "cpu", "--resume", str(out), "--model.width", "12"])
        == 0
    )
    more = ["fit", str(path), "--epochs", "1", "--device", "cpu", "--start-from", str(out)]
    assert main([*more, "--out", str(tmp_path / "n"), "--model.layers", "2"]) == 0
    capsys.readouterr()
    assert main([*more, "--out", str(tmp_path / "o"), "--model.latents", "5"]) == 2
    assert "the model deeponet has no setting 'latents'" in capsys.readouterr().err


def test_a_system_that_cannot_is_refused_by_name(tmp_path, capsys):
    path, out = files.npz(tmp_path / "a.npz"), str(tmp_path / "m")
    words = ["fit", str(path), "--out", out, "--model", "fno", "--model.width", "8"]
    assert main([*words, "--device", "cpu"]) == 1
    said = capsys.readouterr().err
    assert "FNO needs points that form a regular grid" in said
    assert "Models that can: deeponet, " in said


def test_help_shows_the_most_useful_ones_and_they_are_there(capsys):
    assert main(["fit", "--help"]) == 0
    first = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["fit", "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    assert all(name in first and name in text for name in ("--model.width", "--training.batch"))
    shown = re.findall(r"--(model|training)\.([a-z-]+)", first + text)
    assert len(set(shown)) >= 8
    for group, name in shown:
        of = [Training] if group == "training" else map(registry.config_of, ("ipot", "fno"))
        assert any(name.replace("-", "_") in {f.name for f in fields(kind)} for kind in of)
