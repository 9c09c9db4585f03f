"""`problems`, `models`, `generate`, and the front page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ipot import registry
from ipot.cli import COMMANDS, main
from ipot.commands.system_facts import COUNTED, facts
from ipot.recipes.paper import TABLE

COUNTS = {"darcy": 150_232, "airfoil": 123_354, "plasticity": 129_174, "era5": 513_636}


def test_problems_lists_every_file(ask):
    rows = ask("problems")
    assert [row["name"] for row in rows] == registry.names("problems")
    darcy = next(row for row in rows if row["name"] == "darcy")
    assert darcy["points"] == "85 x 85"
    assert darcy["splits"] == {"train": 1000, "validation": 100, "test": 200}


@pytest.mark.parametrize("problem", TABLE)
def test_models_counts_the_papers_parameters(ask, problem):
    answer = ask("models", "--problem", problem, "--preset", "paper")
    ipot = next(row for row in answer["models"] if row["name"] == "ipot")
    assert ipot["parameters"] > 100_000
    if problem in COUNTS:
        assert ipot["parameters"] == COUNTS[problem]


def test_models_shows_published_counts_where_there_are_any(ask, capsys):
    counts = {
        problem: {
            row["name"]: row["published_parameters"]
            for row in ask("models", "--problem", problem)["models"]
        }
        for problem in ("darcy", "navier_stokes", "sst")
    }
    assert counts["darcy"]["ipot"] == 150_000
    assert counts["navier_stokes"]["ipot"] is None  # printed, and in doubt
    assert not any(counts["sst"].values())
    assert main(["models"]) == 0
    assert "published" in capsys.readouterr().out
    assert main(["models", "--problem", "sst"]) == 0
    assert "published" not in capsys.readouterr().out


def test_tables_are_printed(capsys):
    assert main(["problems"]) == 0
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "navier_stokes" in out
    assert "any points, any queries" in out


def test_generate_continues_and_says_where(ask, tmp_path, capsys):
    flags = ["--problem.size", "17", "--problem.resolution", "9", "--data", str(tmp_path)]
    first = ask("generate", "darcy", *flags, "--splits", "test", "--count.test", "3")
    assert first[0]["samples"] == 3
    assert Path(first[0]["folder"]).is_dir()
    more = ask("generate", "darcy", *flags, "--splits", "test", "--count.test", "5")
    assert more[0]["folder"] == first[0]["folder"]
    pieces = sorted(p.name for p in Path(more[0]["folder"]).glob("*.safetensors"))
    assert pieces == ["00000000-00000003.safetensors", "00000003-00000005.safetensors"]


def test_generate_announces_the_size(tmp_path, capsys):
    flags = ["--problem.size", "17", "--problem.resolution", "17", "--data", str(tmp_path)]
    assert main(["generate", "darcy", *flags, "--splits", "test", "--count.test", "4"]) == 0
    said = capsys.readouterr().err
    assert "4 test samples" in said
    assert "5.64 KiB" in said  # 4 samples of 17 x 17 points of 5 bytes
    assert str(tmp_path) in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    words = [command, "darcy"] if command in ("train", "generate") else [command]
    assert main([*words, "--help"]) == 0
    assert "usage" in capsys.readouterr().out


def test_front_page_needs_no_torch():
    code = "import sys, ipot.cli; ipot.cli.main(['--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


def test_unknown_names_list_the_known(fails):
    assert "navier_stokes" in fails("train", "navier-stoke", code=2)
    assert "Did you mean 'darcy'" in fails("train", "darci", code=2)
    assert "evaluate" in fails("evalute", code=2)
    assert "latents" in fails("train", "darcy", "ipot", "--model.latent", "3", code=2)
    assert "default, paper" in fails("train", "darcy", "ipot", "--preset", "best", code=2)
    said = fails("generate", "darcy", "--splits", "tset", code=2)
    assert all(name in said for name in ("--splits", "'train'", "'validation'", "'test'"))


@pytest.mark.parametrize(
    "words",
    ["", "--help", "models", "models --trained", "models --trained --json", "models --json"],
)
def test_a_list_is_there_at_once(words):
    """Without torch, which takes seconds to import, and without anything that computes."""
    code = "import sys; from ipot.cli import main; main(sys.argv[1:]); "
    code += "heavy = {'torch', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules); "
    code += "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)"
    found = subprocess.run(
        [sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()


def test_the_sizes_that_are_kept_are_those_of_today():
    rows = [facts(name, "darcy", "default") for name in registry.names("models")]
    kept = json.loads(COUNTED.read_text())
    assert kept == json.loads(json.dumps(rows)), "run python -m ipot.commands.system_facts"


def test_a_system_of_a_new_file_is_listed(monkeypatch, tmp_path, ask):
    rows = json.loads(COUNTED.read_text())
    (tmp_path / "models.json").write_text(json.dumps(rows[1:]))
    monkeypatch.setattr("ipot.commands.models.COUNTED", tmp_path / "models.json")
    assert ask("models")["models"] == rows
