"""`ipot compare` from the outside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own import files

from ipot.cli import main
from ipot.commands.compare import _is_path
from ipot.own import sizing

TESTS = Path(__file__).parents[1]
SYSTEM = '''
"""A number."""
from dataclasses import dataclass
import torch
from ipot.models.base import OneStep

@dataclass(frozen=True, kw_only=True)
class Config:
    start: float = 0.0

class Scale(OneStep):
    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.scale = torch.nn.Parameter(torch.full((), config.start))

    def advance(self, batch):
        return self.scale * batch.values

MODEL = Scale
'''
REFUSING = """
from mine.scale import Config, Scale
from ipot.spec import Need

class Meshed(Scale):
    needs = frozenset({Need.EDGES})

MODEL = Meshed
"""


FAILING = """
from mine.scale import Config, Scale

class Failing(Scale):
    def advance(self, batch):
        return {}[len(batch.times)]

MODEL = Failing
"""
STRETCHED = """
from mine.scale import Config, Scale

class Stretched(Scale):
    def advance(self, batch):
        return self.scale * batch.values.mean(1, keepdim=True)

MODEL = Stretched
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Nobody else works on this machine, as far as a comparison can tell."""
    monkeypatch.setattr("ipot.recipes.compare.busy_cores", lambda: (0.0, 2))


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A comparison of two systems that live outside of the package, one of which cannot."""
    package = tmp_path / "elsewhere" / "mine"
    package.mkdir(parents=True)
    (package / "scale.py").write_text(SYSTEM)
    (package / "meshed.py").write_text(REFUSING)
    (package / "failing.py").write_text(FAILING)
    (package / "stretched.py").write_text(STRETCHED)
    monkeypatch.syspath_prepend(str(package.parent))
    flags = ["--models", "mine.scale", "mine.meshed", "--minutes", "0.002", "--device", "cpu"]
    flags += ["--out", str(tmp_path / "out"), "--data", str(tmp_path / "data")]
    yield ["compare", "training.toys", *flags]
    for name in [n for n in sys.modules if n == "mine" or n.startswith("mine.")]:
        del sys.modules[name]


def test_a_table_a_page_and_a_picture(words, tmp_path, capsys):
    assert main(words) == 0
    said = capsys.readouterr()
    for part in ("mine.scale", "the mean field", "test error", "0.002 min"):
        assert part in said.out
    mark = re.search(r"mine\.meshed ([¹²³])", said.out)[1]
    reason = "Meshed needs mesh edges between the points; smoothing has none of that"
    assert f"{mark} {reason}" in said.out
    assert "mine.scale (1 of 2): 0.002 min" in said.err
    out = tmp_path / "out"
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "compare.md").read_text()
    assert " ".join(["ipot", *words]) in page
    assert "| mine.scale" in page
    content = json.loads((out / "compare.json").read_text())
    assert [row["model"] for row in content["rows"]] == ["mine.scale", "mine.meshed"]
    seconds, errors = zip(*content["rows"][0]["curve"], strict=True)
    assert list(seconds) == sorted(seconds)
    assert errors[-1] < 1
    names = {path.name for path in (out / "mine.scale").iterdir()}
    assert {"config.json", "result.json", "test.json", "best.safetensors"} <= names


def test_every_scored_system_is_recorded(words, tmp_path):
    file = tmp_path / "runs.json"
    assert main([*words, "--quiet", "--record", str(file)]) == 0
    (row,) = json.loads(file.read_text())
    found = json.loads((tmp_path / "out" / "compare.json").read_text())["rows"][0]
    assert row["model"]["name"] == found["model"] == "mine.scale"
    assert row["tests"] == {"test data as in training": found["error"]}
    assert row["command"].startswith("ipot compare training.toys")


def test_json_and_settings_for_all(words, ask):
    answer = ask(*words, "--quiet", "--seed", "4", "--count.train", "10", "--problem.size", "8")
    assert answer["data"]["train"] == 10
    assert answer["problem"]["size"] == 8
    assert answer["terms"] == {"minutes": 0.002, "seed": 4, "augment": False}
    assert answer["rows"][1]["error"] is None
    again = ask(*words, "--quiet", "--seed", "4", "--count.train", "10", "--problem.size", "8")
    assert again["rows"] == answer["rows"]


def test_what_cannot_work_is_refused(words, fails):
    assert "Did you mean 'ipot'" in fails("compare", "darcy", "--models", "ipott", code=2)
    assert "default, paper" in fails("compare", "darcy", "--preset", "best", code=2)
    assert "minutes must be positive" in fails(*words, "--minutes", "0")
    assert main(words) == 0
    assert "training.seed" in fails(*words, "--seed", "1")
    assert "model" in fails(*words, "--model.width", "3", code=2)


def test_nothing_to_show_is_a_failure(words, fails, tmp_path):
    assert "¹ Meshed needs" in fails(*words, "--models", "mine.meshed")
    assert (tmp_path / "out" / "compare.md").exists()
    assert not (tmp_path / "out" / "compare.png").exists()


def test_code_that_fails_is_in_the_table_with_the_others(words, ask):
    found = ask(*words, "--quiet", "--models", "mine.failing", "mine.stretched", "mine.scale")
    rows = {row["model"]: row for row in found["rows"]}
    assert rows["mine.failing"]["reason"] == "its code failed: KeyError: 1"
    assert rows["mine.stretched"]["reason"].startswith("mine.stretched answered in the shape")
    assert rows["mine.scale"]["error"] < 1


def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(words, tmp_path):
    words[words.index("0.002")] = "0.06"
    paths = os.pathsep.join([str(TESTS), str(tmp_path / "elsewhere")])
    start = {
        "args": [sys.executable, "-m", "ipot", *words],
        "env": os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    process = subprocess.Popen(**start)
    best = tmp_path / "out" / "mine.scale" / "best.safetensors"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not best.exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + signal.SIGINT, said
    assert "the same command goes on: ipot compare training.toys" in said
    assert "Traceback" not in said
    second = subprocess.run(**start, timeout=120, check=False)
    assert second.returncode == 0, second.stderr
    assert "mine.scale (1 of 2): goes on" in second.stderr
    assert "mine.scale" in second.stdout


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A file of somebody's own, and models of a fraction of a second."""
    budget = sizing.Budget(16, 8, 1, 2, 2, 1024, 512, 4, 3e-3)
    monkeypatch.setattr(sizing, "BUDGETS", {"cpu": budget, "cuda": budget})
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)
    monkeypatch.chdir(tmp_path)
    files.npz(tmp_path / "a.npz", count=31)
    files.folder(tmp_path / "cases", ".vtu", count=12)
    return tmp_path


BRIEF = ["--minutes", "0.0005", "--device", "cpu"]


def test_systems_on_data_of_ones_own(own, capsys):
    words = ["compare", "a.npz", "--models", "ipot", "deeponet", "fno", *BRIEF]
    assert main(words) == 0
    said = capsys.readouterr()
    for part in ("a: 0.0005 min", "ipot", "deeponet", "linear (PCA)", "the mean field"):
        assert part in said.out
    assert "FNO needs points that form a regular grid" in said.out
    assert "published" not in said.out
    assert "31 samples" in said.err
    out = own / "runs" / "compare-a"
    assert f"```bash\n{' '.join(['ipot', *words])}\n```" in (out / "compare.md").read_text()
    assert (out / "compare.png").exists()
    assert json.loads((out / "compare.json").read_text())["problem"]["name"] == "a"


def test_columns_of_meshes_and_json(own, ask):
    flags = ["--inputs", "a", "--targets", "wind", "--models", "oformer", *BRIEF, "--quiet"]
    answer = ask("compare", "cases", *flags, "--out", "there")
    assert answer["rows"][0]["error"] > 0
    assert answer["references"].keys() >= {"nearest neighbour", "linear (PCA)"}
    assert answer["data"] == {"train": 11, "validation": 1, "test": 1, "seed": 0}
    assert "samples that chose the weights" in answer["remarks"][0]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a.npz", "--small"], 1, "--small: for a built-in problem, not for data of your own"),
        (["cases", "--record", "a.json"], 1, "--record: for a built-in problem"),
        (["darcy", "--inputs", "a", "--lead", "2"], 1, "--inputs, --lead: for data of your own"),
        (["casess"], 2, "unknown problem 'casess'. Known: .* Nor is 'casess' a file or folder"),
        (["no/such.npz"], 1, "no/such.npz"),
        (["cases", "--targets", "nothing"], 2, "'nothing'"),
        (["a.npz", "--models", "ipott"], 2, "Did you mean 'ipot'"),
        (["a.npz", "--problem.size", "3"], 2, "problem.size"),
    ],
)
def test_what_is_for_something_else_is_refused(own, fails, words, code, said):
    assert re.search(said, fails("compare", *words, code=code), re.DOTALL)
    assert not (own / "runs").exists()


def test_a_problem_has_its_name_first_and_a_path_is_a_path(own):
    (own / "darcy").mkdir()
    assert not _is_path("darcy")
    assert not _is_path("navier-stokes")
    assert not _is_path("mine.problem")
    assert all(map(_is_path, ("./darcy", "a.npz", "cases", "no/such", "*.nc")))
