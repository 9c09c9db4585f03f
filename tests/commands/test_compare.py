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

from ipot.cli import main

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
