"""The two files that docs/extend.md shows are whole: they register, generate, train and answer, and
the page can be followed command by command."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from docs.small import shrunk
from ipot.cli import main
from ipot.data.store import Store
from ipot.recipes.experiment import Data, experiment, load_data
from ipot.recipes.running import restore, run

PAGE = Path(__file__).parents[2] / "docs" / "extend.md"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The page's code blocks as modules on the path."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    folder = tmp_path / "my_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, block in zip(("heat", "nearest"), blocks, strict=True):
        (folder / f"{name}.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_package"
    for name in [n for n in sys.modules if n.startswith("my_package")]:
        del sys.modules[name]


def test_both_files_work_as_they_stand(written, tmp_path):
    settings = experiment(f"{written}.heat", f"{written}.nearest")
    settings = replace(
        settings,
        problem=replace(settings.problem, size=16, resolution=8),
        data=Data(train=8, validation=4, test=4),
        training=replace(settings.training, epochs=3, batch=4, augment=True),
    )
    store = Store(tmp_path / "data")
    result = run(settings, tmp_path / "run", device="cpu", store=store, quiet=True)
    assert result.epochs == 3
    model, again = restore(tmp_path / "run")
    assert again.problem == settings.problem
    test = load_data(again, "test", store=store, device=torch.device("cpu"))
    assert model(test.batch(torch.arange(4))).shape == (4, 1, 64, 1)


def test_heat_is_solved_exactly(written, tmp_path):
    """Against the decay of every Fourier mode, computed another way."""
    problem = replace(experiment(f"{written}.heat").problem, size=16, resolution=16)
    data = problem.load("test", 2, store=Store(tmp_path))
    start, end = (x.view(2, 16, 16).double() for x in (data.data.values, data.data.truth))
    k = 2 * torch.pi * torch.tensor([*range(8), *range(-8, 0)], dtype=torch.float64)
    rate = torch.exp(-problem.conductivity * (k[:, None] ** 2 + k**2))
    expected = torch.fft.fft2(start) * rate
    torch.testing.assert_close(torch.fft.fft2(end), expected, rtol=1e-4, atol=1e-4)


def forget(*names):
    """As in a process of its own, which has imported none of these."""
    for name in [n for n in sys.modules if n.split(".")[0] in names]:
        del sys.modules[name]


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """The page's files in a folder of somebody's own, which is not on the path of Python."""
    for name, block in re.findall(
        r"`(my_\w+\.py)`[^`]*?```python\n(.*?)```", PAGE.read_text(), re.S
    ):
        (tmp_path / name).write_text(block)
    points = np.random.default_rng(0).random((9, 2))
    np.savez(tmp_path / "new.npz", points=points, values=points[:, :1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPOT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)
    yield tmp_path
    forget("my_heat", "my_models")


def test_the_page_is_followed_command_by_command(own_folder, capsys):
    """Where one says `--trust`, it is printed by the same command without."""
    assert {p.name for p in own_folder.glob("*.py")} == {"my_heat.py", "my_models.py"}
    text = shrunk(PAGE.read_text(), {"epochs 20": "epochs 1", "minutes 0.1": "minutes 0.0001"})
    text = shrunk(text, {"--count.train 100": "--count.train 10 --small"})
    lines = "".join(re.findall(r"```bash\n(.*?)```", text, re.S)).splitlines()
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line)[1:]
        untrusting = [word for word in words if word != "--trust"]
        if untrusting != words:
            forget("my_heat", "my_models")
            before = set(sys.modules)
            assert main(untrusting) == 1
            assert not {"my_heat", "my_models"} & (set(sys.modules) - before)
            said = capsys.readouterr().err
            assert str(own_folder / "my_heat.py") in said
            again = said.strip().splitlines()[-1].strip()
            assert sorted(shlex.split(again)) == sorted(shlex.split(line))
        forget("my_heat", "my_models")
        path = list(sys.path)
        assert main(words) == 0, capsys.readouterr().err
        assert sys.path == path
    assert os.path.exists("answer.npz")
    assert os.path.exists("runs/compare-my_heat.Heat/compare.md")
