"""One vocabulary of flags: what they mean, how they are spelled, and the help that lists them."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest

from ipot.cli import COMMANDS, main
from ipot.commands import parsing
from ipot.commands.flags.train import Train
from ipot.commands.help import Flag, flags_of, screen
from ipot.errors import Unsupported
from ipot.recipes.experiment import experiment

ROOT = Path(__file__).parents[2]
OWN_CHOICES = {"--format"}
"""Flags whose choices are others in each command: pictures, graphs and data have formats apart."""


def _kinds() -> dict[str, type]:
    """The dataclass of every command, with those of its tasks."""
    found = {}
    for command in COMMANDS:
        flags = importlib.import_module(f"ipot.commands.flags.{command}").FLAGS
        tasks = flags if isinstance(flags, dict) else {"": flags}
        found |= {f"{command} {task}".strip(): kind for task, kind in tasks.items()}
    return found


KINDS = _kinds()
FLAGS: dict[str, dict[str, Flag]] = defaultdict(dict)
for _command, _kind in KINDS.items():
    for _flag in flags_of(_kind):
        if not _flag.positional:
            FLAGS[_flag.spelt][_command] = _flag


def _bare(kind: object) -> object:
    """A type of one value: without "or None", without "several", and choices as texts."""
    parts = [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if get_origin(kind) is Literal:
        return str
    return _bare(parts[0]) if parts else kind


def _choices(kind: object) -> frozenset[str]:
    if get_origin(kind) is Literal:
        return frozenset(get_args(kind))
    return frozenset().union(*map(_choices, get_args(kind)))


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_has_one_meaning(name):
    found = FLAGS[name]
    assert all(flag.text for flag in found.values()), "every flag says what it is"
    assert len({flag.meaning for flag in found.values()}) == 1, found
    assert len({_bare(flag.kind) for flag in found.values()}) == 1, found
    choices = sorted({_choices(flag.kind) for flag in found.values()} - {frozenset()}, key=len)
    if name not in OWN_CHOICES:
        assert all(few <= many for few, many in pairwise(choices)), found


@pytest.mark.parametrize("command", KINDS)
def test_the_first_screen_of_help(command):
    lines = screen(KINDS[command], command).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"usage: ipot {command}")
    assert any(line.startswith(f"    ipot {command}") for line in lines), "an example"
    assert lines[-1].startswith(f"ipot {command} --help-all")


def test_help_imports_no_torch():
    asked = [[*command.split(), "--help"] for command in [*KINDS, "bench", "data", "train darcy"]]
    code = f"import sys, ipot.cli; print([ipot.cli.main(a) for a in {asked}])\n"
    code += "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str([0] * len(asked)) in done.stdout
    assert all(f"usage: ipot {command}" in done.stdout for command in KINDS)


@pytest.mark.parametrize("command", KINDS)
def test_all_help_lists_all_flags(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help-all"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert all(flag.spelt in said for flag in flags_of(KINDS[command]) if not flag.positional)


def test_all_help_of_a_problem_lists_its_settings(capsys):
    with pytest.raises(SystemExit):
        main(["train", "burgers", "--help-all"])
    said = capsys.readouterr().out
    assert all(f in said for f in ("--problem.viscosity", "--model.latents", "--training.batch"))


@pytest.mark.parametrize(
    ("command", "old", "new", "told"),
    [
        ("predict", "run --output a.npz", "run --out a.npz", "--out"),
        ("predict", "run --output=a.npz", "run --out=a.npz", "--out"),
        ("predict", "run --output a --output b", "run --out a --out b", "--out"),
        ("predict", "run --out a.npz --json", "run --out a.npz --json", None),
        ("export", "run --output a.pt2", "run --out a.pt2", "--out"),
        ("bench", "train --json a.json", "train --overwrite --out a.json", "--out"),
        ("bench", "train --json=a", "train --overwrite --out=a", "--out"),
        ("bench", "train --json numbers darcy", "train --overwrite --out numbers darcy", "--out"),
        ("bench", "train --json darcy", "train --json darcy", None),
        ("bench", "train --json my.problem", "train --json my.problem", None),
        ("bench", "train darcy --json --small", "train darcy --json --small", None),
        ("bench", "infer --queries 1e3", "infer --query-points 1e3", "--query-points"),
        ("bench", "scale --plot a.png", "scale --overwrite --out a.png", "--out"),
        ("bench", "infer --against plain,fno", "infer --against plain fno", None),
        ("bench", "infer --against=plain,fno", "infer --against plain fno", None),
        ("bench", "infer --against plain,fno darcy", "infer darcy --against plain fno", None),
        ("bench", "infer --against=plain,fno darcy", "infer darcy --against plain fno", None),
        ("reproduce", "--seeds 0,1 table1/darcy", "table1/darcy --seeds 0 1", None),
        ("reproduce", "--seeds=0,1 table1/darcy", "table1/darcy --seeds 0 1", None),
        ("problems", "--gallery g --small", "--gallery --out g --small", "--gallery --out"),
        ("problems", "--gallery --out g", "--gallery --out g", None),
        ("reproduce", "all --ledger l.json", "all --record l.json", "--record"),
        ("compare", "darcy --models ipot,fno --small", "darcy --models ipot fno --small", None),
        ("compare", "darcy --models ipot, fno", "darcy --models ipot fno", None),
        ("train", "darcy --seeds 0,1,2 --json", "darcy --seeds 0 1 2 --json", None),
        ("fit", "a --inputs u,v --out a,b", "a --inputs u,v --out a,b", None),
    ],
)
def test_old_spellings(capsys, command, old, new, told):
    assert parsing.of_today(command, old.split()) == new.split()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (told is not None)
    assert told is None or f" is now {told};" in re.sub("now --overwrite", "now", said[0])


def test_old_spellings_are_of_flags_that_are_there():
    for entry in parsing.RENAMED:
        flags = {
            f
            for c, kind in KINDS.items()
            if c.split()[0] == entry.command
            for f in (flag.spelt for flag in flags_of(kind))
        }
        assert set(entry.new.split()) <= flags
        assert entry.where is not None or entry.old not in flags
    for name in parsing.LISTS:
        assert all(get_origin(flag.kind) is tuple for flag in FLAGS[name].values())


def test_an_old_spelling_works(run, tmp_path, capsys):
    case = tmp_path / "case.npz"
    np.savez(case, points=np.full((5, 2), 0.5), values=np.ones((5, 1)))
    out = tmp_path / "answer.npz"
    assert main(["predict", run, "--input", str(case), "--output", str(out)]) == 0
    assert out.is_file()
    assert capsys.readouterr().err.count("--output is now --out") == 1


def _settings(*arguments, model="ipot"):
    base = experiment("darcy", model)
    return parsing.parse_with_settings(base, Train, list(arguments), "train darcy")[0].training


def test_short_flags_are_those_of_the_training():
    found = _settings("--minutes", "5", "--epochs", "7", "--augment", "--seed", "3")
    assert (found.minutes, found.epochs, found.augment, found.seed) == (5.0, 7, True, 3)
    assert _settings("--training.seed", "4").seed == 4
    assert _settings("--seed", "4", "--training.seed", "4").seed == 4
    assert _settings() == experiment("darcy", "ipot").training
    with pytest.raises(Unsupported, match=r"--seed 3 and --training.seed 4"):
        _settings("--seed", "3", "--training.seed", "4")


def test_a_preset_with_augmentation_can_do_without():
    base = experiment("burgers")
    assert base.training.augment
    found, _ = parsing.parse_with_settings(base, Train, ["--no-augment"], "train burgers")
    assert not found.training.augment


def test_one_seed_and_several_are_not_said_together(fails):
    assert "--seeds says which" in fails("train", "darcy", "--seed", "1", "--seeds", "0", "1")


def test_out_is_a_file_of_json(tmp_path, capsys, fails):
    file = tmp_path / "models.json"
    assert main(["models", "--out", str(file)]) == 0
    assert "Models for darcy" in capsys.readouterr().out
    assert {row["name"] for row in json.loads(file.read_text())["models"]} >= {"ipot", "fno"}
    assert "--overwrite" in fails("models", "--out", str(file))
    assert main(["models", "--problem", "sst", "--out", str(file), "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(file.read_text())


def _documented() -> list[tuple[str, str]]:
    """Every command in the documentation, with the page that it stands on."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages += sorted((ROOT / "examples").glob("*.*"))
    found = []
    for page in pages:
        if page.name in ("log.md", "results.md", "old-names.md") or page.parent.name == "house":
            continue  # what was run with an earlier release is told as it was
        text = page.read_text().replace("\\\n", " ")
        found += [(page.name, words) for words in re.findall(r"\bipot ([a-z5]+ [^`\n|#]*)", text)]
    return found


def test_documented_flags_exist():
    known = defaultdict(set)
    for name, commands in FLAGS.items():
        for command in commands:
            known[command.split()[0]].add(name)
    seen = 0
    for page, words in _documented():
        command, *rest = words.split()
        if command not in COMMANDS:
            continue
        for flag in re.findall(r"(?<!\S)--[a-z-]+(?![a-z.-])", " ".join(rest)):
            seen += 1
            plain = flag.replace("--no-", "--")
            assert {flag, plain} & known[command] or flag in ("--help", "--help-all"), (page, words)
    assert seen > 50
