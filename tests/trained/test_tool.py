"""`tools/train_shipped.py`: one call makes a folder of ipot/trained, and the page says what is in
them."""

from __future__ import annotations

import importlib.util
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ipot
from ipot import trained
from ipot.cli import main
from ipot.commands.flags.train import Train
from ipot.commands.parsing import parse_with_settings
from ipot.data.layout import Layout
from ipot.models.base import parameter_count
from ipot.recipes import ledger
from ipot.recipes.experiment import build, experiment
from ipot.saved.samples import MOST

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("train_shipped", ROOT / "tools/train_shipped.py")
    found = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["train_shipped"] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def quick(tool, tmp_path, monkeypatch):
    """Burgers in a second, in a folder of its own."""
    how = tool.How(
        "lattice",
        "--problem.size 32 --problem.resolution 16 --count.train 8 --count.validation 2"
        " --count.test 3",
        "--model.width 4 --model.most-width 8 --model.heads 2 --model.blocks 1 --training.batch 4",
    )
    recipe = replace(tool.RECIPES["burgers"], cpu=how)
    monkeypatch.setitem(tool.RECIPES, "burgers", recipe)
    monkeypatch.setattr(tool, "LEAST", 0.01)
    monkeypatch.chdir(tmp_path)

    def call(*more, minutes="0.01"):
        flags = ["--work", "runs", "--data", "data", "--out", "out", "--record", "runs.json"]
        return tool.main(["burgers", "--minutes", minutes, *flags, *more])

    return call


def test_one_call_makes_a_model(tool, quick, capsys):
    assert quick("--pack", "packed.tar.gz") == 0
    made = ipot.load("out/burgers", device="cpu")
    record = ledger.read("runs.json")[0]
    assert record["tests"][ledger.AS_TRAINED] == made.scores["before rounding"]
    assert record["command"] == made.about["command"]
    assert made.scores["held_out"] == pytest.approx(made.scores["before rounding"], rel=0.02)
    assert made.about["weights"] == "stored as float16"
    plain = ipot.load("runs/burgers", device="cpu")
    with np.load("out/burgers/samples.npz") as some:
        assert len(some["values"]) == len(some["targets"]) == 3
        assert len(some["points"]) == 1
        given = {"points": some["points"][0], "values": some["values"][0]}
    u, v = made.predict(**given), plain.predict(**given)
    assert not np.array_equal(u, v)  # rounded
    np.testing.assert_allclose(u, v, rtol=0, atol=5e-3 * np.abs(v).max())
    with tarfile.open("packed.tar.gz") as archive:
        names = archive.getnames()
    assert "ipot/trained/burgers/model.safetensors" in names
    assert "results/runs.json" in names


def test_what_a_model_saw_is_written_down_later_too(quick, tmp_path):
    """For models of before, and without a change of their weights."""
    assert quick() == 0
    folder = tmp_path / "out" / "burgers"
    layout, weights = ipot.load(folder).layout, (folder / "model.safetensors").read_bytes()
    assert layout.span("values")[0]
    assert layout.usual("values") != layout.span("values")
    old = ipot.load(folder, device="cpu")
    old.layout = Layout(timed=True)
    old.save(folder, overwrite=True, precision="float16")
    samples = (folder / "samples.npz").read_bytes()
    assert not ipot.load(folder).layout.span("values")[0]
    assert quick("--ranges") == 0
    again = ipot.load(folder)
    assert again.layout == layout
    assert again.scores == old.scores
    assert (folder / "model.safetensors").read_bytes() == weights
    assert (folder / "samples.npz").read_bytes() == samples
    assert sorted(p.name for p in folder.parent.iterdir()) == ["burgers"]


def test_a_better_model_stays_unless_told(tool, quick, monkeypatch, capsys):
    # In this process: what a command of its own is, the test above sees.
    monkeypatch.setattr(tool, "_ipot", lambda *arguments: main(list(arguments)))
    assert quick() == 0
    config = Path("out/burgers/config.json")
    content = json.loads(config.read_text())
    content["scores"]["held_out"] = 1e-9
    config.write_text(json.dumps(content))
    capsys.readouterr()
    assert quick() == 0  # the run has ended: it is scored again and not trained again
    assert "kept, its test error is 1e-09" in capsys.readouterr().out
    assert json.loads(config.read_text())["scores"]["held_out"] == 1e-9
    assert quick("--replace") == 0
    assert json.loads(config.read_text())["scores"]["held_out"] > 1e-9
    assert len(ledger.read("runs.json")) == 1


@pytest.mark.parametrize(("code", "others"), [(1, ["darcy", "sst"]), (130, ["darcy"])])
def test_what_fails_does_not_keep_the_others_from_it(tool, tmp_path, monkeypatch, code, others):
    begun = []

    def trained_(name, *rest):
        begun.append(name)
        return code if name == "darcy" else 0

    monkeypatch.setattr(tool, "_generated", lambda *given: 0)
    monkeypatch.setattr(tool, "_trained", trained_)
    monkeypatch.setattr(tool, "ship", lambda name, *rest: name)
    assert tool.main(["darcy", "sst", "--out", str(tmp_path)]) == code
    assert begun == others


def test_unknown_names_and_times_are_refused(tool, capsys):
    for given, said in ((["durcy"], "no recipe for durcy"), (["--minutes", "0"], "positive")):
        with pytest.raises(SystemExit):
            tool.main(given)
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_all_recipes_are_commands_and_together_small(tool, device):
    total = 0
    for name in tool.RECIPES:
        _, model, *rest = tool.words(name, device, 1.0)
        settings, _ = parse_with_settings(experiment(name, model), Train, rest, "train")
        total += 2 * parameter_count(build(settings))
    samples = MOST * len(tool.RECIPES)
    assert total + samples < 25_000_000


def test_every_model_in_the_package_has_a_recipe(tool):
    assert set(trained.names()) <= set(tool.RECIPES)


def test_the_page_says_what_the_cards_say(tool):
    page = tool.PAGE.read_text(encoding="utf-8")
    assert tool.table() in page, "run python tools/train_shipped.py --table"
