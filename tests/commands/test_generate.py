"""`generate`: published files and back, small sizes, quality, the time that is left."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch

from ipot import registry
from ipot.cli import main
from ipot.commands import output
from ipot.commands.output import Generation
from ipot.data.store import Store
from ipot.lock import locked
from ipot.problems.darcy import Darcy

COUNTS = ["--count.train", "6", "--count.validation", "3", "--count.test", "2"]
MODEL = [
    *("--model.latents", "4", "--model.width", "8", "--model.blocks", "1", "--model.heads", "2"),
    *("--model.cross-heads", "2", "--model.bins", "2", "--training.epochs", "1"),
    *("--training.batch", "3", "--quiet"),
]


@pytest.mark.parametrize("name", ["burgers", "darcy", "navier_stokes"])
def test_the_published_files_train_like_the_data_they_were_made_from(name, ask, tmp_path):
    data, files = str(tmp_path / "data"), str(tmp_path / "files")
    horizon = ["--problem.steps", "2"] if name == "navier_stokes" else []
    flags = ["--small", "--data", data, *horizon, *COUNTS]
    made = ask("generate", name, *flags, "--format", "original", "--out", files)
    assert [row["samples"] for row in made["splits"]] == [6, 3, 2]
    assert {Path(path).name for path in made["files"]} <= set(
        registry.find("problems", name).published
    )
    assert all(Path(path).is_file() for path in made["files"])
    runs = {"generated": ["--data", data], "read": ["--data", str(tmp_path / "none")]}
    runs["read"] += ["--problem.files", files]
    losses = {}
    for kind, more in runs.items():
        out = str(tmp_path / kind)
        train = ["train", name, "ipot", "--small", *horizon, *COUNTS, *MODEL, *more, "--out", out]
        losses[kind] = ask(*train)["loss"]
        scores = ask("evaluate", out, *more[:2])
        assert scores["samples"] == 2
        losses[kind + " test"] = scores["relative_l2"]
    assert losses["read"] == pytest.approx(losses["generated"], rel=1e-5)
    assert losses["read test"] == pytest.approx(losses["generated test"], rel=1e-5)
    # Nothing was generated where files were read.
    assert not (tmp_path / "none").exists()


def test_the_files_are_named_when_they_are_written(tmp_path, capsys):
    flags = ["--small", "--data", str(tmp_path / "d"), *COUNTS]
    out = tmp_path / "files"
    assert main(["generate", "burgers", *flags, "--format", "original", "--out", str(out)]) == 0
    assert str(out / "burgers_data_R10.mat") in capsys.readouterr().out


def test_a_folder_that_another_writes_to_is_refused(tmp_path, capsys):
    words = ["generate", "burgers", "--small", "--data", str(tmp_path / "d"), *COUNTS]
    words += ["--format", "original", "--out", str(tmp_path / "files")]
    ended = []
    thread = threading.Thread(target=lambda: ended.append(main(words)))
    with locked(tmp_path / "files", "generating"):
        thread.start()
        thread.join()
    assert ended == [1]
    assert "files is in use by another thread of this process" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_what_cannot_be_written_is_refused_before_the_work(fails, tmp_path, monkeypatch):
    data = ["--data", str(tmp_path / "data"), "--small"]
    original = ["--format", "original"]
    assert "go together" in fails("generate", "darcy", *data, *original)
    assert "go together" in fails("generate", "darcy", *data, "--out", str(tmp_path))
    files = ["--problem.files", str(tmp_path)]
    assert "is for reading" in fails("generate", "darcy", *data, *files)
    assert "at least one sample" in fails("generate", "darcy", *data, "--count.train", "0")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    said = fails("generate", "darcy", *data, *original, "--out", str(tmp_path / "full"))
    assert "is not empty" in said
    monkeypatch.setattr(Darcy, "published", ())
    said = fails("generate", "darcy", *data, *original, "--out", str(tmp_path))
    assert "no published layout" in said
    monkeypatch.setattr(Darcy, "generated", False)
    assert "measured" in fails("generate", "darcy", *data)
    assert not (tmp_path / "data").exists()


def test_a_missing_or_short_file_is_refused_by_train_without_a_run(fails, tmp_path):
    out = tmp_path / "run"
    train = ["train", "burgers", "--small", *MODEL, "--out", str(out)]
    said = fails(*train, "--problem.files", str(tmp_path))
    assert "has no file burgers_data_R10.mat" in said
    flags = ["--data", str(tmp_path / "d"), "--small", "--splits", "train", "--count.train", "4"]
    files = str(tmp_path / "files")
    assert main(["generate", "burgers", *flags, "--format", "original", "--out", files]) == 0
    said = fails(*train, "--problem.files", files, "--count.train", "5")
    assert "has 4 samples for the train split" in said
    assert "--count.train" in said
    said = fails(*train, "--problem.files", files, "--count.train", "4")
    assert "has 0 samples for the validation split" in said
    assert not (out / "config.json").exists()


def test_small_is_a_base_that_flags_change(ask, tmp_path):
    data = ["--data", str(tmp_path)]
    rows = ask("generate", "darcy", "--small", *data, "--splits", "test", "validation")
    assert [row["samples"] for row in rows] == [8, 8]
    recipe = json.loads((Path(rows[0]["folder"]) / "recipe.json").read_text())
    assert recipe["settings"]["size"] == Darcy.reduced["size"]
    more = ["--splits", "test", "--problem.size", "25", "--problem.resolution", "13"]
    rows = ask("generate", "darcy", "--small", *data, *more, "--count.test", "2")
    recipe = json.loads((Path(rows[0]["folder"]) / "recipe.json").read_text())
    assert recipe["settings"]["size"] == 25
    assert rows[0]["samples"] == 2


def test_train_small_is_written_down_as_it_was(ask, tmp_path):
    out = tmp_path / "run"
    flags = ["--small", "--data", str(tmp_path / "d"), *MODEL, "--count.train", "3"]
    ask("train", "burgers", *flags, "--out", str(out))
    config = json.loads((out / "config.json").read_text())
    assert config["problem"]["size"] == 32
    assert config["data"]["train"] == 3
    assert config["data"]["validation"] == 8


def test_convergence_is_reported_where_it_is_recorded(ask, tmp_path, monkeypatch, capsys):
    plain = Darcy.generate

    def recorded(self, split, indices, **options):
        change = torch.tensor([1e-9, 3e-9, 2e-9, 5e-4][: len(indices)])
        return plain(self, split, indices, **options) | {"change": change}

    monkeypatch.setattr(Darcy, "generate", recorded)
    flags = ["--small", "--data", str(tmp_path / "d"), "--splits", "test", "--count.test", "3"]
    assert ask("generate", "darcy", *flags)[0]["quality"] is None
    monkeypatch.setattr(Darcy, "quality", "change")
    quality = ask("generate", "darcy", *flags)[0]["quality"]
    assert quality["median"] == pytest.approx(2e-9)
    assert quality["worst"] == pytest.approx(3e-9)
    assert main(["generate", "darcy", *flags]) == 0
    assert "change: median 2.00e-09, worst 3.00e-09" in capsys.readouterr().out


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_follows_from_the_pieces_done(clock, tmp_path, capsys):
    report = Generation(Store(tmp_path))
    said = []
    for seconds, done in ((0, 20), (30, 40), (60, 80), (90, 100)):
        clock[0] = 100.0 + seconds
        report("train", done, 100, 8)
        said.append(capsys.readouterr().err.splitlines()[-1])
    # 20 samples were there before: 20 in 30 s, then 60 in 60 s.
    assert said == [
        "  train: 20 of 100",
        "  train: 40 of 100, about 1 min 30 s left",
        "  train: 80 of 100, about 20 s left",
        "  train: 100 of 100",
    ]


def test_each_split_has_a_time_of_its_own(clock, tmp_path, capsys):
    report = Generation(Store(tmp_path))
    report("train", 0, 10, 8)
    clock[0] += 1000
    report("train", 10, 10, 8)
    report("test", 0, 10, 8)
    clock[0] += 10
    report("test", 5, 10, 8)
    said = capsys.readouterr().err
    assert "test: 5 of 10, about 10 s left" in said
    assert "generating 10 test samples" in said


def test_quiet_says_nothing(clock, tmp_path, capsys):
    report = Generation(Store(tmp_path), quiet=True)
    for done in (0, 5, 10):
        clock[0] += 60
        report("train", done, 10, 8)
    assert capsys.readouterr().err == ""


def test_one_problem_in_full(ask, capsys):
    facts = ask("problems", "navier_stokes")
    assert facts["docs"]["viscosity"].startswith("ν; the paper's are")
    assert facts["docs"]["files"].startswith("Folder with the published files")
    assert set(facts["docs"]) >= set(facts["settings"])
    assert facts["files"] == list(registry.find("problems", "navier_stokes").published)
    assert main(["problems", "darcy"]) == 0
    out = capsys.readouterr().out
    for word in ("--problem.high", "12.0", "Permeability where", "smooth1.mat", "pressure"):
        assert word in out


@pytest.mark.parametrize("name", registry.names("problems"))
def test_every_setting_of_every_problem_is_explained(name, ask):
    facts = ask("problems", name)
    assert set(facts["settings"]) <= set(facts["docs"])
    assert len(facts["units"]) == facts["outputs"]


def test_an_unknown_problem_is_refused_with_the_known(fails):
    assert "Did you mean 'darcy'" in fails("problems", "darci", code=2)


def test_the_gallery_draws_what_is_there_and_says_what_is_not(ask, tmp_path, capsys, monkeypatch):
    data = ["--data", str(tmp_path / "d"), "--small"]
    written = ask("problems", "darcy", "--gallery", "--out", str(tmp_path / "g"), *data)
    assert written == [str(tmp_path / "g" / "darcy.png")]
    assert Path(written[0]).stat().st_size > 5000
    monkeypatch.setattr(Darcy, "generated", False)
    monkeypatch.setattr(registry, "names", lambda kind: ["burgers", "darcy"])
    assert main(["problems", "--gallery", "--out", str(tmp_path / "g"), *data]) == 0
    said = capsys.readouterr()
    assert "darcy is left out: darcy needs a folder" in said.err
    assert said.out.split() == [str(tmp_path / "g" / "burgers.png")]
