"""The two files that docs/extend.md shows are whole: they register, generate, train and answer."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

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
